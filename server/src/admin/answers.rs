//! What the admin page answers as JSON. The fields are stable: scripts read them, and the page does. Keys and tokens are
//! written as the commands write them.

use crate::commands::{Key, seconds, text};
use fairlock::engine::Histogram;
use fairlock::node::{
    Busiest, Counters, LockView, LocksView, NodeView, Outcome, QueueView, Snapshot, WaiterView,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// `/status.json`
#[derive(Serialize)]
pub(super) struct Status {
    version: &'static str,
    role: String,
    node: String,
    active: Option<String>,
    term: u32,
    ready: bool,
    not_ready: Option<&'static str>,
    keeps_state: bool,
    uptime: f64,
    held: u64,
    keys: u64,
    waiting: u64,
    detached: u64,
    parked: u64,
    connections: u64,
    nodes: Vec<Node>,
    totals: Totals,
    times: Times,
    longest_queues: Vec<QueueLength>,
    oldest_locks: Vec<Lock>,
    /// Whether all keys have been looked at for the two lists.
    all_seen: bool,
}

#[derive(Serialize)]
struct Node {
    address: String,
    own: bool,
    lives: bool,
    role: String,
    active: bool,
    term: u32,
    complete: bool,
    lag: Option<u64>,
}

/// Numbers that count up from the start of the node.
#[derive(Serialize)]
struct Totals {
    requests: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    refused: BTreeMap<&'static str, u64>,
    limits: BTreeMap<&'static str, u64>,
    granted: u64,
    handed_over: u64,
    released: u64,
    expired: u64,
    parked: u64,
    moved: u64,
    accepted: u64,
}

#[derive(Serialize)]
struct Times {
    wait: Steps,
    hold: Steps,
    hand_over: Steps,
}

/// Counts of times: each entry says below how many seconds its times were, twice that of the entry before, and how many
/// there are. Those without any are left out.
#[derive(Serialize)]
struct Steps {
    count: u64,
    sum: f64,
    steps: Vec<(f64, u64)>,
}

#[derive(Serialize)]
struct QueueLength {
    #[serde(flatten)]
    key: Key,
    waiters: u64,
}

/// A held key, with the fields of `fairlock locks --json`, and for how long it has been held.
#[derive(Serialize)]
pub(super) struct Lock {
    #[serde(flatten)]
    key: Key,
    token: String,
    held: f64,
    remaining: f64,
    waiters: u64,
    name: Option<String>,
    address: String,
}

/// `/locks.json`
#[derive(Serialize)]
pub(super) struct Locks {
    locks: Vec<Lock>,
    /// What to give as `after` (or `after_hex`) for the next rows.
    next: Option<Key>,
}

/// `/waiters.json`, with the fields of `fairlock waiters --json`.
#[derive(Serialize)]
pub(super) struct Queue {
    #[serde(flatten)]
    key: Key,
    count: u64,
    waiters: Vec<Waiter>,
}

#[derive(Serialize)]
struct Waiter {
    position: u64,
    waited: f64,
    name: Option<String>,
    address: String,
}

/// Why there is no answer.
#[derive(Serialize)]
pub(super) struct Problem {
    pub(super) error: String,
}

impl Status {
    pub(super) fn new(node: &Snapshot, busiest: &Busiest) -> Status {
        let queues = busiest.queues.iter().map(|(key, waiters)| QueueLength {
            key: key.as_slice().into(),
            waiters: *waiters,
        });
        Status {
            version: env!("CARGO_PKG_VERSION"),
            role: node.role.to_string(),
            node: node.node.clone(),
            active: node.active.clone(),
            term: node.term,
            ready: node.not_ready.is_none(),
            not_ready: node.not_ready,
            keeps_state: node.keeps_state,
            uptime: seconds(node.up),
            held: node.stats.held,
            keys: node.stats.keys,
            waiting: node.stats.waiting,
            detached: node.stats.detached,
            parked: node.parked,
            connections: node.connections,
            nodes: node.nodes.iter().map(Node::from).collect(),
            totals: Totals::new(node),
            times: Times {
                wait: Steps::from(&node.waits),
                hold: Steps::from(&node.holds),
                hand_over: Steps::from(&node.counters.hand_over),
            },
            longest_queues: queues.collect(),
            oldest_locks: busiest.oldest.iter().map(Lock::from).collect(),
            all_seen: busiest.complete,
        }
    }
}

impl Totals {
    fn new(node: &Snapshot) -> Totals {
        let Counters {
            parked,
            moved,
            accepted,
            ..
        } = node.counters;
        let mut requests: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for (operation, outcome, count) in node.counters.answers() {
            let outcomes = requests.entry(operation).or_default();
            outcomes.insert(Outcome::as_str(outcome), count);
        }
        let refused = node.counters.refusals();
        Totals {
            requests,
            refused: refused
                .map(|(code, count)| (code.as_str(), count))
                .collect(),
            limits: node
                .counters
                .limits()
                .map(|(limit, count)| (limit.as_str(), count))
                .collect(),
            granted: node.stats.granted,
            handed_over: node.stats.handed_over,
            released: node.stats.released,
            expired: node.stats.expired,
            parked,
            moved,
            accepted,
        }
    }
}

impl From<&NodeView> for Node {
    fn from(node: &NodeView) -> Node {
        Node {
            address: node.address.clone(),
            own: node.own,
            lives: node.lives,
            role: node.role.to_string(),
            active: node.active,
            term: node.term,
            complete: node.complete,
            lag: node.lag,
        }
    }
}

impl From<&Histogram> for Steps {
    fn from(times: &Histogram) -> Steps {
        let steps = times.steps().filter(|(_, count)| *count > 0);
        Steps {
            count: times.count(),
            sum: times.sum(),
            steps: steps
                .map(|(power, count)| (2_f64.powi(power.cast_signed()) / 1e6, count))
                .collect(),
        }
    }
}

impl From<&LockView> for Lock {
    fn from(lock: &LockView) -> Lock {
        Lock {
            key: lock.key.as_slice().into(),
            token: lock.token.to_string(),
            held: seconds(lock.held_for),
            remaining: seconds(lock.remaining),
            waiters: lock.waiters,
            name: text(lock.name.as_deref()),
            address: lock.address.clone(),
        }
    }
}

impl From<LocksView> for Locks {
    fn from(page: LocksView) -> Locks {
        Locks {
            locks: page.locks.iter().map(Lock::from).collect(),
            next: page.next.as_deref().map(Key::from),
        }
    }
}

impl Queue {
    pub(super) fn new(key: &[u8], queue: &QueueView) -> Queue {
        Queue {
            key: key.into(),
            count: queue.length,
            waiters: queue.waiters.iter().map(Waiter::from).collect(),
        }
    }
}

impl From<&WaiterView> for Waiter {
    fn from(waiter: &WaiterView) -> Waiter {
        Waiter {
            position: waiter.position,
            waited: seconds(waiter.waited),
            name: text(waiter.name.as_deref()),
            address: waiter.address.clone(),
        }
    }
}
