//! The request desk of a simulated node: from a line to its reply, by how the node stands.

use crate::checker::{Checker, GrantOf, Rule};
use crate::coverage::Coverage;
use crate::node::Process;
use crate::plan::Harm;
use fairlock::cluster::{Event, Now, Overdue, Parked, Stance, wait_left};
use fairlock::engine::{Answer, ConnectionId, Effect, Grant, Inspection, Refusal};
use fairlock::protocol::{
    AddressList, ClientId, Code, Hello, HelloReply, Key, KeyRef, Millis, NameRef, Operation, Reply,
    Request, Role, Tag, Wait,
};

/// What one step of a node works with.
pub(crate) struct Work<'a> {
    /// The world's time.
    pub(crate) world: u64,
    pub(crate) now: Now,
    pub(crate) node: usize,
    pub(crate) harm: Harm,
    pub(crate) checker: &'a mut Checker,
    pub(crate) coverage: &'a mut Coverage,
}

/// A year in seconds: how far beyond the wall clock a client's word counts.
const YEAR: u32 = 31_536_000;

/// Keys are named by a letter and a digit.
pub(crate) fn key_number(spelling: &[u8]) -> u8 {
    spelling.last().map_or(0, |digit| digit - b'0')
}

impl Process {
    /// Handles a line of a client.
    pub(crate) fn handle_line(&mut self, work: &mut Work<'_>, connection: usize, line: &[u8]) {
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(refusal) => return self.say(connection, &Reply::from(refusal), None),
        };
        match request {
            Request::Hello(hello) => return self.hello(work, connection, &hello),
            Request::Ping { tag } => return self.say(connection, &Reply::Pong { tag }, None),
            Request::Acquire { .. }
            | Request::Release { .. }
            | Request::Keep { .. }
            | Request::Cancel { .. }
            | Request::Inspect { .. }
            | Request::Waiters { .. }
            | Request::List { .. }
            | Request::Status => {}
        }
        match self.stance {
            Stance::Park | Stance::Freeze => {
                let Some(id) = self.visitors.get(&connection).map(|visitor| visitor.id) else {
                    return;
                };
                work.coverage.count("parked");
                let full = self
                    .parking
                    .park(work.now.time, id, &request, line)
                    .is_err();
                if full {
                    self.refuse(connection, &request, Code::Busy);
                }
            }
            Stance::Serve | Stance::Redirect(_) | Stance::Leave(_) => {
                self.answer(work, connection, &request);
            }
        }
    }

    /// Answers a request now.
    fn answer(&mut self, work: &mut Work<'_>, connection: usize, request: &Request<'_>) {
        let (operation, key, tag) = subject(request);
        match self.stance {
            Stance::Redirect(slot) if work.harm != Harm::StandbyServes => {
                let address = self
                    .member
                    .members()
                    .address(slot)
                    .unwrap_or("-")
                    .to_owned();
                work.coverage.count("request moved");
                self.moved(connection, operation, key, &address, tag);
            }
            Stance::Leave(Some(slot)) => {
                let address = self
                    .member
                    .members()
                    .address(slot)
                    .unwrap_or("-")
                    .to_owned();
                work.coverage.count("request moved");
                self.moved(connection, operation, key, &address, tag);
            }
            // A copy is not the state: what it says of a release would be a guess.
            Stance::Leave(None) if operation == Operation::Acquire || !self.was_active => {
                self.refuse(connection, request, Code::Unavailable);
            }
            Stance::Serve
            | Stance::Redirect(_)
            | Stance::Park
            | Stance::Freeze
            | Stance::Leave(None) => self.serve(work, connection, request),
        }
    }

    fn moved(
        &mut self,
        connection: usize,
        operation: Operation,
        key: &[u8],
        address: &str,
        tag: Option<Tag>,
    ) {
        let reply = Reply::Moved {
            operation,
            key,
            address,
            tag,
        };
        self.say(connection, &reply, None);
    }

    fn refuse(&mut self, connection: usize, request: &Request<'_>, code: Code) {
        let (operation, key, tag) = subject(request);
        let reply = Reply::refused(operation, key, code, tag, "no node is active");
        self.say(connection, &reply, None);
    }

    fn serve(&mut self, work: &mut Work<'_>, connection: usize, request: &Request<'_>) {
        let time = work.now.time;
        match *request {
            Request::Acquire {
                key,
                lease,
                wait,
                tag,
            } => self.acquire(work, connection, key, lease, wait, tag),
            Request::Release { key, token, tag } => {
                let ok = self.engine.release(time, key, token);
                self.deliver(work);
                if ok {
                    work.coverage.count("release");
                } else {
                    work.coverage.count("stale release");
                    self.member.stale_release(time, token);
                }
                if work.harm != Harm::AnswerNever {
                    self.say(connection, &Reply::Released { key, ok, tag }, None);
                }
            }
            Request::Keep {
                key,
                token,
                lease,
                tag,
            } => {
                let ok = self.engine.keep(time, key, token, lease);
                work.coverage.count("keep");
                self.deliver(work);
                self.say(connection, &Reply::Kept { key, ok, tag }, None);
            }
            Request::Cancel { key, tag } => {
                let Some(visitor) = self.visitors.get(&connection) else {
                    return;
                };
                let (id, client) = (visitor.id, visitor.client);
                let found = self.engine.cancel(time, id, key, tag);
                work.coverage.count("cancel");
                if let Some(client) = client.filter(|_| found) {
                    let request = (client, tag.number);
                    let at = (work.node, key_number(key.spelling()));
                    work.checker.order.gone(at, request);
                }
                self.deliver(work);
                self.say(connection, &Reply::Cancelled { key, found, tag }, None);
            }
            Request::Inspect { key, tag } => {
                let waiters = match self.engine.inspect(time, key) {
                    Inspection::Free { waiters } => waiters,
                    Inspection::Held(row) => row.waiters,
                };
                self.say(connection, &Reply::Free { key, waiters, tag }, None);
            }
            // The clients of the simulation do not ask for these.
            Request::Waiters { .. }
            | Request::List { .. }
            | Request::Status
            | Request::Hello(_)
            | Request::Ping { .. } => {}
        }
    }

    fn acquire(
        &mut self,
        work: &mut Work<'_>,
        connection: usize,
        key: KeyRef<'_>,
        lease: Millis,
        wait: Wait,
        tag: Option<Tag>,
    ) {
        let Some(visitor) = self.visitors.get(&connection) else {
            return;
        };
        let (id, client) = (visitor.id, visitor.client);
        let number = key_number(key.spelling());
        let time = work.now.time;
        let waiting = self.engine.stats().waiting;
        let answer = self.engine.acquire(time, id, key, lease, wait, tag);
        let new = self.engine.stats().waiting > waiting;
        if tag.is_some_and(|tag| tag.attempt > 0) {
            work.coverage.count("request sent again");
        }
        match answer {
            Answer::Queued => {
                if let (Some(client), Some(tag)) = (client, tag) {
                    if !new {
                        work.coverage.count("place taken up again");
                    }
                    let until = match wait {
                        Wait::For(length) => Some(time.after(length).0),
                        Wait::No | Wait::Forever => None,
                    };
                    let asked = (client, tag.number);
                    work.checker
                        .order
                        .queued((work.node, number), asked, connection, new, until);
                }
                self.deliver(work);
            }
            Answer::Granted(grant) => {
                self.deliver(work);
                let known = self.engine.stats().waiting < waiting;
                self.granted(work, connection, key, (grant, known), tag);
            }
            Answer::NotHad => {
                work.coverage.count("try without luck");
                self.deliver(work);
                self.say(connection, &Reply::TimedOut { key, tag }, None);
            }
            Answer::Dropped => work.coverage.count("late copy dropped"),
            Answer::Refused(refusal) => {
                self.deliver(work);
                let (code, text) = (refusal.code(), refusal.text());
                let reply = Reply::refused(Operation::Acquire, key.spelling(), code, tag, text);
                self.say(connection, &reply, None);
            }
        }
    }

    /// Says that a request has the lock; `known` if it had waited for it.
    fn granted(
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

    fn visitor_of(&self, id: ConnectionId) -> Option<usize> {
        let connection = *self.names.get(&id.index)?;
        let visitor = self.visitors.get(&connection)?;
        (visitor.id == id).then_some(connection)
    }

    fn request_of(&self, id: ConnectionId, tag: Option<Tag>) -> Option<(ClientId, u64)> {
        let connection = self.visitor_of(id)?;
        let client = self.visitors.get(&connection)?.client?;
        Some((client, tag?.number))
    }

    fn gone(&self, work: &mut Work<'_>, id: ConnectionId, key: &Key, tag: Option<Tag>) {
        if let Some(request) = self.request_of(id, tag) {
            let at = (work.node, key_number(key.spelling()));
            work.checker.order.gone(at, request);
        }
    }

    /// A wait must not end early, and not late where the node served all the time.
    fn check_timed_out(&self, work: &mut Work<'_>, id: ConnectionId, key: &Key, tag: Option<Tag>) {
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

    fn hello(&mut self, work: &mut Work<'_>, connection: usize, hello: &Hello<'_>) {
        let Some(visitor) = self.visitors.get_mut(&connection) else {
            return;
        };
        let name = hello.name.unwrap_or(NameRef::NONE);
        visitor.client = hello.id;
        visitor.greeted = true;
        self.engine.hello(visitor.id, hello.id, name);
        if let Some(seen) = hello.seen {
            self.hear_seen(work, (seen.get() >> 32) as u32);
        }
        let members = self.member.members();
        let own = members.address(members.own()).unwrap_or("-");
        let active = self.member.active().and_then(|slot| members.address(slot));
        let peers = members.field();
        let reply = Reply::Hello(HelloReply {
            role: match self.member.stage() {
                fairlock::cluster::Stage::Starting => Role::Starting,
                fairlock::cluster::Stage::Standby | fairlock::cluster::Stage::Candidate => {
                    Role::Standby
                }
                fairlock::cluster::Stage::Active | fairlock::cluster::Stage::HandingOver => {
                    Role::Active
                }
                fairlock::cluster::Stage::Leaving => Role::Leaving,
            },
            node: own,
            active,
            peers: AddressList(&peers),
            server: "simulation",
        });
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        self.push(connection, bytes, None);
    }

    /// A client has seen a token of this term: it counts within a year of the wall clock, once a second.
    fn hear_seen(&mut self, work: &mut Work<'_>, term: u32) {
        let base = if work.now.wall == 0 {
            self.first_term
        } else {
            work.now.wall
        };
        if term <= self.member.known_term() || term > base.saturating_add(YEAR) {
            return;
        }
        self.seen_later = Some(term.max(self.seen_later.unwrap_or(0)));
        self.heed_seen(work);
    }

    pub(crate) fn heed_seen(&mut self, work: &mut Work<'_>) {
        let time = work.now.time.0;
        if self.seen_later.is_some() && time >= self.seen_from {
            let term = self.seen_later.take().expect("it is there");
            self.seen_from = time + 1_000_000;
            work.coverage.count("term seen by a client");
            self.client_term = self.client_term.max(term);
            work.checker.tokens.told(work.node, term);
            if work.harm != Harm::DeafToClients {
                let event = Event::TermSeen { term };
                self.member.handle(work.now, event, &mut self.engine);
            }
        }
    }

    /// What was parked is served or sent elsewhere, now that the node knows where.
    pub(crate) fn unpark(&mut self, work: &mut Work<'_>) {
        while !matches!(self.stance, Stance::Park | Stance::Freeze) {
            let Some(parked) = self.parking.pop() else {
                return;
            };
            let Some(connection) = self.visitor_of(parked.connection) else {
                continue;
            };
            let Ok(request) = Request::parse(&parked.line) else {
                continue;
            };
            let serves = self.stance == Stance::Serve;
            work.coverage.count(if serves {
                "parked request served"
            } else {
                "parked request moved"
            });
            match request {
                Request::Acquire {
                    key,
                    lease,
                    wait,
                    tag,
                } if serves => match wait_left(wait, parked.at, work.now.time) {
                    Some(wait) => self.acquire(work, connection, key, lease, wait, tag),
                    None => self.say(connection, &Reply::TimedOut { key, tag }, None),
                },
                request => self.answer(work, connection, &request),
            }
        }
    }

    /// What was parked for too long.
    pub(crate) fn end_parked(&mut self, work: &mut Work<'_>) {
        while let Some((parked, overdue)) = self.parking.pop_overdue(work.now.time) {
            let Parked {
                connection, line, ..
            } = parked;
            let Some(to) = self.visitor_of(connection) else {
                continue;
            };
            let Ok(request) = Request::parse(&line) else {
                continue;
            };
            match (overdue, &request) {
                (Overdue::TimedOut, Request::Acquire { key, tag, .. }) => {
                    work.coverage.count("parked request timed out");
                    let (key, tag) = (*key, *tag);
                    self.say(to, &Reply::TimedOut { key, tag }, None);
                }
                (Overdue::TimedOut | Overdue::Unavailable, _) => {
                    work.coverage.count("parked request unavailable");
                    self.refuse(to, &request, Code::Unavailable);
                }
            }
        }
    }

    /// A node that stops without a successor has nothing more for those who wait.
    pub(crate) fn refuse_all(&mut self, work: &mut Work<'_>) {
        let ids: Vec<ConnectionId> = self.visitors.values().map(|visitor| visitor.id).collect();
        for id in ids {
            while self
                .engine
                .refuse_waiting(work.now.time, id, Refusal::Leaving, 100)
            {}
            self.deliver(work);
        }
    }

    /// Tells every client that said hello who is active, if that is news.
    pub(crate) fn tell_active(&mut self, work: &mut Work<'_>) {
        let active = match self.stance {
            Stance::Serve | Stance::Redirect(_) | Stance::Leave(Some(_)) => self.member.active(),
            Stance::Park | Stance::Freeze | Stance::Leave(None) => None,
        };
        let address = active.and_then(|slot| self.member.members().address(slot));
        if address == self.told_active.as_deref() {
            return;
        }
        // While it hands over, nothing is known anew.
        if address.is_none() && self.stance == Stance::Freeze {
            return;
        }
        self.told_active = address.map(str::to_owned);
        let Some(address) = self.told_active.clone() else {
            return;
        };
        let greeted: Vec<usize> = self
            .visitors
            .iter()
            .filter(|(_, visitor)| visitor.greeted)
            .map(|(connection, _)| *connection)
            .collect();
        for connection in greeted {
            work.coverage.count("active node told");
            let address = &address;
            self.say(connection, &Reply::ActiveAt { address }, None);
        }
    }

    fn say(&mut self, connection: usize, reply: &Reply<'_>, grant: Option<Grant>) {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        self.push(connection, bytes, grant);
    }

    fn push(&mut self, connection: usize, bytes: Vec<u8>, grant: Option<Grant>) {
        if let Some(visitor) = self.visitors.get_mut(&connection) {
            visitor.outbox.push((bytes, grant));
            self.dirty.insert(connection);
        }
    }
}

/// Ten milliseconds, and a little for a wait that was rounded.
const LATE: u64 = 11_000;

fn subject<'a>(request: &Request<'a>) -> (Operation, &'a [u8], Option<Tag>) {
    match *request {
        Request::Acquire { key, tag, .. } => (Operation::Acquire, key.spelling(), tag),
        Request::Release { key, tag, .. } => (Operation::Release, key.spelling(), tag),
        Request::Keep { key, tag, .. } => (Operation::Keep, key.spelling(), tag),
        Request::Cancel { key, tag } => (Operation::Cancel, key.spelling(), Some(tag)),
        Request::Inspect { key, tag } => (Operation::Inspect, key.spelling(), tag),
        Request::Waiters { key, tag, .. } => (Operation::Waiters, key.spelling(), tag),
        Request::List { prefix, tag, .. } => (Operation::List, prefix.field(), tag),
        Request::Hello(_) => (Operation::Hello, b"-", None),
        Request::Ping { tag } => (Operation::Ping, b"-", tag),
        Request::Status => (Operation::Status, b"-", None),
    }
}
