//! Looks for the next request for a moment before the thread sleeps, where that has lately paid.
//!
//! Waking a sleeping core costs several times what a request costs, so with one client that asks again
//! at once, most of the time goes into waking up. Looking on instead saves it, and wastes the core if
//! nothing comes or if the client needs this very core. So it is tried, measured and given up:
//! requests have to come thick and fast before it begins, the looks that found something have to
//! outweigh those that did not, and after each failure it rests for longer.

use super::settings::Spin;
use super::state::{Shared, now};
use crate::engine::Time;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// How long one look lasts, in microseconds, unless the setting says.
const LOOK: u64 = 60;
/// Requests closer together than this, in microseconds, are worth a try.
const THICK: u64 = 200;
/// After so many of them in a row.
const FAST: u32 = 32;
/// With what credit a try begins, what one look adds or takes, and the most there can be.
const CREDIT: i32 = 8;
const PAID: i32 = 1;
const WASTED: i32 = 4;
const MOST_CREDIT: i32 = 32;
/// A turn of the loop that took this long, in microseconds, was interrupted: somebody wants the core.
const INTERRUPTED: u64 = 300;
/// Turns in a row that all found something: the thread would not have slept, and looking only costs.
const BUSY: u32 = 16;
/// So many requests are let pass before it looks again.
const SKIP: u32 = 256;
/// How long to rest after a try that failed, in microseconds: at first, and at most.
const SHORT_REST: u64 = 10_000;
const LONG_REST: u64 = 2_000_000;
/// A try that has paid this often was no accident.
const PROVEN: u32 = 2000;

/// Whether and how long to look.
#[derive(Debug)]
pub(crate) struct Spinner {
    look: u64,
    /// Set where the setting leaves it to us.
    adaptive: bool,
    credit: i32,
    paid: u32,
    rest: u64,
    resting_until: Time,
    last: Time,
    thick: u32,
    /// A look has found nothing, but those before it have paid: the next request begins another.
    again: bool,
    /// Requests to let pass before the next look.
    skip: u32,
    looking: bool,
    waker: Option<Waker>,
}

impl Spinner {
    /// As the setting says; `None` where it says never.
    pub(crate) fn new(setting: Spin) -> Option<Spinner> {
        let (look, adaptive) = match setting {
            Spin::Off | Spin::Micros(0) => return None,
            Spin::Auto => (LOOK, true),
            Spin::Micros(micros) => (u64::from(micros), false),
        };
        Some(Spinner {
            look,
            adaptive,
            credit: CREDIT,
            paid: 0,
            rest: SHORT_REST,
            resting_until: Time(0),
            last: Time(0),
            thick: 0,
            again: false,
            skip: 0,
            looking: false,
            waker: None,
        })
    }

