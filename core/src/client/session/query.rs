//! Questions: who holds, who waits, what is held, how is the node; and waiting for a connection.

use super::super::view::{HeldLock, KeyState, LockPage, Status, Waiter, Waiters};
use super::hash::HashedKey;
use super::operation::{Age, Kind, Operation};
use super::slab::OperationId;
use super::tries::Tries;
use super::{Ask, FaceId, Micros, Outcome, Session};
use crate::error::Error;
use crate::protocol::{
    Holder, Key, KeyRef, Operation as Letter, Prefix, Request, StatusReply, Tag,
};

pub(super) struct Query {
    what: What,
    pub(super) tries: Tries,
}

enum What {
    Connected,
    Inspect(HashedKey),
    Waiters {
        key: HashedKey,
        limit: u32,
        rows: Vec<Waiter>,
    },
    Locks {
        prefix: Option<Key>,
        after: Option<Key>,
        limit: u32,
        rows: Vec<HeldLock>,
    },
    Status,
}

impl Query {
    pub(super) fn key(&self) -> Option<&HashedKey> {
        match &self.what {
            What::Inspect(key) | What::Waiters { key, .. } => Some(key),
            What::Connected | What::Locks { .. } | What::Status => None,
        }
    }

    pub(super) fn letter(&self) -> Option<Letter> {
        match &self.what {
            What::Connected => None,
            What::Inspect(_) => Some(Letter::Inspect),
            What::Waiters { .. } => Some(Letter::Waiters),
            What::Locks { .. } => Some(Letter::List),
            What::Status => Some(Letter::Status),
        }
    }
}

impl Session {
    /// A face that is told when a connection is up.
    pub(super) fn await_connection(&mut self, face: FaceId, now: Micros) -> Option<OperationId> {
        if self.connections.iter().any(|connection| connection.is_up()) {
            self.complete(face, Ok(Outcome::Done));
            return None;
        }
        Some(self.start_query(What::Connected, face, now))
    }

    pub(super) fn query(&mut self, ask: Ask, face: FaceId, now: Micros) -> OperationId {
        let what = match ask {
            Ask::Inspect { key } => What::Inspect(self.keys.hashed(key)),
            Ask::Waiters { key, limit } => What::Waiters {
                key: self.keys.hashed(key),
                limit,
                rows: Vec::new(),
            },
            Ask::Locks {
                prefix,
                after,
                limit,
            } => What::Locks {
                prefix,
                after,
                limit,
                rows: Vec::new(),
            },
            _ => What::Status,
        };
        self.start_query(what, face, now)
    }

    fn start_query(&mut self, what: What, face: FaceId, now: Micros) -> OperationId {
        let query = Query {
            what,
            tries: Tries::default(),
        };
        let kind = Kind::Query(Box::new(query));
        let id = self.insert_operation(Operation::new(kind, Some(face)));
        self.route(id, now);
        id
    }

    pub(super) fn send_query(&mut self, id: OperationId, index: usize, now: Micros) {
        let tag = Tag::first(self.new_tag());
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let Kind::Query(query) = &mut operation.kind else {
            return;
        };
        let outgoing = &mut self.connections[index].outgoing;
        match &mut query.what {
            What::Connected => return self.finish_query(id, Outcome::Done),
            What::Inspect(key) => Request::Inspect {
                key: key.as_ref(),
                tag: Some(tag),
            }
            .encode(outgoing),
            What::Waiters { key, limit, rows } => {
                rows.clear();
                Request::Waiters {
                    key: key.as_ref(),
                    limit: *limit,
                    tag: Some(tag),
                }
                .encode(outgoing);
            }
            What::Locks {
                prefix,
                after,
                limit,
                rows,
            } => {
                rows.clear();
                Request::List {
                    prefix: prefix
                        .as_ref()
                        .map_or(Prefix::ALL, |prefix| Prefix::of_spelling(prefix.spelling())),
                    limit: *limit,
                    after: after.as_ref().map(Key::as_ref),
                    tag: Some(tag),
                }
                .encode(outgoing);
            }
            What::Status => {
                Request::Status.encode(outgoing);
                self.connections[index].statuses.push_back((id, tag));
            }
        }
        self.note_sent(id, tag, index, now);
    }

    fn finish_query(&mut self, id: OperationId, outcome: Outcome) {
        if let Some(operation) = self.remove_operation(id)
            && let Some(face) = operation.face
        {
            self.complete(face, Ok(outcome));
        }
    }

