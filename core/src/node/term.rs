//! Which term a node opens: above all that it has heard of, and not behind its wall clock.
//!
//! Pure: the wall clock comes in as a number, and what an operator should know comes out as a value.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last term there can be: a token is below 2⁶³.
pub(crate) const LAST_TERM: u32 = (1 << 31) - 1;
/// How far beyond the own wall clock a client's word counts.
const CLIENTS_MAY_LEAD: u32 = 31_536_000;
const EPOCH: Duration = Duration::from_secs(1_767_225_600);
const YEAR_2090: Duration = Duration::from_secs(3_786_912_000);

/// A reading of the wall clock, as far as terms are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wall {
    /// Seconds since the beginning of 2026; 0 before.
    Seconds(u32),
    /// Beyond 2090: it cannot be right, and must not use up the terms.
    Absurd,
}

impl Wall {
    pub(crate) fn read(now: SystemTime) -> Wall {
        let unix = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        if unix >= YEAR_2090 {
            return Wall::Absurd;
        }
        let seconds = unix.saturating_sub(EPOCH).as_secs();
        Wall::Seconds(u32::try_from(seconds).expect("2090 is less than 2³² seconds after 2026"))
    }

    /// The seconds; 0 where they do not count.
    pub(crate) fn seconds(self) -> u32 {
        match self {
            Wall::Seconds(seconds) => seconds,
            Wall::Absurd => 0,
        }
    }
}

/// The term to open for a node that knows of terms up to `known`; `None` when they are used up.
pub(crate) fn next_term(known: u32, wall: Wall) -> Option<u32> {
    let next = known.checked_add(1)?.max(wall.seconds());
    (next <= LAST_TERM).then_some(next)
}

/// Whether a term that a client has seen counts. `first` is the term of the node's start, which stands
/// in for a wall clock that cannot be right: it does not move with what clients say.
pub(crate) fn client_may_say(term: u32, wall: Wall, first: u32) -> bool {
    let base = match wall {
        Wall::Seconds(seconds) => seconds,
        Wall::Absurd => first,
    };
    term <= base.saturating_add(CLIENTS_MAY_LEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(unix: u64) -> Wall {
        Wall::read(UNIX_EPOCH + Duration::from_secs(unix))
    }

    #[test]
    fn the_wall_clock_counts_from_2026_to_2090() {
        assert_eq!(at(0), Wall::Seconds(0));
        assert_eq!(at(1_767_225_600), Wall::Seconds(0));
        assert_eq!(at(1_767_225_661), Wall::Seconds(61));
        assert_eq!(at(3_786_911_999), Wall::Seconds(2_019_686_399));
        assert_eq!(at(3_786_912_000), Wall::Absurd);
        assert_eq!(
            Wall::read(UNIX_EPOCH - Duration::from_secs(5)),
            Wall::Seconds(0)
        );
    }

    #[test]
    fn a_term_is_above_all_that_are_known_and_not_behind_the_clock() {
        assert_eq!(next_term(0, Wall::Seconds(0)), Some(1));
        assert_eq!(next_term(0, Wall::Seconds(500)), Some(500));
        assert_eq!(next_term(500, Wall::Seconds(500)), Some(501));
        assert_eq!(next_term(9, Wall::Absurd), Some(10));
        assert_eq!(next_term(LAST_TERM - 1, Wall::Seconds(1)), Some(LAST_TERM));
        assert_eq!(next_term(LAST_TERM, Wall::Seconds(1)), None);
        assert_eq!(next_term(u32::MAX, Wall::Seconds(1)), None);
    }

    #[test]
    fn a_client_counts_up_to_a_year_beyond_the_own_clock() {
        let wall = Wall::Seconds(1000);
        assert!(client_may_say(1000 + CLIENTS_MAY_LEAD, wall, 1));
        assert!(!client_may_say(1001 + CLIENTS_MAY_LEAD, wall, 1));
        assert!(client_may_say(7 + CLIENTS_MAY_LEAD, Wall::Absurd, 7));
        assert!(!client_may_say(8 + CLIENTS_MAY_LEAD, Wall::Absurd, 7));
    }
}
