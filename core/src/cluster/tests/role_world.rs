//! Clusters of nothing but roles: who is active, without any state behind it.

use crate::cluster::*;
use crate::engine::Time;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const MS: u64 = 1000;
pub(super) const SECOND: u64 = 1000 * MS;
/// The least delay of a message; the greatest is ten times as long.
pub(super) const HOP: u64 = MS / 5;

#[derive(Clone, Copy, Debug)]
pub(super) enum Packet {
    Roles(Message),
    /// What of the active node's stream the receiver has now.
    Feed(Stream, u64),
    Lost,
    Refused,
    Rejected,
    CutShort,
    Connected,
}

pub(super) struct Node {
    pub(super) roles: Roles,
    pub(super) copy: Copy,
    pub(super) follows: Option<Slot>,
    pub(super) asleep: bool,
    pub(super) backlog: Vec<(usize, Packet)>,
    pub(super) written: Vec<u32>,
    pub(super) serves: bool,
}

pub(super) struct World {
    pub(super) now: u64,
    pub(super) nodes: Vec<Option<Node>>,
    pub(super) disks: Vec<u32>,
    pub(super) disk_broken: Vec<bool>,
    /// Writes neither end nor fail.
    pub(super) disk_hangs: Vec<bool>,
    /// Until then the kernel takes connections to a process that has just died.
    pub(super) listens_until: Vec<u64>,
    pub(super) incarnations: u64,
    pub(super) cuts: BTreeSet<(usize, usize)>,
    /// Who does not take whose connections, because they know different secrets.
    pub(super) strangers: BTreeSet<(usize, usize)>,
    /// By time of arrival and number: to, from, what.
    pub(super) packets: BTreeMap<(u64, u64), (usize, usize, Packet)>,
    pub(super) sent: u64,
    /// When the last packet arrives on each way, to and from.
    pub(super) last: BTreeMap<(usize, usize), u64>,
    pub(super) random: u64,
    pub(super) led: Vec<(u64, usize, u32, Origin)>,
    pub(super) notes: Vec<String>,
}

