//! From a line to its reply: which rule is asked, and how its answer is spelled.

use super::cluster::{LinkId, is_for_every_node};
use super::connection::Greeting;
use super::counters::Limit;
use super::listing::{self, Listing};
use super::state::{Node, millis};
use super::users::Admission;
use crate::cluster::Event;
use crate::engine::{Answer, ConnectionId, Inspection, Refusal, Time};
use crate::protocol::{
    AddressList, Code, Hello, HelloReply, KeyRef, Millis, Operation, Reply, Request, Role,
    StatusReply, Tag, Wait,
};

/// What a line means for those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next line can be handled.
    On,
    /// Rows have to be made first.
    Rows,
    /// The line cannot be handled yet, and nothing behind it.
    Later,
    /// The connection ends after the replies.
    Close,
    /// The connection is a link of a peer from now on.
    Link(LinkId),
}

impl Node {
    /// Handles the first line of a connection: a hello, or where no secret is asked for anything.
    #[cold]
    pub(crate) fn handle_first_line(&mut self, now: Time, id: ConnectionId, line: &[u8]) -> Flow {
        if crate::cluster::opens_link(line) {
            return self.admit_link(id, line);
        }
        let request = Request::parse(line);
        let mut greeting = Greeting::Anonymous;
        let flow = match request {
            Ok(Request::Hello(hello)) => {
                let admission = self.admit(id, &hello);
                let admitted = matches!(admission, Admission::As(_));
                greeting = match hello.id {
                    _ if matches!(admission, Admission::Later) => Greeting::Checking,
                    _ if !admitted => Greeting::Anonymous,
                    Some(_) => Greeting::Identified,
                    None => Greeting::Introduced,
                };
                self.answer_hello(now, id, &hello, admission)
            }
            Err(refusal) if refusal.code == Code::Version => self.handle_line(now, id, line),
            _ if self.asks_who_speaks() => {
                let (operation, key, tag) = match &request {
                    Ok(request) => subject(request),
                    Err(refusal) => (Operation::of_letter(refusal.op), refusal.key, refusal.tag),
                };
                let text =
                    "this server asks for a secret: the first line has to be a hello with auth";
                self.refuse_admission(operation, key, tag, Code::Auth, text)
            }
            _ => self.handle_line(now, id, line),
        };
        if let Some(connection) = self.connections.get_mut(id) {
            connection.greeting = greeting;
        }
        flow
    }

    /// Handles a line that is not the first of its connection, which may do everything.
    pub(crate) fn handle_line(&mut self, now: Time, id: ConnectionId, line: &[u8]) -> Flow {
        self.handle_line_with(Node::handle_request, now, id, line)
    }

    /// As [`Node::handle_line`], for a connection that may not do everything.
    pub(crate) fn handle_limited_line(&mut self, now: Time, id: ConnectionId, line: &[u8]) -> Flow {
        self.handle_line_with(Node::handle_if_allowed, now, id, line)
    }

    #[inline(always)]
    fn handle_line_with(
        &mut self,
        handle: impl FnOnce(&mut Node, Time, ConnectionId, &Request<'_>) -> Flow,
        now: Time,
        id: ConnectionId,
        line: &[u8],
    ) -> Flow {
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(refusal) => {
                self.answer(&Reply::from(refusal));
                return if refusal.code.closes() {
                    Flow::Close
                } else {
                    Flow::On
                };
            }
        };
        if !self.serves && !is_for_every_node(&request) {
            self.handle_unserved(now, id, &request, line);
            return Flow::On;
        }
        handle(self, now, id, &request)
    }

