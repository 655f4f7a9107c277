//! Grants that have just come to a copy and are not in its engine yet. Under load nearly all of them are given back
//! within a moment, and then the key is free there as it was before: so such a grant never gets as far as the engine,
//! which is what would cost most.
//!
//! ```text
//! grants ──▶ a place each, by claim ──▶ the engine: when another one needs the place, or all are asked for
//!                    │
//!                    └─────────────────▶ nowhere: when its end comes first
//! ```
//!
//! What waits here has to do with one claim and one key that is free in the engine. Of anything that might concern both
//! whoever keeps this sees to the order.

use crate::engine::{Change, ClaimId};
use crate::protocol::Token;

/// How many grants wait at most.
const PLACES: usize = 1024;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// As long as nothing has come there are none.
    places: Vec<Option<Waiting>>,
    /// Which of them are taken, a bit each.
    taken: [u64; PLACES / 64],
    count: usize,
}

#[derive(Debug)]
struct Waiting {
    claim: ClaimId,
    token: Token,
    granted: Change,
}

impl Fresh {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether a grant of this claim waits.
    pub(super) fn has(&self, claim: ClaimId) -> bool {
        let place = self.places.get(place(claim)).and_then(Option::as_ref);
        place.is_some_and(|waiting| waiting.claim == claim)
    }

    /// A grant has come. Returns the one that has to make room for it.
    pub(super) fn put(&mut self, claim: ClaimId, token: Token, granted: Change) -> Option<Change> {
        if self.places.is_empty() {
            self.places.resize_with(PLACES, || None);
        }
        let place = place(claim);
        let waiting = Waiting {
            claim,
            token,
            granted,
        };
        let before = self.places[place].replace(waiting);
        if before.is_none() {
            self.taken[place / 64] |= 1 << (place % 64);
            self.count += 1;
        }
        before.map(|before| before.granted)
    }

    /// A grant has ended. Whether it was here, and is over with that.
    pub(super) fn end(&mut self, claim: ClaimId, token: Token) -> bool {
        let place = place(claim);
        let is_it = |waiting: &mut Waiting| waiting.claim == claim && waiting.token == token;
        let ended = self.places.get_mut(place).and_then(|at| at.take_if(is_it));
        if ended.is_some() {
            self.vacate(place);
        }
        ended.is_some()
    }

    /// Any of those that wait; it waits no longer.
    pub(super) fn pop(&mut self) -> Option<Change> {
        let word = self.taken.iter().position(|word| *word != 0)?;
        let place = word * 64 + self.taken[word].trailing_zeros() as usize;
        self.vacate(place);
        self.places[place].take().map(|waiting| waiting.granted)
    }

    fn vacate(&mut self, place: usize) {
        self.taken[place / 64] &= !(1 << (place % 64));
        self.count -= 1;
    }
}

fn place(claim: ClaimId) -> usize {
    claim.number() as usize % PLACES
}
