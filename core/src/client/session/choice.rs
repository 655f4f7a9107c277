//! Which connection a request takes, and what happens to those that wait when one comes up or is lost.

use super::connection::{Connection, State};
use super::hash::HashedKey;
use super::moved::Reach;
use super::operation::{Kind, Place};
use super::slab::OperationId;
use super::{Effect, Micros, Session};
use crate::protocol::Role;

/// Where a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    Now(usize),
    /// This connection leads to the active node and is coming up.
    Toward(usize),
    /// No connection is up.
    Nowhere,
}

/// The connections that requests take in turn. Worked out anew after what it depends on has changed: which connections are up, whose they
/// are, what their nodes call themselves, and who is active.
#[derive(Default)]
pub(super) struct Rotation {
    pub(super) known: bool,
    indices: Vec<usize>,
    /// There is none, but this one leads to the active node and is coming up.
    toward: Option<usize>,
}

impl Session {
    /// Rule 4.2, and 4.4 once the active node is known. A connection to `avoid` only if there is no other.
    pub(super) fn choose(&mut self, avoid: Option<usize>) -> Choice {
        self.refresh_rotation();
        let indices = &self.rotation.indices;
        let others = || indices.iter().filter(|index| avoid != Some(**index));
        match others()
            .find(|index| **index > self.turn)
            .or_else(|| others().next())
        {
            Some(index) => {
                self.turn = *index;
                Choice::Now(*index)
            }
            None => match (indices.first(), self.rotation.toward) {
                (Some(avoided), _) => Choice::Now(*avoided),
                (None, Some(index)) => Choice::Toward(index),
                (None, None) => Choice::Nowhere,
            },
        }
    }

    /// The same for a request on this key.
    pub(super) fn choose_for(&mut self, key: &HashedKey) -> Choice {
        match self.busy_connection(key) {
            Some(index) => Choice::Now(index),
            None => self.choose(None),
        }
    }

    /// Whether a request that begins now is sent at once.
    pub(crate) fn has_way(&mut self) -> bool {
        self.refresh_rotation();
        !self.rotation.indices.is_empty()
    }

    pub(super) fn refresh_rotation(&mut self) {
        if self.rotation.known {
            debug_assert!(self.rotation.indices == self.fitting_connections().0);
            return;
        }
        let (indices, toward) = self.fitting_connections();
        self.rotation = Rotation {
            known: true,
            indices,
            toward,
        };
        for index in 0..self.connections.len() {
            self.connections[index].leads_to_active = match &self.active {
                Some(active) => self.connections[index].leads_to(&active.address),
                None => self.connections[index].role == Some(Role::Active),
            };
        }
    }

    /// Those that requests may take in turn. If there is none, perhaps one that leads to the active node and is coming up.
    fn fitting_connections(&self) -> (Vec<usize>, Option<usize>) {
        let all = || self.connections.iter().enumerate();
        let up = |fits: &dyn Fn(&Connection) -> bool| -> Vec<usize> {
            let fitting = all().filter(|(_, connection)| connection.is_up() && fits(connection));
            fitting.map(|(index, _)| index).collect()
        };
        if let Some(active) = &self.active {
            let there = up(&|connection| connection.leads_to(&active.address));
            let coming = || {
                all().find(|(_, connection)| {
                    connection.is_coming() && connection.leads_to(&active.address)
                })
            };
            if !there.is_empty() {
                return (there, None);
            }
            if let Some((index, _)) = coming() {
                return (there, Some(index));
            }
        }
        // Where nobody was named, those that have called themselves active in their hello come first.
        let own_is_up = self.own_is_up();
        let usable = |connection: &Connection| connection.own || !own_is_up;
        let active = up(&|connection| usable(connection) && connection.role == Some(Role::Active));
        if active.is_empty() {
            (up(&usable), None)
        } else {
            (active, None)
        }
    }

    pub(super) fn own_is_up(&self) -> bool {
        self.connections[..self.registered]
            .iter()
            .any(|connection| connection.is_up())
    }

    /// Rule 4.3: the connection of a release or cancel of this key that is under way.
    pub(super) fn busy_connection(&self, key: &HashedKey) -> Option<usize> {
        if self.busy_keys.is_empty() {
            return None;
        }
        let index = self.busy_keys.connection(key, &self.operations)?;
        self.connections[index].is_up().then_some(index)
    }