    /// Does what a request asks for.
    pub(crate) fn handle_request(
        &mut self,
        now: Time,
        id: ConnectionId,
        request: &Request<'_>,
    ) -> Flow {
        match *request {
            Request::Acquire {
                key,
                lease,
                wait,
                tag,
            } => {
                self.acquire(now, id, key, lease, wait, tag);
            }
            Request::Release { key, token, tag } => {
                let ok = self.engine.release(now, key, token);
                if ok {
                    self.deliver();
                } else if let Some(cluster) = &mut self.cluster {
                    cluster.member.stale_release(now, token);
                }
                self.answer(&Reply::Released { key, ok, tag });
            }
            Request::Keep {
                key,
                token,
                lease,
                tag,
            } => {
                if self.is_lease_allowed(lease) {
                    let ok = self.engine.keep(now, key, token, lease);
                    self.deliver();
                    self.answer(&Reply::Kept { key, ok, tag });
                } else {
                    self.refuse_lease(Operation::Keep, key, tag);
                }
            }
            Request::Cancel { key, tag } => {
                let found = self.engine.cancel(now, id, key, tag);
                self.deliver();
                self.answer(&Reply::Cancelled { key, found, tag });
            }
            Request::Inspect { key, tag } => {
                let Node {
                    engine,
                    counters,
                    replies,
                    ..
                } = self;
                let reply = match engine.inspect(now, key) {
                    Inspection::Free { waiters } => Reply::Free { key, waiters, tag },
                    Inspection::Held(row) => Reply::Held {
                        holder: listing::holder(&row),
                        tag,
                    },
                };
                counters.note(&reply);
                reply.encode(replies);
            }
            Request::Waiters { key, limit, tag } => {
                return self.begin_rows(id, Listing::waiters(key, limit, tag));
            }
            Request::List {
                prefix,
                limit,
                after,
                tag,
            } => {
                let user = self.limited_user(id);
                return self.begin_rows(id, Listing::locks(prefix, after, limit, tag, user));
            }
            Request::Hello(_) => {
                let text = "a hello is the first line of a connection, once";
                self.answer(&Reply::refused(
                    Operation::Hello,
                    b"-",
                    Code::Syntax,
                    None,
                    text,
                ));
            }
            Request::Ping { tag } => self.answer(&Reply::Pong { tag }),
            Request::Status => self.status(id),
        }
        Flow::On
    }

    /// Gives a reply to the connection that is being served.
    #[inline(always)]
    pub(crate) fn answer(&mut self, reply: &Reply<'_>) {
        self.counters.note(reply);
        reply.encode_with(&mut self.spelled, &mut self.replies);
    }

    fn acquire(
        &mut self,
        now: Time,
        id: ConnectionId,
        key: KeyRef<'_>,
        lease: Millis,
        wait: Wait,
        tag: Option<Tag>,
    ) {
        if !self.is_lease_allowed(lease) {
            return self.refuse_lease(Operation::Acquire, key, tag);
        }
        if self.role == Role::Leaving {
            let (code, text) = (Refusal::Leaving.code(), Refusal::Leaving.text());
            let reply = Reply::refused(Operation::Acquire, key.spelling(), code, tag, text);
            return self.answer(&reply);
        }
        let answer = self.engine.acquire(now, id, key, lease, wait, tag);
        self.deliver();
        let reply = match answer {
            Answer::Granted(grant) if self.holds_back => {
                self.hold_back(now, id, key, grant, tag);
                return self.deliver();
            }
            Answer::Granted(grant) => Reply::Granted {
                key,
                token: grant.token,
                tag,
            },
            Answer::NotHad => Reply::TimedOut { key, tag },
            Answer::Queued | Answer::Dropped => return,
            Answer::Refused(refusal) => {
                self.counters.refused(refusal);
                let (code, text) = (refusal.code(), refusal.text());
                Reply::refused(Operation::Acquire, key.spelling(), code, tag, text)
            }
        };
        self.answer(&reply);
    }

    fn refuse_lease(&mut self, operation: Operation, key: KeyRef<'_>, tag: Option<Tag>) {
        let text = &self.lease_text;
        let reply = Reply::refused(operation, key.spelling(), Code::Lease, tag, text);
        self.counters.note(&reply);
        reply.encode(&mut self.replies);
    }

