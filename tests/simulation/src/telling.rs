//! What a simulated node tells because of what its engine has decided, and what the checker has to say to it.

use crate::checker::{GrantOf, Rule};
use crate::desk::{Work, key_number};
use crate::node::Process;
use crate::plan::Harm;
use fairlock::engine::{ConnectionId, Effect, Grant};
use fairlock::protocol::{ClientId, Key, KeyRef, Operation, Reply, Tag};

/// Ten milliseconds, and a little for a wait that was rounded.
const LATE: u64 = 11_000;

impl Process {
    /// Carries what the engine tells to those it concerns.
    pub(crate) fn deliver(&mut self, work: &mut Work<'_>) {
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Granted {
                    connection,
                    key,
                    grant,
                    tag,
                } => {
                    work.coverage.count("hand-over");
                    if let Some(to) = self.visitor_of(connection) {
                        self.granted(work, to, key.as_ref(), (grant, true), tag);
                    }
                }
                Effect::TimedOut {
                    connection,
                    key,
                    tag,
                } => {
                    work.coverage.count("wait ended");
                    self.check_timed_out(work, connection, &key, tag);
                    self.gone(work, connection, &key, tag);
                    if let Some(to) = self.visitor_of(connection) {
                        let key = key.as_ref();
                        self.say(to, &Reply::TimedOut { key, tag }, None);
                    }
                }
                Effect::Refused {
                    connection,
                    key,
                    tag,
                    refusal,
                } => {
                    self.gone(work, connection, &key, tag);
                    if let Some(to) = self.visitor_of(connection) {
                        let (code, text) = (refusal.code(), refusal.text());
                        let key = key.spelling();
                        let reply = Reply::refused(Operation::Acquire, key, code, tag, text);
                        self.say(to, &reply, None);
                    }
                }
                Effect::Moved {
                    connection,
                    key,
                    tag,
                } => {
                    if let Some(request) = self.request_of(connection, tag) {
                        work.checker
                            .order
                            .moved((work.node, key_number(key.spelling())), request);
                    }
                    work.coverage.count("request moved");
                    let active = self.member.active();
                    let address = active.and_then(|slot| self.member.members().address(slot));
                    let address = address.unwrap_or("-").to_owned();
                    if let Some(to) = self.visitor_of(connection) {
                        let key = key.spelling();
                        self.moved(to, Operation::Acquire, key, &address, tag);
                    }
                }
                Effect::TermHalfUsed { .. } | Effect::TermOpened { .. } => {}
            }
        }
    }

    /// Says that a request has the lock; `known` if it had waited for it.
    pub(crate) fn granted(
        &mut self,
        work: &mut Work<'_>,
        connection: usize,
        key: KeyRef<'_>,
        (grant, known): (Grant, bool),
        tag: Option<Tag>,
    ) {
        let client = self
            .visitors
            .get(&connection)
            .and_then(|visitor| visitor.client);
        if let (Some(client), Some(tag)) = (client, tag) {
            let number = key_number(key.spelling());
            let of = GrantOf {
                key: number,
                client,
                tag: tag.number,
                at: work.world,
            };
            let (at, node, checker) = (work.world, work.node, &mut *work.checker);
            let request = (client, tag.number);
            match checker.tokens.granted(node, grant.token, of) {
                Ok(true) => {
                    self.told += 1;
                    work.coverage.count("grant");
                    let rise = checker.tokens.check_rise(node, grant.token);
                    checker.take(at, Rule::TokensRise, rise);
                    let order = checker.order.granted((node, number), request, known);
                    checker.take(at, Rule::Order, order);
                }
                Ok(false) => checker.order.gone((node, number), request),
                Err(text) => checker.fail(Rule::TokensUnique, at, || text),
            }
        }
        let reply = Reply::Granted {
            key,
            token: grant.token,
            tag,
        };
        self.say(connection, &reply, Some(grant));
        if work.harm == Harm::AnswerTwice {
            self.say(connection, &reply, None);
        }
    }

    pub(crate) fn visitor_of(&self, id: ConnectionId) -> Option<usize> {
        let connection = *self.names.get(&id.index)?;
        let visitor = self.visitors.get(&connection)?;
        (visitor.id == id).then_some(connection)
    }

    pub(crate) fn request_of(&self, id: ConnectionId, tag: Option<Tag>) -> Option<(ClientId, u64)> {
        let connection = self.visitor_of(id)?;
        let client = self.visitors.get(&connection)?.client?;
        Some((client, tag?.number))
    }

    pub(crate) fn gone(&self, work: &mut Work<'_>, id: ConnectionId, key: &Key, tag: Option<Tag>) {
        if let Some(request) = self.request_of(id, tag) {
            let at = (work.node, key_number(key.spelling()));
            work.checker.order.gone(at, request);
        }
    }

    /// A wait must not end early, and not late where the node served all the time.
    pub(crate) fn check_timed_out(
        &self,
        work: &mut Work<'_>,
        id: ConnectionId,
        key: &Key,
        tag: Option<Tag>,
    ) {
        let Some(request) = self.request_of(id, tag) else {
            return;
        };
        let key = key_number(key.spelling());
        let node = work.node;
        if let Some(until) = work.checker.order.until((node, key), request) {
            let time = work.now.time.0;
            let steady = self.serving_since.is_some_and(|since| since < until);
            if time < until || (steady && time > until + LATE) {
                let at = work.world;
                work.checker.fail(Rule::WaitsEnd, at, || {
                    format!(
                        "node {node} ends the wait of {}#{} at {time}, not at {until}",
                        request.0, request.1
                    )
                });
            }
        }
    }
}
