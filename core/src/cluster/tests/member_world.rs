//! Clusters of whole members with their engines, and clients that ask whatever node serves.

use crate::cluster::*;
use crate::engine::{Answer, Change, ConnectionId, Effect, Engine, EngineSettings, Time};
use crate::protocol::{ClientId, Key, Millis, NameRef, Tag, Token, Wait};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const MS: u64 = 1000;
pub(super) const SECOND: u64 = 1000 * MS;
pub(super) const HOP: u64 = MS / 5;
pub(super) const CLIENTS: usize = 6;
pub(super) const KEYS: u64 = 4;
pub(super) const LEASE: Millis = Millis(20_000);

pub(super) struct Node {
    pub(super) engine: Engine,
    pub(super) member: Member,
    /// The connections of the clients, by client.
    pub(super) connections: Vec<ConnectionId>,
    /// Frames that came and are not whole yet, by peer.
    pub(super) inputs: Vec<Vec<u8>>,
    pub(super) terms: Vec<u32>,
    pub(super) asleep: bool,
    pub(super) backlog: Vec<(usize, Packet)>,
}

#[derive(Clone, Debug)]
pub(super) enum Packet {
    Bytes(Vec<u8>),
    Lost,
    Refused,
    Connected,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
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

pub(super) struct World {
    pub(super) now: u64,
    pub(super) nodes: Vec<Option<Node>>,
    pub(super) disks: Vec<u32>,
    pub(super) incarnations: u64,
    pub(super) cuts: BTreeSet<(usize, usize)>,
    pub(super) packets: BTreeMap<(u64, u64), (usize, usize, Packet)>,
    pub(super) sent: u64,
    pub(super) last: BTreeMap<(usize, usize), u64>,
    pub(super) random: u64,
    pub(super) clients: Vec<State>,
    pub(super) tags: u64,
    pub(super) tokens: BTreeSet<Token>,
    pub(super) highest: BTreeMap<Key, Token>,
    /// When a node last stopped being active without a handoff: what it granted just before may be
    /// unknown to its successor.
    pub(super) lost_state_at: u64,
    pub(super) split: bool,
    pub(super) granted: u64,
    pub(super) log: Vec<String>,
}

pub(super) fn key(number: u64) -> Key {
    Key::encode(format!("key-{number}").as_bytes()).expect("a key")
}

pub(super) fn client_id(client: usize) -> ClientId {
    ClientId([client as u8 + 1; 16])
}

impl World {
    pub(super) fn new(size: usize, seed: u64) -> World {
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

    pub(super) fn say(&mut self, text: String) {
        self.log.push(format!("{} {text}", self.now / MS));
    }

    pub(super) fn start(&mut self, index: usize) {
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

    pub(super) fn crash(&mut self, index: usize) {
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

    pub(super) fn cut(&self, a: usize, b: usize) -> bool {
        self.cuts.contains(&(a.min(b), a.max(b)))
    }

    pub(super) fn put(&mut self, to: usize, from: usize, packet: Packet) {
        let delay = HOP + self.below(9 * HOP);
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
            node.member.handle(now, event, &mut node.engine);
            self.after(index);
        }
    }

    /// Carries out what a node wants, until it wants no more.
    pub(super) fn after(&mut self, index: usize) {
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
    pub(super) fn tell(&mut self, index: usize, effect: &Effect) {
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
    pub(super) fn ask_anew(&mut self, who: impl Fn(usize, usize) -> bool) {
        for (client, state) in self.clients.iter_mut().enumerate() {
            if let State::Waiting { node, .. } = state
                && who(client, *node)
            {
                *node = usize::MAX;
            }
        }
    }

    pub(super) fn hold(&mut self, client: usize, key: &Key, token: Token) {
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
    pub(super) fn server(&mut self) -> Option<usize> {
        let serving = self.serving();
        if serving.is_empty() {
            return None;
        }
        let which = self.below(serving.len() as u64) as usize;
        Some(serving[which])
    }

    pub(super) fn serving(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|index| {
                self.nodes[*index]
                    .as_ref()
                    .is_some_and(|node| !node.asleep && node.member.stance() == Stance::Serve)
            })
            .collect()
    }

    /// A client does something.
    pub(super) fn act(&mut self, client: usize) {
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

    pub(super) fn ask(&mut self, client: usize, server: usize, key: Key, tag: Tag, since: u64) {
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

    pub(super) fn arrive(&mut self, to: usize, from: usize, packet: Packet) {
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
            Packet::Connected => self.give(to, Event::CutShort { peer }),
        }
    }

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
            let client = self.below(CLIENTS as u64 * 4) as usize;
            if client < CLIENTS {
                self.act(client);
            }
        }
    }

    pub(super) fn work(&mut self, index: usize) {
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

    pub(super) fn sleep(&mut self, index: usize) {
        if let Some(node) = self.nodes[index].as_mut() {
            node.asleep = true;
            if matches!(node.member.stage(), Stage::Active | Stage::HandingOver) {
                self.lost_state_at = self.now;
            }
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

    pub(super) fn held(&mut self, index: usize) -> BTreeSet<(Key, Token)> {
        let now = self.at();
        let node = self.nodes[index].as_mut().expect("it lives");
        node.member.settle(now, &mut node.engine);
        node.engine
            .grants()
            .filter_map(|change| match change {
                Change::Granted { key, token, .. } => Some((key, token)),
                _ => None,
            })
            .collect()
    }

    pub(super) fn settle(&mut self, what: &str) {
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
        let held = self.held(0);
        assert!(
            self.granted > before + 20,
            "{what}: it goes on {} {:?} {held:?}\n{}",
            self.granted - before,
            self.clients,
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
