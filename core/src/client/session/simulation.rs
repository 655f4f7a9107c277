//! The client's decisions for the simulation of whole clusters: the same session that a real client has,
//! with names that can be used outside of the crate. It decides nothing itself.

#![allow(missing_docs)]

use super::slab::{FaceId, LockId as HeldId, OperationId as Under, Slab};
use super::{Ask as Asked, ConnectionId as Connection, Effect as Told, Micros, Outcome as Came};
use crate::client::address::Address;
use crate::error::{Error, LostReason};
use crate::mutation::Mutation;
use crate::protocol::{ClientId, Key, Millis, Token, Wait};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(Connection);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockId(HeldId);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OperationId(Under);

#[derive(Clone, Debug)]
pub struct Settings {
    pub id: ClientId,
    pub name: Vec<u8>,
    pub servers: Vec<String>,
    pub connect_timeout: Micros,
    pub retry_for: Micros,
    pub seed: u64,
    pub mutation: Mutation,
}

#[derive(Clone, Debug)]
pub enum Ask {
    Acquire {
        key: Key,
        lease: Millis,
        wait: Wait,
        keep_alive: bool,
        max_hold: Option<Millis>,
    },
    ReleaseLock(LockId),
    KeepLock(LockId),
    Inspect(Key),
    Close,
}

#[derive(Clone, Debug)]
pub enum Effect {
    Connect {
        connection: ConnectionId,
        address: String,
    },
    Write(ConnectionId),
    Close {
        connection: ConnectionId,
        reset: bool,
    },
    Complete {
        call: u64,
        result: Result<Outcome, Error>,
    },
    Lost {
        lock: LockId,
        reason: LostReason,
    },
    Finished,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Locked {
        lock: LockId,
        key: Key,
        token: Token,
    },
    NotHad,
    Confirmed(bool),
    Other,
}

pub struct Session {
    session: super::Session,
    calls: Slab<FaceId, u64>,
}

impl Session {
    /// # Panics
    /// If a server is no address.
    #[must_use]
    pub fn new(settings: Settings, now: Micros) -> Session {
        let servers = settings.servers.iter();
        let servers = servers.map(|text| Address::parse(text).expect("an address"));
        let settings = super::Settings {
            id: settings.id,
            name: settings.name,
            secret: None,
            servers: servers.collect(),
            connect_timeout: settings.connect_timeout,
            retry_for: settings.retry_for,
            listed_only: false,
            seed: settings.seed,
            mutation: settings.mutation,
        };
        Session {
            session: super::Session::new(settings, now),
            calls: Slab::new(),
        }
    }

    /// Begins an operation; its end is told with the number of the call.
    pub fn ask(&mut self, ask: Ask, call: u64, now: Micros) -> Option<OperationId> {
        let ask = match ask {
            Ask::Acquire {
                key,
                lease,
                wait,
                keep_alive,
                max_hold,
            } => Asked::Acquire {
                key,
                lease,
                wait,
                keep_alive,
                max_hold,
            },
            Ask::ReleaseLock(lock) => Asked::ReleaseLock { lock: lock.0 },
            Ask::KeepLock(lock) => Asked::KeepLock {
                lock: lock.0,
                lease: None,
            },
            Ask::Inspect(key) => Asked::Inspect { key },
            Ask::Close => Asked::Close,
        };
        let face = self.calls.insert(call);
        self.session.ask(ask, face, now).map(OperationId)
    }

    pub fn cancel(&mut self, operation: OperationId, now: Micros) {
        self.session.cancel(operation.0, now);
    }

    pub fn drop_lock(&mut self, lock: LockId, now: Micros) {
        self.session.drop_lock(lock.0, now);
    }

    /// Whether the lock object would say that it is held, for who only watches.
    #[must_use]
    pub fn would_say_held(&self, lock: LockId, now: Micros) -> bool {
        self.session.would_say_held(lock.0, now)
    }

    /// Whether the lock object says that it is held.
    #[must_use]
    pub fn is_held(&mut self, lock: LockId, now: Micros) -> bool {
        let view = self.session.view_lock(lock.0, now);
        view.is_some_and(|view| view.held)
    }

    /// # Panics
    /// If something is told to a call that is over.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        Some(match self.session.poll_effect()? {
            Told::Connect {
                connection,
                address,
            } => Effect::Connect {
                connection: ConnectionId(connection),
                address: address.to_string(),
            },
            Told::Write { connection } => Effect::Write(ConnectionId(connection)),
            Told::Close { connection, reset } => Effect::Close {
                connection: ConnectionId(connection),
                reset,
            },
            Told::Complete { face, result } => Effect::Complete {
                call: self.calls.remove(face).expect("a call ends once"),
                result: result.map(|outcome| match outcome {
                    Came::Locked(grant) => Outcome::Locked {
                        lock: LockId(grant.lock),
                        key: (self.session.key_of(grant.lock).cloned())
                            .expect("a lock that was just granted is there"),
                        token: grant.token,
                    },
                    Came::NotHad => Outcome::NotHad,
                    Came::Confirmed(held) => Outcome::Confirmed(held),
                    Came::Done
                    | Came::Key(_)
                    | Came::Waiters(_)
                    | Came::Locks(_)
                    | Came::Status(_) => Outcome::Other,
                }),
            },
            Told::Lost { lock, reason } => Effect::Lost {
                lock: LockId(lock),
                reason,
            },
            Told::Finished => Effect::Finished,
        })
    }

    #[must_use]
    pub fn next_deadline(&self) -> Option<Micros> {
        self.session.next_deadline()
    }

    pub fn handle_due(&mut self, now: Micros) {
        self.session.handle_due(now);
    }

    pub fn handle_connected(&mut self, id: ConnectionId, now: Micros) {
        self.session.handle_connected(id.0, now);
    }

    pub fn handle_connect_failed(&mut self, id: ConnectionId, text: &str, now: Micros) {
        self.session
            .handle_connect_failed(id.0, text.to_owned(), now);
    }

    pub fn handle_bytes(&mut self, id: ConnectionId, bytes: &[u8], now: Micros) {
        self.session.handle_bytes(id.0, bytes, now);
    }

    pub fn handle_closed(&mut self, id: ConnectionId, text: &str, now: Micros) {
        self.session.handle_closed(id.0, text.to_owned(), now);
    }

    pub fn take_outgoing(&mut self, id: ConnectionId, buffer: &mut Vec<u8>) {
        self.session.take_outgoing(id.0, buffer);
    }

    /// Calls, requests under way in the background, and locks.
    #[must_use]
    pub fn leftovers(&self) -> usize {
        self.calls.len() + self.session.operations.len() + self.session.locks.len()
    }
}
