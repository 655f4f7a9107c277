//! Goal: locks, queues and tokens come through crashes, stops, sleeps and cuts as behaviour 3 says.
//! Method: whole members with their engines over a simulated network of frames, and clients that ask
//! the engine of whatever node serves; what they are told is checked against what they hold.

use super::*;
use crate::engine::{Answer, Change, ConnectionId, Effect, Engine, EngineSettings, Time};
use crate::protocol::{ClientId, Key, Millis, NameRef, Tag, Token, Wait};
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1000;
const SECOND: u64 = 1000 * MS;
const HOP: u64 = MS / 5;
const CLIENTS: usize = 6;
const KEYS: u64 = 4;
const LEASE: Millis = Millis(20_000);

struct Node {
    engine: Engine,
    member: Member,
    /// The connections of the clients, by client.
    connections: Vec<ConnectionId>,
    /// Frames that came and are not whole yet, by peer.
    inputs: Vec<Vec<u8>>,
    terms: Vec<u32>,
    asleep: bool,
    backlog: Vec<(usize, Packet)>,
}

#[derive(Clone, Debug)]
enum Packet {
    Bytes(Vec<u8>),
    Lost,
    Refused,
    Connected,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Idle,
    Waiting {
        key: Key,
        tag: Tag,
        node: usize,
        since: u64,
    },
    Holding {
        key: Key,
        token: Token,
        at: u64,
        until: u64,
    },
}

struct World {
    now: u64,
    nodes: Vec<Option<Node>>,
    disks: Vec<u32>,
    incarnations: u64,
    cuts: BTreeSet<(usize, usize)>,
    packets: BTreeMap<(u64, u64), (usize, usize, Packet)>,
    sent: u64,
    last: BTreeMap<(usize, usize), u64>,
    random: u64,
    clients: Vec<State>,
    tags: u64,
    tokens: BTreeSet<Token>,
    highest: BTreeMap<Key, Token>,
    /// When a node last stopped being active without a handoff: what it granted just before may be
    /// unknown to its successor.
    lost_state_at: u64,
    split: bool,
    granted: u64,
    log: Vec<String>,
}

fn key(number: u64) -> Key {
    Key::encode(format!("key-{number}").as_bytes()).expect("a key")
}

fn client_id(client: usize) -> ClientId {
    ClientId([client as u8 + 1; 16])
}

impl World {
    fn new(size: usize, seed: u64) -> World {
        let mut world = World {
            now: SECOND,
            nodes: (0..size).map(|_| None).collect(),
            disks: vec![0; size],
            incarnations: seed << 20,
            cuts: BTreeSet::new(),
            packets: BTreeMap::new(),
            sent: 0,
            last: BTreeMap::new(),
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            clients: vec![State::Idle; CLIENTS],
            tags: 0,
            tokens: BTreeSet::new(),
            highest: BTreeMap::new(),
            lost_state_at: 0,
            split: false,
            granted: 0,
            log: Vec::new(),
        };
        for index in 0..size {
            world.start(index);
        }
        world.run(100 * MS);
        world
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

    fn say(&mut self, text: String) {
        self.log.push(format!("{} {text}", self.now / MS));
    }

    fn start(&mut self, index: usize) {
        self.incarnations += 1;
        let list: Vec<String> = (0..self.nodes.len()).map(|n| format!("n{n}:1")).collect();
        let list = list.iter().map(String::as_str);
        let members = Members::new(list, &format!("n{index}:1")).expect("a list");
        let mut engine = Engine::new(EngineSettings::default(), self.incarnations);
        let connections = (0..CLIENTS)
            .map(|client| {
                let id = engine.connect(&format!("c{client}:1"));
                engine.hello(id, Some(client_id(client)), NameRef::NONE);
                id
            })
            .collect();
        let beginning = Beginning {
            incarnation: self.incarnations << 32 | 1,
            disk_term: self.disks[index],
            copy: Copy::default(),
        };
        let member = Member::new(
            self.at(),
            members,
            MemberSettings::default(),
            beginning,
            &mut engine,
        );
        self.say(format!("start {index}"));
        self.nodes[index] = Some(Node {
            engine,
            member,
            connections,
            inputs: vec![Vec::new(); self.nodes.len()],
            terms: Vec::new(),
            asleep: false,
            backlog: Vec::new(),
        });
        self.after(index);
    }

    fn crash(&mut self, index: usize) {
        let Some(node) = self.nodes[index].take() else {
            return;
        };
        self.say(format!("end {index}"));
        self.ask_anew(|_, node| node == index);
        if matches!(node.member.stage(), Stage::Active | Stage::HandingOver) {
            self.lost_state_at = self.now;
        }
        for other in 0..self.nodes.len() {
            if other != index && !self.cut(index, other) {
                self.put(other, index, Packet::Lost);
            }
        }
    }

    fn cut(&self, a: usize, b: usize) -> bool {
        self.cuts.contains(&(a.min(b), a.max(b)))
    }

    fn put(&mut self, to: usize, from: usize, packet: Packet) {
        let delay = HOP + self.below(9 * HOP);
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
            node.member.handle(now, event, &mut node.engine);
            self.after(index);
        }
    }

