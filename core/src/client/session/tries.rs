//! Tries of an operation that needs one answer: an acquire or a question. They fail, are counted, and
//! the next connection is tried, until there have been as many failures as registered connections.
//! When the last of them was the loss of the last connection that was up, what the server does next decides: if
//! it takes a new one at once, it was there and the request has failed; if it refuses or is silent, it is restarting or
//! dead, and the call waits for it as one would that begins then.

use super::super::address::Address;
use super::choice::Choice;
use super::connection::{Connection, State};
use super::operation::{Kind, Operation, Place};
use super::slab::OperationId;
use super::{ConnectionId, Failure, MILLISECOND, Micros, Session, Settings};
use crate::error::{Error, ErrorKind};
use crate::protocol::Role;
use std::fmt::Write as _;

/// Between tries beyond the last counted one, while `retry_for` runs.
const RETRY_PAUSE: Micros = 100 * MILLISECOND;

/// A server that was there all the time takes a new connection within this time. A host or a container that restarts may
/// leave what asks for a connection unanswered instead of refusing it, and that is repeated after a second.
const AT_ONCE: Micros = 500 * MILLISECOND;

/// A node that stops refuses its requests and ends its connections directly after that.
const STOPPING: Micros = 200 * MILLISECOND;

/// How an operation's tries have gone.
#[derive(Default)]
pub(super) struct Tries {
    failed: u32,
    /// Since when no connection is up for it; kept until something is sent.
    waiting_since: Option<Micros>,
    /// The tries are used up; it goes on until then.
    over_at: Option<Micros>,
    /// The tries were used up when the last connection broke. Until then it may wait for a server to come back.
    patient_until: Option<Micros>,
    /// It waits to see whether the server takes a new connection at once, and so was there all the time, or refuses it.
    awaits_return: bool,
    /// The tries were used up when this connection said that no node is active: is it ended now, because the node stops?
    refused_by: Option<ConnectionId>,
    /// Since when the active node that was named is out of reach, and how often that was asked again.
    pub(super) out_of_reach_since: Option<Micros>,
    pub(super) asked_later: u32,
    reasons: Vec<(Address, Failure)>,
}

impl Tries {
    pub(super) fn due(&self, place: Place, settings: &Settings, now: Micros) -> Option<Micros> {
        match place {
            Place::Waiting => {
                let enough = self.waiting_since? + settings.connect_timeout;
                if enough > now {
                    return Some(enough);
                }
                // After that the end of a connection's try is what counts.
                self.over_at.filter(|over| *over > now)
            }
            Place::Sent | Place::Toward(_) | Place::Paused(_) => None,
        }
    }

    /// Whether a request in that place waits for a server, and not for those who hold the lock.
    pub(super) fn lacks_server(&self, place: Place) -> bool {
        match place {
            Place::Waiting => true,
            // While `retry_for` runs there are nodes to be asked, and its caller knows that the wait ends it.
            Place::Paused(_) => self.refused_by.is_some(),
            Place::Sent | Place::Toward(_) => false,
        }
    }

    /// A server that is not there has not failed this request: it is as for a call that begins now.
    fn begin_anew(&mut self) {
        self.failed = 0;
        self.awaits_return = false;
    }
}