    fn query_mut(&mut self, id: OperationId) -> Option<&mut Query> {
        match &mut self.operations.get_mut(id)?.kind {
            Kind::Query(query) => Some(query),
            Kind::Acquire(_) | Kind::Release(..) | Kind::Cancel(..) | Kind::Keep(..) => None,
        }
    }

    /// `I … free`.
    pub(super) fn handle_free(&mut self, id: OperationId, waiters: u64) {
        self.finish_query(id, Outcome::Key(Box::new(KeyState::Free { waiters })));
    }

    /// `I … held`.
    pub(super) fn handle_held(&mut self, id: OperationId, holder: &Holder<'_>) {
        let state = KeyState::Held(held_lock(holder));
        self.finish_query(id, Outcome::Key(Box::new(state)));
    }

    /// `w`.
    pub(super) fn handle_waiter_row(&mut self, id: OperationId, waiter: Waiter) {
        if let Some(Query {
            what: What::Waiters { rows, limit, .. },
            ..
        }) = self.query_mut(id)
            && rows.len() < *limit as usize
        {
            rows.push(waiter);
        }
    }

    /// `W`.
    pub(super) fn handle_waiters(&mut self, id: OperationId, count: u64) {
        let Some(Query {
            what: What::Waiters { rows, .. },
            ..
        }) = self.query_mut(id)
        else {
            return;
        };
        let first = std::mem::take(rows);
        let waiters = Waiters { count, first };
        self.finish_query(id, Outcome::Waiters(Box::new(waiters)));
    }

    /// `l`.
    pub(super) fn handle_lock_row(&mut self, id: OperationId, holder: &Holder<'_>) {
        if let Some(Query {
            what: What::Locks { rows, limit, .. },
            ..
        }) = self.query_mut(id)
            && rows.len() < *limit as usize
        {
            rows.push(held_lock(holder));
        }
    }

    /// `L`.
    pub(super) fn handle_listed(&mut self, id: OperationId) {
        let Some(Query {
            what: What::Locks { rows, limit, .. },
            ..
        }) = self.query_mut(id)
        else {
            return;
        };
        let full = rows.len() == *limit as usize;
        let locks = std::mem::take(rows);
        let next = locks.last().filter(|_| full).map(|last| last.key.clone());
        let page = LockPage { locks, next };
        self.finish_query(id, Outcome::Locks(Box::new(page)));
    }

    /// `S`, which answers the first question for it on its connection.
    pub(super) fn handle_status(&mut self, index: usize, status: &StatusReply<'_>) {
        let Some(id) = self.settle_status(index, true) else {
            return;
        };
        let outcome = Outcome::Status(Box::new(Status {
            role: status.role,
            node: status.node.to_owned(),
            active: status.active.map(str::to_owned),
            term: status.term,
            held: status.held,
            waiting: status.waiting,
            connections: status.connections,
            standbys: status.standbys.iter().map(str::to_owned).collect(),
            peers: self.peers.iter().map(ToString::to_string).collect(),
        }));
        self.finish_query(id, outcome);
    }

    /// The first question for the status on this connection was refused.
    pub(super) fn refuse_status(&mut self, index: usize, error: Error) {
        if let Some(id) = self.settle_status(index, false) {
            self.fail_operation(id, error);
        }
    }

    /// The first question for the status on this connection is answered: which operation that is, unless it has been
    /// asked again elsewhere. `counts` as in `note_answer`.
    fn settle_status(&mut self, index: usize, counts: bool) -> Option<OperationId> {
        let (id, tag) = self.connections[index].statuses.pop_front()?;
        let operation = self.operations.get_mut(id)?;
        let (sent, age) =
            operation.settle_copy(tag, index, &mut self.connections, &mut self.tags)?;
        self.note_answer(index, sent.sequence, sent.at, counts);
        (age == Age::Current).then_some(id)
    }
}

fn held_lock(holder: &Holder<'_>) -> HeldLock {
    HeldLock {
        key: holder.key.decode(),
        token: holder.token,
        remaining: holder.remaining.duration(),
        waiters: holder.waiters,
        name: holder.name.decode(),
        address: holder.address.to_owned(),
    }
}

/// A row of a queue.
pub(super) fn waiter(
    position: u64,
    waited: crate::protocol::Millis,
    name: crate::protocol::NameRef<'_>,
    address: &str,
) -> Waiter {
    Waiter {
        position,
        waited: waited.duration(),
        name: name.decode(),
        address: address.to_owned(),
    }
}

/// Whether a reply about `key` fits an operation about `mine`.
pub(super) fn same_key(mine: Option<&Key>, key: KeyRef<'_>) -> bool {
    mine.is_some_and(|mine| mine.spelling() == key.spelling())
}
