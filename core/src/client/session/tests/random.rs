//! Several clients, one tiny server and a bad network, seeded: connections break at every point between send and
//! reply, copies come late, connections stand still, the server restarts with what it knew. Whatever happens, a client
//! holds a lock only while the server says so, a request stands in the server's books once, a call ends with its
//! wait, and nothing stays behind.

use super::model::{LineId, Model};
use super::*;
use std::collections::VecDeque;

const CLIENTS: usize = 3;
const KEYS: [&str; 2] = ["k", "l"];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    /// True once in `times`.
    fn once_in(&mut self, times: u64) -> bool {
        self.roll(times) == 0
    }
}

/// One connection on its way through the network.
struct Path {
    client: usize,
    id: ConnectionId,
    line: LineId,
    up: VecDeque<(Micros, String)>,
    down: VecDeque<(Micros, String)>,
    /// Nothing moves before.
    stalled_until: Micros,
    /// The client no longer listens; what is on its way may still arrive.
    left: bool,
    /// The server has ended it, or heard that it is over.
    closed: bool,
}

struct Storm {
    now: Micros,
    dice: Dice,
    model: Model,
    sessions: Vec<Session>,
    faces: Vec<Slab<FaceId, ()>>,
    under_way: Vec<Vec<(FaceId, OperationId)>>,
    /// When a call has to be over.
    ends_by: BTreeMap<(usize, FaceId), Micros>,
    in_hand: Vec<Vec<(LockId, Token, &'static str)>>,
    connecting: Vec<(Micros, usize, ConnectionId)>,
    paths: Vec<Path>,
    lines: LineId,
    lost: Vec<(usize, LockId)>,
    /// The server restarts.
    away_until: Micros,
    faults: bool,
    granted: u32,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let now = 50 * S;
        let session = |nth: usize| {
            let settings = Settings {
                id: ClientId([nth as u8; 16]),
                name: b"storm".to_vec(),
                secret: None,
                servers: vec![Address::parse("a:1").expect("an address")],
                connect_timeout: S,
                retry_for: nth as Micros * S,
                listed_only: false,
                seed: seed + nth as u64,
                mutation: crate::mutation::Mutation::None,
            };
            Session::new(settings, now)
        };
        Storm {
            now,
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            model: Model::default(),
            sessions: (0..CLIENTS).map(session).collect(),
            faces: (0..CLIENTS).map(|_| Slab::new()).collect(),
            under_way: vec![Vec::new(); CLIENTS],
            ends_by: BTreeMap::new(),
            in_hand: vec![Vec::new(); CLIENTS],
            connecting: Vec::new(),
            paths: Vec::new(),
            lines: 0,
            lost: Vec::new(),
            away_until: 0,
            faults: true,
            granted: 0,
        }
    }

    fn step(&mut self) {
        self.now += MS;
        if self.faults {
            self.disturb();
        }
        self.connect();
        self.deliver();
        self.model.pass(self.now);
        self.route_replies();
        for client in 0..CLIENTS {
            self.sessions[client].handle_due(self.now);
            self.settle(client);
        }
        self.check();
    }

    /// The network and the users do what they do.
    fn disturb(&mut self) {
        if self.dice.once_in(5000) {
            self.restart();
        }
        for index in 0..self.paths.len() {
            if self.dice.once_in(400) {
                self.break_path(index);
            } else if self.dice.once_in(600) {
                self.paths[index].stalled_until = self.now + self.dice.roll(3000) * MS;
            }
        }
        for client in 0..CLIENTS {
            if self.dice.once_in(20) && self.under_way[client].len() < 4 {
                self.acquire(client);
            }
            if self.dice.once_in(60) && !self.under_way[client].is_empty() {
                let place = self.dice.roll(self.under_way[client].len() as u64) as usize;
                let (_, operation) = self.under_way[client][place];
                self.sessions[client].cancel(operation, self.now);
            }
            if self.dice.once_in(15) && !self.in_hand[client].is_empty() {
                let (lock, ..) = self.in_hand[client].remove(0);
                if self.dice.once_in(2) {
                    let face = self.faces[client].insert(());
                    let ask = Ask::ReleaseLock { lock };
                    self.sessions[client].ask(ask, face, self.now);
                }
                self.sessions[client].drop_lock(lock, self.now);
            }
            self.settle(client);
        }
    }

    /// The server ends, killed or in good order.
    fn restart(&mut self) {
        self.away_until = self.now + self.dice.roll(2000) * MS;
        if self.dice.once_in(2) {
            self.model.refuse_waiters();
            self.route_replies();
        }
        for path in &mut self.paths {
            if !path.closed {
                path.closed = true;
                path.up.clear();
                self.model.close(path.line, self.now);
            }
        }
    }