    /// Something was read.
    pub(crate) fn note(&mut self, now: Time) {
        if self.looking {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let thick = now.0.saturating_sub(self.last.0) < THICK;
        self.last = now;
        self.thick = if thick {
            self.thick.saturating_add(1)
        } else {
            0
        };
        let proven = self.again || (self.thick >= FAST && now >= self.resting_until);
        if proven || !self.adaptive {
            self.looking = true;
            if let Some(waker) = &self.waker {
                waker.wake_by_ref();
            }
        }
    }

    /// A look found something.
    fn paid(&mut self) {
        self.credit = (self.credit + PAID).min(MOST_CREDIT);
        self.paid += 1;
        if self.paid == PROVEN {
            self.rest = SHORT_REST;
        }
    }

    /// Something has come in every turn.
    fn busy(&mut self) {
        self.looking = false;
        self.again = true;
        self.skip = SKIP;
    }

    /// A look found nothing.
    fn wasted(&mut self, now: Time) {
        self.looking = false;
        self.credit -= WASTED;
        self.again = self.credit >= 0;
        if !self.again && self.adaptive {
            self.give_up(now);
        }
    }

    /// Rests, longer each time.
    fn give_up(&mut self, now: Time) {
        self.resting_until = Time(now.0 + self.rest);
        self.rest = (self.rest * 2).min(LONG_REST);
        self.looking = false;
        self.again = false;
        self.thick = 0;
        self.credit = CREDIT;
        self.paid = 0;
    }
}

/// Never ends; does nothing where the setting says never.
pub(crate) async fn run(node: Shared) {
    loop {
        wait(&node).await;
        look(&node).await;
    }
}

/// Sleeps until it is worth a try.
async fn wait(node: &Shared) {
    poll_fn(|cx| {
        let mut node = node.lock();
        let Some(spinner) = &mut node.spinner else {
            return Poll::Pending;
        };
        if !spinner
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            spinner.waker = Some(cx.waker().clone());
        }
        if spinner.looking {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Looks until nothing has come for long enough.
async fn look(node: &Shared) {
    let mut reads = node.lock().counters.reads;
    let mut since = now();
    let mut turn = since;
    let mut busy = 0;
    loop {
        // The runtime asks the sockets, without sleeping, before this task has its next turn.
        tokio::task::yield_now().await;
        let mut node = node.lock();
        let now = now();
        let came = node.counters.reads != reads;
        reads = node.counters.reads;
        let Some(spinner) = &mut node.spinner else {
            return;
        };
        let interrupted = spinner.adaptive && !came && now.0 - turn.0 > INTERRUPTED;
        turn = now;
        if came {
            since = now;
            // What comes turn after turn would have been found without looking.
            if busy == 0 {
                spinner.paid();
            }
            busy += 1;
            if busy == BUSY {
                spinner.busy();
            }
        } else if interrupted {
            spinner.give_up(now);
        } else if now.0 - since.0 > spinner.look {
            spinner.wasted(now);
        } else {
            busy = 0;
        }
        if !spinner.looking {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto() -> Spinner {
        Spinner::new(Spin::Auto).expect("auto may look")
    }

    /// Requests at this distance; returns when the last one came.
    fn requests(spinner: &mut Spinner, from: u64, count: u64, apart: u64) -> u64 {
        for number in 0..count {
            spinner.note(Time(from + number * apart));
        }
        from + count * apart
    }

    #[test]
    fn requests_that_come_seldom_begin_no_look() {
        let mut spinner = auto();
        requests(&mut spinner, 1_000_000, 10_000, THICK + 1);
        assert!(!spinner.looking);
    }

    #[test]
    fn requests_that_come_thick_and_fast_begin_one() {
        let mut spinner = auto();
        requests(&mut spinner, 1_000_000, u64::from(FAST) + 2, THICK / 2);
        assert!(spinner.looking);
    }

    #[test]
    fn looks_that_find_nothing_end_it_and_each_rest_is_longer() {
        let mut spinner = auto();
        let mut now = 1_000_000;
        let mut rests = Vec::new();
        for _ in 0..5 {
            let begin = now;
            while !spinner.looking {
                now = requests(&mut spinner, now, 1, THICK / 2);
            }
            rests.push(now - begin);
            while spinner.looking {
                spinner.wasted(Time(now));
                now = requests(&mut spinner, now, 1, THICK / 2);
            }
        }
        assert!(rests.windows(2).all(|pair| pair[0] < pair[1]), "{rests:?}");
        assert!(spinner.rest <= LONG_REST);
    }

    #[test]
    fn a_look_that_has_mostly_paid_goes_on_after_one_that_did_not() {
        let mut spinner = auto();
        let now = requests(&mut spinner, 1_000_000, 100, THICK / 2);
        (0..100).for_each(|_| spinner.paid());
        spinner.wasted(Time(now));
        assert!(!spinner.looking);
        spinner.note(Time(now + 1_000_000));
        assert!(spinner.looking);
    }

    #[test]
    fn off_is_off() {
        assert!(Spinner::new(Spin::Off).is_none());
        assert!(Spinner::new(Spin::Micros(0)).is_none());
    }
}
