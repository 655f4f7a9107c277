//! One connection: whether it is up, what it has sent and heard, and when it is given up.

use super::super::address::Address;
use super::operation::Sent;
use super::slab::OperationId;
use super::{ConnectionId, Failure, Micros, SECOND, Session};
use crate::protocol::{Hello, NameRef, Request, Role, SecretRef, Tag};
use std::collections::VecDeque;

/// After this time without a byte in one direction a probe is sent, and after as much again without a
/// byte from the server the connection is given up.
pub(super) const QUIET: Micros = 5 * SECOND;
/// The same while something is under way that is answered at once.
pub(super) const QUIET_URGENT: Micros = SECOND;
/// A connection that is down is tried again this often, give or take a tenth.
const TRY_EVERY: Micros = 3 * SECOND;
/// A connection that breaks is tried again at once, but one that breaks within a second each time only so often in a row.
const QUICK_LOSSES: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Tried again at this moment, if ever.
    Down {
        again: Option<Micros>,
    },
    /// The network is asked for it.
    Trying,
    /// The hello is sent and not answered.
    Greeting,
    Up,
}

/// A probe that is not answered yet.
#[derive(Clone, Copy)]
pub(super) struct Probe {
    pub(super) tag: u64,
    pub(super) sequence: u64,
    pub(super) at: Micros,
}

pub(super) struct Connection {
    pub(super) address: Address,
    /// From the client's own list; the others were named by servers.
    pub(super) own: bool,
    /// Counts the tries, so that news of an older one are known as such.
    pub(super) epoch: u32,
    pub(super) state: State,
    /// When the latest try began.
    pub(super) try_began: Micros,
    /// When the latest try that has ended began.
    pub(super) ended_try_began: Option<Micros>,
    pub(super) tries_ended: u32,
    quick_losses: u32,
    /// Why it is down.
    pub(super) failure: Option<Failure>,
    pub(super) failed_at: Option<Micros>,
    /// What the node there has last said instead of doing what is repeated until it is done, and when.
    pub(super) unavailable: Option<(Micros, String)>,
    /// The address by which the node calls itself.
    pub(super) node: Option<Address>,
    pub(super) role: Option<Role>,
    /// Whether the node there is the active one; see `Rotation`.
    pub(super) leads_to_active: bool,
    pub(super) outgoing: Vec<u8>,
    /// It has been told that there is something to be written, and nobody has come for it yet.
    pub(super) write_told: bool,
    pub(super) incoming: Vec<u8>,
    up_since: Micros,
    last_sent: Micros,
    last_heard: Micros,
    /// The latest probe, until it is answered.
    pub(super) probe: Option<Probe>,
    /// No byte has come since the probe was sent.
    probe_threatens: bool,
    /// Requests under way, and those of them that are answered at once.
    pub(super) under_way: u32,
    urgent: u32,
    urgent_since: Micros,
    /// The number of lines sent.
    sequence: u64,
    /// The latest line that the active node has answered with something that counts.
    pub(super) answered: u64,
    /// When the latest line that was answered at all had been sent.
    pub(super) answered_sent_at: Micros,
    /// Questions for the status, each with the tag that its request does not carry.
    pub(super) statuses: VecDeque<(OperationId, Tag)>,
}

