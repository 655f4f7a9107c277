//! Goal: whatever the network and the nodes go through, roles come out as behaviour 3 says.
//! Method: whole clusters of `Roles` over a simulated network, some faults by hand and many by seed.

use super::*;
use crate::engine::Time;
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1000;
const SECOND: u64 = 1000 * MS;
/// The least delay of a message; the greatest is ten times as long.
const HOP: u64 = MS / 5;

#[derive(Clone, Copy, Debug)]
enum Packet {
    Roles(Message),
    /// What of the active node's stream the receiver has now.
    Feed(Stream, u64),
    Lost,
    Refused,
    Connected,
}

struct Node {
    roles: Roles,
    copy: Copy,
    follows: Option<Slot>,
    asleep: bool,
    backlog: Vec<(usize, Packet)>,
    written: Vec<u32>,
    serves: bool,
}

struct World {
    now: u64,
    nodes: Vec<Option<Node>>,
    disks: Vec<u32>,
    disk_broken: Vec<bool>,
    incarnations: u64,
    cuts: BTreeSet<(usize, usize)>,
    /// By time of arrival and number: to, from, what.
    packets: BTreeMap<(u64, u64), (usize, usize, Packet)>,
    sent: u64,
    /// When the last packet arrives on each way, to and from.
    last: BTreeMap<(usize, usize), u64>,
    random: u64,
    led: Vec<(u64, usize, u32, Origin)>,
    notes: Vec<String>,
}

