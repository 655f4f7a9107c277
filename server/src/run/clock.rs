//! The clock that leases are counted by: it goes on while the machine sleeps.

use super::plan::Time;
use rustix::time::{ClockId, clock_gettime};

/// The time since the machine was started, sleep included.
pub(super) fn now() -> Time {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    Time(seconds * 1_000_000 + nanos / 1000)
}
