//! The lock rules: who holds a key, who waits for it, and what becomes of that when a request, a
//! broken connection or the time comes in.
//!
//! ```text
//! acquire, release, keep, cancel ──▶ ┌────────┐ ──▶ Answer   at once, for the one who asked
//! connect, hello, disconnect     ──▶ │ Engine │ ──▶ Effect   for other connections, and later
//! expire                         ──▶ └────────┘ ──▶ Change   for a copy of the state
//! ```
//!
//! The engine knows no socket, clock, thread or random number: the time and the seed of its hash come
//! in, what is to be done comes out, and the same calls always lead to the same answers. It keeps
//! nothing for a key that nobody holds or waits for, and it never scans what it keeps.

#![forbid(unsafe_code)]

mod attempts;
mod bits;
mod changes;
mod claims;
mod connections;
mod copy;
mod dump;
mod expiry;
mod hash;
mod histogram;
mod invariants;
mod journal;
mod leaving;
mod lists;
mod lock;
mod merge;
mod output;
mod requests;
mod settings;
mod slab;
mod survey;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod token;
mod view;
mod wheel;

pub use changes::Recording;
pub use connections::{ConnectionId, Owner};
pub use copy::Diverged;
pub use dump::{DumpCursor, DumpReader};
pub use histogram::Histogram;
pub use merge::ForeignGrant;
pub use output::{Answer, Change, ClaimId, Effect, Grant, Holding, News, Refusal};
pub use settings::EngineSettings;
pub use survey::Survey;
pub use time::Time;
pub use view::{Inspection, ListCursor, LockRow, QueuePlace, Stats, WaiterRow, Whose};

use crate::mutation::Mutation;
use crate::protocol::{Key, Token};
use attempts::Attempts;
use changes::Changes;
use connections::Connection;
use hash::SecretHash;
use lock::{Claim, Lock, Queue};
use slab::{NIL, Slab};
use std::collections::VecDeque;
use std::sync::Arc;
use table::Table;
use token::Tokens;
use wheel::Wheel;

/// How many tables the keys are spread over. More would make a rehash shorter (at ten million keys a table
/// holds 20,000, which takes about a millisecond), fewer stay in the cache where few keys are held.
const KEY_SHARDS: usize = 512;

/// How many tables the waiting requests are spread over.
const REQUEST_SHARDS: usize = 1024;

/// A queue of effects that has grown beyond this is given back when it is empty.
const QUEUE_KEPT: usize = 1024;

/// All locks of a node. See the [module](self).
pub struct Engine {
    settings: EngineSettings,
    hashes: SecretHash,
    tokens: Tokens,
    locks: Slab<Lock>,
    queues: Slab<Queue>,
    claims: Slab<Claim>,
    connections: Slab<Connection>,
    owners: Slab<SharedOwner>,
    /// Locks by key.
    keys: Table,
    /// Waiting claims that can be recognised, by client and number.
    requests: Table,
    wheel: Wheel,
    attempts: Attempts,
    /// Connections that are gone, and on which requests still seem to wait.
    parting: VecDeque<u32>,
    /// Keys whose queues are being refused, because no token was left.
    unserved: VecDeque<Key>,
    effects: VecDeque<Effect>,
    changes: Changes,
    generation: u32,
    held: usize,
    waiting: usize,
    detached: usize,
    /// Whether grants of another node were ever taken in.
    merged: bool,
    counts: Counts,
}

/// An owner and how many connections and claims point at it.
struct SharedOwner {
    owner: Arc<Owner>,
    uses: u32,
}

/// What happened since the start.
#[derive(Default)]
struct Counts {
    granted: u64,
    handed_over: u64,
    released: u64,
    expired: u64,
    undelivered: u64,
    timed_out: u64,
    dropped: u64,
    waited: Histogram,
    held: Histogram,
}

/// A term that cannot be opened: terms only rise, and end below 2³¹.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("term {term} cannot follow term {current}")]
pub struct TermError {
    /// The term that was to be opened.
    pub term: u32,
    /// The highest one known.
    pub current: u32,
}

impl Engine {
    /// An engine without locks. `hash_seed` has to be a secret random number, so that no client can
    /// choose keys that collide. Grants nothing until a term is [opened](Engine::open_term).
    #[must_use]
    pub fn new(settings: EngineSettings, hash_seed: u64) -> Engine {
        Engine {
            hashes: SecretHash::new(hash_seed),
            tokens: Tokens::default(),
            locks: Slab::new(),
            queues: Slab::new(),
            claims: Slab::new(),
            connections: Slab::new(),
            owners: Slab::new(),
            keys: Table::new(KEY_SHARDS),
            requests: Table::new(REQUEST_SHARDS),
            wheel: Wheel::new(),
            attempts: Attempts::new(settings.max_attempts_remembered, settings.attempt_memory),
            parting: VecDeque::new(),
            unserved: VecDeque::new(),
            effects: VecDeque::new(),
            changes: Changes::new(settings.recording),
            generation: 0,
            held: 0,
            waiting: 0,
            detached: 0,
            merged: false,
            counts: Counts::default(),
            settings,
        }
    }

    /// Takes tokens from `term` from now on: 32 bits term, 4 bits `slot`, 28 bits counter, which
    /// begins above `counter_start` (0, or for a node that remembers nothing a fraction of a second).
    ///
    /// # Errors
    /// The term is not above the highest one known, or is 2³¹ or more.
    ///
    /// # Panics
    /// If `slot` is not below 16 or `counter_start` not below 2²⁸: both are the caller's own.
    pub fn open_term(&mut self, term: u32, slot: u8, counter_start: u32) -> Result<(), TermError> {
        if self.settings.mutation.is(Mutation::SkipTermBump) {
            self.tokens.open_any(term, slot, counter_start);
        } else {
            self.tokens.open(term, slot, counter_start)?;
        }
        self.record(|_| Change::TermOpened { term });
        Ok(())
    }

    /// Gives the term to be opened, with the same slot, when the counter of the present one ends.
    ///
    /// # Errors
    /// The term is not above the highest one known, or is 2³¹ or more.
    pub fn provide_next_term(&mut self, term: u32) -> Result<(), TermError> {
        self.tokens.provide(term)
    }

    /// The term that tokens are taken from, 0 before the first.
    #[must_use]
    pub fn term(&self) -> u32 {
        self.tokens.term()
    }

    /// The highest token granted or copied so far.
    #[must_use]
    pub fn highest_token(&self) -> Option<Token> {
        self.tokens.highest()
    }

    /// Whether there is something to be done.
    #[must_use]
    #[inline]
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// The next thing to be done. Take all after every call that changes something.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        poll(&mut self.effects)
    }
}

fn poll<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let next = queue.pop_front();
    if next.is_none() && queue.capacity() > QUEUE_KEPT {
        *queue = VecDeque::new();
    }
    next
}
