//! The world of one run: time, what is to happen next, and everything that is in it.

use crate::checker::{Checker, Rule};
use crate::client::Person;
use crate::clock::Clock;
use crate::coverage::Coverage;
use crate::network::{Item, Machine, Network};
use crate::node::Host;
use crate::plan::{MS, Plan, Profile, SECOND};
use crate::random::Random;
use fairlock::Fence;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What is to happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Happening {
    /// Something may arrive: connection and side of the sender.
    Arrive(usize, usize),
    NodeTimer(usize),
    ClientTimer(usize),
    /// A user does something: client and start.
    Act(usize, u32),
    /// A disk is done: node, start, term, and whether the disk had room.
    Written(usize, u32, u32, bool),
    /// A write reaches the register: key, token.
    Register(u8, u64),
    /// A reader reads again: node, start.
    Unblock(usize, u32),
    Thaw(Machine),
    Fault,
    Housekeeping,
}

/// More is a circle.
const MOST_HAPPENINGS: u64 = 1_000_000;

/// How far a run has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Faults,
    /// Everything is whole again, and the clients go on.
    Settling,
    /// The clients have gone home.
    Draining,
}

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    queue: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    count: u64,
    pub(crate) network: Network,
    pub(crate) hosts: Vec<Host>,
    pub(crate) people: Vec<Person>,
    pub(crate) checker: Checker,
    pub(crate) coverage: Coverage,
    pub(crate) phase: Phase,
    pub(crate) phase_since: u64,
    pub(crate) fence: Fence,
    /// What the register has taken, by key.
    pub(crate) written: BTreeMap<u8, u64>,
    pub(crate) over: bool,
    pub(crate) steps: u64,
    /// The node that sends this one the whole state is to be killed in the middle of it.
    pub(crate) half_a_copy: Option<usize>,
    /// Since when everything is as it has to be.
    pub(crate) settled_at: Option<u64>,
    /// How many nodes serve.
    pub(crate) serving: usize,
    pub(crate) hash: u64,
    pub(crate) trace: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(plan: Plan, mut random: Random, trace: bool) -> World {
        let addresses: Vec<String> = (0..plan.nodes).map(|node| format!("n{node}:1")).collect();
        let mut coverage = Coverage::default();
        let size = [
            "",
            "one node",
            "two nodes",
            "three nodes",
            "four nodes",
            "five nodes",
        ];
        coverage.count(size[plan.nodes]);
        if plan.clients >= 12 {
            coverage.count("twelve clients or more");
        }
        if plan.drift > 0 {
            coverage.count("clocks run apart");
        }
        let clock = |random: &mut Random| {
            let begin = random.between(SECOND, 1_000_000 * SECOND);
            let faster = random.between(0, 2 * plan.drift) as i64 - plan.drift as i64;
            let error = random.between(0, 2 * plan.wall_error) as i64 - plan.wall_error as i64;
            Clock::new(begin, faster, 1_000_000 + error)
        };
        let hosts = addresses
            .iter()
            .map(|address| Host {
                address: address.clone(),
                list: addresses.clone(),
                powered: true,
                frozen_since: None,
                clock: clock(&mut random),
                terms: Vec::new(),
                disk_full: false,
                kept_term: 0,
                knew: Vec::new(),
                starts: 0,
                steady_since: 0,
                woken_at: 0,
                reads_first: false,
                timer_at: u64::MAX,
                process: None,
            })
            .collect();
        let people = (0..plan.clients)
            .map(|_| Person {
                clock: clock(&mut random),
                start: 0,
                timer_at: u64::MAX,
                frozen_since: None,
                frozen_until: 0,
                user: None,
            })
            .collect();
        let mut world = World {
            now: SECOND,
            plan,
            random,
            queue: BinaryHeap::new(),
            count: 0,
            network: Network::default(),
            hosts,
            people,
            checker: Checker::default(),
            coverage,
            phase: Phase::Faults,
            phase_since: SECOND,
            fence: Fence::new(),
            written: BTreeMap::new(),
            over: false,
            steps: 0,
            half_a_copy: None,
            settled_at: None,
            serving: 0,
            hash: 0xCBF2_9CE4_8422_2325,
            trace: trace.then(Vec::new),
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.checker.holders.lenient = self.plan.profile == Profile::Wild;
        self.change_lists();
        for node in 0..self.plan.nodes {
            self.start_node(node);
        }
        for client in 0..self.plan.clients {
            self.start_client(client);
        }
        self.at(self.now + 4 * SECOND, Happening::Fault);
        self.at(self.now + SECOND, Happening::Housekeeping);
    }

    /// Runs to the end, or to the first violation.
    pub(crate) fn run(&mut self) {
        while !self.over && self.checker.violation.is_none() {
            let Some(Reverse((at, _, what))) = self.queue.pop() else {
                break;
            };
            self.now = at;
            self.happen(what);
            if self.count > MOST_HAPPENINGS {
                self.checker
                    .fail(Rule::Invariants, at, || format!("no end, at last {what:?}"));
            }
        }
    }

    pub(crate) fn at(&mut self, at: u64, what: Happening) {
        self.count += 1;
        self.queue
            .push(Reverse((at.max(self.now), self.count, what)));
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Arrive(connection, side) => self.arrive(connection, side),
            Happening::NodeTimer(node) => {
                if self.hosts[node].timer_at <= self.now {
                    self.hosts[node].timer_at = u64::MAX;
                    self.node_timer(node);
                }
            }
            Happening::ClientTimer(client) => {
                if self.people[client].timer_at <= self.now {
                    self.people[client].timer_at = u64::MAX;
                    self.client_timer(client);
                }
            }
            Happening::Act(client, start) => self.act(client, start),
            Happening::Written(node, start, term, room) => {
                self.term_written(node, start, term, room);
            }
            Happening::Register(key, token) => self.write_register(key, token),
            Happening::Unblock(node, start) => self.unblock(node, start),
            Happening::Thaw(machine) => self.thaw(machine),
            Happening::Fault => self.disturb(),
            Happening::Housekeeping => self.keep_house(),
        }
    }

    /// The register takes a write, unless it has taken one with a higher token.
    fn write_register(&mut self, key: u8, token: u64) {
        let Some(new) = fairlock::Token::new(token) else {
            return;
        };
        let passes =
            self.fence.check([key], new).is_ok() || self.plan.harm == crate::plan::Harm::NoFence;
        if !passes {
            self.coverage.count("register refused");
            return;
        }
        let before = self.written.insert(key, token).unwrap_or(0);
        if token < before {
            self.checker.fail(Rule::Fence, self.now, || {
                format!("the register of key {key} takes {token} after {before}")
            });
        }
    }

    /// How long something takes from one machine to another.
    pub(crate) fn delay(&mut self) -> u64 {
        let (least, most) = self.plan.delay;
        self.random.between(least, most)
    }

    /// Sends an item from a side of a connection.
    pub(crate) fn put(&mut self, connection: usize, side: usize, item: Item) {
        let delay = self.delay();
        let at = self.network.put(self.now, connection, side, delay, item);
        self.at(at, Happening::Arrive(connection, side));
    }

    /// Sends bytes, now and then in two pieces.
    pub(crate) fn put_bytes(&mut self, connection: usize, side: usize, mut bytes: Vec<u8>) {
        if bytes.len() > 1 && self.random.once_in(16) {
            let place = self.random.between(1, bytes.len() as u64 - 1) as usize;
            let rest = bytes.split_off(place);
            self.put(connection, side, Item::Bytes(bytes));
            bytes = rest;
        }
        self.put(connection, side, Item::Bytes(bytes));
    }

    /// Everything that could not arrive may do so now.
    pub(crate) fn push_on(&mut self) {
        for connection in 0..self.network.connections.len() {
            for side in 0..2 {
                if !self.network.connections[connection].pipes[side]
                    .items
                    .is_empty()
                {
                    let late = self.random.below(200 * MS);
                    self.at(self.now + late, Happening::Arrive(connection, side));
                }
            }
        }
    }

    /// Adds something that happened to the trace.
    pub(crate) fn note(&mut self, what: u64, about: u64, bytes: &[u8]) {
        let mut add = |word: u64| {
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01B3);
            self.hash ^= self.hash >> 29;
        };
        add(self.now);
        add(what);
        add(about);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            add(u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
        for byte in words.remainder() {
            add(u64::from(*byte));
        }
    }

    pub(crate) fn say(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let text = text();
            trace.push(format!("{:10.4} {text}", self.now as f64 / 1e6));
        }
    }
}
