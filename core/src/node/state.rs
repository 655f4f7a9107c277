//! The state of a running node: the lock rules, the connections, and what goes between them.
//!
//! ```text
//! a connection's lines ──▶ engine ──▶ replies                ──▶ its own socket, last
//!                                 └─▶ effects ──▶ outboxes   ──▶ other sockets, first
//! ```
//!
//! One thread owns all of it, so there is one order in which requests are read, and that is the order
//! of the queues. The mutex around it is waited for only while somebody looks at the node from outside.

use super::clock;
use super::cluster::Cluster;
use super::connection::{Connection, Connections};
use super::counters::{Counters, Limit};
use super::entrants::{Entrants, Undecided};
use super::journal::Journal;
use super::log::now_and_then;
use super::settings::{JournalSync, Settings};
use super::spin::Spinner;
use super::terms::Terms;
use super::timers::{IdleChecks, TimerHandle};
use super::unread::{Load, Unread};
use super::users::Users;
use crate::engine::{ConnectionId, Effect, Engine, EngineSettings, Grant, Refusal, Time};
use crate::protocol::{Millis, Operation, Reply, Role, SpelledToken};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// The node as its tasks share it.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Node>>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared(…)")
    }
}

impl Shared {
    pub(crate) fn new(node: Node) -> Shared {
        Shared(Arc::new(Mutex::new(node)))
    }

    pub(crate) fn downgrade(&self) -> WeakShared {
        WeakShared(Arc::downgrade(&self.0))
    }

    /// The node. Hardly anybody but the thread of the node asks ([`view`](super::view) says who), so this does
    /// not wait; a panic under the lock has been dealt with where it happened.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Node> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The node as it knows itself, without keeping itself alive.
#[derive(Clone, Default)]
pub(crate) struct WeakShared(Weak<Mutex<Node>>);

impl WeakShared {
    pub(crate) fn upgrade(&self) -> Option<Shared> {
        self.0.upgrade().map(Shared)
    }
}

/// See the [module](self).
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) connections: Connections,
    pub(crate) settings: Settings,
    pub(crate) role: Role,
    /// Whether requests about locks are served at once.
    pub(crate) serves: bool,
    /// Whether leases and waits end: not on a copy, and not while the node hands over.
    pub(crate) timers_run: bool,
    /// What a node with peers has beside.
    pub(crate) cluster: Option<Cluster>,
    /// Who may say hello beside those who know the server's secret, where there is a file of users.
    pub(crate) users: Option<Users>,
    /// Whether replies to acquires wait for standbys, or for the disk.
    pub(crate) holds_back: bool,
    /// What the node calls itself, unless that depends on how a client has reached it.
    pub(crate) address: Option<String>,
    /// The active node, where that is another one.
    pub(crate) active: Option<String>,
    pub(crate) terms: Terms,
    /// Where the state is kept over restarts, unless it is not.
    pub(crate) journal: Option<Journal>,
    pub(crate) counters: Counters,
    pub(crate) timer: TimerHandle,
    pub(crate) idle_checks: IdleChecks,
    pub(crate) spinner: Option<Spinner>,
    /// What is kept for clients that do not read.
    pub(crate) unread: Unread,
    /// Sockets that are open, those included that only wait for their last bytes to leave.
    pub(crate) open: u32,
    /// Sockets on which clients are being told that there are too many.
    pub(crate) turning_away: u32,
    /// Sockets beyond the limit that may turn out to be a peer's.
    pub(crate) sorting_out: Entrants,
    /// Connections that have not said anything.
    pub(crate) undecided: Undecided,
    /// Connections that are in a TLS handshake.
    pub(crate) opening: Entrants,
    /// Who does the costly part of a handshake; one at a time, so that others have their turn in between.
    pub(crate) handshaking: Arc<Semaphore>,
    /// Told when a socket has been closed, when the node has failed and when a term is to be written.
    pub(crate) news: Arc<Notify>,
    /// Why the node cannot go on.
    pub(crate) failure: Option<String>,
    /// Set when the counter of the present term is half used.
    pub(crate) term_half_used: bool,
    /// The term that was opened because the counter of the one before had ended; its peers do not know yet.
    pub(crate) term_opened: Option<u32>,
    /// What every connection reads into, so that none needs a buffer while it is idle.
    pub(crate) input: Box<[u8]>,
    /// The replies to the connection that is being served.
    pub(crate) replies: Vec<u8>,
    /// The token that a client was told last.
    pub(crate) spelled: SpelledToken,
    /// The connection that is being served.
    pub(crate) serving: Option<ConnectionId>,
    /// How many connections have more to do, and wait for their next turn.
    pub(crate) yielding: u32,
    /// Connections with something in their outboxes that is to be sent at the end of this step.
    pub(super) touched: Vec<ConnectionId>,
    /// Grants to waiting requests that are to be sent at the end of this step.
    handing_over: u32,
    /// Buffers for outboxes.
    pub(crate) spare: Vec<Vec<u8>>,
    max_lease: Millis,
    pub(crate) lease_text: String,
}

