//! The request desk of a simulated node: from a line to its reply, by how the node stands.

use crate::checker::Checker;
use crate::coverage::Coverage;
use crate::node::Process;
use crate::plan::Harm;
use fairlock::cluster::{Now, Slot, Stance};
use fairlock::engine::{Answer, Grant, Inspection};
use fairlock::protocol::{Code, KeyRef, Millis, Operation, Reply, Request, Tag, Wait};

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
    pub(crate) fn answer(&mut self, work: &mut Work<'_>, connection: usize, request: &Request<'_>) {
        let (operation, ..) = subject(request);
        match self.stance {
            Stance::Redirect(slot) if work.harm != Harm::StandbyServes => {
                self.send_elsewhere(work, connection, request, slot);
            }
            Stance::Leave(Some(slot)) => {
                self.send_elsewhere(work, connection, request, slot);
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

    fn send_elsewhere(
        &mut self,
        work: &mut Work<'_>,
        connection: usize,
        request: &Request<'_>,
        slot: Slot,
    ) {
        let (operation, key, tag) = subject(request);
        let address = self.member.members().address(slot).unwrap_or("-");
        let address = address.to_owned();
        work.coverage.count("request moved");
        self.moved(connection, operation, key, &address, tag);
    }

    pub(crate) fn moved(
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

    pub(crate) fn refuse(&mut self, connection: usize, request: &Request<'_>, code: Code) {
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

    pub(crate) fn acquire(
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

    pub(crate) fn say(&mut self, connection: usize, reply: &Reply<'_>, grant: Option<Grant>) {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        self.push(connection, bytes, grant);
    }

    pub(crate) fn push(&mut self, connection: usize, bytes: Vec<u8>, grant: Option<Grant>) {
        if let Some(visitor) = self.visitors.get_mut(&connection) {
            visitor.outbox.push((bytes, grant));
            self.dirty.insert(connection);
        }
    }
}

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