    /// Carries out what a node wants, until it wants no more.
    fn after(&mut self, index: usize) {
        let now = self.at();
        loop {
            let Some(node) = &mut self.nodes[index] else {
                return;
            };
            node.member.replicate(now, &mut node.engine);
            if let Some(effect) = node.engine.poll_effect() {
                self.tell(index, &effect);
                continue;
            }
            let Some(output) = node.member.poll_output() else {
                break;
            };
            match output {
                Output::WriteTerm { term } => node.terms.push(term),
                Output::Connect { to } => {
                    let to = to.index();
                    if !self.cut(index, to) {
                        let packet = match &self.nodes[to] {
                            Some(_) => Packet::Connected,
                            None => Packet::Refused,
                        };
                        self.put(index, to, packet);
                    }
                }
                Output::Stance(_) => {}
                Output::Exit => {
                    self.crash(index);
                    return;
                }
                Output::Note(note) => self.say(format!("{index}: {note}")),
            }
        }
        for to in 0..self.nodes.len() {
            let Some(node) = &mut self.nodes[index] else {
                return;
            };
            let mut bytes = Vec::new();
            node.member.take_frames(Slot(to as u8), &mut bytes);
            if !bytes.is_empty() && self.nodes[to].is_some() && !self.cut(index, to) {
                self.put(to, index, Packet::Bytes(bytes));
            }
        }
    }

    /// A client hears from a node.
    fn tell(&mut self, index: usize, effect: &Effect) {
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        let connections = node.connections.clone();
        let client_of = |connection: &ConnectionId| {
            let place = connections.iter().position(|known| known == connection);
            place.expect("only clients connect")
        };
        match effect {
            Effect::Granted {
                connection,
                key,
                grant,
                tag,
            } => {
                let client = client_of(connection);
                let wanted = matches!(&self.clients[client], State::Waiting { tag: asked, .. }
                    if tag.map(|tag| tag.number) == Some(asked.number));
                if wanted {
                    self.hold(client, key, grant.token);
                } else {
                    // It has given that request up, and gives back what comes of it.
                    let now = Time(self.now);
                    node.engine.release(now, key.as_ref(), grant.token);
                }
            }
            Effect::Moved { connection, .. } => {
                let client = client_of(connection);
                self.ask_anew(|waiting, _| waiting == client);
            }
            Effect::TimedOut { .. }
            | Effect::Refused { .. }
            | Effect::TermHalfUsed { .. }
            | Effect::TermOpened { .. } => {}
        }
    }

    /// Clients that wait learn that they have to ask again.
    fn ask_anew(&mut self, who: impl Fn(usize, usize) -> bool) {
        for (client, state) in self.clients.iter_mut().enumerate() {
            if let State::Waiting { node, .. } = state
                && who(client, *node)
            {
                *node = usize::MAX;
            }
        }
    }

    fn hold(&mut self, client: usize, key: &Key, token: Token) {
        let others: Vec<(usize, u64, u64)> = self
            .clients
            .iter()
            .enumerate()
            .filter_map(|(other, state)| match state {
                State::Holding {
                    key: held,
                    at,
                    until,
                    ..
                } if held == key && other != client => Some((other, *at, *until)),
                State::Holding { .. } | State::Idle | State::Waiting { .. } => None,
            })
            .collect();
        for (other, at, until) in others {
            // What was granted just before its node died was perhaps never copied.
            let never_copied = at + 50 * MS > self.lost_state_at && at <= self.lost_state_at;
            assert!(
                until <= self.now || never_copied || self.split,
                "{key:?} is granted to client {client} while {other} holds it since {}\n{}",
                at / MS,
                self.log.join("\n")
            );
        }
        self.granted += 1;
        let new = self.tokens.insert(token);
        let again =
            matches!(&self.clients[client], State::Holding { token: held, .. } if *held == token);
        assert!(
            new || again || self.split,
            "{token:?} twice\n{}",
            self.log.join("\n")
        );
        let highest = self.highest.entry(key.clone()).or_insert(token);
        assert!(
            *highest <= token || self.split,
            "{key:?}: {token:?} after {highest:?}\n{}",
            self.log.join("\n")
        );
        *highest = token.max(*highest);
        self.clients[client] = State::Holding {
            key: key.clone(),
            token,
            at: self.now,
            until: self.now + LEASE.0 * 1000,
        };
    }

