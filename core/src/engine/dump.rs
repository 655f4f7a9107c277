//! The whole state in parts, while it goes on changing: what a standby copies first.
//!
//! A part is some shards of the keys as they are at one moment. Changes go on between the parts, so a
//! copy hears of claims that it was not given yet, passes over what it cannot place, and takes what a
//! later part says of a key instead of what it had. When the last part is there, the copy is whole.

use super::copy::Diverged;
use super::output::{Change, ClaimId};
use super::slab::{NIL, Slab};
use super::table::Table;
use super::time::Time;
use super::wheel::Wheel;
use super::{Attempts, Engine, KEY_SHARDS, REQUEST_SHARDS};
use crate::protocol::Key;

/// How far a dump has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct DumpCursor {
    shard: usize,
    begun: bool,
}

/// What a copy remembers between two parts.
#[derive(Clone, Debug, Default)]
pub struct DumpReader {
    /// The key whose claims came last: more of them may follow.
    key: Option<Key>,
}

impl Engine {
    /// Appends the next part of the whole state: at least `enough` changes, or all that is left.
    /// Returns whether there is more. Keys are never divided between two parts.
    pub fn dump(&self, cursor: &mut DumpCursor, enough: usize, part: &mut Vec<Change>) -> bool {
        if !cursor.begun {
            cursor.begun = true;
            part.extend(self.attempts.iter().map(Change::from));
        }
        while part.len() < enough && cursor.shard < self.keys.shard_count() {
            for lock in self.keys.shard(cursor.shard) {
                part.extend(self.holders(lock).map(|claim| {
                    let token = self.claims[claim].token();
                    self.granted(claim, token.expect("it is among the holders"))
                }));
                part.extend(self.queued(lock).map(|claim| self.enqueued(claim)));
            }
            cursor.shard += 1;
        }
        cursor.shard < self.keys.shard_count()
    }

    /// Takes a change of a part. What is known of its key from before the part is forgotten.
    ///
    /// # Errors
    /// The change does not fit; the copy is of no use any more.
    pub fn apply_dumped(
        &mut self,
        now: Time,
        reader: &mut DumpReader,
        change: &Change,
    ) -> Result<(), Diverged> {
        if let Change::Granted { key, .. } | Change::Enqueued { key, .. } = change
            && reader.key.as_ref() != Some(key)
        {
            self.forget_key(key);
            reader.key = Some(key.clone());
        }
        self.apply(now, change)
    }

    /// Takes a change between the parts. What it says of a claim that is not known yet comes with the
    /// claim in a later part.
    ///
    /// # Errors
    /// The change does not fit; the copy is of no use any more.
    pub fn apply_between(
        &mut self,
        now: Time,
        reader: &mut DumpReader,
        change: &Change,
    ) -> Result<(), Diverged> {
        reader.key = None;
        let about = match change {
            Change::Released { claim, .. }
            | Change::Expired { claim, .. }
            | Change::Kept { claim, .. }
            | Change::Left { claim }
            | Change::Resent { claim, .. } => Some(claim),
            Change::Granted { .. }
            | Change::Enqueued { .. }
            | Change::AttemptRemembered { .. }
            | Change::TermOpened { .. } => None,
        };
        if about.is_some_and(|claim| self.claims.get(claim.0).is_none()) {
            return Ok(());
        }
        self.apply(now, change)
    }

    /// Forgets every lock, every waiting request and every attempt, without a word to anybody. The
    /// connections stay, and so does what is known of tokens and what is still to be told.
    pub fn clear(&mut self) {
        let claims: Vec<u32> = self.claims.iter().map(|(claim, _)| claim).collect();
        for claim in claims {
            let stage = self.claims[claim].stage;
            self.untie(stage);
        }
        // Nothing is left of those that are gone.
        while let Some(gone) = self.parting.pop_front() {
            let owner = self.connections.remove(gone).owner;
            self.release_owner(owner);
        }
        self.unserved.clear();
        self.locks = Slab::new();
        self.queues = Slab::new();
        self.claims = Slab::new();
        self.keys = Table::new(KEY_SHARDS);
        self.requests = Table::new(REQUEST_SHARDS);
        self.wheel = Wheel::new();
        self.attempts = Attempts::new(
            self.settings.max_attempts_remembered,
            self.settings.attempt_memory,
        );
        self.changes.clear();
        self.held = 0;
        self.waiting = 0;
        self.detached = 0;
    }

    fn forget_key(&mut self, key: &Key) {
        let hash = self.hashes.key(key.spelling());
        while let Some(lock) = self.find_lock(hash, key.as_ref()) {
            let claim = self.holders(lock).chain(self.queued(lock)).next();
            // A lock that is in the table has a claim.
            let Some(claim) = claim else { return };
            self.record_forgotten(claim);
            self.end_copy(claim);
        }
    }
}

impl ClaimId {
    /// The number that a copy of the state uses too.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The claim with this number, unless no claim can have it.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<ClaimId> {
        // Slabs are dense, so a number far beyond any limit would only cost memory.
        if number == NIL || number > HIGHEST_CLAIM {
            None
        } else {
            Some(ClaimId(number))
        }
    }
}

/// As many keys and waiters as any setting allows.
const HIGHEST_CLAIM: u32 = 2_000_000_000;
