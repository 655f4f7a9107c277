//! What another thread may see of a running node: numbers, the cluster, locks and queues.
//!
//! The node's one thread has its state behind a mutex that nobody else asks for, except from here. While a look lasts,
//! the node stands still; and when it finds the mutex taken it sleeps until it is woken, which costs some fifty
//! microseconds more. So each look is short: a snapshot copies numbers, lists are made in steps of a bounded number of
//! keys, with a pause between, and what needs a walk through everything walks on for [`SURVEY_BUDGET`] at most once a
//! second. Nobody looks, nothing is paid. Nothing is ever changed from here.

use super::clock;
use super::counters::Counters;
use super::journal::Journal;
use super::state::{Node, Shared};
use crate::cluster::Stage;
use crate::engine::{Histogram, ListCursor, LockRow, QueuePlace, Stats, Survey};
use crate::protocol::{Key, Millis, Prefix, Role, Token};
use crate::tls::Acceptor;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// A look at a node from any thread, for as long as one likes: when the node has ended there is nothing to be seen.
/// Made by [`Server::view`](super::Server::view). The calls block, most of them for microseconds.
#[derive(Clone, Debug)]
pub struct ServerView {
    /// Where the node listens.
    address: SocketAddr,
    window: Window,
    surveyed: Arc<Mutex<Surveyed>>,
}

/// Where the node shows itself while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    node: Arc<Mutex<Option<Seen>>>,
    opened: Instant,
    /// Who waits for what is seen, where that is not the caller.
    asker: Option<Weak<()>>,
}

impl Window {
    pub(crate) fn new() -> Window {
        Window {
            node: Arc::new(Mutex::new(None)),
            opened: Instant::now(),
            asker: None,
        }
    }

    /// The node can be seen until the returned value is dropped.
    pub(crate) fn show(&self, node: &Shared, acceptor: Option<&Arc<Acceptor>>) -> Shown {
        *lock(&self.node) = Some(Seen {
            node: node.clone(),
            acceptor: acceptor.cloned(),
        });
        Shown(self.clone())
    }

    /// When the certificate ends that the node shows, in seconds since 1970.
    fn certificate_ends(&self) -> Option<u64> {
        let seen = lock(&self.node);
        let acceptor = seen.as_ref()?.acceptor.as_ref();
        acceptor.and_then(|acceptor| acceptor.certificate_ends())
    }

    /// One step under the node's lock.
    fn look<T>(&self, look: impl FnOnce(&mut Node) -> T) -> Option<T> {
        let has_left = |asker: &Weak<()>| asker.strong_count() == 0;
        if self.asker.as_ref().is_some_and(has_left) {
            return None;
        }
        let node = lock(&self.node);
        // The place stays locked meanwhile, so that a node that ends is not kept alive by who looks at it.
        node.as_ref().map(|seen| {
            let mut node = seen.node.lock();
            node.settle_copy();
            look(&mut node)
        })
    }
}

/// What is to be seen of a node that runs.
#[derive(Debug)]
struct Seen {
    node: Shared,
    /// Where it speaks TLS.
    acceptor: Option<Arc<Acceptor>>,
}

/// See [`Window::show`].
pub(crate) struct Shown(Window);

impl Drop for Shown {
    fn drop(&mut self) {
        *lock(&self.0.node) = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// What it is.
    pub role: Role,
    /// What it calls itself, or where it listens.
    pub node: String,
    /// The active node, if it knows.
    pub active: Option<String>,
    /// The term of the latest tokens that it knows of.
    pub term: u32,
    /// Why clients should not be sent here; nothing if they can: it is active, or has a complete copy.
    pub not_ready: Option<&'static str>,
    /// Whether its restart would find the present state on its disk: it is to be kept, and can be written.
    pub keeps_state: bool,
    /// Why it would not, where an operator should hear of that.
    pub not_kept: Option<&'static str>,
    /// For how long it has run.
    pub up: Duration,
    /// When the certificate ends that it shows, in seconds since 1970, where it speaks TLS.
    pub certificate_ends: Option<u64>,
    /// Sockets of clients that are open.
    pub connections: u64,
    /// Requests that wait for an active node.
    pub parked: u64,
    /// Of its locks: on a standby, of its copy.
    pub stats: Stats,
    /// What it has counted.
    pub counters: Counters,
    /// From the reading of an acquire until its grant; those that were granted at once stand in the first step.
    pub waits: Histogram,
    /// From a grant until its release or the end of its lease.
    pub holds: Histogram,
    /// All nodes of the cluster in the order of their priority, this one included; empty for a lone node.
    pub nodes: Vec<NodeView>,
}

/// A node of a cluster, as the node that was asked sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeView {
    /// What clients call it.
    pub address: String,
    /// Whether it is the one that was asked.
    pub own: bool,
    /// Whether it lives.
    pub lives: bool,
    /// What it last said it was.
    pub role: Role,
    /// Whether it is the active one.
    pub active: bool,
    /// The highest term it has named.
    pub term: u32,
    /// Whether it has a complete copy, or is the original.
    pub complete: bool,
    /// How many changes it lacks: known to the active node, of the standbys that copy.
    pub lag: Option<u64>,
}