    /// The node that a client finds to be serving, as it would by moves and retries.
    fn server(&mut self) -> Option<usize> {
        let serving = self.serving();
        if serving.is_empty() {
            return None;
        }
        let which = self.below(serving.len() as u64) as usize;
        Some(serving[which])
    }

    fn serving(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|index| {
                self.nodes[*index]
                    .as_ref()
                    .is_some_and(|node| !node.asleep && node.member.stance() == Stance::Serve)
            })
            .collect()
    }

    /// A client does something.
    fn act(&mut self, client: usize) {
        let Some(server) = self.server() else { return };
        let now = Time(self.now);
        match self.clients[client].clone() {
            State::Idle => {
                let key = key(self.below(KEYS));
                self.tags += 1;
                self.ask(client, server, key, Tag::first(self.tags), self.now);
            }
            State::Waiting {
                key,
                tag,
                node,
                since,
            } => {
                // Its node is gone or serves no more: the same request, with the next attempt.
                if node != server && !self.serving().contains(&node) {
                    let tag = Tag {
                        attempt: tag.attempt + 1,
                        ..tag
                    };
                    self.ask(client, server, key, tag, since);
                }
            }
            State::Holding { key, token, .. } => {
                if self.below(4) == 0
                    && let Some(node) = &mut self.nodes[server]
                {
                    if !node.engine.release(now, key.as_ref(), token) {
                        node.member.stale_release(now, token);
                    }
                    self.clients[client] = State::Idle;
                    self.after(server);
                }
            }
        }
    }

    fn ask(&mut self, client: usize, server: usize, key: Key, tag: Tag, since: u64) {
        let now = Time(self.now);
        let Some(node) = &mut self.nodes[server] else {
            return;
        };
        let connection = node.connections[client];
        self.clients[client] = State::Waiting {
            key: key.clone(),
            tag,
            node: server,
            since,
        };
        let answer = node.engine.acquire(
            now,
            connection,
            key.as_ref(),
            LEASE,
            Wait::Forever,
            Some(tag),
        );
        match answer {
            Answer::Granted(grant) => self.hold(client, &key, grant.token),
            Answer::Queued => {}
            Answer::NotHad | Answer::Dropped | Answer::Refused(_) => {
                panic!(
                    "{answer:?} to a request that waits\n{}",
                    self.log.join("\n")
                )
            }
        }
        self.after(server);
    }

    fn arrive(&mut self, to: usize, from: usize, packet: Packet) {
        let now = self.at();
        let there = self.nodes[from].is_some();
        let Some(node) = &mut self.nodes[to] else {
            return;
        };
        if node.asleep {
            node.backlog.push((from, packet));
            return;
        }
        let peer = Slot(from as u8);
        match packet {
            Packet::Bytes(bytes) => {
                node.inputs[from].extend(bytes);
                let input = std::mem::take(&mut node.inputs[from]);
                let mut rest = &input[..];
                while let Unit::Whole { body, used } = split_frame(rest).expect("our own frames") {
                    node.member
                        .handle_frame(now, peer, body, &mut node.engine)
                        .expect("our own frames");
                    rest = &rest[used..];
                }
                node.inputs[from] = rest.to_vec();
                self.after(to);
            }
            Packet::Lost => {
                node.inputs[from].clear();
                self.give(to, Event::Lost { peer });
            }
            Packet::Refused => self.give(to, Event::Refused { peer }),
            Packet::Connected if there => self.give(to, Event::Connected { peer }),
            Packet::Connected => self.give(to, Event::Refused { peer }),
        }
    }

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
            let client = self.below(CLIENTS as u64 * 4) as usize;
            if client < CLIENTS {
                self.act(client);
            }
        }
    }

    fn work(&mut self, index: usize) {
        let time = Time(self.now);
        let Some(node) = self.nodes[index].as_mut().filter(|node| !node.asleep) else {
            return;
        };
        let terms = std::mem::take(&mut node.terms);
        for term in terms {
            self.disks[index] = self.disks[index].max(term);
            self.give(index, Event::TermWritten { term });
        }
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        if node.member.next_deadline().is_some_and(|at| at <= time) {
            self.give(index, Event::Tick);
        }
        let Some(node) = &mut self.nodes[index] else {
            return;
        };
        if node.member.stance() == Stance::Serve
            && node.engine.next_deadline().is_some_and(|at| at <= time)
        {
            node.engine.expire(time, 1000);
            self.after(index);
        }
    }

    fn sleep(&mut self, index: usize) {
        if let Some(node) = self.nodes[index].as_mut() {
            node.asleep = true;
            if matches!(node.member.stage(), Stage::Active | Stage::HandingOver) {
                self.lost_state_at = self.now;
            }
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

    fn held(&self, index: usize) -> BTreeSet<(Key, Token)> {
        let node = self.nodes[index].as_ref().expect("it lives");
        node.engine
            .grants()
            .filter_map(|change| match change {
                Change::Granted { key, token, .. } => Some((key, token)),
                _ => None,
            })
            .collect()
    }

    fn settle(&mut self, what: &str) {
        self.cuts.clear();
        for index in 0..self.nodes.len() {
            self.wake(index);
        }
        self.run(5 * SECOND);
        for index in 0..self.nodes.len() {
            if self.nodes[index].is_none() {
                self.start(index);
            }
        }
        for _ in 0..60 {
            if self.serving() == [0] {
                break;
            }
            self.run(10 * SECOND);
        }
        // Beyond every lease and grace from before.
        self.run(25 * SECOND);
        assert_eq!(self.serving(), [0], "{what}\n{}", self.log.join("\n"));
        let before = self.granted;
        self.split = false;
        self.lost_state_at = 0;
        self.highest.clear();
        self.run(5 * SECOND);
        assert!(
            self.granted > before + 20,
            "{what}: it goes on {} {:?} {:?}\n{}",
            self.granted - before,
            self.clients,
            self.held(0),
            self.log.join("\n")
        );
        // Nothing is under way any more: all copies are the same.
        for client in 0..CLIENTS {
            self.clients[client] = State::Idle;
        }
        for _ in 0..20 * MS / HOP {
            self.now += HOP;
            while let Some(entry) = self.packets.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let (to, from, packet) = entry.remove();
                self.arrive(to, from, packet);
            }
        }
        let held = self.held(0);
        for index in 0..self.nodes.len() {
            assert_eq!(
                self.held(index),
                held,
                "{what}: node {index}\n{}",
                self.log.join("\n")
            );
            let node = self.nodes[index].as_ref().expect("it lives");
            node.engine.check_invariants();
        }
    }
}

