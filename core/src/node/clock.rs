//! The two clocks of a node: one that goes on while the machine sleeps, for everything that ends, and
//! the wall clock, for terms alone.

use super::term::Wall;
use crate::engine::Time;
use std::time::{SystemTime, UNIX_EPOCH};

/// Now, by a clock that never goes back.
pub(crate) fn now() -> Time {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    // Elsewhere the monotonic clock is the one that goes on during sleep, or there is none that does.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(CLOCK);
    Time(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000)
}

/// The wall clock, as far as terms are concerned.
pub(crate) fn wall() -> Wall {
    Wall::read(SystemTime::now())
}

/// How far the wall clock's second has gone.
pub(crate) fn nanos_of_second() -> u32 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.subsec_nanos())
}
