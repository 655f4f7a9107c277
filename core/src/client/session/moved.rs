//! Who is active: what `M` and `N` say, and how the client gets there.

use super::super::address::Address;
use super::connection::{Connection, State};
use super::operation::{Kind, Place};
use super::slab::OperationId;
use super::{MILLISECOND, Micros, SECOND, Session};
use crate::protocol::Role;

/// Moves in a row that are followed; the next one ends the try.
const MOVES_MAX: u32 = 8;
/// Up to this many are followed without a pause.
const MOVES_AT_ONCE: u32 = 2;
/// How long a request that was moved to a node out of reach is asked again.
const ASK_AGAIN_FOR: Micros = 3 * SECOND;
/// A node that could not be reached is tried again for the sake of a move after this time.
const TRY_AGAIN_AFTER: Micros = 100 * MILLISECOND;
/// Additional connections at most; a cluster has at most sixteen nodes.
const ADDITIONAL_MAX: usize = 16;

/// The node that serves, as far as is known.
pub(super) struct Active {
    pub(super) address: Address,
    /// Named by `N`: what is under way elsewhere is asked again there.
    pub(super) named: bool,
}

/// Whether a node can be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    Up,
    Coming(usize),
    Failed,
    /// The client may not go there.
    Forbidden,
}

/// 20, 40 … 200 ms.
fn pause(nth: u32) -> Micros {
    (20 * MILLISECOND * u64::from(nth)).min(200 * MILLISECOND)
}

impl Session {
    /// Whether the node at the end of this connection is the active one, as far as the client knows.
    pub(super) fn is_active(&mut self, index: usize) -> bool {
        self.refresh_rotation();
        self.connections[index].leads_to_active
    }

    /// Notes that a node names the active one, and sees to it that there is a connection.
    fn learn_active(&mut self, address: &str, named: bool, now: Micros) -> Reach {
        let Ok(address) = Address::parse(address) else {
            return Reach::Forbidden;
        };
        let own = &self.connections[..self.registered];
        if self.settings.listed_only && !own.iter().any(|own| own.leads_to(&address)) {
            return Reach::Forbidden;
        }
        let reach = self.reach(&address, now);
        let named = named
            || (self.active.as_ref()).is_some_and(|known| known.named && known.address == address);
        // What a hello said before is over.
        for connection in &mut self.connections {
            if connection.role == Some(Role::Active) && !connection.leads_to(&address) {
                connection.role = None;
            }
        }
        self.active = Some(Active { address, named });
        self.rotation.known = false;
        reach
    }

    /// Sees to it that a connection to this address is up, coming up, or has just failed.
    pub(super) fn reach(&mut self, address: &Address, now: Micros) -> Reach {
        let mut down = None;
        for (index, connection) in self.connections.iter().enumerate() {
            if !connection.leads_to(address) {
                continue;
            }
            match connection.state {
                State::Up => return Reach::Up,
                State::Trying | State::Greeting => return Reach::Coming(index),
                State::Down { .. } => down = down.or(Some(index)),
            }
        }
        let index = match down {
            Some(index) => {
                let failed_at = self.connections[index].failed_at;
                if failed_at.is_some_and(|at| now < at + TRY_AGAIN_AFTER) {
                    return Reach::Failed;
                }
                index
            }
            None => match self.additional_place(address) {
                Some(index) => index,
                None => return Reach::Failed,
            },
        };
        self.begin_try(index, now);
        Reach::Coming(index)
    }

    /// A place for one more connection.
    fn additional_place(&mut self, address: &Address) -> Option<usize> {
        let mut additional = Connection::new(address.clone(), false);
        let free = (self.registered..self.connections.len())
            .find(|index| self.connections[*index].state == State::Down { again: None });
        if let Some(index) = free {
            // News of tries in the same place before are still on their way.
            additional.epoch = self.connections[index].epoch;
            self.connections[index] = additional;
            self.rotation.known = false;
            return Some(index);
        }
        if self.connections.len() >= self.registered + ADDITIONAL_MAX {
            return None;
        }
        self.connections.push(additional);
        self.rotation.known = false;
        Some(self.connections.len() - 1)
    }

    /// Whether a connection that is down is to be tried again.
    pub(super) fn is_wanted(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        if self.life.is_over() {
            return false;
        }
        connection.own
            || (self.active.as_ref()).is_some_and(|active| connection.leads_to(&active.address))
            || (!self.settings.listed_only
                && !self.own_is_up()
                && self.peers.iter().any(|peer| connection.leads_to(peer)))
    }

    /// Whether this is an additional connection of no more use.
    pub(super) fn is_idle_extra(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        !connection.own
            && connection.under_way == 0
            && self.own_is_up()
            && !(self.active.as_ref()).is_some_and(|active| connection.leads_to(&active.address))
    }

