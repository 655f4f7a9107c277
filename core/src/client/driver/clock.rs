//! The one clock of the client: it runs while the machine sleeps, so that a lease is never counted
//! longer than the server counts it.

use crate::client::session::Micros;
use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
/// Stands still for some milliseconds at a time, and costs a tenth to look at.
#[cfg(any(target_os = "linux", target_os = "android"))]
const COARSE: ClockId = ClockId::MonotonicCoarse;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const COARSE: ClockId = CLOCK;

/// Now, in microseconds.
pub(crate) fn now() -> Micros {
    let time = clock_gettime(CLOCK);
    // A clock since the start of the machine is never negative.
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// A look at the clock that is used again until a coarse clock has gone on: a few milliseconds old at most, and the same for many who ask
/// at the same time.
#[derive(Default)]
pub(crate) struct Glance {
    coarse: (i64, i64),
    now: Micros,
}

impl Glance {
    /// Now, or a moment ago.
    pub(crate) fn now(&mut self) -> Micros {
        let time = clock_gettime(COARSE);
        let coarse = (time.tv_sec as i64, time.tv_nsec as i64);
        if coarse != self.coarse {
            self.coarse = coarse;
            self.now = now();
        }
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glance_is_never_ahead_and_follows_the_clock() {
        let mut glance = Glance::default();
        let begin = now();
        let (mut seen, mut last) = (0, 0);
        while now() < begin + 50_000 {
            let glanced = glance.now();
            assert!(glanced <= now() && glanced >= last, "it went back or ahead");
            seen += u32::from(glanced != last);
            last = glanced;
        }
        assert!(seen > 1 && last > begin, "it stood still");
    }
}