impl World {
    fn new(size: usize, seed: u64) -> World {
        World {
            now: SECOND,
            nodes: (0..size).map(|_| None).collect(),
            disks: vec![0; size],
            disk_broken: vec![false; size],
            incarnations: 0,
            cuts: BTreeSet::new(),
            packets: BTreeMap::new(),
            sent: 0,
            last: BTreeMap::new(),
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            led: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }

    fn at(&self) -> Now {
        Now {
            time: Time(self.now),
            wall: (self.now / SECOND) as u32,
        }
    }

    fn start(&mut self, index: usize) {
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

    fn crash(&mut self, index: usize) {
        self.nodes[index] = None;
        for other in 0..self.nodes.len() {
            if other != index && !self.cut(index, other) {
                self.put(other, index, Packet::Lost);
            }
        }
    }

    fn cut(&self, a: usize, b: usize) -> bool {
        self.cuts.contains(&(a, b)) || self.cuts.contains(&(b, a))
    }

    fn sleep(&mut self, index: usize) {
        if let Some(node) = &mut self.nodes[index] {
            node.asleep = true;
        }
    }

    fn wake(&mut self, index: usize) {
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

    fn put(&mut self, to: usize, from: usize, packet: Packet) {
        let delay = HOP + self.below(9 * HOP);
        // One connection keeps its order: nothing overtakes what was sent before on the same way.
        let last = self.last.entry((to, from)).or_default();
        *last = (self.now + delay).max(*last);
        let arrival = *last;
        self.sent += 1;
        self.packets
            .insert((arrival, self.sent), (to, from, packet));
    }

    fn give(&mut self, index: usize, event: Event) {
        let now = self.at();
        if let Some(node) = &mut self.nodes[index] {
            node.roles.handle(now, event);
            self.drain(index);
        }
    }

    fn drain(&mut self, index: usize) {
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
                        let there = self.nodes[to].is_some();
                        let packet = if there {
                            Packet::Connected
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

    fn put_if_open(&mut self, to: usize, from: usize, packet: Packet) {
        if self.nodes[to].is_some() && !self.cut(from, to) {
            self.put(to, from, packet);
        }
    }

    fn arrive(&mut self, to: usize, from: usize, packet: Packet) {
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
            Packet::Connected => {
                if self.nodes[from].is_some() {
                    self.give(to, Event::Connected { peer });
                } else {
                    self.give(to, Event::Refused { peer });
                }
            }
        }
    }

    /// Lets time pass in steps of a millisecond.
    fn run(&mut self, micros: u64) {
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
    fn work(&mut self, index: usize) {
        let time = Time(self.now);
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        if node.asleep {
            return;
        }
        for term in std::mem::take(&mut node.written) {
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

    fn serving(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|index| self.nodes[*index].as_ref().is_some_and(|node| node.serves))
            .collect()
    }

    /// Runs until exactly `index` serves, at most `micros`; returns how long it took.
    fn until_serves(&mut self, index: usize, micros: u64) -> u64 {
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

    fn check_history(&self, what: &str) {
        let mut terms = BTreeSet::new();
        for (time, index, term, _) in &self.led {
            assert!(
                terms.insert((*term, *index)),
                "{what}: term {term} twice on node {index} at {time}\n{}",
                self.notes.join("\n")
            );
        }
    }

    fn settled(&mut self, what: &str) {
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

fn cluster(size: usize) -> World {
    let mut world = World::new(size, 7);
    for index in 0..size {
        world.start(index);
    }
    world.until_serves(0, SECOND);
    world.run(3 * SECOND);
    world
}

#[test]
fn a_lone_node_serves_as_soon_as_its_term_is_on_disk() {
    let mut world = World::new(1, 1);
    world.start(0);
    assert!(world.serving().is_empty(), "not before the term is on disk");
    assert!(world.until_serves(0, SECOND) <= 2 * MS);
    assert_eq!(world.led[0].3, Origin::Start);
}

#[test]
fn nodes_that_start_together_agree_on_the_first_at_once() {
    let mut world = World::new(3, 1);
    for index in 0..3 {
        world.start(index);
    }
    assert!(world.until_serves(0, SECOND) < 50 * MS);
    world.run(5 * SECOND);
    assert_eq!(world.led.len(), 1, "{:?}", world.led);
}

#[test]
fn a_node_does_not_start_beside_silent_ones_before_the_discovery_timeout() {
    let mut world = World::new(2, 1);
    world.cuts.insert((0, 1));
    world.start(1);
    let took = world.until_serves(1, 5 * SECOND);
    assert!((3000 * MS..3100 * MS).contains(&took), "{took}");
}

#[test]
fn a_refusal_is_an_answer() {
    let mut world = World::new(3, 1);
    world.start(2);
    assert!(world.until_serves(2, SECOND) < 50 * MS);
}

#[test]
fn after_a_crash_the_next_one_takes_over_within_milliseconds() {
    let mut world = cluster(3);
    world.crash(0);
    assert!(world.until_serves(1, SECOND) < 50 * MS);
    assert_eq!(world.led.last().map(|l| l.3), Some(Origin::Takeover));
    world.crash(1);
    assert!(world.until_serves(2, SECOND) < 50 * MS);
    world.check_history("two crashes");
}

#[test]
fn silence_counts_as_death_after_the_failure_timeout() {
    let mut world = cluster(3);
    world.sleep(0);
    let took = {
        let begun = world.now;
        while world.nodes[1].as_ref().is_some_and(|node| !node.serves) {
            world.run(MS);
            assert!(world.now < begun + 2 * SECOND);
        }
        world.now - begun
    };
    assert!((700 * MS..1300 * MS).contains(&took), "{took}");
}

#[test]
fn a_node_that_slept_yields_to_the_one_that_took_over_before_it_serves_anything() {
    let mut world = cluster(3);
    world.sleep(0);
    world.run(2 * SECOND);
    // What it did before it slept says nothing now: its clients find it frozen.
    world.wake(0);
    assert!(world.nodes[0].as_ref().is_some_and(|node| !node.serves));
    for _ in 0..100 {
        world.run(MS);
        let both = world.nodes[0].as_ref().is_some_and(|node| node.serves)
            && world.nodes[1].as_ref().is_some_and(|node| node.serves);
        assert!(!both, "the one that slept serves beside its successor");
    }
    world.settled("a sleep");
}

#[test]
fn a_node_that_slept_alone_goes_on_once_its_peers_have_spoken() {
    let mut world = cluster(3);
    world.sleep(0);
    world.run(600 * MS);
    world.wake(0);
    assert!(world.until_serves(0, SECOND) < 300 * MS);
    assert_eq!(world.led.len(), 1, "nobody took over: {:?}", world.led);
}

#[test]
fn an_active_node_that_comes_back_without_its_state_gives_way_to_the_best_standby() {
    let mut world = cluster(3);
    world.crash(0);
    world.packets.clear();
    world.start(0);
    assert!(world.until_serves(1, SECOND) < 50 * MS);
}

#[test]
fn a_better_node_gets_its_place_back_by_handoff_after_the_delay() {
    let mut world = cluster(3);
    world.crash(0);
    world.until_serves(1, SECOND);
    world.run(SECOND);
    world.start(0);
    let took = world.until_serves(0, 10 * SECOND);
    // It had become active and died within ten minutes, so it waits twice as long.
    assert!((4000 * MS..4400 * MS).contains(&took), "{took}");
    assert_eq!(world.led.last().map(|l| l.3), Some(Origin::Handoff));
}

#[test]
fn an_orderly_stop_hands_over_at_once() {
    let mut world = cluster(3);
    world.give(0, Event::Stop);
    assert!(world.until_serves(1, SECOND) < 20 * MS);
    assert_eq!(world.led.last().map(|l| l.3), Some(Origin::Handoff));
    world.run(5 * MS);
    let leaving = world.nodes[0].as_ref().expect("it drains").roles.stance();
    assert_eq!(leaving, Stance::Leave(Some(Slot(1))));
    world.run(3 * SECOND);
    assert!(world.nodes[0].is_none(), "it has gone");
}

#[test]
fn a_stop_tries_the_next_one_when_the_first_does_not_answer() {
    let mut world = cluster(3);
    world.sleep(1);
    world.give(0, Event::Stop);
    let took = world.until_serves(2, 3 * SECOND);
    assert!(took < 1300 * MS, "{took}");
}

#[test]
fn a_node_without_peers_alive_leaves_alone() {
    let mut world = cluster(2);
    world.crash(1);
    world.run(500 * MS);
    world.give(0, Event::Stop);
    let stance = world.nodes[0].as_ref().expect("it drains").roles.stance();
    assert_eq!(stance, Stance::Leave(None));
}

#[test]
fn a_standby_that_lost_only_its_own_way_to_the_active_node_stays_a_standby() {
    let mut world = cluster(3);
    world.cuts.insert((0, 1));
    world.run(10 * SECOND);
    assert_eq!(world.serving(), [0]);
    let stance = world.nodes[1].as_ref().map(|node| node.roles.stance());
    assert_eq!(stance, Some(Stance::Redirect(Slot(0))));
    // The other one can tell when the active node is really gone.
    world.crash(0);
    let begun = world.now;
    while world.serving().is_empty() && world.now < begun + 2 * SECOND {
        world.run(MS);
    }
    assert_eq!(world.serving().len(), 1);
}

#[test]
fn two_active_nodes_that_meet_become_one() {
    let mut world = cluster(3);
    world.cuts.extend([(0, 1), (0, 2)]);
    world.run(3 * SECOND);
    assert_eq!(world.serving(), [0, 1]);
    world.cuts.clear();
    world.until_serves(0, SECOND);
    let (_, index, term, _) = *world.led.last().expect("terms were opened");
    assert_eq!(index, 0);
    assert!(
        world
            .led
            .iter()
            .all(|(_, other, known, _)| (*other, *known) == (0, term) || *known < term),
        "the one that stays opens a term above both: {:?}",
        world.led
    );
    world.settled("a partition");
}

#[test]
fn a_node_that_cannot_write_its_term_leaves_the_place_to_another() {
    let mut world = cluster(3);
    world.disk_broken[1] = true;
    world.crash(0);
    assert!(world.until_serves(2, SECOND) < 100 * MS);
    assert!(world.notes.iter().any(|note| note.contains("cannot write")));
    world.disk_broken[1] = false;
    world.until_serves(1, 10 * SECOND);
    world.settled("a full disk");
}

#[test]
fn preempt_can_be_switched_off() {
    let mut world = World::new(2, 1);
    world.start(1);
    world.until_serves(1, SECOND);
    if let Some(node) = &mut world.nodes[1] {
        let timing = Timing {
            preempt: false,
            ..Timing::default()
        };
        node.roles.set_timing(timing);
    }
    world.start(0);
    world.run(20 * SECOND);
    assert_eq!(world.serving(), [1]);
}

#[test]
fn crashes_alone_never_make_two_active_nodes_and_terms_only_rise() {
    for seed in 0..10 {
        let mut world = World::new(3, seed);
        for index in 0..3 {
            world.start(index);
        }
        for _ in 0..40 {
            let pause = world.below(50) * MS;
            world.run(pause);
            let index = world.below(3) as usize;
            match world.below(3) {
                0 => world.crash(index),
                1 if world.nodes[index].is_none() => world.start(index),
                _ => {
                    let pause = world.below(2000) * MS;
                    for _ in 0..pause / (10 * MS) {
                        world.run(10 * MS);
                        assert!(
                            world.serving().len() <= 1,
                            "seed {seed}: {:?}\n{}",
                            world.serving(),
                            world.notes.join("\n")
                        );
                    }
                }
            }
        }
        // Where nobody lives who knows the last term, the wall clock is all there is, and it counts in
        // seconds; whoever takes over from somebody is above it for certain.
        let rises = world.led.windows(2).all(|pair| {
            pair[1].2 > pair[0].2 || (pair[1].2 == pair[0].2 && pair[1].3 == Origin::Start)
        });
        assert!(rises, "seed {seed}: {:?}", world.led);
        world.settled(&format!("seed {seed}"));
    }
}

#[test]
fn after_any_faults_the_best_node_serves_alone() {
    for seed in 0..10 {
        let size = 2 + (seed % 4) as usize;
        let mut world = World::new(size, seed);
        for index in 0..size {
            world.start(index);
        }
        for _ in 0..40 {
            let (a, b) = (
                world.below(size as u64) as usize,
                world.below(size as u64) as usize,
            );
            match world.below(10) {
                0 => world.crash(a),
                1 | 2 if world.nodes[a].is_none() => world.start(a),
                3 if a != b => {
                    world.cuts.insert((a, b));
                }
                4 => world.cuts.clear(),
                5 => world.sleep(a),
                6 => world.wake(a),
                7 => world.give(a, Event::Stop),
                8 => world.disk_broken[a] = !world.disk_broken[a],
                _ => {
                    let pause = world.below(3000) * MS;
                    world.run(pause);
                }
            }
        }
        world.settled(&format!("seed {seed}"));
    }
}
