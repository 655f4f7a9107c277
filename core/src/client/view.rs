//! What the server tells about its locks, for operators and tests.

use crate::protocol::{Role, Token};
use std::time::Duration;

/// Who holds a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldLock {
    /// What is locked.
    pub key: Vec<u8>,
    /// The fencing token of the grant.
    pub token: Token,
    /// What is left of the lease.
    pub remaining: Duration,
    /// How many wait for the key.
    pub waiters: u64,
    /// The name that the holder gave itself.
    pub name: Option<Vec<u8>>,
    /// The network address of the holder, as the server saw it.
    pub address: String,
}

/// What a key is at the moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyState {
    /// Nobody holds it.
    Free {
        /// How many wait for one who has lost the connection at the head of the queue; nearly always 0.
        waiters: u64,
    },
    /// Somebody holds it.
    Held(HeldLock),
}

/// One who waits for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// The place in the queue, from 1.
    pub position: u64,
    /// For how long already.
    pub waited: Duration,
    /// The name that the client gave itself.
    pub name: Option<Vec<u8>>,
    /// The network address of the client, as the server saw it.
    pub address: String,
}

/// The head of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiters {
    /// How many wait in all.
    pub count: u64,
    /// Those at the head, as many as were asked for.
    pub first: Vec<Waiter>,
}

/// Some of the held keys, in the server's own order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockPage {
    /// The locks.
    pub locks: Vec<HeldLock>,
    /// What to give as `after` for the next page; nothing if this is the last one.
    pub next: Option<Vec<u8>>,
}

/// What a server says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// What it is.
    pub role: Role,
    /// Its own address.
    pub node: String,
    /// The address of the active node, if it knows.
    pub active: Option<String>,
    /// The term of its tokens.
    pub term: u32,
    /// How many keys are held.
    pub held: u64,
    /// How many requests wait.
    pub waiting: u64,
    /// How many connections there are.
    pub connections: u64,
    /// The standbys that have a copy of its state.
    pub standbys: Vec<String>,
    /// All nodes of its cluster in the order of their priority, itself included, as a hello named them.
    pub peers: Vec<String>,
}
