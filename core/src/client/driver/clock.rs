//! The one clock of the client: it runs while the machine sleeps, so that a lease is never counted
//! longer than the server counts it.

use crate::client::session::Micros;
use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Now, in microseconds.
pub(crate) fn now() -> Micros {
    let time = clock_gettime(CLOCK);
    // A clock since the start of the machine is never negative.
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}