impl Node {
    pub(crate) fn new(
        settings: Settings,
        address: Option<String>,
        engine: Engine,
        terms: Terms,
    ) -> Node {
        let max_lease = Millis(settings.max_lease.as_millis() as u64);
        let lease_text = format!(
            "a lease is at most {} seconds here (max_lease)",
            settings.max_lease.as_secs_f64()
        );
        let opening = Entrants::new(settings.max_handshakes);
        let unread = Unread::new(&settings);
        let spinner = Spinner::new(settings.spin);
        let holds_back = settings.sync_standbys > 0 || settings.journal_sync == JournalSync::Batch;
        Node {
            engine,
            connections: Connections::default(),
            settings,
            role: Role::Starting,
            serves: false,
            timers_run: false,
            cluster: None,
            users: None,
            holds_back,
            address,
            active: None,
            terms,
            journal: None,
            counters: Counters::default(),
            timer: TimerHandle::default(),
            idle_checks: IdleChecks::default(),
            spinner,
            unread,
            open: 0,
            turning_away: 0,
            sorting_out: Entrants::new(super::accept::SORTED_OUT_AT_ONCE),
            undecided: Undecided::default(),
            opening,
            handshaking: Arc::new(Semaphore::new(1)),
            news: Arc::new(Notify::new()),
            failure: None,
            term_half_used: false,
            term_opened: None,
            input: vec![0; INPUT_BYTES].into(),
            replies: Vec::with_capacity(INPUT_BYTES),
            spelled: SpelledToken::new(),
            serving: None,
            yielding: 0,
            touched: Vec::new(),
            handing_over: 0,
            spare: Vec::new(),
            max_lease,
            lease_text,
        }
    }

    /// Takes up its work: serves at once if it is alone, or asks its peers.
    pub(crate) fn begin(&mut self, shared: &Shared) {
        if self.cluster.is_some() {
            return self.begin_cluster(shared);
        }
        self.become_role(Role::Active, "it is the only node");
        (self.serves, self.timers_run) = (true, true);
        self.rearm();
    }

    /// Goes over to another role and says so.
    pub(crate) fn become_role(&mut self, role: Role, reason: &str) {
        tracing::info!("{} → {role}: {reason}", self.role);
        self.role = role;
    }

    /// Whether no further connection is to be taken.
    pub(crate) fn is_full(&self, most: u32) -> bool {
        self.open + self.opening.count() >= most
    }

    pub(crate) fn is_lease_allowed(&self, lease: Millis) -> bool {
        lease <= self.max_lease
    }

    /// Takes a new connection; `address` is where it comes from.
    pub(crate) fn connect(&mut self, mut connection: Connection, address: &str) -> ConnectionId {
        let now = connection.heard;
        // Who comes so late is told with the answer to its hello.
        connection.may_end = self.role == Role::Leaving;
        let id = self.engine.connect(address);
        self.connections.insert(id, connection);
        self.counters.accepted += 1;
        let Node {
            connections,
            undecided,
            open,
            ..
        } = self;
        undecided.add(now, id, *open, |id| connections.is_undecided(*id));
        if self.asks_who_speaks() {
            self.idle_checks
                .add(now.after(millis(self.settings.hello_timeout)), id);
            self.timer.wake_before(self.idle_checks.next());
        }
        id
    }

    /// Hands what the engine wants to be told to the outboxes. Has to follow every call that changes
    /// something, and [`Node::flush_others`] has to follow at the end of the step.
    #[inline]
    pub(crate) fn deliver(&mut self) {
        // Most requests are nobody else's business.
        if self.engine.has_effects() {
            self.deliver_effects();
        }
    }