    /// The active node is not known any more if this was the way to it.
    pub(super) fn forget_active_at(&mut self, lost: usize) {
        let Some(active) = &self.active else {
            return;
        };
        if !self.connections[lost].leads_to(&active.address) {
            return;
        }
        let reached = self.connections.iter().enumerate().any(|(index, other)| {
            index != lost && other.leads_to(&active.address) && (other.is_up() || other.is_coming())
        });
        if !reached {
            self.active = None;
            self.rotation.known = false;
        }
    }

    /// `M`: nothing was done with the current copy of this request; it goes to the active node.
    pub(super) fn handle_moved(
        &mut self,
        id: OperationId,
        from: usize,
        address: &str,
        now: Micros,
    ) {
        let reach = self.learn_active(address, false, now);
        let sender = &mut self.connections[from];
        // It is not active, wherever the client may follow and whatever its hello said.
        sender.role = sender.role.filter(|role| *role != Role::Active);
        self.rotation.known = false;
        let sender = &self.connections[from];
        let sender = sender.address.clone();
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        if reach != Reach::Failed {
            operation.moves += 1;
        }
        let moves = operation.moves;
        let tries = operation.is_try();
        if moves > MOVES_MAX {
            if tries {
                let text = format!("moved {moves} times in a row, at last to {address}");
                self.fail_attempt(id, Some((sender, text.into())), false, now);
            }
            // What repeats itself goes on at its next turn.
            return;
        }
        match reach {
            Reach::Up if moves <= MOVES_AT_ONCE => self.go(id, now),
            Reach::Up | Reach::Forbidden => {
                let nth = moves.saturating_sub(MOVES_AT_ONCE).max(1);
                operation.place = Place::Paused(now + pause(nth));
                self.schedule_operation(id, now);
            }
            Reach::Coming(index) => {
                self.enqueue(id, Place::Toward(index));
                self.schedule_operation(id, now);
            }
            Reach::Failed => self.ask_later(id, now),
        }
    }

    /// The active node that was named is out of reach: ask again in a moment, for a while.
    pub(super) fn ask_later(&mut self, id: OperationId, now: Micros) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        if let Some(repeat) = operation.repeat_mut() {
            repeat.asked_later += 1;
            let until = now + pause(repeat.asked_later);
            operation.place = Place::Paused(until);
            return self.schedule_operation(id, now);
        }
        let Some(tries) = operation.tries_mut() else {
            return;
        };
        let since = *tries.out_of_reach_since.get_or_insert(now);
        if now >= since + ASK_AGAIN_FOR {
            return self.fail_attempt(id, None, false, now);
        }
        tries.asked_later += 1;
        let until = now + pause(tries.asked_later);
        operation.place = Place::Paused(until);
        self.schedule_operation(id, now);
    }

    /// `N`: another node is active, or the sender itself.
    pub(super) fn handle_active_at(&mut self, address: &str, now: Micros) {
        let reach = self.learn_active(address, true, now);
        if reach == Reach::Forbidden {
            return;
        }
        if let Some(active) = &self.active {
            self.recent.doubt_all_but(&active.address, now);
        }
        match reach {
            Reach::Up => {
                self.ask_again_there(now);
                self.ask_doubtful(now);
            }
            Reach::Failed => self.try_active_soon(),
            Reach::Coming(_) | Reach::Forbidden => {}
        }
    }

    /// The active node has just been out of reach: it may have become active a moment later.
    fn try_active_soon(&mut self) {
        let Some(active) = &self.active else {
            return;
        };
        let down = self.connections.iter().position(|connection| {
            connection.leads_to(&active.address) && matches!(connection.state, State::Down { .. })
        });
        if let Some(index) = down
            && let Some(failed_at) = self.connections[index].failed_at
        {
            self.connections[index].state = State::Down {
                again: Some(failed_at + TRY_AGAIN_AFTER),
            };
            self.schedule_connection(index);
        }
    }

    /// Asks the active node for all that is under way elsewhere.
    pub(super) fn ask_again_there(&mut self, now: Micros) {
        let Some(active) = &self.active else {
            return;
        };
        let mut elsewhere: Vec<(u64, OperationId)> = Vec::new();
        for (id, operation) in self.operations.all() {
            let there = |sent: &super::operation::Sent| {
                sent.connection
                    .is_some_and(|index| self.connections[index].leads_to(&active.address))
            };
            match operation.place {
                Place::Sent if operation.current.is_none_or(|sent| there(&sent)) => {}
                Place::Sent | Place::Paused(_) | Place::Waiting | Place::Toward(_) => {
                    let tag = operation.current.map_or(u64::MAX, |sent| sent.tag.number);
                    elsewhere.push((tag, id));
                }
            }
        }
        elsewhere.sort_unstable();
        for (_, id) in elsewhere {
            let Some(operation) = self.operations.get_mut(id) else {
                continue;
            };
            operation.moves = 0;
            if let Kind::Acquire(acquire) = &mut operation.kind
                && let Some(sent) = operation.current
            {
                acquire.attempt = sent.tag.attempt.saturating_add(1);
            }
            operation.supersede();
            self.go(id, now);
        }
    }
}