/// A held key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LockView {
    /// The key.
    pub key: Vec<u8>,
    /// The fencing token of its grant.
    pub token: Token,
    /// What is left of the lease.
    pub remaining: Duration,
    /// For how long its holder has had it. Of a grant that another node made: since its lease last began.
    pub held_for: Duration,
    /// How many wait for it.
    pub waiters: u64,
    /// What the holder calls itself.
    pub name: Option<Vec<u8>>,
    /// Where the holder connected from.
    pub address: String,
}

/// Some locks, in an order that stays the same while the node runs.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LocksView {
    /// The locks.
    pub locks: Vec<LockView>,
    /// Behind which key to go on; nothing if these were the last ones.
    pub next: Option<Vec<u8>>,
}

/// The queue of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueView {
    /// How many wait.
    pub length: u64,
    /// The first of them, in their order.
    pub waiters: Vec<WaiterView>,
}

/// A waiting request.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WaiterView {
    /// 1 for the one who is next.
    pub position: u64,
    /// For how long it has waited.
    pub waited: Duration,
    /// What the client calls itself.
    pub name: Option<Vec<u8>>,
    /// Where it connected from.
    pub address: String,
}

/// Where most is waiting, and what is held for longest.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Busiest {
    /// Keys with the longest queues and how long these are, the longest first.
    pub queues: Vec<(Vec<u8>, u64)>,
    /// Grants that are held for longest, the oldest first.
    pub oldest: Vec<LockView>,
    /// Whether everything has been looked at once; with millions of keys it takes some seconds.
    pub complete: bool,
}

#[derive(Debug, Default)]
struct Surveyed {
    survey: Survey,
    at: Option<Instant>,
    busiest: Busiest,
}

/// How long the node may stand still for one survey, all steps together.
pub const SURVEY_BUDGET: Duration = Duration::from_millis(2);
/// How often there is a new one.
const SURVEY_EVERY: Duration = Duration::from_secs(1);
/// How many rows a survey gives.
const SURVEY_ROWS: usize = 10;
/// How many rows of a list are made in one step.
const ROWS_A_STEP: usize = 64;
/// Between steps, so that the node's thread has woken up and gone on before the next.
const PAUSE: Duration = Duration::from_micros(200);

impl ServerView {
    pub(crate) fn new(window: Window, address: SocketAddr) -> ServerView {
        ServerView {
            address,
            window,
            surveyed: Arc::default(),
        }
    }

    /// The same view for as long as somebody has `asker`. After that it sees nothing, so that a list for which nobody waits
    /// any more ends at its next step.
    #[must_use]
    pub fn while_asked(&self, asker: &Arc<()>) -> ServerView {
        let mut view = self.clone();
        view.window.asker = Some(Arc::downgrade(asker));
        view
    }

    /// The node at this moment; nothing if it does not run.
    #[must_use]
    pub fn snapshot(&self) -> Option<Snapshot> {
        let up = self.window.opened.elapsed();
        let address = self.address;
        let certificate_ends = self.window.certificate_ends();
        self.window.look(|node| Snapshot {
            certificate_ends,
            ..snapshot(node, address, up)
        })
    }

