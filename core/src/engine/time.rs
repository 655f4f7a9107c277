//! The engine's only notion of time: a number that the caller hands in.

use crate::protocol::Millis;

/// A moment: microseconds by a clock that never goes back and goes on while the machine sleeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    /// Later than every moment; the end of what does not end.
    pub const NEVER: Time = Time(u64::MAX);

    /// The moment `length` later; never wraps.
    #[must_use]
    pub const fn after(self, length: Millis) -> Time {
        Time(self.0.saturating_add(length.0.saturating_mul(1000)))
    }

    /// How long it is from `earlier` until this moment in whole milliseconds, rounded up.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Millis {
        Millis(self.0.saturating_sub(earlier.0).div_ceil(1000))
    }
}