impl Connection {
    pub(super) fn new(address: Address, own: bool) -> Connection {
        Connection {
            address,
            own,
            epoch: 0,
            state: State::Down { again: None },
            try_began: 0,
            ended_try_began: None,
            tries_ended: 0,
            quick_losses: 0,
            failure: None,
            failed_at: None,
            unavailable: None,
            node: None,
            role: None,
            leads_to_active: false,
            outgoing: Vec::new(),
            write_told: false,
            incoming: Vec::new(),
            up_since: 0,
            last_sent: 0,
            last_heard: 0,
            probe: None,
            probe_threatens: false,
            under_way: 0,
            urgent: 0,
            urgent_since: 0,
            sequence: 0,
            answered: 0,
            answered_sent_at: 0,
            statuses: VecDeque::new(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// What is wrong with it, or was since that moment.
    pub(super) fn complaint(&self, since: Micros) -> Option<&str> {
        let failure = self.failure.as_ref().map(|failure| &failure.text);
        let unavailable = self.unavailable.as_ref();
        let unavailable = unavailable.filter(|(at, _)| *at >= since);
        failure
            .or(unavailable.map(|(_, text)| text))
            .map(String::as_str)
    }

    pub(super) fn is_coming(&self) -> bool {
        matches!(self.state, State::Trying | State::Greeting)
    }

    /// Whether this is a connection to the node with that address.
    pub(super) fn leads_to(&self, address: &Address) -> bool {
        self.address == *address || self.node.as_ref() == Some(address)
    }

    /// Counts a line that is sent now, and says how many it is.
    pub(super) fn count_sent(&mut self, now: Micros) -> u64 {
        self.last_sent = now;
        self.sequence += 1;
        self.sequence
    }

    /// Counts a copy of a request that is sent now.
    #[inline(always)]
    pub(super) fn add_copy(&mut self, index: usize, tag: Tag, urgent: bool, now: Micros) -> Sent {
        self.add_under_way(urgent, now);
        Sent {
            tag,
            connection: Some(index),
            sequence: self.count_sent(now),
            at: now,
        }
    }

    fn add_under_way(&mut self, urgent: bool, now: Micros) {
        self.under_way += 1;
        if urgent {
            if self.urgent == 0 {
                self.urgent_since = now;
            }
            self.urgent += 1;
        }
    }

    pub(super) fn take_under_way(&mut self, urgent: bool) {
        self.under_way -= 1;
        if urgent {
            self.urgent -= 1;
        }
    }

    /// When to look at this connection again.
    pub(super) fn due(&self, connect_timeout: Micros) -> Option<Micros> {
        match self.state {
            State::Down { again } => again,
            State::Trying | State::Greeting => Some(self.try_began + connect_timeout),
            State::Up => Some(match self.threat() {
                None => self.probe_at(),
                Some(probe) => self.give_up_at(probe),
            }),
        }
    }

    /// The probe that nothing has come after.
    fn threat(&self) -> Option<Probe> {
        self.probe.filter(|_| self.probe_threatens)
    }

    fn probe_at(&self) -> Micros {
        let mut at = self.last_sent.min(self.last_heard) + QUIET;
        if self.urgent > 0 {
            at = at.min(self.last_heard.max(self.urgent_since) + QUIET_URGENT);
        }
        at
    }

    fn give_up_at(&self, probe: Probe) -> Micros {
        let mut at = probe.at + QUIET;
        if self.urgent > 0 {
            let asked = probe.at.max(self.urgent_since + QUIET_URGENT);
            at = at.min(asked + QUIET_URGENT);
        }
        at
    }
}

impl Session {
    pub(super) fn connection_id(&self, index: usize) -> ConnectionId {
        ConnectionId {
            index: index as u32,
            epoch: self.connections[index].epoch,
        }
    }

    /// Whether this is about the present try of a connection.
    pub(crate) fn is_current(&self, id: ConnectionId) -> bool {
        self.current(id).is_some()
    }

    /// The connection that is meant, unless the news is about an earlier try.
    pub(super) fn current(&self, id: ConnectionId) -> Option<usize> {
        let index = id.index as usize;
        (self.connections.get(index)?.epoch == id.epoch).then_some(index)
    }

    pub(super) fn schedule_connection(&mut self, index: usize) {
        let due = self.connections[index].due(self.settings.connect_timeout);
        self.connection_deadlines.set(index as u32, due);
    }

    /// Something that is answered at once is under way: the connection may have to be looked at earlier.
    pub(super) fn hasten_connection(&mut self, index: usize, now: Micros) {
        let soon = now + QUIET_URGENT;
        let due = self.connection_deadlines.get(index as u32);
        if due.is_none_or(|due| due > soon) {
            self.connection_deadlines.set(index as u32, Some(soon));
        }
    }

    pub(super) fn begin_try(&mut self, index: usize, now: Micros) {
        let connection = &mut self.connections[index];
        self.rotation.known = false;
        connection.epoch += 1;
        connection.state = State::Trying;
        connection.try_began = now;
        let address = connection.address.clone();
        let id = self.connection_id(index);
        self.effects.push_back(super::Effect::Connect {
            connection: id,
            address,
        });
        self.schedule_connection(index);
    }

    /// The network has made the connection: say hello.
    pub(crate) fn handle_connected(&mut self, id: ConnectionId, now: Micros) {
        let Some(index) = self.current(id) else {
            return;
        };
        if self.connections[index].state != State::Trying {
            return;
        }
        let hello = Request::Hello(Hello {
            id: Some(self.settings.id),
            name: NameRef::parse(&self.settings.name).ok(),
            seen: self.seen,
            auth: self
                .settings
                .secret
                .as_deref()
                .and_then(|secret| SecretRef::parse(secret).ok()),
        });
        let connection = &mut self.connections[index];
        connection.state = State::Greeting;
        hello.encode(&mut connection.outgoing);
        connection.count_sent(now);
        self.schedule_connection(index);
        self.note_write(index);
    }

    /// The hello is answered: requests may go.
    pub(super) fn come_up(&mut self, index: usize, now: Micros) {
        let connection = &mut self.connections[index];
        connection.state = State::Up;
        self.rotation.known = false;
        connection.up_since = now;
        connection.last_heard = now;
        connection.end_try();
        connection.failure = None;
        connection.failed_at = None;
        self.schedule_connection(index);
        self.handle_up(index, now);
    }

    pub(super) fn note_heard(&mut self, index: usize, now: Micros) {
        let connection = &mut self.connections[index];
        connection.last_heard = now;
        if std::mem::take(&mut connection.probe_threatens) {
            self.schedule_connection(index);
        }
    }

    /// The network could not make the connection.
    pub(crate) fn handle_connect_failed(
        &mut self,
        id: ConnectionId,
        failure: impl Into<Failure>,
        now: Micros,
    ) {
        if let Some(index) = self.current(id)
            && self.connections[index].is_coming()
        {
            self.fail_try(index, failure.into(), now);
        }
    }

    /// The network has lost the connection, or the server has ended it.
    pub(crate) fn handle_closed(
        &mut self,
        id: ConnectionId,
        failure: impl Into<Failure>,
        now: Micros,
    ) {
        let Some(index) = self.current(id) else {
            return;
        };
        self.drop_connection(index, failure.into(), now);
    }

    /// Ends a connection in whatever state it is.
    pub(super) fn drop_connection(&mut self, index: usize, failure: Failure, now: Micros) {
        match self.connections[index].state {
            State::Down { .. } => {}
            State::Trying | State::Greeting => self.fail_try(index, failure, now),
            State::Up => self.lose_connection(index, failure, now),
        }
    }

    fn fail_try(&mut self, index: usize, failure: Failure, now: Micros) {
        self.close_socket(index, true);
        let every = self.roughly(TRY_EVERY);
        let wanted = self.is_wanted(index);
        let connection = &mut self.connections[index];
        connection.end_try();
        connection.failure = Some(failure);
        connection.failed_at = Some(now);
        connection.state = State::Down {
            again: wanted.then(|| now.max(connection.try_began + every)),
        };
        self.schedule_connection(index);
        self.handle_try_failed(index, now);
    }

    fn lose_connection(&mut self, index: usize, failure: Failure, now: Micros) {
        self.close_socket(index, true);
        let wanted = self.is_wanted(index);
        let every = self.roughly(TRY_EVERY);
        let connection = &mut self.connections[index];
        let answered = connection.answered;
        // It would take the connection and end it again.
        let leaving = connection.role == Some(Role::Leaving);
        // Each thread brings its own look at the clock, so this one may be older.
        if now.saturating_sub(connection.up_since) < SECOND {
            connection.quick_losses += 1;
        } else {
            connection.quick_losses = 0;
        }
        connection.failure = Some(failure);
        connection.failed_at = Some(now);
        connection.under_way = 0;
        connection.urgent = 0;
        connection.probe = None;
        connection.probe_threatens = false;
        connection.answered = 0;
        connection.answered_sent_at = 0;
        connection.sequence = 0;
        connection.statuses.clear();
        if wanted && !leaving && connection.quick_losses < QUICK_LOSSES {
            self.begin_try(index, now);
        } else {
            connection.state = State::Down {
                again: wanted.then_some(now + every),
            };
            self.schedule_connection(index);
        }
        self.handle_lost(index, answered, now);
    }

    /// Takes the network's side of a connection away. What was not yet sent is never sent.
    pub(super) fn close_socket(&mut self, index: usize, reset: bool) {
        let connection = self.connection_id(index);
        self.effects
            .push_back(super::Effect::Close { connection, reset });
        self.rotation.known = false;
        let connection = &mut self.connections[index];
        connection.epoch += 1;
        connection.outgoing = Vec::new();
        connection.write_told = false;
        connection.incoming = Vec::new();
    }

    pub(super) fn handle_connection_due(&mut self, index: usize, now: Micros) {
        let connection = &self.connections[index];
        let seconds = |time: Micros| time as f64 / SECOND as f64;
        match connection.state {
            State::Down { again: None } => {}
            State::Down { again: Some(_) } => {
                if self.is_wanted(index) {
                    self.begin_try(index, now);
                } else {
                    self.connections[index].state = State::Down { again: None };
                }
            }
            State::Trying | State::Greeting => {
                if now < connection.try_began + self.settings.connect_timeout {
                    return self.schedule_connection(index);
                }
                let what = if connection.state == State::Trying {
                    "no connection"
                } else {
                    "connected, but no answer to the hello"
                };
                let text = format!("{what} within {} s", seconds(self.settings.connect_timeout));
                self.fail_try(index, text.into(), now);
            }
            State::Up => match connection.threat() {
                Some(probe) if now >= connection.give_up_at(probe) => {
                    let silent = seconds(now.saturating_sub(connection.last_heard));
                    let text = format!("the server was silent for {silent:.1} s");
                    self.lose_connection(index, text.into(), now);
                }
                None if now >= connection.probe_at() => {
                    if self.is_idle_extra(index) {
                        self.retire_connection(index, now);
                    } else {
                        self.send_probe(index, now);
                    }
                }
                Some(_) | None => self.schedule_connection(index),
            },
        }
    }

    fn send_probe(&mut self, index: usize, now: Micros) {
        let tag = self.new_tag();
        let connection = &mut self.connections[index];
        let sequence = connection.count_sent(now);
        connection.probe = Some(Probe {
            tag,
            sequence,
            at: now,
        });
        connection.probe_threatens = true;
        let ping = Request::Ping {
            tag: Some(Tag::first(tag)),
        };
        ping.encode(&mut connection.outgoing);
        self.note_write(index);
        self.schedule_connection(index);
    }

    /// An additional connection that nobody needs any more.
    fn retire_connection(&mut self, index: usize, now: Micros) {
        self.close_socket(index, false);
        let connection = &mut self.connections[index];
        connection.state = State::Down { again: None };
        connection.probe = None;
        connection.probe_threatens = false;
        self.handle_lost(index, 0, now);
    }
}

impl Connection {
    fn end_try(&mut self) {
        self.ended_try_began = Some(self.try_began);
        self.tries_ended = self.tries_ended.saturating_add(1);
    }
}
