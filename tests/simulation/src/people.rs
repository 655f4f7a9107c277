//! What clients do in the world: connect, write, hear, hold, let go.

use crate::checker::{Hold, Replies, Rule};
use crate::client::{BEYOND_WAIT, Held, User, What, key};
use crate::desk::key_number;
use crate::network::{Item, Machine};
use crate::plan::{MS, Profile, SECOND};
use crate::world::{Happening, Phase, World};
use fairlock::protocol::Token;
use fairlock::simulation::{ConnectionId, Effect, Outcome};
use fairlock::{Error, ErrorKind};

impl World {
    pub(crate) fn client_now(&self, client: usize) -> u64 {
        self.people[client].clock.read(self.now)
    }

    pub(crate) fn start_client(&mut self, client: usize) {
        let now = self.client_now(client);
        let mut servers: Vec<String> = self.hosts.iter().map(|host| host.address.clone()).collect();
        if servers.len() > 1 && self.random.once_in(4) {
            // It learns of the others from the one it knows.
            let keep = self.random.below(servers.len() as u64) as usize;
            servers = vec![servers.swap_remove(keep)];
        } else {
            let turn = self.random.below(servers.len() as u64) as usize;
            servers.rotate_left(turn);
        }
        let mutation = self.plan.mutation;
        let person = &mut self.people[client];
        person.start += 1;
        person.frozen_since = None;
        let start = person.start;
        let user = User::new(client, start, servers, mutation, now, &mut self.random);
        self.people[client].user = Some(Box::new(user));
        self.settle_client(client);
        let (least, most) = self.plan.pace;
        let first = self.random.between(least, most);
        self.at(self.now + first, Happening::Act(client, start));
    }

    /// The process of a client is gone, and with it everything that it knew.
    pub(crate) fn end_client(&mut self, client: usize, silent: bool) {
        let start = self.people[client].start;
        let Some(user) = self.people[client].user.take() else {
            return;
        };
        self.people[client].frozen_since = None;
        for connection in user.connections.keys() {
            let side = self
                .network
                .side_of(*connection, Machine::Client(client), start);
            if let Some(side) = side {
                self.network.connections[*connection].open[side] = false;
                if silent {
                    self.network.connections[*connection].pipes[side]
                        .items
                        .clear();
                } else {
                    self.put(*connection, side, Item::Reset);
                }
            }
        }
    }

    pub(crate) fn act(&mut self, client: usize, start: u32) {
        let person = &self.people[client];
        if person.start != start || person.user.is_none() {
            return;
        }
        if person.frozen_since.is_none() {
            let now = self.client_now(client);
            let (keys, leases, world) = (self.plan.keys, self.plan.leases, self.now);
            if let Some(user) = &mut self.people[client].user {
                user.act(&mut self.random, keys, leases, now, world);
            }
            self.use_register(client, now);
            self.settle_client(client);
        }
        let quiet = self.phase == Phase::Draining;
        let (least, most) = if quiet {
            (200 * MS, 400 * MS)
        } else {
            self.plan.pace
        };
        let next = self.random.between(least, most);
        self.at(self.now + next, Happening::Act(client, start));
    }

    /// Who believes to hold a lock writes with its token; the write takes a while to get there.
    fn use_register(&mut self, client: usize, now: u64) {
        let Some(user) = &mut self.people[client].user else {
            return;
        };
        let held: Vec<Held> = user
            .locks
            .iter()
            .filter(|held| user.session.is_held(held.lock, now))
            .copied()
            .collect();
        if let Some(held) = self.random.pick(&held) {
            let slow = self.random.once_in(8);
            let most = if slow { 8 * SECOND } else { 40 * MS };
            let late = self.random.below(most);
            let (key, token) = (held.key, held.token.get());
            self.at(self.now + late, Happening::Register(key, token));
        }
    }

    pub(crate) fn client_timer(&mut self, client: usize) {
        if self.people[client].frozen_since.is_some() {
            return;
        }
        let now = self.client_now(client);
        if let Some(user) = &mut self.people[client].user {
            user.session.handle_due(now);
            self.settle_client(client);
        }
    }

