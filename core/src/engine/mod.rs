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

mod connections;
mod output;
mod settings;
mod time;
mod view;

pub use connections::{ConnectionId, Owner};
pub use output::{Answer, Change, ClaimId, Effect, Grant, Refusal};
pub use settings::EngineSettings;
pub use time::Time;
pub use view::{Inspection, ListCursor, LockRow, Stats, WaiterRow};

use crate::protocol::{ClientId, KeyRef, Millis, NameRef, Tag, Token, Wait};

/// All locks of a node. See the [module](self).
pub struct Engine {}

/// A term that cannot be opened: terms only rise, and end below 2³¹.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("term {term} cannot follow term {current}")]
pub struct TermError {
    /// The term that was to be opened.
    pub term: u32,
    /// The one that is open.
    pub current: u32,
}

impl Engine {
    /// An engine without locks. `hash_seed` has to be a secret random number, so that no client can
    /// choose keys that collide. Grants nothing until a term is [opened](Engine::open_term).
    #[must_use]
    pub fn new(settings: EngineSettings, hash_seed: u64) -> Engine {
        todo!()
    }

    /// Takes tokens from `term` from now on: 32 bits term, 4 bits `slot`, 28 bits counter, which
    /// begins above `counter_start` (0, or for a node that remembers nothing a fraction of a second).
    ///
    /// # Errors
    /// The term is not above the one before, or is 2³¹ or more.
    ///
    /// # Panics
    /// If `slot` is not below 16 or `counter_start` not below 2²⁸: both are the caller's own.
    pub fn open_term(&mut self, term: u32, slot: u8, counter_start: u32) -> Result<(), TermError> {
        todo!()
    }

    /// Gives the term to be opened, with the same slot, when the counter of the present one ends.
    ///
    /// # Errors
    /// The term is not above the present one, or is 2³¹ or more.
    pub fn provide_next_term(&mut self, term: u32) -> Result<(), TermError> {
        todo!()
    }

    /// The highest token granted or copied so far.
    #[must_use]
    pub fn highest_token(&self) -> Option<Token> {
        todo!()
    }

    /// A connection from `address` (`host:port`) begins.
    pub fn connect(&mut self, address: &str) -> ConnectionId {
        todo!()
    }

    /// A connection says who it is. Returns false, and changes nothing, if it has said so before or
    /// has asked for something already.
    pub fn hello(
        &mut self,
        connection: ConnectionId,
        client: Option<ClientId>,
        name: NameRef<'_>,
    ) -> bool {
        todo!()
    }

    /// A connection is gone. Its waiting requests leave, or if they can be recognised keep their
    /// place for the grace. `unsent` are the grants whose reply had not left the node; they are taken
    /// back after the grace unless they are asked for again.
    pub fn disconnect(&mut self, now: Time, connection: ConnectionId, unsent: &[Grant]) {
        todo!()
    }

    /// Handles `A`.
    pub fn acquire(
        &mut self,
        now: Time,
        connection: ConnectionId,
        key: KeyRef<'_>,
        lease: Millis,
        wait: Wait,
        tag: Option<Tag>,
    ) -> Answer {
        todo!()
    }

    /// Handles `R`: whether the token held the key. Anybody who knows the token may release.
    pub fn release(&mut self, now: Time, key: KeyRef<'_>, token: Token) -> bool {
        todo!()
    }

    /// Handles `K`: whether the token holds the key. Its lease ends `lease` from now, or when it would
    /// have ended anyway if that is later.
    pub fn keep(&mut self, now: Time, key: KeyRef<'_>, token: Token, lease: Millis) -> bool {
        todo!()
    }

    /// Handles `C`: whether there was a request of this client with that tag, up to its attempt, that
    /// waited or held.
    pub fn cancel(
        &mut self,
        now: Time,
        connection: ConnectionId,
        key: KeyRef<'_>,
        tag: Tag,
    ) -> bool {
        todo!()
    }

    /// When [`expire`](Engine::expire) has to be called at the latest, if nothing changes before.
    /// `Time(0)` if it has work left that is due already.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        todo!()
    }

    /// Ends the leases, waits and graces that are over by `now`, none early and none more than a
    /// millisecond late, but at most `at_most` of them. Returns whether there is more to do now.
    ///
    /// Call it before the requests that are read at `now`; when nothing is due it costs nothing.
    pub fn expire(&mut self, now: Time, at_most: usize) -> bool {
        todo!()
    }

    /// The next thing to be done. Take all after every call that changes something.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        todo!()
    }

    /// The next change of the state, if [they are recorded](EngineSettings::record_changes).
    pub fn poll_change(&mut self) -> Option<Change> {
        todo!()
    }

    /// Handles `I`.
    #[must_use]
    pub fn inspect(&self, now: Time, key: KeyRef<'_>) -> Inspection<'_> {
        todo!()
    }

    /// The rows of `W`, in the order of the queue.
    pub fn waiters(&self, now: Time, key: KeyRef<'_>) -> impl Iterator<Item = WaiterRow<'_>> {
        std::iter::empty()
    }

    /// How many wait for a key.
    #[must_use]
    pub fn queue_length(&self, key: KeyRef<'_>) -> u64 {
        todo!()
    }

    /// Hands the next rows of `L`, at most `at_most`, to `row`. Returns whether there may be more: then
    /// call again, now or when the reader has taken these. A call does a bounded amount of work and so
    /// may hand over nothing although there is more.
    pub fn list(
        &self,
        now: Time,
        cursor: &mut ListCursor,
        at_most: usize,
        row: impl FnMut(LockRow<'_>),
    ) -> bool {
        todo!()
    }

    /// Numbers for status and metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        todo!()
    }
}