impl World {
    pub(super) fn new(size: usize, seed: u64) -> World {
        World {
            now: SECOND,
            nodes: (0..size).map(|_| None).collect(),
            disks: vec![0; size],
            disk_broken: vec![false; size],
            disk_hangs: vec![false; size],
            listens_until: vec![0; size],
            incarnations: 0,
            cuts: BTreeSet::new(),
            strangers: BTreeSet::new(),
            packets: BTreeMap::new(),
            sent: 0,
            last: BTreeMap::new(),
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            led: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }

    pub(super) fn at(&self) -> Now {
        Now {
            time: Time(self.now),
            wall: (self.now / SECOND) as u32,
        }
    }

    pub(super) fn start(&mut self, index: usize) {
        self.incarnations += 1;
        let others = (0..self.nodes.len())
            .filter(|other| *other != index)
            .map(|other| Slot(other as u8));
        let beginning = Beginning {
            incarnation: self.incarnations << 32,
            disk_term: self.disks[index],
            copy: Copy::default(),
        };
        let roles = Roles::new(
            self.at(),
            Slot(index as u8),
            others,
            Timing::default(),
            beginning,
        );
        self.nodes[index] = Some(Node {
            roles,
            copy: Copy::default(),
            follows: None,
            asleep: false,
            backlog: Vec::new(),
            written: Vec::new(),
            serves: false,
        });
        self.drain(index);
    }

    pub(super) fn crash(&mut self, index: usize) {
        self.nodes[index] = None;
        self.listens_until[index] = self.now + self.below(4 * MS);
        for other in 0..self.nodes.len() {
            if other != index && !self.cut(index, other) {
                self.put(other, index, Packet::Lost);
            }
        }
    }

    pub(super) fn cut(&self, a: usize, b: usize) -> bool {
        self.cuts.contains(&(a, b)) || self.cuts.contains(&(b, a))
    }

    pub(super) fn sleep(&mut self, index: usize) {
        if let Some(node) = &mut self.nodes[index] {
            node.asleep = true;
        }
    }

    pub(super) fn wake(&mut self, index: usize) {
        let Some(node) = self.nodes[index].as_mut().filter(|node| node.asleep) else {
            return;
        };
        node.asleep = false;
        let backlog = std::mem::take(&mut node.backlog);
        self.give(index, Event::Woke);
        for (from, packet) in backlog {
            self.arrive(index, from, packet);
        }
    }

    pub(super) fn put(&mut self, to: usize, from: usize, packet: Packet) {
        let delay = HOP + self.below(9 * HOP);
        // One connection keeps its order: nothing overtakes what was sent before on the same way.
        let last = self.last.entry((to, from)).or_default();
        *last = (self.now + delay).max(*last);
        let arrival = *last;
        self.sent += 1;
        self.packets
            .insert((arrival, self.sent), (to, from, packet));
    }

    pub(super) fn give(&mut self, index: usize, event: Event) {
        let now = self.at();
        if let Some(node) = &mut self.nodes[index] {
            node.roles.handle(now, event);
            self.drain(index);
        }
    }

    pub(super) fn drain(&mut self, index: usize) {
        loop {
            let Some(node) = &mut self.nodes[index] else {
                return;
            };
            let Some(effect) = node.roles.poll_effect() else {
                return;
            };
            match effect {
                Effect::Send { to, message } => {
                    self.put_if_open(to.index(), index, Packet::Roles(message));
                }
                Effect::Connect { to } => {
                    let to = to.index();
                    if !self.cut(index, to) {
                        let packet =
                            if self.nodes[to].is_some() && self.strangers.contains(&(to, index)) {
                                Packet::Rejected
                            } else if self.nodes[to].is_some() {
                                Packet::Connected
                            } else if self.now < self.listens_until[to] {
                                Packet::CutShort
                            } else {
                                Packet::Refused
                            };
                        self.put(index, to, packet);
                    }
                }
                Effect::WriteTerm { term } => node.written.push(term),
                Effect::Supply { to, round, copy } => {
                    let have = node.copy;
                    if have.stream == copy.stream && have.sequence > copy.sequence {
                        let feed = Packet::Feed(have.stream, have.sequence);
                        self.put_if_open(to.index(), index, feed);
                    }
                    let done = Packet::Roles(Message::Fetched { round });
                    self.put_if_open(to.index(), index, done);
                }
                Effect::Lead { term, origin } => {
                    node.copy = Copy {
                        stream: Stream {
                            term,
                            slot: index as u8,
                        },
                        sequence: 0,
                        oldest: 0,
                        complete: true,
                    };
                    node.follows = None;
                    self.led.push((self.now, index, term, origin));
                }
                Effect::Raise { term } => self.led.push((self.now, index, term, Origin::Start)),
                Effect::Follow { active } => node.follows = Some(active),
                Effect::Retire | Effect::Yield { .. } => node.copy = Copy::default(),
                Effect::Freeze => {
                    let sequence = node.copy.sequence;
                    let stream = node.copy.stream;
                    for other in 0..self.nodes.len() {
                        if other != index {
                            self.put_if_open(other, index, Packet::Feed(stream, sequence));
                        }
                    }
                    self.give(index, Event::Frozen { sequence });
                }
                Effect::Stance(stance) => node.serves = stance == Stance::Serve,
                Effect::Exit => {
                    self.crash(index);
                    return;
                }
                Effect::Note(note) => self
                    .notes
                    .push(format!("{} {index}: {note}", self.now / MS)),
            }
        }
    }

    pub(super) fn put_if_open(&mut self, to: usize, from: usize, packet: Packet) {
        let strangers = self.strangers.contains(&(to, from));
        if self.nodes[to].is_some() && !strangers && !self.cut(from, to) {
            self.put(to, from, packet);
        }
    }

    pub(super) fn arrive(&mut self, to: usize, from: usize, packet: Packet) {
        let Some(node) = &mut self.nodes[to] else {
            return;
        };
        if node.asleep {
            node.backlog.push((from, packet));
            return;
        }
        let peer = Slot(from as u8);
        match packet {
            Packet::Roles(message) => self.give(
                to,
                Event::Heard {
                    from: peer,
                    message,
                },
            ),
            Packet::Feed(stream, sequence) => {
                let wanted = node.follows == Some(peer) || node.copy.stream == stream;
                let newer = (stream, sequence) > (node.copy.stream, node.copy.sequence);
                if wanted && newer && !node.roles.stance().eq(&Stance::Serve) {
                    node.copy = Copy {
                        stream,
                        sequence,
                        oldest: sequence.saturating_sub(1000),
                        complete: true,
                    };
                    let copy = node.copy;
                    self.give(to, Event::Copied(copy));
                }
            }
            Packet::Lost => self.give(to, Event::Lost { peer }),
            Packet::Refused => self.give(to, Event::Refused { peer }),
            Packet::Rejected => self.give(to, Event::Rejected { peer }),
            Packet::CutShort => self.give(to, Event::CutShort { peer }),
            Packet::Connected => {
                if self.nodes[from].is_some() {
                    self.give(to, Event::Connected { peer });
                } else {
                    self.give(to, Event::CutShort { peer });
                }
            }
        }
    }

    /// Lets time pass in steps of a millisecond.
    pub(super) fn run(&mut self, micros: u64) {
        let end = self.now + micros;
        while self.now < end {
            self.now += MS;
            while let Some(entry) = self.packets.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let (to, from, packet) = entry.remove();
                if !self.cut(from, to) {
                    self.arrive(to, from, packet);
                }
            }
            for index in 0..self.nodes.len() {
                self.work(index);
            }
        }
    }