    fn acquire(&mut self, client: usize) {
        let face = self.faces[client].insert(());
        let key = KEYS[self.dice.roll(2) as usize];
        let wait = match self.dice.roll(4) {
            0 => Wait::No,
            1 => Wait::Forever,
            _ => wait_ms(1 + self.dice.roll(2000)),
        };
        let ask = Ask::Acquire {
            key: Key::encode(key.as_bytes()).expect("a key"),
            lease: Millis(match self.dice.roll(2) {
                0 => 1000 + self.dice.roll(3000),
                _ => 8_000,
            }),
            wait,
            keep_alive: self.dice.once_in(2),
            max_hold: None,
        };
        if let Wait::For(time) = wait {
            // The server has a second to say so itself; the clock here ticks in milliseconds.
            let end = self.now + time.micros() + S + MS;
            self.ends_by.insert((client, face), end);
        }
        if let Some(operation) = self.sessions[client].ask(ask, face, self.now) {
            self.under_way[client].push((face, operation));
        }
    }

    fn break_path(&mut self, index: usize) {
        let kind = self.dice.roll(3);
        let path = &mut self.paths[index];
        if path.left || path.closed {
            return;
        }
        let (client, id) = (path.client, path.id);
        match kind {
            // All at once.
            0 => {
                path.up.clear();
                path.closed = true;
                path.left = true;
                self.model.close(path.line, self.now);
            }
            // The client hears it first; what it has sent arrives late.
            1 => path.left = true,
            // The server hears it first; its answers are lost.
            _ => {
                path.closed = true;
                path.left = true;
                path.down.clear();
                self.model.close(path.line, self.now);
            }
        }
        let text = "reset".to_owned();
        self.sessions[client].handle_closed(id, text, self.now);
        self.settle(client);
    }

    fn settle(&mut self, client: usize) {
        while let Some(effect) = self.sessions[client].poll_effect() {
            match effect {
                Effect::Connect { connection, .. } => {
                    let at = self.now + (1 + self.dice.roll(5)) * MS;
                    self.connecting.push((at, client, connection));
                }
                Effect::Write { connection } => {
                    let mut bytes = Vec::new();
                    self.sessions[client].take_outgoing(connection, &mut bytes);
                    let at = self.now + self.dice.roll(4) * MS;
                    let path = self
                        .paths
                        .iter_mut()
                        .find(|path| path.client == client && path.id == connection && !path.left);
                    if let Some(path) = path {
                        for line in String::from_utf8(bytes).expect("text").lines() {
                            path.up.push_back((at, line.to_owned()));
                        }
                    }
                }
                Effect::Close { connection, .. } => {
                    for path in &mut self.paths {
                        if path.client == client && path.id == connection {
                            path.left = true;
                        }
                    }
                }
                Effect::Complete { face, result } => self.complete(client, face, result),
                Effect::Lost { lock, .. } => {
                    assert!(!self.lost.contains(&(client, lock)), "told once");
                    self.lost.push((client, lock));
                }
                Effect::Finished => {}
            }
        }
    }

    fn complete(&mut self, client: usize, face: FaceId, result: Result<Outcome, Error>) {
        self.faces[client]
            .remove(face)
            .expect("an operation ends once");
        self.under_way[client].retain(|(other, _)| *other != face);
        self.ends_by.remove(&(client, face));
        if let Ok(Outcome::Locked(grant)) = result {
            self.granted += 1;
            let held = self.sessions[client].key_of(grant.lock).expect("a lock");
            let key = KEYS
                .into_iter()
                .find(|key| key.as_bytes() == held.spelling());
            let key = key.expect("a key that was asked for");
            self.in_hand[client].push((grant.lock, grant.token, key));
        }
    }