impl Session {
    /// Sends the request of an operation to where it has to go now, or lets it wait.
    pub(super) fn route(&mut self, id: OperationId, now: Micros) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        let busy = match operation.hashed_key() {
            Some(key) => self.busy_connection(key),
            None => None,
        };
        let choice = match busy {
            Some(index) => Choice::Now(index),
            None => self.choose(None),
        };
        match choice {
            Choice::Now(index) => self.send_try(id, index, now),
            Choice::Toward(index) => self.enqueue(id, Place::Toward(index)),
            Choice::Nowhere => {
                self.enqueue(id, Place::Waiting);
                if let Some(tries) = self.tries_of(id) {
                    tries.waiting_since.get_or_insert(now);
                }
                self.check_exhausted(id, now);
            }
        }
        self.schedule_operation(id, now);
    }

    fn tries_of(&mut self, id: OperationId) -> Option<&mut Tries> {
        self.operations.get_mut(id)?.tries_mut()
    }

    fn send_try(&mut self, id: OperationId, index: usize, now: Micros) {
        let to_active = self.is_active(index);
        let known = self.operations.get_mut(id).and_then(Operation::known_tries);
        if let Some(tries) = known {
            tries.waiting_since = None;
            tries.awaits_return = false;
            tries.refused_by = None;
            if to_active {
                tries.out_of_reach_since = None;
                tries.asked_later = 0;
            }
        }
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        match &operation.kind {
            Kind::Acquire(_) => self.send_acquire(id, index, now),
            Kind::Query(_) => self.send_query(id, index, now),
            Kind::Release(..) | Kind::Cancel(..) | Kind::Keep(..) => {}
        }
    }

    pub(super) fn handle_try_due(&mut self, id: OperationId, now: Micros) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        match operation.place {
            Place::Paused(until) if now >= until => self.go_on_after_pause(id, now),
            Place::Waiting => self.check_exhausted(id, now),
            Place::Paused(_) | Place::Sent | Place::Toward(_) => {}
        }
    }

    /// The connection broke under the current copy. `answered`: after it, something was answered there by the active node.
    pub(super) fn fail_lost_try(
        &mut self,
        id: OperationId,
        index: usize,
        answered: bool,
        now: Micros,
    ) {
        let connection = &self.connections[index];
        let failure = match &connection.failure {
            Some(failure) => failure.clone(),
            None => "the connection was lost".to_owned().into(),
        };
        let leaving = connection.role == Some(Role::Leaving);
        let reason = (connection.address.clone(), failure);
        let used_up = self.count_failure(id, Some(reason), answered);
        if let Some(tries) = self.tries_of(id) {
            // The try of a connection that begins at this moment is too early to find a server that restarts.
            tries.waiting_since = Some(now + 1);
        }
        if !used_up {
            return self.route(id, now);
        }
        if self.own_is_up() {
            return self.go_on_or_fail(id, now);
        }
        // The connections to one server break together, when it restarts or dies.
        if !self.is_patient(id, now) {
            return self.fail_used_up(id, now);
        }
        // One that a server has named is of use while those of the list are away.
        let other_is_up = self.connections.iter().any(Connection::is_up);
        let Some(tries) = self.tries_of(id) else {
            return;
        };
        if leaving || other_is_up {
            tries.begin_anew();
        } else {
            tries.awaits_return = true;
        }
        if other_is_up {
            return self.route(id, now);
        }
        self.enqueue(id, Place::Waiting);
        self.schedule_operation(id, now);
    }

    /// The node there says that none is active.
    pub(super) fn fail_refused_try(
        &mut self,
        id: OperationId,
        index: usize,
        text: String,
        fresh: bool,
        now: Micros,
    ) {
        let reason = (self.connections[index].address.clone(), text.into());
        let used_up = self.count_failure(id, Some(reason), fresh);
        if !used_up {
            return self.route(id, now);
        }
        if self.settings.retry_for > 0 || !self.is_patient(id, now) {
            return self.go_on_or_fail(id, now);
        }
        let connection = self.connection_id(index);
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        operation.place = Place::Paused(now + STOPPING);
        if let Some(tries) = operation.tries_mut() {
            tries.refused_by = Some(connection);
        }
        self.schedule_operation(id, now);
    }

    fn go_on_after_pause(&mut self, id: OperationId, now: Micros) {
        let refused_by = self.tries_of(id).and_then(|tries| tries.refused_by.take());
        if let Some(connection) = refused_by {
            if self.is_current(connection) {
                return self.go_on_or_fail(id, now);
            }
            // It was stopping, and that is no answer to this request.
            if let Some(tries) = self.tries_of(id) {
                tries.begin_anew();
            }
        }
        self.route(id, now);
    }

    /// Whether a call whose tries are used up may wait for servers that restart; that it does so begins with the first time.
    fn is_patient(&mut self, id: OperationId, now: Micros) -> bool {
        let patience = self.settings.connect_timeout.max(self.settings.retry_for);
        self.tries_of(id)
            .is_some_and(|tries| now < *tries.patient_until.get_or_insert(now + patience))
    }

    /// A connection has come up while this one waits for any.
    pub(super) fn go_on_after_up(&mut self, id: OperationId, index: usize, now: Micros) {
        let own = index < self.registered;
        // One that is leaving takes connections too, so as to say that.
        let leaving = self.connections[index].role == Some(Role::Leaving);
        if let Some(tries) = self.tries_of(id)
            && own
            && tries.awaits_return
        {
            let broken = tries.waiting_since.unwrap_or(now);
            if !leaving && now < broken + AT_ONCE {
                return self.go_on_or_fail(id, now);
            }
            tries.begin_anew();
        }
        self.go(id, now);
    }

    /// A connection could not be made while this one waits for any.
    pub(super) fn go_on_after_refusal(&mut self, id: OperationId, index: usize, now: Micros) {
        let own = index < self.registered;
        if let Some(tries) = self.tries_of(id)
            && own
            && tries.awaits_return
        {
            tries.begin_anew();
        }
        self.check_exhausted(id, now);
        self.check_refused(id);
        self.schedule_operation(id, now);
    }

    /// Rule 4.5: one try has failed. `fresh`: the count starts again, because the node was alive meanwhile.
    pub(super) fn fail_attempt(
        &mut self,
        id: OperationId,
        reason: Option<(Address, Failure)>,
        fresh: bool,
        now: Micros,
    ) {
        if self.count_failure(id, reason, fresh) {
            self.go_on_or_fail(id, now);
        } else {
            self.route(id, now);
        }
    }

    /// Whether that was the last try that counts.
    fn count_failure(
        &mut self,
        id: OperationId,
        reason: Option<(Address, Failure)>,
        fresh: bool,
    ) -> bool {
        let registered = self.registered as u32;
        let Some(operation) = self.operations.get_mut(id) else {
            return false;
        };
        operation.moves = 0;
        let Some(tries) = operation.tries_mut() else {
            return false;
        };
        tries.out_of_reach_since = None;
        tries.asked_later = 0;
        if fresh {
            tries.failed = 0;
            tries.over_at = None;
            tries.patient_until = None;
        }
        tries.failed += 1;
        if let Some((address, failure)) = reason {
            tries.reasons.retain(|(known, _)| *known != address);
            tries.reasons.push((address, failure));
        }
        tries.failed >= registered
    }

    /// The tries are used up: what is left is `retry_for`.
    fn go_on_or_fail(&mut self, id: OperationId, now: Micros) {
        let retry_for = self.settings.retry_for;
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let Some(tries) = operation.tries_mut() else {
            return;
        };
        tries.awaits_return = false;
        let over_at = *tries.over_at.get_or_insert(now + retry_for);
        if now >= over_at {
            return self.fail_used_up(id, now);
        }
        operation.place = Place::Paused(over_at.min(now + RETRY_PAUSE));
        self.schedule_operation(id, now);
    }

    /// Rule 4.5: with no connection up a call waits until each has been tried since it began to wait.
    pub(super) fn check_exhausted(&mut self, id: OperationId, now: Micros) {
        let patience = self.settings.connect_timeout;
        let retry_for = self.settings.retry_for;
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        if operation.place != Place::Waiting {
            return;
        }
        let Some(tries) = operation.tries_mut() else {
            return;
        };
        let Some(since) = tries.waiting_since else {
            return;
        };
        if !self.all_tried(since) {
            return;
        }
        if let Some(error) = self.all_refuse() {
            return self.fail_try_operation(id, error, now);
        }
        if now < since + patience {
            return;
        }
        let Some(tries) = self.tries_of(id) else {
            return;
        };
        let over_at = *tries.over_at.get_or_insert(now + retry_for);
        if now >= over_at {
            self.fail_used_up(id, now);
        }
    }

    /// Whether every own connection has been tried since that moment.
    pub(super) fn all_tried(&self, since: Micros) -> bool {
        let patience = self.settings.connect_timeout;
        let own = &self.connections[..self.registered];
        own.iter().all(|connection| {
            connection.ended_try_began.is_some_and(|began| {
                // The very first try of a client counts for the calls that follow its making.
                let first = connection.tries_ended == 1
                    && matches!(connection.state, State::Down { .. })
                    && began + patience >= since;
                began >= since || first
            })
        })
    }

    /// What the first server says, if each of them refuses this client.
    pub(super) fn all_refuse(&self) -> Option<Error> {
        let own = &self.connections[..self.registered];
        let mut refusals = own.iter().map(|connection| {
            let failure = connection.failure.as_ref()?;
            let code = failure.code()?;
            let text = format!("{}: {}", connection.address, failure.text);
            Some(Error::new(ErrorKind::of_wire_code(code), text))
        });
        let first = refusals.next()??;
        refusals.all(|refusal| refusal.is_some()).then_some(first)
    }

    pub(super) fn fail_used_up(&mut self, id: OperationId, now: Micros) {
        let refused = self.all_refuse();
        let error = refused.unwrap_or_else(|| self.connection_failed(id));
        self.fail_try_operation(id, error, now);
    }

    fn fail_try_operation(&mut self, id: OperationId, error: Error, now: Micros) {
        match self.operations.get(id).map(|operation| &operation.kind) {
            Some(Kind::Acquire(_)) => self.end_acquire(id, Err(error), now),
            Some(_) => self.fail_operation(id, error),
            None => {}
        }
    }

    /// What went wrong at each address where something did, for errors that say more than that.
    pub(super) fn complaints(&self, since: Micros) -> Option<String> {
        let mut text = String::new();
        let mut named: Vec<&Address> = Vec::new();
        for connection in &self.connections {
            if let Some(complaint) = connection.complaint(since)
                && !named.contains(&&connection.address)
            {
                let comma = if named.is_empty() { "" } else { "; " };
                let _ = write!(text, "{comma}{}: {complaint}", connection.address);
                named.push(&connection.address);
            }
        }
        (!named.is_empty()).then_some(text)
    }

    /// Names each address and what went wrong there.
    pub(super) fn connection_failed(&self, id: OperationId) -> Error {
        let mut since = Micros::MAX;
        let reasons = match self.operations.get(id).map(|operation| &operation.kind) {
            Some(Kind::Acquire(acquire)) => match &acquire.trouble {
                Some(trouble) => &trouble.tries.reasons[..],
                None => &[],
            },
            Some(Kind::Query(query)) => &query.tries.reasons[..],
            Some(Kind::Release(repeat, _) | Kind::Cancel(repeat, _) | Kind::Keep(repeat, _)) => {
                since = repeat.begun();
                &[]
            }
            None => &[],
        };
        let mut text = String::from("no active server was reached: ");
        let mut named: Vec<&Address> = Vec::new();
        // Where a server has answered and TLS has failed, it is of no use to look for the server.
        let mut look_for_it = true;
        for connection in &self.connections {
            if named.contains(&&connection.address) {
                continue;
            }
            let failure = reasons
                .iter()
                .find(|(address, _)| *address == connection.address)
                .map(|(_, failure)| failure)
                .or(connection.failure.as_ref());
            look_for_it &= !failure.is_some_and(Failure::is_of_tls);
            let reason = failure
                .map(|failure| failure.text.as_str())
                .or(connection.complaint(since));
            let reason = match (reason, connection.state) {
                (Some(reason), _) => reason,
                (None, State::Trying | State::Greeting) => "no answer yet",
                (None, State::Up) => "connected, but it gave no answer",
                // An additional connection that is not in use.
                (None, State::Down { .. }) => continue,
            };
            let comma = if named.is_empty() { "" } else { "; " };
            let _ = write!(text, "{comma}{}: {reason}", connection.address);
            named.push(&connection.address);
        }
        if look_for_it {
            text.push_str(" (is a server running there, and are the addresses right?)");
        }
        Error::new(ErrorKind::ConnectionFailed, text)
    }
}
