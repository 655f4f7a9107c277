//! Looking without touching: one key, its queue, all keys.

use super::connections::Owner;
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

/// A held key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockRow<'a> {
    /// The key.
    pub key: KeyRef<'a>,
    /// The token of its grant.
    pub token: Token,
    /// What is left of the lease.
    pub remaining: Millis,
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
}

/// How far a list has come. The order is stable while an engine lives: the keys that stay held
/// throughout are each listed exactly once, whatever happens to others meanwhile.
#[derive(Clone, Debug)]
pub struct ListCursor {
    prefix: Box<[u8]>,
    after: Option<Key>,
}

impl ListCursor {
    /// Begins a list of the keys with `prefix`, behind `after`.
    #[must_use]
    pub fn new(prefix: Prefix<'_>, after: Option<KeyRef<'_>>) -> ListCursor {
        ListCursor {
            prefix: prefix.spelling().into(),
            after: after.map(KeyRef::to_key),
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
    /// Grants.
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
