//! An operation under way: where it is, and which copies of its request have been sent.

use super::connection::Connection;
use super::hash::HashedKey;
use super::keep::Keep;
use super::query::Query;
use super::repeat::Repeat;
use super::slab::OperationId;
use super::tags::Tags;
use super::tries::Tries;
use super::{FaceId, Micros, Session};
use crate::protocol::{Key, Operation as Letter, Tag, Wait};

pub(super) struct Operation {
    /// Who hears the result; nobody for what goes on in the background.
    pub(super) face: Option<FaceId>,
    pub(super) place: Place,
    /// The latest copy, while an answer to it may come.
    pub(super) current: Option<Sent>,
    /// Earlier copies that may still be answered, or whose fate is unknown.
    pub(super) older: Vec<Sent>,
    /// How often in a row it was moved.
    pub(super) moves: u32,
    /// It stands in the queue of those that wait for a connection.
    pub(super) queued: bool,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Acquire(super::acquire::Acquire),
    Query(Box<Query>),
    Release(Repeat, super::repeat::Release),
    Cancel(Repeat, super::repeat::Cancel),
    Keep(Repeat, Keep),
}

/// Where an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// On the connection of its current copy, or between two copies.
    Sent,
    /// Waiting for any connection.
    Waiting,
    /// Waiting for this connection, to the active node.
    Toward(usize),
    /// Asks again at this moment.
    Paused(Micros),
}

/// A copy of a request on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    pub(super) tag: Tag,
    /// Nothing if that connection is gone: the fate of the copy is unknown.
    pub(super) connection: Option<usize>,
    pub(super) sequence: u64,
    pub(super) at: Micros,
}

impl Operation {
    pub(super) fn new(kind: Kind, face: Option<FaceId>) -> Operation {
        Operation {
            face,
            place: Place::Waiting,
            current: None,
            older: Vec::new(),
            moves: 0,
            queued: false,
            kind,
        }
    }

    /// One whose first copy has been sent.
    #[inline(always)]
    pub(super) fn sent(kind: Kind, face: Option<FaceId>, copy: Sent) -> Operation {
        Operation {
            face,
            place: Place::Sent,
            current: Some(copy),
            older: Vec::new(),
            moves: 0,
            queued: false,
            kind,
        }
    }

    pub(super) fn connection(&self) -> Option<usize> {
        self.current?.connection
    }

    /// The letter that its requests begin with.
    pub(super) fn letter(&self) -> Option<Letter> {
        match &self.kind {
            Kind::Acquire(_) => Some(Letter::Acquire),
            Kind::Query(query) => query.letter(),
            Kind::Release(..) => Some(Letter::Release),
            Kind::Cancel(..) => Some(Letter::Cancel),
            Kind::Keep(..) => Some(Letter::Keep),
        }
    }

    /// The key that its requests are about.
    pub(super) fn key(&self) -> Option<&Key> {
        match &self.kind {
            Kind::Query(query) => query.key().map(|key| &**key),
            _ => self.hashed_key().map(|key| &**key),
        }
    }

    pub(super) fn hashed_key(&self) -> Option<&HashedKey> {
        match &self.kind {
            Kind::Acquire(acquire) => Some(&acquire.key),
            Kind::Query(query) => query.key(),
            Kind::Release(repeat, _) | Kind::Cancel(repeat, _) | Kind::Keep(repeat, _) => {
                Some(&repeat.key)
            }
        }
    }

    /// Whether its requests are answered at once, so that silence says something.
    pub(super) fn is_urgent(&self) -> bool {
        match &self.kind {
            Kind::Acquire(acquire) => acquire.wait == Wait::No,
            Kind::Query(_) | Kind::Release(..) | Kind::Cancel(..) | Kind::Keep(..) => true,
        }
    }

    /// Whether it needs one answer, and is tried until it has that.
    pub(super) fn is_try(&self) -> bool {
        match &self.kind {
            Kind::Acquire(_) | Kind::Query(_) => true,
            Kind::Release(..) | Kind::Cancel(..) | Kind::Keep(..) => false,
        }
    }

    /// How its tries have gone, if there is anything to be said of that.
    pub(super) fn known_tries(&mut self) -> Option<&mut Tries> {
        match &mut self.kind {
            Kind::Acquire(acquire) => acquire.trouble.as_mut().map(|trouble| &mut trouble.tries),
            Kind::Query(query) => Some(&mut query.tries),
            Kind::Release(..) | Kind::Cancel(..) | Kind::Keep(..) => None,
        }
    }

    pub(super) fn tries_mut(&mut self) -> Option<&mut Tries> {
        match &mut self.kind {
            Kind::Acquire(acquire) => Some(&mut acquire.trouble_mut().tries),
            Kind::Query(query) => Some(&mut query.tries),
            Kind::Release(..) | Kind::Cancel(..) | Kind::Keep(..) => None,
        }
    }

    pub(super) fn repeat_mut(&mut self) -> Option<&mut Repeat> {
        match &mut self.kind {
            Kind::Release(repeat, _) | Kind::Cancel(repeat, _) | Kind::Keep(repeat, _) => {
                Some(repeat)
            }
            Kind::Acquire(_) | Kind::Query(_) => None,
        }
    }