    fn connect(&mut self) {
        let now = self.now;
        let ready: Vec<_> = self
            .connecting
            .extract_if(.., |(at, ..)| *at <= now)
            .collect();
        for (_, client, id) in ready {
            if now < self.away_until && self.dice.once_in(2) {
                // Nobody answers.
            } else if now < self.away_until || self.faults && self.dice.once_in(4) {
                let text = "refused".to_owned();
                self.sessions[client].handle_connect_failed(id, text, now);
            } else if self.sessions[client].is_current(id) {
                self.lines += 1;
                self.model.clients.insert(self.lines, client);
                self.paths.push(Path {
                    client,
                    id,
                    line: self.lines,
                    up: VecDeque::new(),
                    down: VecDeque::new(),
                    stalled_until: 0,
                    left: false,
                    closed: false,
                });
                self.sessions[client].handle_connected(id, now);
            }
            self.settle(client);
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        for index in 0..self.paths.len() {
            loop {
                let path = &mut self.paths[index];
                if path.stalled_until > now {
                    break;
                }
                if !path.closed && path.up.front().is_some_and(|(at, _)| *at <= now) {
                    let (_, text) = path.up.pop_front().expect("there is one");
                    if text.starts_with('H') {
                        let hello = "H 1 role=active node=a:1 active=a:1 peers=a:1 server=0\n";
                        path.down.push_back((now + MS, hello.to_owned()));
                    } else {
                        self.model.handle(path.line, &text, now);
                        self.route_replies();
                    }
                } else if !path.left && path.down.front().is_some_and(|(at, _)| *at <= now) {
                    let (_, text) = path.down.pop_front().expect("there is one");
                    let (client, id) = (path.client, path.id);
                    self.sessions[client].handle_bytes(id, text.as_bytes(), now);
                    self.settle(client);
                } else {
                    break;
                }
            }
            let path = &mut self.paths[index];
            if path.left && !path.closed && path.up.is_empty() {
                path.closed = true;
                self.model.close(path.line, now);
            } else if path.closed && !path.left && path.down.is_empty() && path.stalled_until <= now
            {
                path.left = true;
                let (client, id) = (path.client, path.id);
                self.sessions[client].handle_closed(id, "ended".to_owned(), now);
                self.settle(client);
            }
        }
        self.paths.retain(|path| !(path.left && path.closed));
    }

    fn route_replies(&mut self) {
        for (line, text) in std::mem::take(&mut self.model.replies) {
            let at = self.now + self.dice.roll(4) * MS;
            if let Some(path) = self.paths.iter_mut().find(|path| path.line == line) {
                let at = path.down.back().map_or(at, |(last, _)| at.max(*last));
                path.down.push_back((at, text));
            }
        }
    }

    fn check(&mut self) {
        for (call, end) in &self.ends_by {
            assert!(self.now <= *end, "a call ends with its wait: {call:?}");
        }
        for client in 0..CLIENTS {
            for (lock, token, key) in &self.in_hand[client] {
                let view = self.sessions[client]
                    .view_lock(*lock, self.now)
                    .expect("in hand");
                if view.held {
                    let holder = self.model.holder(key.as_bytes());
                    assert_eq!(
                        holder,
                        Some((client, *token)),
                        "held only while the server says so"
                    );
                }
            }
            let mut entries = self.model.entries(client);
            let count = entries.len();
            entries.sort();
            entries.dedup();
            assert_eq!(entries.len(), count, "a request stands in the books once");
        }
    }

    /// The faults stop: what is in the books is what the clients have. Everybody goes home, and
    /// nothing is left.
    fn end(&mut self) {
        self.faults = false;
        self.away_until = 0;
        for path in &mut self.paths {
            path.stalled_until = 0;
        }
        // Connections come back, and leases end whose release met no connection in its five seconds.
        for _ in 0..9_000 {
            self.step();
        }
        for client in 0..CLIENTS {
            let held = self.in_hand[client].iter().filter(|(lock, ..)| {
                let view = self.sessions[client].view_lock(*lock, self.now);
                view.expect("in hand").held
            });
            // A lock that has just been told lost may still have an eighth of its lease.
            let known = self.under_way[client].len() + held.count();
            let at_most = self.under_way[client].len() + self.in_hand[client].len();
            let entries = self.model.entries(client).len();
            assert!(
                (known..=at_most).contains(&entries),
                "holders and waiters are one: {known} {entries} {at_most}"
            );
        }
        for client in 0..CLIENTS {
            for (_, operation) in self.under_way[client].clone() {
                self.sessions[client].cancel(operation, self.now);
            }
            for (lock, ..) in std::mem::take(&mut self.in_hand[client]) {
                self.sessions[client].drop_lock(lock, self.now);
            }
            self.settle(client);
        }
        for _ in 0..100 {
            self.step();
        }
        for client in 0..CLIENTS {
            assert_eq!(self.model.entries(client), [], "nothing stays behind");
        }
        for _ in 0..6_000 {
            self.step();
        }
        for session in &self.sessions {
            assert_eq!(session.operations.len() + session.locks.len(), 0);
            assert!(session.tags.is_empty() && session.busy_keys.is_empty());
            assert!(session.lock_deadlines.next().is_none());
            assert!(session.operation_deadlines.next().is_none());
            for connection in &session.connections {
                assert_eq!(connection.under_way, 0);
            }
        }
    }
}

#[test]
fn a_bad_network_never_makes_two_holders_or_leaves_anything_behind() {
    let seeds = match std::env::var("FAIRLOCK_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("a number");
            seed..seed + 1
        }
        Err(_) => 1..25,
    };
    let mut granted = 0;
    for seed in seeds {
        let ended = std::panic::catch_unwind(|| {
            let mut storm = Storm::new(seed);
            for _ in 0..30_000 {
                storm.step();
            }
            storm.end();
            storm.granted
        });
        granted +=
            ended.unwrap_or_else(|_| panic!("seed {seed}; repeat it with FAIRLOCK_SEED={seed}"));
    }
    assert!(granted > 100, "the test does something: {granted}");
}
