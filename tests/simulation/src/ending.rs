//! The end of a run: the faults stop, everything settles, the clients go home, and nothing is left.

use crate::checker::Rule;
use crate::network::Machine;
use crate::plan::{MS, Profile, SECOND};
use crate::world::{Happening, Phase, World};
use fairlock::cluster::{Event, Stance};
use fairlock::engine::Time;

/// A connection whose bytes are not taken by the other machine for so long is over.
const USER_TIMEOUT: u64 = 10 * SECOND;
/// A client that said who it is and then nothing for so long is gone.
const IDLE: u64 = 15 * SECOND;
/// Between two looks.
const LOOK_EVERY: u64 = 500 * MS;
/// How long the clients go on after everything has settled.
const GO_ON: u64 = 5 * SECOND;

impl World {
    /// Everything is made whole.
    pub(crate) fn stop_faults(&mut self) {
        self.enter(Phase::Settling);
        self.heal();
        for wire in &mut self.network.connections {
            for pipe in &mut wire.pipes {
                pipe.stalled_until = 0;
            }
        }
        for node in 0..self.hosts.len() {
            self.hosts[node].disk_full = false;
            self.thaw(Machine::Node(node));
        }
        for client in 0..self.people.len() {
            self.thaw(Machine::Client(client));
            if self.people[client].user.is_none() {
                self.start_client(client);
            }
        }
        // The operator corrects a list that contradicts the others.
        let own = |world: &World, node: usize| world.hosts[node].address.clone();
        for node in 0..self.hosts.len() {
            let address = own(self, node);
            let first = usize::from(node == 0);
            let stranger =
                first < self.hosts.len() && self.hosts[node].list[first] != own(self, first);
            if stranger {
                debug_assert_eq!(self.hosts[node].list[node], address);
                let list: Vec<String> = (0..self.hosts.len()).map(|node| own(self, node)).collect();
                self.hosts[node].list = list;
                if self.hosts[node].process.is_some() {
                    self.event(node, Event::Stop);
                }
            }
        }
        self.push_on();
    }

    fn enter(&mut self, phase: Phase) {
        self.say(|| format!("{phase:?}"));
        self.phase = phase;
        self.phase_since = self.now;
    }

    /// Looks at what the time does to sockets, and how far the run is.
    pub(crate) fn keep_house(&mut self) {
        self.end_stuck_connections();
        for node in 0..self.hosts.len() {
            if self.hosts[node].process.is_none() || self.hosts[node].is_frozen() {
                continue;
            }
            self.check_engine(node);
            self.end_idle_visitors(node);
            self.check_overdue(node);
        }
        let passed = self.now - self.phase_since;
        match self.phase {
            Phase::Faults => {}
            Phase::Settling => self.look_whether_settled(passed),
            Phase::Draining => self.look_whether_drained(passed),
        }
        self.at(self.now + LOOK_EVERY, Happening::Housekeeping);
    }

    fn end_stuck_connections(&mut self) {
        for connection in 0..self.network.connections.len() {
            for side in 0..2 {
                let wire = &self.network.connections[connection];
                let Machine::Node(node) = wire.machines[side] else {
                    continue;
                };
                let Some((at, sent, _)) = wire.pipes[side].items.front() else {
                    continue;
                };
                let held_up = *at < self.now && sent + USER_TIMEOUT < self.now;
                let reachable = match wire.machines[1 - side] {
                    Machine::Node(other) => self.hosts[other].powered,
                    Machine::Client(_) => true,
                } && !self.network.is_cut(connection, side);
                if !wire.open[side] || !held_up || reachable || self.hosts[node].is_frozen() {
                    continue;
                }
                let wire = &mut self.network.connections[connection];
                wire.pipes[side].items.clear();
                wire.pipes[side].bytes = 0;
                wire.pipes[1 - side].items.push_front((
                    self.now,
                    self.now,
                    crate::network::Item::Reset,
                ));
                self.take_silently(connection, 1 - side);
            }
        }
    }

    /// The own machine says that the connection is over.
    fn take_silently(&mut self, connection: usize, side: usize) {
        let machines = self.network.connections[connection].machines;
        let cuts = std::mem::take(&mut self.network.cuts);
        let one = self.network.connections[connection].pipes[side]
            .items
            .drain(1..)
            .collect::<Vec<_>>();
        self.arrive(connection, side);
        self.network.connections[connection].pipes[side]
            .items
            .extend(one);
        self.network.cuts = cuts;
        debug_assert_eq!(machines, self.network.connections[connection].machines);
    }

    fn end_idle_visitors(&mut self, node: usize) {
        let reading = self.node_now(node).time.0;
        let start = self.hosts[node].starts;
        let Some(process) = &self.hosts[node].process else {
            return;
        };
        let idle: Vec<usize> = process
            .visitors
            .iter()
            .filter(|(_, visitor)| visitor.client.is_some() && visitor.heard + IDLE < reading)
            .map(|(connection, _)| *connection)
            .collect();
        for connection in idle {
            self.coverage.count("silent connection closed");
            let machine = Machine::Node(node);
            if let Some(side) = self.network.side_of(connection, machine, start) {
                self.network.connections[connection].open[side] = false;
                self.put(connection, side, crate::network::Item::Reset);
            }
            self.part(node, connection);
        }
    }

