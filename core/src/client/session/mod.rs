//! What a client decides, without a network: which connection a request takes, what a reply means, what is tried
//! again and when, when a lock has to be renewed and when it is lost.
//!
//! ```text
//!   ask, cancel, drop_lock … ─┐                          ┌─▶ Effect: connect, write, close,
//!   handle_connected/bytes/… ─┼─▶ Session (now, chance) ─┤           complete, lost, finished
//!   handle_due ───────────────┘                          └─▶ next_deadline
//! ```
//!
//! It knows no clock, no socket, no thread and no chance: the time comes with each call, in microseconds of a clock that
//! runs while the machine sleeps, and the seed of its dice comes with its settings. So every run can be
//! repeated, and the tests beside this code live in virtual time. The numbers in the tests' names are
//! the rules of section 4 of the behaviour.

mod acquire;
mod busy_keys;
mod choice;
mod close;
mod connection;
mod deadlines;
mod failure;
mod hash;
mod in_hand;
mod keep;
mod lock;
mod moved;
mod operation;
mod query;
mod recent;
mod repeat;
mod reply;
#[cfg(feature = "simulation")]
pub(crate) mod simulation;
mod slab;
mod tags;
#[cfg(test)]
mod tests;
mod tries;

pub(crate) use close::Life;
pub(crate) use failure::Failure;
pub(crate) use lock::LockView as SeenLock;
pub(crate) use slab::{FaceId, LockId, OperationId, Slab};

use super::address::Address;
use super::view::{KeyState, LockPage, Status, Waiters};
use crate::error::{Error, LostReason};
use crate::mutation::Mutation;
use crate::protocol::{ClientId, Key, Millis, Token, Wait};
use busy_keys::BusyKeys;
use choice::Rotation;
use connection::Connection;
use deadlines::Deadlines;
use hash::Seeded;
use in_hand::InHand;
use lock::HeldLock;
use moved::Active;
use operation::Operation;
use recent::Recent;
use std::collections::VecDeque;
use tags::Tags;

/// Microseconds of a clock that runs while the machine sleeps.
pub(crate) type Micros = u64;

pub(super) const MILLISECOND: Micros = 1_000;
pub(super) const SECOND: Micros = 1_000_000;

/// More calls under way at once than this are refused.
const OPERATIONS_MAX: usize = 1_000_000;

/// Who this client is and how patient it is.
pub(crate) struct Settings {
    pub(crate) id: ClientId,
    /// In wire spelling.
    pub(crate) name: Vec<u8>,
    /// In wire spelling.
    pub(crate) secret: Option<Vec<u8>>,
    pub(crate) servers: Vec<Address>,
    pub(crate) connect_timeout: Micros,
    pub(crate) retry_for: Micros,
    /// Follow moves only to addresses of the own list.
    pub(crate) listed_only: bool,
    /// For the session's dice.
    pub(crate) seed: u64,
    /// What is broken on purpose.
    pub(crate) mutation: Mutation,
}

/// One try of one connection; news about another try of the same connection are not about it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) epoch: u32,
}

/// What is to be done outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Make a connection, then say `handle_connected` or `handle_connect_failed`.
    Connect {
        connection: ConnectionId,
        address: Address,
    },
    /// There are bytes to be written: `take_outgoing`. Not told again before that has been called.
    Write {
        connection: ConnectionId,
    },
    /// Nobody listens to this connection any more. With `reset`, what it has not sent yet is not to be sent.
    Close {
        connection: ConnectionId,
        reset: bool,
    },
    Complete {
        face: FaceId,
        result: Result<Outcome, Error>,
    },
    Lost {
        lock: LockId,
        reason: LostReason,
    },
    /// The session is over; nothing more will come.
    Finished,
}

/// What a caller wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// A connection that is up.
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    pub(crate) lock: LockId,
    pub(crate) token: Token,
}

/// A client's decisions.
pub(crate) struct Session {
    settings: Settings,
    /// The registered ones first, then those that servers have named.
    connections: Vec<Connection>,
    registered: usize,
    connection_deadlines: Deadlines,
    /// Where the round-robin goes on.
    turn: usize,
    rotation: Rotation,
    active: Option<Active>,
    /// Addresses of nodes that a hello has named.
    peers: Vec<Address>,
    operations: Slab<OperationId, Operation>,
    operation_deadlines: Deadlines,
    /// Which operation a tag belongs to.
    tags: Tags,
    last_tag: u64,
    /// Operations that wait for a connection, in the order in which they began to.
    waiting: VecDeque<OperationId>,
    /// Hashes keys.
    keys: Seeded,
    /// Keys with a release or cancel under way.
    busy_keys: BusyKeys,
    locks: Slab<LockId, HeldLock>,
    in_hand: InHand,
    lock_deadlines: Deadlines,
    recent: Recent,
    /// The highest token this client knows.
    seen: Option<Token>,
    effects: VecDeque<Effect>,
    life: Life,
    /// The end of a client that closes has been set.
    life_hastened: bool,
    chance: u64,
}