    fn deliver_effects(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            match &effect {
                Effect::Granted {
                    connection,
                    key,
                    grant,
                    tag,
                } if self.holds_back => {
                    self.hold_back(now(), *connection, key.as_ref(), *grant, *tag);
                }
                Effect::Granted {
                    connection,
                    key,
                    grant,
                    tag,
                } => {
                    self.handing_over += 1;
                    let reply = Reply::Granted {
                        key: key.as_ref(),
                        token: grant.token,
                        tag: *tag,
                    };
                    self.tell(*connection, &reply);
                }
                Effect::TimedOut {
                    connection,
                    key,
                    tag,
                } => {
                    self.tell(
                        *connection,
                        &Reply::TimedOut {
                            key: key.as_ref(),
                            tag: *tag,
                        },
                    );
                }
                Effect::Refused {
                    connection,
                    key,
                    tag,
                    refusal,
                } => {
                    self.counters.refused(*refusal);
                    let (key, code) = (key.as_ref().spelling(), refusal.code());
                    let reply = Reply::refused(Operation::Acquire, key, code, *tag, refusal.text());
                    self.tell(*connection, &reply);
                }
                Effect::Moved {
                    connection,
                    key,
                    tag,
                } => {
                    // Only a node with peers is ever told to send its clients elsewhere.
                    if let Some(address) = self.active.clone() {
                        let reply = Reply::Moved {
                            operation: Operation::Acquire,
                            key: key.as_ref().spelling(),
                            address: &address,
                            tag: *tag,
                        };
                        self.tell(*connection, &reply);
                    }
                }
                Effect::TermHalfUsed { .. } => {
                    self.term_half_used = true;
                    self.news.notify_one();
                }
                Effect::TermOpened { term } => {
                    self.terms.opened(*term);
                    self.term_opened = Some(*term);
                    self.news.notify_one();
                    tracing::info!(
                        "opened term {term}, because the counter of the one before had ended"
                    );
                }
            }
        }
    }

    pub(crate) fn tell(&mut self, id: ConnectionId, reply: &Reply<'_>) {
        self.counters.note(reply);
        if self.serving == Some(id) {
            reply.encode_with(&mut self.spelled, &mut self.replies);
        } else if let Some(connection) = self.connections.get_mut(id) {
            reply.encode_with(&mut self.spelled, connection.outbox.lines(&mut self.spare));
            if !connection.touched {
                connection.touched = true;
                self.touched.push(id);
            }
        }
    }

    /// Puts the replies to a connection that is not being read behind what it has been told.
    pub(crate) fn put_replies(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !self.replies.is_empty()
        {
            let lines = connection.outbox.lines(&mut self.spare);
            lines.extend_from_slice(&self.replies);
            if !connection.touched {
                connection.touched = true;
                self.touched.push(id);
            }
        }
        self.replies.clear();
    }

    /// Sends what others than the served connection have been told in this step, which began at `now`.
    pub(crate) fn flush_others(&mut self, now: Time) {
        if !self.leaves_all_to_links() {
            self.write_journal(now);
        }
        // A connection that fails may hand its place in a queue to the next, so the list can grow.
        let mut next = 0;
        while let Some(id) = self.touched.get(next).copied() {
            next += 1;
            self.write_journal(now);
            let Some(connection) = self.connections.get_mut(id) else {
                continue;
            };
            connection.touched = false;
            match connection
                .outbox
                .flush(&mut connection.stream, &mut self.spare)
            {
                Err(_) => self.abandon(now, id),
                Ok(()) if connection.outbox.is_empty() && connection.weight == 0 => {}
                Ok(()) => match self.unread.weigh(connection, self.open) {
                    // Its task waits until the socket takes bytes again.
                    Load::Fine if !connection.outbox.is_empty() => connection.wake(),
                    Load::Fine => {}
                    load => self.cut_off(now, id, load),
                },
            }
        }
        self.touched.clear();
        if self.handing_over > 0 && self.serving.is_none() {
            self.count_hand_overs(now);
        }
    }

    /// Whether this step has granted something to waiting requests.
    #[inline]
    pub(crate) fn hands_over(&self) -> bool {
        self.handing_over > 0
    }

    /// The grants that this step has led to have been given to their sockets, as far as these take anything.
    #[inline(never)]
    pub(crate) fn count_hand_overs(&mut self, began: Time) {
        let took = self::now().0.saturating_sub(began.0);
        let hand_overs = std::mem::take(&mut self.handing_over);
        self.counters
            .hand_over
            .add_some(took, u64::from(hand_overs));
    }

    /// Ends a connection whose client does not read.
    #[cold]
    pub(crate) fn cut_off(&mut self, now: Time, id: ConnectionId, load: Load) {
        let limit = match load {
            Load::MoreThanItsShare => Limit::UnreadInAll,
            Load::TooMuch | Load::Fine => Limit::Unread,
        };
        self.counters.reached(limit);
        let setting = limit.as_str();
        if let Some(connection) = self.connections.get_mut(id) {
            let address = connection.stream.peer_address();
            now_and_then!(warn, "cut off {address}, which does not read ({setting})");
        }
        self.abandon(now, id);
    }

    /// Closes a connection to which nothing can be sent any more, or is to be.
    pub(crate) fn abandon(&mut self, now: Time, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let grants = connection.outbox.unsent_grants();
        let unsent: Vec<Grant> = grants
            .filter_map(|(key, token)| self.engine.grant_of(key, token))
            .collect();
        if let Some(connection) = self.disconnect(now, id, &unsent) {
            self.close(connection);
        }
    }

    /// Takes a connection out of the node. Who waited on it leaves the queues, or keeps the place for
    /// the grace; `unsent` are grants whose replies have not left.
    pub(crate) fn disconnect(
        &mut self,
        now: Time,
        id: ConnectionId,
        unsent: &[Grant],
    ) -> Option<Box<Connection>> {
        let connection = self.connections.remove(id)?;
        self.yielding -= u32::from(connection.yields);
        if let Some(cluster) = &mut self.cluster {
            cluster.parking.disconnect(id);
        }
        let held = self.held_for(id);
        if held.is_empty() {
            self.engine.disconnect(now, id, unsent);
        } else {
            self.engine.disconnect(now, id, &[unsent, &held].concat());
        }
        self.deliver();
        // A task that is not the one running now has to learn that it is over.
        connection.wake();
        Some(connection)
    }

    /// Grants that a connection has not been told of because standbys or the disk do not have them yet.
    fn held_for(&mut self, id: ConnectionId) -> Vec<Grant> {
        let for_standbys = self
            .cluster
            .as_mut()
            .map(|cluster| cluster.held.disconnect(id));
        let for_disk = self.journal.as_mut().map(|journal| journal.disconnect(id));
        let held = for_standbys.into_iter().chain(for_disk).flatten();
        held.filter_map(|held| self.engine.grant_of(held.key.as_ref(), held.grant.token))
            .collect()
    }

    /// Closes a connection that is no part of the node any more.
    pub(crate) fn close(&mut self, connection: Box<Connection>) {
        self.unread.forget(&connection);
        // The socket is closed before its place is given to somebody else.
        drop(connection);
        self.closed();
    }

    /// A connection has been closed, or has become something else.
    pub(crate) fn closed(&mut self) {
        self.open -= 1;
        self.news.notify_one();
        if let Some(cluster) = &self.cluster {
            cluster.ending.notify_one();
        }
    }

    /// Ends what is over by `now`, a bounded number at a time.
    pub(crate) fn expire(&mut self, now: Time) -> bool {
        let more = self.engine.expire(now, EXPIRE_AT_ONCE);
        self.timer.acted(now);
        self.deliver();
        self.flush_others(now);
        more
    }

    /// Tells a bounded number of those that wait on a connection to look elsewhere, and lets the
    /// connection's task see to its end. Returns whether there are more.
    pub(crate) fn refuse_waiting(&mut self, id: ConnectionId) -> bool {
        let now = now();
        let more = self
            .engine
            .refuse_waiting(now, id, Refusal::Leaving, REFUSED_AT_ONCE);
        self.deliver();
        self.flush_others(now);
        self.rearm();
        if let Some(connection) = self.connections.get_mut(id) {
            connection.may_end = !more;
            connection.wake();
        }
        more
    }

    /// Ends the step: the timer has to know of deadlines that are new.
    pub(crate) fn rearm(&mut self) {
        if self.timers_run {
            let moment = self.engine.next_deadline_before(self.timer.armed_for);
            self.timer.wake_before(moment);
        }
        if self.engine.changes_waiting() > 0 {
            let due = self.send_changes();
            self.timer.wake_before(due);
        }
    }

    /// The node cannot go on.
    pub(crate) fn fail(&mut self, why: String) {
        tracing::error!("{why}");
        self.failure.get_or_insert(why);
        self.news.notify_one();
    }
}

/// How much is read at once. Half a line may stand before it.
const INPUT_BYTES: usize = super::serve::READ_AT_ONCE + crate::protocol::limits::LINE_BYTES;
/// How many leases, waits and graces end before others get their turn.
const EXPIRE_AT_ONCE: usize = 512;

/// How many waiting requests are told that the node stops before others get their turn.
const REFUSED_AT_ONCE: usize = 1024;

/// The engine's part of the settings.
pub(crate) fn engine_settings(settings: &Settings) -> EngineSettings {
    EngineSettings {
        max_keys: settings.max_keys,
        max_waiters_per_key: settings.max_waiters_per_key,
        max_waiters: settings.max_waiters,
        max_waiting_per_connection: settings.max_waiting_per_connection,
        reattach_grace: millis(settings.reattach_grace),
        ..EngineSettings::default()
    }
}

/// The smallest number of whole milliseconds that is not shorter.
pub(crate) fn millis(time: Duration) -> Millis {
    Millis::at_least(time)
}

/// Now, by the clock of everything that ends.
pub(crate) fn now() -> Time {
    clock::now()
}
