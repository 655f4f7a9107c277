//! Which tokens are in hand, for grants that nobody waits for: one that was said twice must not be taken for another and
//! released. Such grants are rare and come in swarms, so the list is made with the first of them, kept while others may
//! follow, and costs a glance otherwise.

use super::lock::HeldLock;
use super::slab::{LockId, Slab};
use crate::protocol::Token;
use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct InHand {
    /// Nothing while nobody asks.
    tokens: Option<BTreeSet<Token>>,
    /// Locks that have come and gone since somebody asked.
    changes: usize,
}

impl InHand {
    /// Whether one of the locks has this token.
    pub(super) fn has(&mut self, token: Token, locks: &Slab<LockId, HeldLock>) -> bool {
        self.changes = 0;
        let all = || locks.all().map(|(_, held)| held.token).collect();
        self.tokens.get_or_insert_with(all).contains(&token)
    }

    pub(super) fn add(&mut self, token: Token) {
        if let Some(tokens) = &mut self.tokens {
            tokens.insert(token);
            self.note_change();
        }
    }

    pub(super) fn remove(&mut self, token: Token) {
        if let Some(tokens) = &mut self.tokens {
            tokens.remove(&token);
            self.note_change();
        }
    }

    /// Whether the list is kept.
    pub(super) fn is_kept(&self) -> bool {
        self.tokens.is_some()
    }

    /// To make it anew costs no more than what has been spared by then.
    fn note_change(&mut self) {
        self.changes += 1;
        let length = self.tokens.as_ref().map_or(0, BTreeSet::len);
        if self.changes > length + 16 {
            self.tokens = None;
        }
    }
}