    /// Takes out the copy that an answer with this tag on this connection is about.
    #[inline(always)]
    pub(super) fn take_copy(&mut self, tag: Tag, connection: usize) -> Option<(Sent, Age)> {
        let fits = |sent: &Sent| sent.tag == tag && sent.connection == Some(connection);
        if self.older.is_empty() {
            let sent = self.current.filter(fits)?;
            self.current = None;
            return Some((sent, Age::Current));
        }
        // Copies with one tag on one connection are answered in the order in which they were sent.
        let first = self.older.iter().position(fits);
        if let Some(sent) = self.current.filter(fits) {
            let sent = match first {
                Some(place) => self.older.remove(place),
                None => {
                    self.current = None;
                    sent
                }
            };
            return Some((sent, Age::Current));
        }
        Some((self.older.remove(first?), Age::Older))
    }

    /// The same, and the copy is no longer under way.
    #[inline(always)]
    pub(super) fn settle_copy(
        &mut self,
        tag: Tag,
        index: usize,
        connections: &mut [Connection],
        tags: &mut Tags,
    ) -> Option<(Sent, Age)> {
        let taken = self.take_copy(tag, index)?;
        connections[index].take_under_way(self.is_urgent());
        let keeps_tag = match &self.kind {
            Kind::Acquire(acquire) => acquire.tag == tag.number,
            Kind::Cancel(..) => true,
            Kind::Query(_) | Kind::Release(..) | Kind::Keep(..) => false,
        };
        if !keeps_tag {
            tags.remove(tag.number);
        }
        Some(taken)
    }

    /// The current copy becomes an older one.
    pub(super) fn supersede(&mut self) {
        if let Some(sent) = self.current.take() {
            self.older.push(sent);
        }
    }
}

/// Whether a copy is the latest one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Age {
    Current,
    Older,
}

impl Session {
    pub(super) fn insert_operation(&mut self, operation: Operation) -> OperationId {
        self.operations.insert(operation)
    }

    /// Takes an operation out, and all that leads to it.
    pub(super) fn remove_operation(&mut self, id: OperationId) -> Option<Operation> {
        self.unlink_operation(id);
        self.operations.remove(id)
    }

    /// The same for whom needs nothing of it any more.
    pub(super) fn discard_operation(&mut self, id: OperationId) {
        self.unlink_operation(id);
        self.operations.discard(id);
    }

    fn unlink_operation(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        self.operation_deadlines.clear(id.0.index);
        // An operation whose answer has come has no copies.
        if operation.current.is_some() || !operation.older.is_empty() {
            let urgent = operation.is_urgent();
            for sent in operation.current.iter().chain(&operation.older) {
                if let Some(index) = sent.connection {
                    self.connections[index].take_under_way(urgent);
                }
                self.tags.remove_of(sent.tag.number, id);
            }
        }
        match &operation.kind {
            Kind::Acquire(acquire) => self.tags.remove_of(acquire.tag, id),
            Kind::Release(repeat, _) if repeat.copies > 0 => {
                self.busy_keys.leave(id, &mut self.operations);
            }
            Kind::Cancel(repeat, cancel) => {
                self.tags.remove_of(cancel.tag, id);
                if repeat.copies > 0 {
                    self.busy_keys.leave(id, &mut self.operations);
                }
            }
            Kind::Release(..) | Kind::Query(_) | Kind::Keep(..) => {}
        }
    }

    /// Notes that a copy of this operation's request with this tag is on the connection.
    pub(super) fn note_sent(
        &mut self,
        id: OperationId,
        tag: Tag,
        index: usize,
        now: Micros,
    ) -> Option<()> {
        let operation = self.operations.get_mut(id)?;
        let urgent = operation.is_urgent();
        operation.supersede();
        operation.place = Place::Sent;
        operation.current = Some(self.connections[index].add_copy(index, tag, urgent, now));
        self.tags.insert(tag.number, id);
        if urgent {
            self.hasten_connection(index, now);
        }
        self.note_write(index);
        Some(())
    }

    /// Looks up when this operation wants to be looked at again.
    pub(super) fn schedule_operation(&mut self, id: OperationId, now: Micros) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        let due = self.operation_due(operation, now);
        self.operation_deadlines.set(id.0.index, due);
    }

    fn operation_due(&self, operation: &Operation, now: Micros) -> Option<Micros> {
        let paused = match operation.place {
            Place::Paused(until) => Some(until),
            Place::Sent | Place::Waiting | Place::Toward(_) => None,
        };
        let own = match &operation.kind {
            Kind::Acquire(acquire) => {
                let tries = acquire.trouble.as_ref();
                let tries = tries
                    .and_then(|trouble| trouble.tries.due(operation.place, &self.settings, now));
                [tries, acquire.due(&operation.place)]
                    .into_iter()
                    .flatten()
                    .min()
            }
            Kind::Query(query) => query.tries.due(operation.place, &self.settings, now),
            Kind::Release(repeat, _) | Kind::Cancel(repeat, _) | Kind::Keep(repeat, _) => {
                Some(repeat.due())
            }
        };
        [paused, own].into_iter().flatten().min()
    }

    pub(super) fn handle_operation_due(&mut self, id: OperationId, now: Micros) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        match &operation.kind {
            Kind::Acquire(_) => self.handle_acquire_due(id, now),
            Kind::Query(_) => self.handle_try_due(id, now),
            Kind::Release(..) | Kind::Cancel(..) | Kind::Keep(..) => {
                self.handle_repeat_due(id, now);
            }
        }
        self.schedule_operation(id, now);
    }
}
