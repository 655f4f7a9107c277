//! Clocks that run apart: each machine has one that begins somewhere and runs a little too fast or too
//! slow, and a wall clock that is wrong by some seconds.

use crate::plan::SECOND;

/// One machine's clocks as functions of the world's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    begin: u64,
    /// Millionths; the clock's own seconds in a million of the world's.
    rate: u64,
    /// Seconds since 2026 at the beginning of the world.
    pub(crate) wall: i64,
}

const MILLION: u64 = 1_000_000;

impl Clock {
    pub(crate) fn new(begin: u64, faster: i64, wall: i64) -> Clock {
        Clock {
            begin,
            rate: MILLION.saturating_add_signed(faster),
            wall,
        }
    }

    pub(crate) fn read(&self, now: u64) -> u64 {
        self.begin + mul(now, self.rate, MILLION)
    }

    /// The first moment of the world at which this clock shows `reading` or more.
    pub(crate) fn when(&self, reading: u64) -> u64 {
        let Some(passed) = reading.checked_sub(self.begin) else {
            return 0;
        };
        let mut now = mul(passed, MILLION, self.rate);
        while self.read(now) < reading {
            now += 1;
        }
        now
    }

    pub(crate) fn wall(&self, now: u64) -> u32 {
        let seconds = self.wall.saturating_add_unsigned(now / SECOND);
        u32::try_from(seconds.max(0)).unwrap_or(0)
    }
}

fn mul(a: u64, b: u64, by: u64) -> u64 {
    (u128::from(a) * u128::from(b) / u128::from(by)) as u64
}