    /// Puts an operation to those that wait for a connection.
    pub(super) fn enqueue(&mut self, id: OperationId, place: Place) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        operation.place = place;
        if std::mem::replace(&mut operation.queued, true) {
            return;
        }
        if self.waiting.len() > 64 && self.waiting.len() > 2 * self.operations.len() {
            let operations = &self.operations;
            self.waiting.retain(|id| operations.get(*id).is_some());
        }
        self.waiting.push_back(id);
    }

    /// Those that wait; who is to wait on has to be put back.
    fn take_waiting(&mut self) -> std::collections::VecDeque<OperationId> {
        let waiting = std::mem::take(&mut self.waiting);
        for id in &waiting {
            if let Some(operation) = self.operations.get_mut(*id) {
                operation.queued = false;
            }
        }
        waiting
    }

    /// A connection has come up: those who wait for one go on.
    pub(super) fn handle_up(&mut self, index: usize, now: Micros) {
        for id in self.take_waiting() {
            let Some(operation) = self.operations.get(id) else {
                continue;
            };
            match operation.place {
                Place::Waiting => self.go_on_after_up(id, index, now),
                Place::Toward(target) if target == index => self.go(id, now),
                Place::Toward(_) => self.enqueue(id, operation.place),
                Place::Sent | Place::Paused(_) => {}
            }
        }
        let leads_to_named = self.active.as_ref().is_some_and(|active| {
            active.named && self.connections[index].leads_to(&active.address)
        });
        if leads_to_named {
            self.ask_again_there(now);
        }
        self.ask_doubtful(now);
    }

    /// Sends what an operation has to say, wherever that has to go now.
    pub(super) fn go(&mut self, id: OperationId, now: Micros) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        if operation.is_try() {
            self.route(id, now);
        } else {
            self.send_repeat(id, now);
        }
    }

    /// A try of a connection has failed.
    pub(super) fn handle_try_failed(&mut self, index: usize, now: Micros) {
        self.forget_active_at(index);
        for id in self.take_waiting() {
            let Some(operation) = self.operations.get(id) else {
                continue;
            };
            match operation.place {
                Place::Toward(target) if target == index => {
                    // To be sent where nobody can be reached does not count as a move.
                    if let Some(operation) = self.operations.get_mut(id) {
                        operation.moves = operation.moves.saturating_sub(1);
                    }
                    self.ask_later(id, now);
                }
                Place::Toward(_) => self.enqueue(id, operation.place),
                Place::Waiting => {
                    self.enqueue(id, Place::Waiting);
                    self.go_on_after_refusal(id, index, now);
                }
                Place::Sent | Place::Paused(_) => {}
            }
        }
        self.try_peers(now);
    }

    /// A connection that was up is gone. `answered` is the latest line on it that the active node has answered.
    pub(super) fn handle_lost(&mut self, index: usize, answered: u64, now: Micros) {
        self.forget_active_at(index);
        let mut hit: Vec<(u64, OperationId)> = Vec::new();
        for (id, operation) in self.operations.all() {
            let copies = operation.current.iter().chain(&operation.older);
            let mine = copies.filter(|sent| sent.connection == Some(index));
            if let Some(first) = mine.map(|sent| sent.tag.number).min() {
                hit.push((first, id));
            }
        }
        // In the order of asking, so that they keep it among themselves.
        hit.sort_unstable();
        for (_, id) in hit {
            self.lose_copies(id, index, answered, now);
        }
        self.recent.doubt_connection(index as u32, now);
        self.ask_doubtful(now);
        self.try_peers(now);
    }

    /// The fate of this operation's copies on a lost connection is unknown.
    fn lose_copies(&mut self, id: OperationId, index: usize, answered: u64, now: Micros) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        for sent in &mut operation.older {
            if sent.connection == Some(index) {
                sent.connection = None;
            }
        }
        let was_current = operation.connection() == Some(index);
        match &mut operation.kind {
            Kind::Acquire(acquire) => {
                if was_current && let Some(sent) = &mut operation.current {
                    sent.connection = None;
                    acquire.attempt = sent.tag.attempt.saturating_add(1);
                    let sequence = sent.sequence;
                    // One of unknown fate says as much as many.
                    operation.older.retain(|older| older.connection.is_some());
                    operation.supersede();
                    self.fail_lost_try(id, index, answered > sequence, now);
                }
            }
            Kind::Query(_) => {
                // Asking twice does no harm, so nothing has to be known about the first.
                operation.older.retain(|sent| {
                    if sent.connection.is_none() {
                        self.tags.remove(sent.tag.number);
                    }
                    sent.connection.is_some()
                });
                if was_current && let Some(sent) = operation.current.take() {
                    self.tags.remove(sent.tag.number);
                    self.fail_lost_try(id, index, answered > sent.sequence, now);
                }
            }
            Kind::Release(..) | Kind::Cancel(..) | Kind::Keep(..) => {
                let mut gone: Vec<u64> = Vec::new();
                operation.older.retain(|sent| {
                    if sent.connection.is_none() {
                        gone.push(sent.tag.number);
                    }
                    sent.connection.is_some()
                });
                if was_current {
                    gone.extend(operation.current.take().map(|sent| sent.tag.number));
                }
                if !matches!(operation.kind, Kind::Cancel(..)) {
                    for tag in gone {
                        self.tags.remove(tag);
                    }
                }
                // Its next turn may be far off, and this is no silence: the copy may be lost.
                if was_current {
                    self.send_repeat(id, now);
                }
            }
        }
        self.schedule_operation(id, now);
    }

    /// Rule 4.4: while the own connections are all down, the nodes that a hello named are tried.
    fn try_peers(&mut self, now: Micros) {
        if self.own_is_up() || self.settings.listed_only {
            return;
        }
        for address in self.peers.clone() {
            // What is under way or has its next try before it needs no push.
            let known = self.connections.iter().any(|connection| {
                connection.leads_to(&address) && connection.state != State::Down { again: None }
            });
            if !known {
                let _: Reach = self.reach(&address, now);
            }
        }
    }

    pub(super) fn fail_operation(&mut self, id: OperationId, error: crate::error::Error) {
        if let Some(operation) = self.remove_operation(id)
            && let Some(face) = operation.face
        {
            self.effects.push_back(Effect::Complete {
                face,
                result: Err(error),
            });
        }
    }
}