#[test]
fn locks_come_through_crashes_and_stops_with_one_holder_each() {
    for seed in 0..8 {
        let mut world = World::new(3, seed + 1);
        for _ in 0..30 {
            let index = world.below(3) as usize;
            let others = (0..3).filter(|other| *other != index);
            let alive = others.filter(|other| world.nodes[*other].is_some()).count();
            match world.below(5) {
                // One that is the last keeps the state.
                0 if alive > 0 => world.crash(index),
                1 if alive > 0 => world.give(index, Event::Stop),
                2 | 3 if world.nodes[index].is_none() => world.start(index),
                _ => {
                    let pause = (500 + world.below(6000)) * MS;
                    world.run(pause);
                }
            }
            // A standby that has just begun has nothing to take over with.
            world.run(4 * SECOND);
        }
        world.settle(&format!("seed {seed}"));
    }
}

#[test]
fn whatever_happens_copies_agree_in_the_end_and_locks_go_on() {
    for seed in 0..8 {
        let size = 2 + (seed % 3) as usize;
        let mut world = World::new(size, 100 + seed);
        world.split = true;
        for _ in 0..40 {
            let (a, b) = (
                world.below(size as u64) as usize,
                world.below(size as u64) as usize,
            );
            match world.below(9) {
                0 => world.crash(a),
                1 | 2 if world.nodes[a].is_none() => world.start(a),
                3 if a != b => {
                    world.cuts.insert((a.min(b), a.max(b)));
                }
                4 => world.cuts.clear(),
                5 => world.sleep(a),
                6 => world.wake(a),
                7 => world.give(a, Event::Stop),
                _ => {
                    let pause = world.below(4000) * MS;
                    world.run(pause);
                }
            }
        }
        world.settle(&format!("seed {seed}"));
    }
}
