//! Who has been woken with a result and has not come for it yet. The answers to many requests come together, and most of those who
//! waited for them ask for something new at once: so what the first of them ask for is held until the last one has come, and leaves in one
//! write. It decides that and nothing else.
//!
//! Nothing is held for long: what many have asked for leaves without the others, who has not come after a moment is not waited for, and
//! after that nothing is held for a while.

use super::session::{MILLISECOND, Micros, SECOND};

/// When so many have come, what they have asked for leaves without the others.
const MANY: u32 = 64;
/// Nobody is waited for longer.
const PATIENCE: Micros = MILLISECOND;
/// How long nothing is held after somebody did not come, at first and at most.
const SHORT_REST: Micros = 20 * MILLISECOND;
const LONG_REST: Micros = 2 * SECOND;
/// After so many times that it went well the rest is short again.
const PROVEN: u32 = 2000;

/// What becomes of bytes on a connection on which much is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// The last one who comes writes them.
    Held,
    /// This thread writes them: it was the last one.
    Now,
    /// Nobody was woken lately; the driver writes them.
    Driver,
}

pub(super) struct Wave {
    /// Of those who were woken together.
    number: u32,
    /// How many of them have not come yet.
    missing: u32,
    /// How many have come since bytes that were held were written.
    came: u32,
    /// When they are not waited for any more.
    until: Micros,
    held: bool,
    /// The last one has come and has asked for nothing since.
    last: bool,
    rest: Micros,
    resting_until: Micros,
    went_well: u32,
}

impl Wave {
    /// What somebody who has not been woken has instead of a number.
    pub(super) const NONE: u32 = 0;

    pub(super) fn new() -> Wave {
        Wave {
            number: 1,
            missing: 0,
            came: 0,
            until: 0,
            held: false,
            last: false,
            rest: SHORT_REST,
            resting_until: 0,
            went_well: 0,
        }
    }

    /// One more is woken, with this number.
    pub(super) fn note_woken(&mut self, now: Micros) -> u32 {
        if self.missing == 0 {
            self.until = now + PATIENCE;
            self.came = 0;
        }
        self.missing += 1;
        self.last = false;
        self.number
    }

    /// Who was woken with this number has come, or never will.
    pub(super) fn note_came(&mut self, number: u32) {
        if number == self.number && self.missing > 0 {
            self.missing -= 1;
            self.came += 1;
            self.last = self.missing == 0;
        }
    }

    /// How many were woken and have not come yet.
    pub(super) fn missing(&self) -> u32 {
        self.missing
    }

    /// There are bytes to be written.
    pub(super) fn turn(&mut self, now: Micros) -> Turn {
        if self.missing > 0 && now < self.until && now >= self.resting_until {
            self.held = true;
            Turn::Held
        } else if std::mem::take(&mut self.last) {
            Turn::Now
        } else {
            Turn::Driver
        }
    }

    /// Whether bytes are held for which nobody has to be waited for any more.
    pub(super) fn is_complete(&self) -> bool {
        self.held && (self.missing == 0 || self.came >= MANY)
    }

    /// The bytes that were held are written.
    pub(super) fn note_written(&mut self, now: Micros) {
        self.held = false;
        self.came = 0;
        self.until = now + PATIENCE;
        self.went_well = self.went_well.saturating_add(1);
        if self.went_well == PROVEN {
            self.rest = SHORT_REST;
        }
    }

    /// When to look whether somebody has not come.
    pub(super) fn deadline(&self) -> Option<Micros> {
        (self.missing > 0).then_some(self.until)
    }

    /// Gives up waiting if it is time. True if bytes were held, which have to be written now.
    pub(super) fn handle_due(&mut self, now: Micros) -> bool {
        if self.missing == 0 || now < self.until {
            return false;
        }
        self.missing = 0;
        // Who comes late belongs to no wave.
        self.number = self.number.wrapping_add(1).max(1);
        if !std::mem::take(&mut self.held) {
            return false;
        }
        self.went_well = 0;
        self.resting_until = now + self.rest;
        self.rest = (self.rest * 2).min(LONG_REST);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = SECOND;

    #[test]
    fn what_the_first_ask_for_leaves_with_the_last() {
        let mut wave = Wave::new();
        assert_eq!(wave.turn(NOW), Turn::Driver);
        let numbers = [wave.note_woken(NOW), wave.note_woken(NOW)];
        wave.note_came(numbers[0]);
        assert_eq!((wave.turn(NOW), wave.is_complete()), (Turn::Held, false));
        wave.note_came(numbers[1]);
        assert!(wave.is_complete());
        wave.note_written(NOW);
        assert_eq!(wave.deadline(), None);
        // What the last one asks for itself, and then others that were not woken.
        assert_eq!((wave.turn(NOW), wave.turn(NOW)), (Turn::Now, Turn::Driver));
    }

    #[test]
    fn who_does_not_come_is_waited_for_only_a_moment_and_each_time_more_seldom() {
        let mut wave = Wave::new();
        let mut now = NOW;
        let mut rests = Vec::new();
        for _ in 0..10 {
            let number = wave.note_woken(now);
            assert_eq!(wave.turn(now), Turn::Held);
            assert_eq!(wave.deadline(), Some(now + PATIENCE));
            assert!(!wave.handle_due(now + PATIENCE - 1));
            now += PATIENCE;
            assert!(wave.handle_due(now));
            rests.push(wave.resting_until - now);
            // Late, and nobody's business any more.
            wave.note_came(number);
            assert_eq!((wave.missing, wave.turn(now)), (0, Turn::Driver));
            let resting = wave.note_woken(now);
            assert_eq!(wave.turn(now), Turn::Driver);
            wave.note_came(resting);
            now = wave.resting_until;
        }
        assert_eq!(
            (rests[0], rests[1], rests[9]),
            (SHORT_REST, 2 * SHORT_REST, LONG_REST)
        );
        for _ in 0..PROVEN {
            wave.note_written(now);
        }
        assert_eq!(wave.rest, SHORT_REST);
    }

    #[test]
    fn what_many_have_asked_for_leaves_without_the_others() {
        let mut wave = Wave::new();
        let numbers: Vec<u32> = (0..3 * MANY).map(|_| wave.note_woken(NOW)).collect();
        let mut written = Vec::new();
        for (came, number) in numbers.into_iter().enumerate() {
            wave.note_came(number);
            if wave.is_complete() {
                wave.note_written(NOW + came as Micros);
                written.push(came as u32 + 1);
                assert!(!wave.handle_due(NOW + came as Micros + PATIENCE - 1));
            }
            wave.turn(NOW);
        }
        assert_eq!(written, [MANY, 2 * MANY, 3 * MANY]);
    }

    #[test]
    fn who_does_not_come_and_holds_nobody_up_costs_nothing() {
        let mut wave = Wave::new();
        wave.note_woken(NOW);
        assert!(!wave.handle_due(NOW + PATIENCE));
        assert_eq!((wave.resting_until, wave.deadline()), (0, None));
    }
}
