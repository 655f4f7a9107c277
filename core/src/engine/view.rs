//! Looking without touching: one key, its queue, all keys.

use super::Engine;
use super::connections::{ConnectionId, Owner};
use super::histogram::Histogram;
use super::lock::Stage;
use super::slab::NIL;
use super::time::Time;
use crate::protocol::{Key, KeyRef, Millis, Prefix, Token};

/// The answer to `I`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Inspection<'a> {
    /// Nobody holds the key. There are waiters only while the first of them may still come back.
    Free {
        /// The length of the queue.
        waiters: u64,
    },
    /// Somebody holds the key.
    Held(LockRow<'a>),
}

/// Whose grant a token names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// Of the client that asks, whichever connection it came over; without an id, of this very connection.
    Own,
    /// Of somebody else.
    Others,
    /// It holds the key no longer, or never did.
    Nobodys,
}

/// A held key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockRow<'a> {
    /// The key.
    pub key: KeyRef<'a>,
    /// The token of its grant.
    pub token: Token,
    /// What is left of the lease.
    pub remaining: Millis,
    /// For how long its holder has had it. Of a grant that another node made: since its lease last began, because a copy does not know more.
    pub held_for: Millis,
    /// The length of the queue.
    pub waiters: u64,
    /// Who holds it.
    pub owner: &'a Owner,
}

/// A waiting request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaiterRow<'a> {
    /// 1 for the one who is next.
    pub position: u64,
    /// For how long it has waited.
    pub waited: Millis,
    /// Who waits.
    pub owner: &'a Owner,
    /// Where to go on behind this row.
    pub place: QueuePlace,
}

/// A place in a queue, found again in one step as long as the request there still waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePlace {
    claim: u32,
    since: Time,
    position: u64,
}

/// How far a list has come. The order is stable while an engine lives: the keys that stay held
/// throughout are each listed exactly once, whatever happens to others meanwhile.
#[derive(Clone, Debug)]
pub struct ListCursor {
    prefix: Box<[u8]>,
    /// Behind which key to begin, or which one came last.
    after: Option<Key>,
    /// The next shard to look into.
    shard: usize,
    /// What was found in the shard before and not yet handed over, the first key last.
    found: Vec<Key>,
}

impl ListCursor {
    /// Begins a list of the keys with `prefix`, behind `after`.
    #[must_use]
    pub fn new(prefix: Prefix<'_>, after: Option<KeyRef<'_>>) -> ListCursor {
        ListCursor {
            prefix: prefix.spelling().into(),
            after: after.map(KeyRef::to_key),
            shard: 0,
            found: Vec::new(),
        }
    }

    /// How many keys it keeps that were found and not yet handed over.
    #[cfg(test)]
    pub(crate) fn found(&self) -> usize {
        self.found.len()
    }

    /// Keeps the place alone, for as long as nobody asks for more.
    pub fn pause(&mut self) {
        let found = std::mem::take(&mut self.found);
        // Its shard is looked into again, behind the key that came last.
        self.shard -= usize::from(!found.is_empty());
    }
}

/// A list stops looking for rows in one call when it has come past so many keys.
const KEYS_A_CALL: usize = 1024;