    /// Does what the session wants.
    pub(crate) fn settle_client(&mut self, client: usize) {
        while let Some(effect) = self.people[client]
            .user
            .as_mut()
            .and_then(|user| user.session.poll_effect())
        {
            match effect {
                Effect::Connect {
                    connection,
                    address,
                } => self.client_dials(client, connection, &address),
                Effect::Write(connection) => self.client_writes(client, connection),
                Effect::Close { connection, reset } => {
                    self.client_closes(client, connection, reset);
                }
                Effect::Complete { call, result } => self.complete(client, call, result),
                Effect::Lost { lock, reason } => {
                    self.coverage.count("lost lock told");
                    self.say(|| format!("client {client} is told of a loss: {reason}"));
                    let now = self.client_now(client);
                    if let Some(user) = &mut self.people[client].user {
                        user.locks.retain(|held| held.lock != lock);
                        user.session.drop_lock(lock, now);
                    }
                }
                Effect::Finished => {}
            }
        }
        self.set_client_timer(client);
    }

    fn set_client_timer(&mut self, client: usize) {
        let person = &self.people[client];
        let deadline = person
            .user
            .as_ref()
            .and_then(|user| user.session.next_deadline());
        if let Some(deadline) = deadline.filter(|_| person.frozen_since.is_none()) {
            let at = person.clock.when(deadline).max(self.now);
            if at < person.timer_at {
                self.people[client].timer_at = at;
                self.at(at, Happening::ClientTimer(client));
            }
        }
    }

    fn client_dials(&mut self, client: usize, id: ConnectionId, address: &str) {
        let target = self.hosts.iter().position(|host| host.address == address);
        // An address that nobody has leads nowhere; the session gives up in its own time.
        let Some(target) = target else { return };
        let machines = [Machine::Client(client), Machine::Node(target)];
        let start = self.people[client].start;
        let connection = self.network.add(machines, start, None);
        if let Some(user) = &mut self.people[client].user {
            user.connections.insert(connection, id);
            user.numbers.insert(id, connection);
        }
        self.put(connection, 0, Item::Dial);
    }

    fn client_writes(&mut self, client: usize, id: ConnectionId) {
        let Some(user) = &mut self.people[client].user else {
            return;
        };
        let mut bytes = Vec::new();
        user.session.take_outgoing(id, &mut bytes);
        let Some(connection) = user.numbers.get(&id).copied().filter(|_| !bytes.is_empty()) else {
            return;
        };
        user.replies
            .entry(connection)
            .or_insert_with(Replies::default)
            .sent(&bytes);
        self.put_bytes(connection, 0, bytes);
    }

    fn client_closes(&mut self, client: usize, id: ConnectionId, reset: bool) {
        let Some(user) = &mut self.people[client].user else {
            return;
        };
        let Some(connection) = user.numbers.remove(&id) else {
            return;
        };
        user.connections.remove(&connection);
        user.replies.remove(&connection);
        let wire = &mut self.network.connections[connection];
        if !std::mem::take(&mut wire.open[0]) {
            return;
        }
        if reset && self.random.once_in(2) {
            // What has not left the machine never leaves it.
            wire.pipes[0].items.clear();
            wire.pipes[0].bytes = 0;
        }
        let item = if reset { Item::Reset } else { Item::End };
        self.put(connection, 0, item);
    }

    pub(crate) fn connected(&mut self, client: usize, connection: usize) {
        let now = self.client_now(client);
        let Some(user) = &mut self.people[client].user else {
            return;
        };
        if let Some(id) = user.connections.get(&connection) {
            user.session.handle_connected(*id, now);
            self.settle_client(client);
        }
    }

    pub(crate) fn connect_failed(&mut self, client: usize, connection: usize) {
        let now = self.client_now(client);
        let Some(user) = &mut self.people[client].user else {
            return;
        };
        if let Some(id) = user.connections.get(&connection).copied() {
            user.session.handle_connect_failed(id, "refused", now);
            self.settle_client(client);
        }
    }

    pub(crate) fn hang_up(&mut self, client: usize, connection: usize) {
        let now = self.client_now(client);
        let Some(user) = &mut self.people[client].user else {
            return;
        };
        if let Some(id) = user.connections.get(&connection).copied() {
            user.session.handle_closed(id, "reset", now);
            self.settle_client(client);
        }
    }