    /// What a node does by itself: its disk, its clock, and as the active one changes that it sends.
    pub(super) fn work(&mut self, index: usize) {
        let time = Time(self.now);
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        if node.asleep {
            return;
        }
        let written = match self.disk_hangs[index] {
            true => Vec::new(),
            false => std::mem::take(&mut node.written),
        };
        for term in written {
            if self.disk_broken[index] {
                self.give(index, Event::TermFailed { term });
            } else {
                self.disks[index] = self.disks[index].max(term);
                self.give(index, Event::TermWritten { term });
            }
        }
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        if node.roles.next_deadline().is_some_and(|at| at <= time) {
            self.give(index, Event::Tick);
        }
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        if node.serves {
            node.copy.sequence += 1;
            let copy = node.copy;
            self.give(index, Event::Copied(copy));
            for other in 0..self.nodes.len() {
                if other != index {
                    self.put_if_open(other, index, Packet::Feed(copy.stream, copy.sequence));
                }
            }
        }
    }

    pub(super) fn serving(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|index| self.nodes[*index].as_ref().is_some_and(|node| node.serves))
            .collect()
    }

    /// Runs until exactly `index` serves, at most `micros`; returns how long it took.
    pub(super) fn until_serves(&mut self, index: usize, micros: u64) -> u64 {
        let begun = self.now;
        while self.serving() != [index] {
            assert!(
                self.now < begun + micros,
                "node {index} does not serve: {:?} serve\n{}",
                self.serving(),
                self.notes.join("\n")
            );
            self.run(MS);
        }
        self.now - begun
    }

    pub(super) fn check_history(&self, what: &str) {
        let mut terms = BTreeSet::new();
        for (time, index, term, _) in &self.led {
            assert!(
                terms.insert((*term, *index)),
                "{what}: term {term} twice on node {index} at {time}\n{}",
                self.notes.join("\n")
            );
        }
    }

    pub(super) fn settled(&mut self, what: &str) {
        self.cuts.clear();
        self.disk_broken.fill(false);
        for index in 0..self.nodes.len() {
            self.wake(index);
        }
        // Those that were told to stop are gone by then.
        self.run(5 * SECOND);
        for index in 0..self.nodes.len() {
            if self.nodes[index].is_none() {
                self.start(index);
            }
        }
        // Long enough for a delay that has doubled a few times.
        for _ in 0..60 {
            if self.serving() == [0] {
                break;
            }
            self.run(10 * SECOND);
        }
        self.run(3 * SECOND);
        assert_eq!(self.serving(), [0], "{what}\n{}", self.notes.join("\n"));
        for index in 1..self.nodes.len() {
            let node = self.nodes[index].as_ref().expect("all were started");
            assert_eq!(node.roles.stance(), Stance::Redirect(Slot(0)), "{what}");
            assert!(node.copy.complete, "{what}");
        }
        self.check_history(what);
    }
}

/// Nodes that have agreed on the first one, and copy it.
pub(super) fn cluster(size: usize) -> World {
    let mut world = World::new(size, 7);
    for index in 0..size {
        world.start(index);
    }
    world.until_serves(0, SECOND);
    world.run(3 * SECOND);
    world
}