impl Engine {
    /// Handles `I`.
    #[must_use]
    pub fn inspect(&self, now: Time, key: KeyRef<'_>) -> Inspection<'_> {
        let Some(lock) = self.find_lock(self.hashes.key(key.spelling()), key) else {
            return Inspection::Free { waiters: 0 };
        };
        match self.row(now, lock) {
            Some(row) => Inspection::Held(row),
            None => Inspection::Free {
                waiters: self.queue_length_of(lock),
            },
        }
    }

    /// Whose grant this is, as seen from a connection.
    #[must_use]
    pub fn whose(&self, connection: ConnectionId, key: KeyRef<'_>, token: Token) -> Whose {
        let Some(claim) = self.find_grant(self.hashes.key(key.spelling()), key, token) else {
            return Whose::Nobodys;
        };
        let Some(speaker) = self.speaker_ref(connection) else {
            return Whose::Others;
        };
        let owner = self.owner_number(self.claims[claim].stage);
        let same_client =
            speaker.client.is_some() && self.owners[owner].owner.client == speaker.client;
        match owner == speaker.owner || same_client {
            true => Whose::Own,
            false => Whose::Others,
        }
    }

    /// The rows of `W`, in the order of the queue: all, or those behind a place.
    pub fn waiters<'a>(
        &'a self,
        now: Time,
        key: KeyRef<'_>,
        behind: Option<QueuePlace>,
    ) -> impl Iterator<Item = WaiterRow<'a>> + use<'a> {
        let lock = self.find_lock(self.hashes.key(key.spelling()), key);
        let first = lock.map_or(NIL, |lock| self.first_behind(lock, behind));
        let position = behind.map_or(1, |place| place.position + 1);
        let queue = (position..).zip(self.follow(first));
        queue.map(move |(position, claim)| {
            let since = self.claims[claim].since();
            WaiterRow {
                position,
                waited: now.since(since),
                owner: self.owner_of(&self.claims[claim]),
                place: QueuePlace {
                    claim,
                    since,
                    position,
                },
            }
        })
    }

    /// How many wait for a key.
    #[must_use]
    pub fn queue_length(&self, key: KeyRef<'_>) -> u64 {
        let lock = self.find_lock(self.hashes.key(key.spelling()), key);
        lock.map_or(0, |lock| self.queue_length_of(lock))
    }