impl Session {
    pub(crate) fn new(settings: Settings, now: Micros) -> Session {
        // With a single address two connections lead to the same node.
        let twice = if settings.servers.len() == 1 { 2 } else { 1 };
        let connections: Vec<Connection> = (0..twice)
            .flat_map(|_| &settings.servers)
            .map(|address| Connection::new(address.clone(), true))
            .collect();
        let mut session = Session {
            registered: connections.len(),
            chance: settings.seed,
            keys: Seeded::new(settings.seed),
            busy_keys: BusyKeys::default(),
            settings,
            connections,
            connection_deadlines: Deadlines::default(),
            turn: 0,
            rotation: Rotation::default(),
            active: None,
            peers: Vec::new(),
            operations: Slab::new(),
            operation_deadlines: Deadlines::default(),
            tags: Tags::default(),
            last_tag: 0,
            waiting: VecDeque::new(),
            locks: Slab::new(),
            in_hand: InHand::default(),
            lock_deadlines: Deadlines::default(),
            recent: Recent::default(),
            seen: None,
            effects: VecDeque::new(),
            life: Life::Open,
            life_hastened: false,
        };
        for index in 0..session.registered {
            session.begin_try(index, now);
        }
        session
    }

    /// Begins an operation. Its end is told to `face`, perhaps before this returns.
    pub(crate) fn ask(&mut self, ask: Ask, face: FaceId, now: Micros) -> Option<OperationId> {
        let refusal = match &self.life {
            Life::Open => (self.operations.len() >= OPERATIONS_MAX).then(|| {
                let kind = crate::error::ErrorKind::of_wire_code("busy");
                let text = format!("more than {OPERATIONS_MAX} calls are under way in this client; wait for some to end");
                Error::new(kind, text)
            }),
            Life::Closing { .. } | Life::Retiring | Life::Over => match &ask {
                Ask::Close => None,
                Ask::ReleaseLock { lock } if self.is_lost_or_released(*lock) => None,
                _ => Some(Error::closed()),
            },
        };
        if let Some(error) = refusal {
            self.complete(face, Err(error));
            return None;
        }
        match ask {
            Ask::Acquire {
                key,
                lease,
                wait,
                keep_alive,
                max_hold,
            } => Some(self.acquire(key, lease, wait, keep_alive, max_hold, face, now)),
            Ask::ReleaseLock { lock } => self.release_lock(lock, face, now),
            Ask::KeepLock { lock, lease } => self.keep_lock(lock, lease, face, now),
            Ask::Release { key, token } => Some(self.release_token(key, token, Some(face), now)),
            Ask::Keep { key, token, lease } => Some(self.keep_token(key, token, lease, face, now)),
            Ask::Connected => self.await_connection(face, now),
            Ask::Inspect { .. } | Ask::Waiters { .. } | Ask::Locks { .. } | Ask::Status => {
                Some(self.query(ask, face, now))
            }
            Ask::Close => {
                self.close(face, now);
                None
            }
        }
    }

    /// Whether there is something to be done outside.
    pub(crate) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// The next thing to be done outside.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When `handle_due` wants to be called, at the latest. Now and then there is nothing to do yet at that moment.
    pub(crate) fn next_deadline(&self) -> Option<Micros> {
        let never = Micros::MAX;
        let next = (self.operation_deadlines.next().unwrap_or(never))
            .min(self.lock_deadlines.next().unwrap_or(never))
            .min(self.connection_deadlines.next().unwrap_or(never))
            .min(self.life.deadline().unwrap_or(never));
        (next != never).then_some(next)
    }

    /// Whether `next_deadline` may have become earlier since the last time that this was asked.
    pub(crate) fn take_hastened(&mut self) -> bool {
        let operations = self.operation_deadlines.take_hastened();
        let locks = self.lock_deadlines.take_hastened();
        let connections = self.connection_deadlines.take_hastened();
        operations | locks | connections | std::mem::take(&mut self.life_hastened)
    }

    /// Does what the time demands.
    pub(crate) fn handle_due(&mut self, now: Micros) {
        while let Some(index) = self.connection_deadlines.take_due(now) {
            self.handle_connection_due(index as usize, now);
        }
        while let Some(index) = self.operation_deadlines.take_due(now) {
            if let Some(id) = self.operations.id_at(index) {
                self.handle_operation_due(id, now);
            }
        }
        while let Some(index) = self.lock_deadlines.take_due(now) {
            if let Some(id) = self.locks.id_at(index) {
                self.handle_lock_due(id, now);
            }
        }
        self.recent.forget_before(now);
        self.check_end(now);
    }

    /// The bytes to be written to a connection, moved into `buffer`, which has to be empty.
    pub(crate) fn take_outgoing(&mut self, id: ConnectionId, buffer: &mut Vec<u8>) {
        debug_assert!(buffer.is_empty(), "bytes must not overtake each other");
        if let Some(index) = self.current(id) {
            let connection = &mut self.connections[index];
            std::mem::swap(buffer, &mut connection.outgoing);
            connection.write_told = false;
        }
    }

    /// How many requests are under way on a connection.
    pub(crate) fn under_way(&self, id: ConnectionId) -> u32 {
        match self.current(id) {
            Some(index) => self.connections[index].under_way,
            None => 0,
        }
    }

    /// The connection that the latest request of an operation was sent on.
    pub(crate) fn connection_of(&self, operation: OperationId) -> Option<ConnectionId> {
        let index = self.operations.get(operation)?.connection()?;
        Some(self.connection_id(index))
    }

    fn note_write(&mut self, index: usize) {
        if !std::mem::replace(&mut self.connections[index].write_told, true) {
            let connection = self.connection_id(index);
            self.effects.push_back(Effect::Write { connection });
        }
    }

    fn complete(&mut self, face: FaceId, result: Result<Outcome, Error>) {
        self.effects.push_back(Effect::Complete { face, result });
    }

    fn new_tag(&mut self) -> u64 {
        self.last_tag += 1;
        self.last_tag
    }

    /// `time`, give or take a tenth.
    fn roughly(&mut self, time: Micros) -> Micros {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        let tenth = time / 10;
        time - tenth + mixed % (2 * tenth + 1)
    }
}