    /// Held keys that begin with `prefix`, behind `after`. Nothing if the node does not run. Blocks for some 0.2 s where
    /// a million keys are to be passed over; the node stands still for a third of one at a time, with ten millions for up to three.
    #[must_use]
    pub fn locks(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Option<LocksView> {
        let mut view = LocksView {
            locks: Vec::new(),
            next: None,
        };
        // A spelling begins with the spelling of what the key begins with. What is too long for a key begins none.
        let spelled = match prefix {
            [] => None,
            _ => match Key::encode(prefix) {
                Ok(key) => Some(key),
                Err(_) => return Some(view),
            },
        };
        let spelling = spelled.as_ref().map_or(&b""[..], Key::spelling);
        let after = after.and_then(|after| Key::encode(after).ok());
        let prefix = Prefix::of_spelling(spelling);
        let mut cursor = ListCursor::new(prefix, after.as_ref().map(Key::as_ref));
        let mut more = true;
        for round in 0.. {
            if !more || view.locks.len() >= limit {
                break;
            }
            if round > 0 {
                thread::sleep(PAUSE);
            }
            let rows = ROWS_A_STEP.min(limit - view.locks.len());
            more = self.window.look(|node| {
                node.engine.list(clock::now(), &mut cursor, rows, |row| {
                    view.locks.push(lock_view(&row));
                })
            })?;
        }
        view.next = view
            .locks
            .last()
            .filter(|_| more)
            .map(|lock| lock.key.clone());
        Some(view)
    }

    /// Who waits for a key, at most `limit` of them; nothing if the node does not run.
    #[must_use]
    pub fn waiters(&self, key: &[u8], limit: usize) -> Option<QueueView> {
        let mut view = QueueView {
            length: 0,
            waiters: Vec::new(),
        };
        let Ok(key) = Key::encode(key) else {
            return Some(view);
        };
        let mut last: Option<QueuePlace> = None;
        loop {
            let rows = ROWS_A_STEP.min(limit - view.waiters.len());
            let before = view.waiters.len();
            view.length = self.window.look(|node| {
                let queue = node.engine.waiters(clock::now(), key.as_ref(), last);
                for row in queue.take(rows) {
                    last = Some(row.place);
                    view.waiters.push(WaiterView {
                        position: row.position,
                        waited: duration(row.waited),
                        name: row.owner.name().decode(),
                        address: row.owner.address().to_owned(),
                    });
                }
                node.engine.queue_length(key.as_ref())
            })?;
            let found = view.waiters.len() - before;
            if found < ROWS_A_STEP || view.waiters.len() == limit {
                return Some(view);
            }
            thread::sleep(PAUSE);
        }
    }

    /// The longest queues and the oldest grants, at most a second old; nothing if the node does not run. With a hundred
    /// thousand keys all are looked at each time. With more it goes on where it was: what it names is right at this
    /// moment, and a queue that has just become long is found later.
    #[must_use]
    pub fn busiest(&self) -> Option<Busiest> {
        let mut surveyed = lock(&self.surveyed);
        let Surveyed {
            survey,
            at,
            busiest,
        } = &mut *surveyed;
        if at.is_some_and(|at| at.elapsed() < SURVEY_EVERY) {
            return Some(busiest.clone());
        }
        let rounds = survey.rounds();
        let mut spent = Duration::ZERO;
        while survey.rounds() == rounds && spent < SURVEY_BUDGET {
            if spent > Duration::ZERO {
                thread::sleep(PAUSE);
            }
            spent += self.window.look(|node| {
                let began = Instant::now();
                node.engine.survey(survey);
                began.elapsed()
            })?;
        }
        let (queues, oldest) = self.window.look(|node| {
            let mut oldest = Vec::new();
            let engine = &node.engine;
            engine.oldest_grants(clock::now(), survey, SURVEY_ROWS, |row| {
                oldest.push(lock_view(&row));
            });
            (engine.longest_queues(survey, SURVEY_ROWS), oldest)
        })?;
        let queues = queues.into_iter();
        *busiest = Busiest {
            queues: queues.map(|(key, length)| (key.decode(), length)).collect(),
            oldest,
            complete: survey.rounds() > 0,
        };
        *at = Some(Instant::now());
        Some(busiest.clone())
    }
}

fn snapshot(node: &mut Node, address: SocketAddr, up: Duration) -> Snapshot {
    let name = node.address.clone().unwrap_or_else(|| address.to_string());
    let stats = node.engine.stats();
    let (active, term, nodes, parked) = match &node.cluster {
        Some(cluster) => {
            let term = match node.role {
                Role::Active => stats.term,
                _ => cluster.term(stats.term),
            };
            let active = cluster.active().map(str::to_owned);
            let parked = cluster.parking.len() as u64;
            (active, term, cluster.view(node.role, term), parked)
        }
        None => {
            let active = (node.role == Role::Active).then(|| name.clone());
            (active, stats.term, Vec::new(), 0)
        }
    };
    let mut waits = node.engine.waits().clone();
    waits.add_some(0, stats.granted - stats.handed_over);
    Snapshot {
        role: node.role,
        node: name,
        active,
        term,
        not_ready: not_ready(node),
        keeps_state: node.journal.as_ref().is_some_and(Journal::keeps),
        not_kept: not_kept(node),
        up,
        certificate_ends: None,
        connections: u64::from(node.open),
        parked,
        stats,
        counters: node.counters.clone(),
        waits,
        holds: node.engine.holds().clone(),
        nodes,
    }
}

fn not_kept(node: &Node) -> Option<&'static str> {
    let journal = node.journal.as_ref()?;
    (!journal.keeps()).then_some("the journal cannot be written, so a restart frees every lock")
}

fn not_ready(node: &Node) -> Option<&'static str> {
    if node.failure.is_some() {
        return Some("it has failed and is about to end");
    }
    let stage = node.cluster.as_ref().map(|cluster| cluster.member.stage());
    match node.role {
        Role::Starting => Some("starting: it does not know yet who is active"),
        Role::Active if stage == Some(Stage::HandingOver) => Some("it is handing over"),
        Role::Active => None,
        Role::Standby => {
            let copy = node.cluster.as_ref().map(|cluster| cluster.member.copy());
            let complete = copy.is_some_and(|copy| copy.complete);
            (!complete).then_some("a standby whose copy is not complete yet")
        }
        Role::Leaving => Some("leaving: it has been told to stop"),
    }
}

fn lock_view(row: &LockRow<'_>) -> LockView {
    LockView {
        key: row.key.decode(),
        token: row.token,
        remaining: duration(row.remaining),
        held_for: duration(row.held_for),
        waiters: row.waiters,
        name: row.owner.name().decode(),
        address: row.owner.address().to_owned(),
    }
}

fn duration(time: Millis) -> Duration {
    Duration::from_millis(time.0)
}