    pub(crate) fn hear_node(&mut self, client: usize, connection: usize, bytes: &[u8]) {
        let now = self.client_now(client);
        if self.trace.is_some() {
            let text = String::from_utf8_lossy(bytes)
                .trim_end()
                .replace('\n', " | ");
            self.say(|| format!("client {client} <- {connection}: {text}"));
        }
        let Some(user) = &mut self.people[client].user else {
            return;
        };
        let Some(id) = user.connections.get(&connection).copied() else {
            return;
        };
        let came = user.replies.entry(connection).or_default().came(bytes);
        user.session.handle_bytes(id, bytes, now);
        self.checker.take(self.now, Rule::OneReply, came);
        self.settle_client(client);
    }

    fn complete(&mut self, client: usize, number: u64, result: Result<Outcome, Error>) {
        let now = self.client_now(client);
        let world = self.now;
        let Some(user) = &mut self.people[client].user else {
            return;
        };
        let Some(call) = user.calls.remove(&number) else {
            return;
        };
        match call.what {
            What::Acquire {
                key,
                until,
                cancelled,
            } => {
                let late = until.is_some_and(|until| now > until + BEYOND_WAIT);
                let stood = self.people[client].frozen_until + 2 * SECOND > world;
                if late && !stood {
                    self.checker.fail(Rule::WaitsEnd, world, || {
                        format!("client {client} waits for key {key} beyond its time: {result:?}")
                    });
                }
                match result {
                    Ok(Outcome::Locked { lock, token, .. }) => {
                        self.hold(client, lock, key, token);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        let over = until.is_some_and(|until| now >= until);
                        self.check_error(client, &error, cancelled || over);
                    }
                }
            }
            What::Release { lock } => {
                user.session.drop_lock(lock, now);
                if let Err(error) = result {
                    self.check_error(client, &error, false);
                }
            }
            What::Other => {}
        }
    }

    /// Where nothing but orderly stops happens, no call fails, unless it is `over` anyway.
    fn check_error(&mut self, client: usize, error: &Error, over: bool) {
        let expected = over || matches!(error.kind(), ErrorKind::WaitTimeout);
        // A cluster that has just been started takes a while to know who is active.
        let started = self.now > 6 * SECOND;
        if self.plan.profile == Profile::Stops && !expected && started {
            let at = self.now;
            self.checker
                .fail(Rule::NoErrors, at, || format!("client {client}: {error}"));
        }
    }

    fn hold(
        &mut self,
        client: usize,
        lock: fairlock::simulation::LockId,
        number: u8,
        token: Token,
    ) {
        self.watch_serving();
        let granted = self.checker.tokens.grants.get(&token.get());
        let granted = granted.map_or(self.now, |grant| grant.at);
        let new = Hold {
            client,
            token: token.get(),
            granted,
        };
        let others: Vec<Hold> = self
            .believed()
            .into_iter()
            .filter(|(holder, key, held)| {
                let other = (*holder, *held) != (client, token) && *key == number;
                // When two that were active meet, the higher token of one request stays.
                other && !self.checker.tokens.is_superseded(*held)
            })
            .map(|(client, _, token)| Hold {
                client,
                token: token.get(),
                granted: self
                    .checker
                    .tokens
                    .grants
                    .get(&token.get())
                    .map_or(0, |grant| grant.at),
            })
            .collect();
        let one = self.checker.holders.check(new, &others);
        self.checker.take(self.now, Rule::OneHolder, one);
        self.say(|| format!("client {client} holds key {number} with {:x}", token.get()));
        let slow = self.random.once_in(6);
        let most = if slow { 15 * SECOND } else { SECOND };
        let until = self.now + self.random.below(most);
        let until = match self.phase {
            Phase::Faults | Phase::Settling => until,
            Phase::Draining => self.now,
        };
        let draining = self.phase == Phase::Draining;
        let now = self.client_now(client);
        if let Some(user) = &mut self.people[client].user {
            user.locks.push(Held {
                lock,
                key: number,
                token,
                until,
            });
            debug_assert_eq!(key_number(key(number).spelling()), number);
            if draining {
                user.go_home(&mut self.random, now);
            }
        }
    }

    /// What every client that moves believes to hold: client, key, token.
    pub(crate) fn believed(&self) -> Vec<(usize, u8, Token)> {
        let mut believed = Vec::new();
        for (client, person) in self.people.iter().enumerate() {
            if person.frozen_since.is_some() {
                continue;
            }
            let now = person.clock.read(self.now);
            let Some(user) = &person.user else { continue };
            for held in &user.locks {
                if user.session.would_say_held(held.lock, now) {
                    believed.push((client, held.key, held.token));
                }
            }
        }
        believed
    }
}
