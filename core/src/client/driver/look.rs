//! Looks for the answer for a moment before a blocking call sleeps, where that has lately paid.
//!
//! Waking a sleeping core costs several times what a request costs. Looking on instead saves that where the answer is near, and
//! wastes the core where it is not, or where the server needs this very core. So it is tried and given up: only calls that follow each other closely
//! look, those looks that were worth it have to outweigh the others, and after each failure the connection rests for longer.

use super::clock;
use super::socket::Socket;
use crate::client::session::{MILLISECOND, Micros, SECOND};
use std::io;

/// How long one look lasts.
const LOOK: Micros = 60;
/// Only a request that follows the answer before it within this time looks for its own.
const CLOSE: Micros = MILLISECOND;
/// What one look adds to the credit of a connection or takes from it, and the most there can be. A try begins with none:
/// its first look has to pay.
const PAID: i32 = 1;
const WASTED: i32 = 4;
const MOST_CREDIT: i32 = 32;
/// A turn that took this long was interrupted: somebody wants the core.
const INTERRUPTED: Micros = 300;
/// How long to rest after a try that failed, at first and at most.
const SHORT_REST: Micros = 20 * MILLISECOND;
const LONG_REST: Micros = 2 * SECOND;
/// A try that has paid this often was no accident.
const PROVEN: u32 = 2000;

/// Whether it pays to look for the answers on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    credit: i32,
    paid: u32,
    rest: Micros,
    resting_until: Micros,
    /// When the last answer came.
    answered: Micros,
}

impl Look {
    pub(crate) fn new() -> Look {
        Look {
            credit: 0,
            paid: 0,
            rest: SHORT_REST,
            resting_until: 0,
            answered: 0,
        }
    }

    /// Reads, after a look if that pays waiting in the kernel. `since` is when the request was made.
    pub(crate) fn read(
        &mut self,
        socket: &Socket,
        buffer: &mut [u8],
        since: Micros,
    ) -> io::Result<usize> {
        if self.is_worth_it(since) {
            let mut turn = since;
            let mut slept_otherwise = false;
            loop {
                match socket.read(buffer).read {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => {
                        if slept_otherwise {
                            self.paid();
                        }
                        return read;
                    }
                }
                slept_otherwise = true;
                let now = clock::now();
                if !self.goes_on(since, turn, now) {
                    break;
                }
                turn = now;
                std::hint::spin_loop();
            }
        }
        socket.read_waiting(buffer)
    }

    /// An answer has come.
    pub(crate) fn answered(&mut self, now: Micros) {
        self.answered = now;
    }

    fn is_worth_it(&self, since: Micros) -> bool {
        since >= self.resting_until && since.saturating_sub(self.answered) < CLOSE
    }

    /// Whether to look once more, after a look that has found nothing.
    fn goes_on(&mut self, since: Micros, last: Micros, now: Micros) -> bool {
        if now.saturating_sub(last) > INTERRUPTED {
            self.give_up(now);
            false
        } else if now.saturating_sub(since) > LOOK {
            self.wasted(now);
            false
        } else {
            true
        }
    }

    /// A look has found what would have had to wake this thread.
    fn paid(&mut self) {
        self.credit = (self.credit + PAID).min(MOST_CREDIT);
        self.paid = self.paid.saturating_add(1);
        if self.paid == PROVEN {
            self.rest = SHORT_REST;
        }
    }

    fn wasted(&mut self, now: Micros) {
        self.credit -= WASTED;
        if self.credit < 0 {
            self.give_up(now);
        }
    }

    /// Rests, longer each time.
    fn give_up(&mut self, now: Micros) {
        self.resting_until = now + self.rest;
        self.rest = (self.rest * 2).min(LONG_REST);
        self.credit = 0;
        self.paid = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection whose last answer came at this moment.
    fn answered_at(now: Micros) -> Look {
        let mut look = Look::new();
        look.answered(now);
        look
    }

    #[test]
    fn only_calls_that_follow_each_other_closely_look() {
        assert!(!Look::new().is_worth_it(SECOND));
        let look = answered_at(SECOND);
        assert!(look.is_worth_it(SECOND + 10));
        assert!(!look.is_worth_it(SECOND + CLOSE));
    }

    #[test]
    fn looks_that_find_nothing_end_it_and_each_rest_is_longer() {
        let begin = SECOND;
        let mut look = answered_at(begin);
        let mut now = begin;
        let mut looked = 0;
        while now < begin + 10 * SECOND {
            if look.is_worth_it(now) {
                looked += LOOK;
                assert!(!look.goes_on(now, now + LOOK, now + LOOK + 1));
            }
            now += 100;
            look.answered(now);
        }
        assert!(looked < 10 * SECOND / 10_000, "{looked} µs of ten seconds");
        assert_eq!(look.rest, LONG_REST);
    }

    #[test]
    fn looks_that_pay_make_up_for_one_that_does_not() {
        let mut look = answered_at(SECOND);
        for _ in 0..100 {
            (0..WASTED / PAID).for_each(|_| look.paid());
            assert!(!look.goes_on(SECOND, SECOND + LOOK, SECOND + LOOK + 1));
            assert!(look.is_worth_it(SECOND + 10));
        }
    }

    #[test]
    fn who_is_interrupted_gives_up_at_once() {
        let mut look = answered_at(SECOND);
        (0..100).for_each(|_| look.paid());
        let now = SECOND + INTERRUPTED + 1;
        assert!(!look.goes_on(SECOND, SECOND, now));
        look.answered(now);
        assert!(!look.is_worth_it(now));
        look.answered(now + SHORT_REST);
        assert!(look.is_worth_it(now + SHORT_REST));
    }
}
