//! What a client decides, without a network.

use super::view::{KeyState, LockPage, Status, Waiters};
use crate::protocol::{Key, Millis, Token, Wait};

/// What a caller wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    Connected,
    Acquire {
        key: Key,
        lease: Millis,
        wait: Wait,
        keep_alive: bool,
        max_hold: Option<Millis>,
    },
    ReleaseLock {
        lock: LockId,
    },
    KeepLock {
        lock: LockId,
        /// The lock's own lease if none is given.
        lease: Option<Millis>,
    },
    Release {
        key: Key,
        token: Token,
    },
    Keep {
        key: Key,
        token: Token,
        lease: Millis,
    },
    Inspect {
        key: Key,
    },
    Waiters {
        key: Key,
        limit: u32,
    },
    Locks {
        prefix: Option<Key>,
        after: Option<Key>,
        limit: u32,
    },
    Status,
    Close,
}

/// What came of it, if nothing went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Nothing more to say.
    Done,
    Locked(Grant),
    /// A try that did not get the lock.
    NotHad,
    /// Released or kept; false if the token did not hold the key.
    Confirmed(bool),
    Key(Box<KeyState>),
    Waiters(Box<Waiters>),
    Locks(Box<LockPage>),
    Status(Box<Status>),
}

/// A lock that was granted and counted, and has not been given to the caller yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    pub(crate) lock: LockId,
    pub(crate) key: Key,
    pub(crate) token: Token,
}

/// Names an operation under way; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct OperationId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// Names a held lock; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LockId {
    pub(super) index: u32,
    pub(super) generation: u32,
}