    /// Bounded waits that should be over on a node that has served all the time.
    fn check_overdue(&mut self, node: usize) {
        let time = self.node_now(node).time.0;
        let Some(process) = &self.hosts[node].process else {
            return;
        };
        if process
            .serving_since
            .is_none_or(|since| since + SECOND > time)
            || self.hosts[node].steady_since + SECOND > self.now
        {
            return;
        }
        if let Some((key, tag)) = self.checker.order.overdue(time - 20 * MS, node) {
            self.checker.fail(Rule::WaitsEnd, self.now, || {
                format!("node {node} lets #{tag} wait for key {key} beyond its time")
            });
        }
    }

    /// What is still not as it has to be, if anything.
    fn unsettled(&self) -> Option<String> {
        let serving: Vec<usize> = (0..self.hosts.len())
            .filter(|node| self.hosts[*node].serves())
            .collect();
        let &[active] = &serving[..] else {
            return Some(format!("nodes {serving:?} serve"));
        };
        if self.plan.timing.preempt && active != 0 {
            return Some(format!("node {active} serves, and node 0 should"));
        }
        let stream = self.hosts[active].process.as_ref()?.member.copy().stream;
        for node in 0..self.hosts.len() {
            let Some(process) = &self.hosts[node].process else {
                return Some(format!("node {node} is not there"));
            };
            let copy = process.member.copy();
            let follows = process.stance == Stance::Redirect(fairlock::cluster::Slot(active as u8));
            if node != active && !(follows && copy.complete && copy.stream == stream) {
                let stance = process.stance;
                return Some(format!("node {node} is to {stance:?} and has {copy:?}"));
            }
        }
        None
    }

    fn look_whether_settled(&mut self, passed: u64) {
        for node in 0..self.hosts.len() {
            if self.hosts[node].process.is_none() {
                self.start_node(node);
                self.push_on();
            }
        }
        let limit = 60 * SECOND + 3 * self.plan.timing.preempt_delay_max.0 * MS;
        match self.unsettled() {
            Some(what) => {
                self.settled_at = None;
                if passed > limit {
                    self.checker.fail(Rule::OneActive, self.now, || what);
                }
            }
            None => {
                let since = *self.settled_at.get_or_insert(self.now);
                if since == self.now && self.plan.profile == Profile::Wild {
                    // From here on there is no excuse.
                    self.checker.holders.lose_all(self.now);
                    self.checker.holders.lenient = false;
                }
                if since + GO_ON <= self.now {
                    self.enter(Phase::Draining);
                    for client in 0..self.people.len() {
                        let now = self.client_now(client);
                        if let Some(user) = &mut self.people[client].user {
                            user.go_home(&mut self.random, now);
                        }
                        self.settle_client(client);
                    }
                }
            }
        }
    }

    /// What is left although everybody has gone home, if anything.
    fn left(&self) -> Option<String> {
        for (client, person) in self.people.iter().enumerate() {
            let Some(user) = &person.user else { continue };
            if user.session.leftovers() > 0 {
                let count = user.session.leftovers();
                return Some(format!("client {client} has {count} things to do"));
            }
            if let Some(what) = user
                .replies
                .values()
                .find_map(|replies| replies.unanswered())
            {
                return Some(format!("client {client}: {what}"));
            }
        }
        for (node, host) in self.hosts.iter().enumerate() {
            let Some(process) = &host.process else {
                return Some(format!("node {node} is not there"));
            };
            let stats = process.engine.stats();
            if stats.keys + stats.held + stats.waiting + stats.detached > 0
                || !process.parking.is_empty()
            {
                return Some(format!("node {node} has {stats:?}"));
            }
        }
        let waits = !self.checker.order.is_empty();
        waits.then(|| "somebody waits for nothing".to_owned())
    }

    fn look_whether_drained(&mut self, passed: u64) {
        if let Some(what) = self.unsettled() {
            return self.checker.fail(Rule::OneActive, self.now, || {
                format!("no longer settled: {what}")
            });
        }
        let longest = self.plan.leases.1 * MS;
        match self.left() {
            Some(what) => {
                if passed > longest + 20 * SECOND {
                    self.checker.fail(Rule::Drains, self.now, || what);
                }
            }
            None => {
                self.check_attempts();
                self.over = true;
            }
        }
    }

    /// What is remembered of requests that are over is forgotten in its time.
    fn check_attempts(&mut self) {
        let later = 601 * SECOND;
        for host in &mut self.hosts {
            let time = host.clock.read(self.now + later + later / 10);
            let Some(process) = host.process.as_mut() else {
                continue;
            };
            if process.stance != Stance::Serve {
                continue;
            }
            while process.engine.expire(Time(time), 10_000) {}
            let left = process.engine.stats().attempts_remembered;
            if left > 0 {
                self.checker.fail(Rule::Drains, self.now, || {
                    format!("{left} attempts are remembered for ever")
                });
            }
        }
    }
}