    /// Rows are made at once as far as they are few; else the lines behind wait for them.
    fn begin_rows(&mut self, id: ConnectionId, listing: Listing) -> Flow {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.listing = Some(Box::new(listing));
        }
        Flow::Rows
    }

    fn answer_hello(
        &mut self,
        now: Time,
        id: ConnectionId,
        hello: &Hello<'_>,
        admission: Admission,
    ) -> Flow {
        let (code, text) = match admission {
            Admission::As(user) => {
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.user = user;
                }
                return self.hello(now, id, hello);
            }
            Admission::Later => return Flow::Later,
            Admission::Refused => (Code::Auth, "wrong or missing secret"),
            Admission::Busy => {
                let text = "too many secrets are being checked; come again in a moment";
                (Code::Busy, text)
            }
        };
        self.refuse_admission(Some(Operation::Hello), b"-", None, code, text)
    }

    fn refuse_admission(
        &mut self,
        operation: Option<Operation>,
        key: &[u8],
        tag: Option<Tag>,
        code: Code,
        text: &str,
    ) -> Flow {
        match code {
            Code::Busy => self.counters.reached(Limit::SecretChecks),
            _ => self.counters.not_admitted += 1,
        }
        self.answer(&Reply::Refused {
            operation,
            key,
            code: code.as_str(),
            tag,
            text,
        });
        Flow::Close
    }

    fn hello(&mut self, now: Time, id: ConnectionId, hello: &Hello<'_>) -> Flow {
        let name = hello.name.unwrap_or(crate::protocol::NameRef::NONE);
        let fresh = self.engine.hello(id, hello.id, name);
        debug_assert!(fresh, "the first line is the first that the engine hears");
        if let Some(seen) = hello.seen {
            self.terms.hear(seen);
            self.raise_term(now);
            self.timer.wake_before(self.terms.raise_at());
        }
        if hello.id.is_some() {
            self.idle_checks
                .add(now.after(millis(self.settings.idle_timeout)), id);
            self.timer.wake_before(self.idle_checks.next());
        }
        let address = self.address_for(id);
        let peers = match &self.cluster {
            Some(cluster) => cluster.nodes(),
            None => address.clone(),
        };
        let active = self.active_for(&address);
        self.answer(&Reply::Hello(HelloReply {
            role: self.role,
            node: &address,
            active: active.as_deref(),
            peers: AddressList(&peers),
            server: env!("CARGO_PKG_VERSION"),
        }));
        Flow::On
    }

    fn status(&mut self, id: ConnectionId) {
        let address = self.address_for(id);
        self.settle_copy();
        let stats = self.engine.stats();
        let (standbys, term) = match &self.cluster {
            Some(cluster) => {
                // An active node speaks of its own; it does not have to know yet that another one goes beyond.
                let term = match self.role {
                    Role::Active => stats.term,
                    _ => cluster.term(stats.term),
                };
                (cluster.standbys(), term)
            }
            None => ("-".to_owned(), stats.term),
        };
        let active = self.active_for(&address);
        self.answer(&Reply::Status(StatusReply {
            role: self.role,
            node: &address,
            active: active.as_deref(),
            term,
            held: stats.held,
            waiting: stats.waiting,
            connections: u64::from(self.open),
            standbys: AddressList(&standbys),
        }));
    }

    /// The active node, as clients are to call it.
    fn active_for(&self, own: &str) -> Option<String> {
        match &self.cluster {
            Some(cluster) => cluster.active().map(str::to_owned),
            None => (self.role == Role::Active).then(|| own.to_owned()),
        }
    }

    /// Opens a term above what clients have named, if they have and the time has come.
    pub(crate) fn raise_term(&mut self, now: Time) {
        if self.cluster.is_none() {
            self.terms.raise(now, &mut self.engine);
            self.deliver();
        } else if let Some(term) = self.terms.take_heard(now, self.role == Role::Active) {
            self.cluster_event(Event::TermSeen { term });
        }
    }

    /// What the node calls itself to this client: without a name of its own, what the client reached.
    fn address_for(&mut self, id: ConnectionId) -> String {
        self.address.clone().unwrap_or_else(|| {
            self.connections
                .get_mut(id)
                .and_then(|connection| connection.stream.local_address())
                .map_or_else(|| "-".to_owned(), |address| address.to_string())
        })
    }
}

/// What a refusal of a request names.
pub(crate) fn subject<'a>(request: &Request<'a>) -> (Option<Operation>, &'a [u8], Option<Tag>) {
    let (operation, key, tag) = match *request {
        Request::Acquire { key, tag, .. } => (Operation::Acquire, key.spelling(), tag),
        Request::Release { key, tag, .. } => (Operation::Release, key.spelling(), tag),
        Request::Keep { key, tag, .. } => (Operation::Keep, key.spelling(), tag),
        Request::Cancel { key, tag } => (Operation::Cancel, key.spelling(), Some(tag)),
        Request::Inspect { key, tag } => (Operation::Inspect, key.spelling(), tag),
        Request::Waiters { key, tag, .. } => (Operation::Waiters, key.spelling(), tag),
        Request::List { prefix, tag, .. } => (Operation::List, prefix.field(), tag),
        Request::Hello(_) => (Operation::Hello, &b"-"[..], None),
        Request::Ping { tag } => (Operation::Ping, &b"-"[..], tag),
        Request::Status => (Operation::Status, &b"-"[..], None),
    };
    (Some(operation), key, tag)
}