    /// Hands the next rows of `L`, at most `at_most`, to `row`. Returns whether there may be more: then
    /// call again, now or when the reader has taken these. A call does a bounded amount of work and so
    /// may hand over nothing although there is more.
    pub fn list(
        &self,
        now: Time,
        cursor: &mut ListCursor,
        at_most: usize,
        mut row: impl FnMut(LockRow<'_>),
    ) -> bool {
        let mut rows = 0;
        let mut seen = 0;
        loop {
            while let Some(key) = cursor.found.pop_if(|_| rows < at_most) {
                // It may have been released since it was found.
                let hash = self.hashes.key(key.spelling());
                let lock = self.find_lock(hash, key.as_ref());
                if let Some(held) = lock.and_then(|lock| self.row(now, lock)) {
                    row(held);
                    rows += 1;
                }
                cursor.after = Some(key);
            }
            let more = !cursor.found.is_empty() || cursor.shard < self.keys.shard_count();
            if !more || rows >= at_most || seen >= KEYS_A_CALL {
                return more;
            }
            seen += 1 + self.look_into_next_shard(cursor);
        }
    }

    /// Numbers for status and metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            held: self.held as u64,
            keys: self.locks.len() as u64,
            waiting: self.waiting as u64,
            detached: self.detached as u64,
            connections: (self.connections.len() - self.parting.len()) as u64,
            attempts_remembered: self.attempts.len() as u64,
            term: self.tokens.term(),
            granted: self.counts.granted,
            handed_over: self.counts.handed_over,
            released: self.counts.released,
            expired: self.counts.expired,
            undelivered: self.counts.undelivered,
            timed_out: self.counts.timed_out,
            dropped: self.counts.dropped,
            attempts_forgotten: self.attempts.forgotten(),
        }
    }

    /// For how long those waited that were granted something after a wait.
    #[must_use]
    pub fn waits(&self) -> &Histogram {
        &self.counts.waited
    }

    /// For how long grants were held until they were given back or their lease ended.
    #[must_use]
    pub fn holds(&self) -> &Histogram {
        &self.counts.held
    }

    /// Finds the keys of the cursor's shard in their order. Returns how many keys the shard has.
    fn look_into_next_shard(&self, cursor: &mut ListCursor) -> usize {
        if let Some(after) = &cursor.after {
            let first = self.keys.shard_of(self.hashes.key(after.spelling()));
            if cursor.shard < first {
                cursor.shard = first;
            } else if cursor.shard > first {
                cursor.after = None;
            }
        }
        let mut seen = 0;
        cursor.found.clear();
        for lock in self.keys.shard(cursor.shard) {
            seen += 1;
            let key = &self.locks[lock].key;
            let behind = cursor.after.as_ref().is_none_or(|after| key > after);
            if behind && key.spelling().starts_with(&cursor.prefix) {
                cursor.found.push(key.clone());
            }
        }
        cursor.found.sort_unstable_by(|one, other| other.cmp(one));
        cursor.shard += 1;
        seen
    }

    /// The waiter behind a place. If the request there has left, as many as it had before it are passed, but nobody who came
    /// after it; if it has got the key, so have those before it.
    fn first_behind(&self, lock: u32, place: Option<QueuePlace>) -> u32 {
        let Some(place) = place else {
            return self.queued(lock).next().unwrap_or(NIL);
        };
        let there = self.claims.get(place.claim);
        match there.filter(|claim| claim.lock == lock && claim.since() == place.since) {
            Some(claim) => claim.next,
            None => {
                let granted =
                    there.is_some_and(|claim| claim.lock == lock && claim.token().is_some());
                let before = if granted { 0 } else { place.position - 1 };
                let came_later = |claim: u32| self.claims[claim].since() > place.since;
                let mut queue = (0..).zip(self.queued(lock));
                let behind = queue.find(|(passed, claim)| *passed >= before || came_later(*claim));
                behind.map_or(NIL, |(_, claim)| claim)
            }
        }
    }

    fn queue_length_of(&self, lock: u32) -> u64 {
        let queue = self.queues.get(self.locks[lock].queue);
        queue.map_or(0, |queue| u64::from(queue.length))
    }

    /// What is to be told of a held lock; with several holders, of the one with the highest token.
    fn row(&self, now: Time, lock: u32) -> Option<LockRow<'_>> {
        let holders = self.holders(lock);
        let (token, claim) = holders
            .filter_map(|claim| Some((self.claims[claim].token()?, claim)))
            .max()?;
        Some(self.row_of(now, claim, token))
    }

    /// What is to be told of a claim that holds its key with this token.
    pub(super) fn row_of(&self, now: Time, claim: u32, token: Token) -> LockRow<'_> {
        let lock = self.claims[claim].lock;
        let since = match self.claims[claim].stage {
            Stage::Held { clock, .. } => clock.held_since(),
            Stage::Attached { .. } | Stage::Detached { .. } => None,
        };
        LockRow {
            key: self.locks[lock].key.as_ref(),
            token,
            remaining: self.claims[claim].deadline.since(now),
            held_for: since.map_or(Millis(0), |since| now.since(since)),
            waiters: self.queue_length_of(lock),
            owner: self.owner_of(&self.claims[claim]),
        }
    }
}

/// Numbers for status and metrics. The first ones are of this moment, the others count up from the
/// start of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Keys that are held.
    pub held: u64,
    /// Keys that are held or waited for.
    pub keys: u64,
    /// Requests that wait, detached ones included.
    pub waiting: u64,
    /// Waiting requests without a connection.
    pub detached: u64,
    /// Connections.
    pub connections: u64,
    /// Attempt numbers that are remembered.
    pub attempts_remembered: u64,
    /// The term that tokens are taken from.
    pub term: u32,
    /// Grants. These and what follows count what this engine did itself, not what it copied.
    pub granted: u64,
    /// Grants to requests that had waited.
    pub handed_over: u64,
    /// Grants given back by a release or a cancel.
    pub released: u64,
    /// Leases that ended.
    pub expired: u64,
    /// Grants taken back because their reply could not be delivered.
    pub undelivered: u64,
    /// Requests that were not granted in time.
    pub timed_out: u64,
    /// Late copies that were dropped.
    pub dropped: u64,
    /// Attempt numbers forgotten before their time because there were too many.
    pub attempts_forgotten: u64,
}
