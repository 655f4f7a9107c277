//! What goes wrong, by the profile of the run: one step at every call.

use crate::network::Machine;
use crate::plan::{MS, Profile, SECOND};
use crate::world::{Happening, Phase, World};
use fairlock::cluster::Event;

impl World {
    /// Something goes wrong now, and the next thing later.
    pub(crate) fn disturb(&mut self) {
        if self.phase != Phase::Faults {
            return;
        }
        if self.now > self.phase_since + self.plan.faults_for {
            return self.stop_faults();
        }
        match self.plan.profile {
            Profile::Stops => self.disturb_by_stops(),
            Profile::Single => self.disturb_by_one(),
            Profile::Cuts => self.disturb_by_cuts(),
            Profile::Wild => self.disturb_wildly(),
        }
        let (least, most) = self.plan.pause;
        let pause = self.random.between(least, most);
        self.at(self.now + pause, Happening::Fault);
    }

    pub(crate) fn running(&self) -> Vec<usize> {
        (0..self.hosts.len())
            .filter(|node| self.hosts[*node].process.is_some())
            .collect()
    }

    fn missing(&self) -> Vec<usize> {
        (0..self.hosts.len())
            .filter(|node| self.hosts[*node].process.is_none())
            .collect()
    }

    /// Whether the cluster could go on without this node and lose nothing but its latest grants.
    fn is_covered(&self, node: usize) -> bool {
        let now = self.node_now(node);
        let Some(process) = &self.hosts[node].process else {
            return true;
        };
        if process.term.is_none() {
            return true;
        }
        process.member.peers(now).any(|peer| {
            let address = process.member.members().address(peer.slot);
            let place = self
                .hosts
                .iter()
                .position(|host| Some(host.address.as_str()) == address);
            let there = place.is_some_and(|place| {
                let host = &self.hosts[place];
                let copies = host
                    .process
                    .as_ref()
                    .is_some_and(|process| process.member.copy().complete);
                copies && !host.is_frozen()
            });
            there && peer.complete && peer.lives
        })
    }

    /// An active node is gone or stands still: what may have been lost with it.
    pub(crate) fn note_loss(&mut self, node: usize) {
        let active = self.hosts[node]
            .process
            .as_ref()
            .is_some_and(|process| process.term.is_some());
        if !active {
            return;
        }
        if self.is_covered(node) {
            self.checker.holders.lose_latest(self.now);
        } else {
            self.checker.holders.lose_all(self.now);
        }
    }

    fn disturb_by_stops(&mut self) {
        if let Some(node) = self.missing().first().copied() {
            return self.restart(node);
        }
        let node = self.random.below(self.hosts.len() as u64) as usize;
        // Nobody stops the active node before there is one to take its place.
        if self.is_covered(node) && self.serving == 1 {
            self.stop(node);
        }
    }

    fn disturb_by_one(&mut self) {
        if let Some(node) = self.missing().first().copied() {
            let covered = (0..self.hosts.len()).all(|node| self.is_covered(node));
            let half = covered && self.serving == 1 && self.random.once_in(2);
            self.half_a_copy = half.then_some(node);
            return self.restart(node);
        }
        self.half_a_copy = None;
        if self.hosts.iter().any(|host| host.is_frozen()) {
            return;
        }
        let node = self.random.below(self.hosts.len() as u64) as usize;
        match self.random.below(9) {
            0..=2 => self.kill(node),
            3 => self.lose_machine(node),
            4 | 5 => {
                let time = self.random.between(100 * MS, 4 * SECOND);
                self.freeze(node, time);
            }
            6 => self.stop(node),
            7 => self.reset_one(),
            _ => self.trouble_client(),
        }
    }

    fn disturb_by_cuts(&mut self) {
        if !self.network.cuts.is_empty() {
            return self.heal();
        }
        self.cut_nodes();
    }

    fn disturb_wildly(&mut self) {
        let node = self.random.below(self.hosts.len() as u64) as usize;
        match self.random.below(30) {
            0 | 1 => self.kill(node),
            2 => self.lose_machine(node),
            3..=6 => {
                let missing = self.missing();
                if let Some(node) = self.random.pick(&missing) {
                    self.restart(*node);
                }
            }
            7..=9 => {
                let slow = self.random.once_in(3);
                let most = if slow { 12 * SECOND } else { 1500 * MS };
                let time = self.random.between(20 * MS, most);
                self.freeze(node, time);
            }
            10 | 11 => self.stop(node),
            12 | 13 => self.cut_nodes(),
            14 => self.cut_client(),
            15..=17 => self.heal(),
            18 | 19 => self.reset_one(),
            20 | 21 => self.stall_one(),
            22 => self.slow_one(),
            23 => self.fill_disk(node),
            24 => self.set_wall_clock(node),
            25 | 26 => self.trouble_client(),
            27 => self.block_reader(),
            _ => {}
        }
    }

    pub(crate) fn kill(&mut self, node: usize) {
        if self.hosts[node].process.is_some() {
            self.coverage.count("node killed");
            self.say(|| format!("node {node} is killed"));
            self.end_node(node, false);
        }
    }

    fn lose_machine(&mut self, node: usize) {
        if self.hosts[node].process.is_some() {
            self.coverage.count("machine lost");
            self.say(|| format!("the machine of node {node} is lost"));
            self.end_node(node, true);
        }
    }

    /// Starts a node that is not there, in wild runs perhaps with another disk.
    fn restart(&mut self, node: usize) {
        let wild = self.plan.profile == Profile::Wild;
        if wild {
            let half = self.random.once_in(5);
            self.half_a_copy = half.then_some(node);
        }
        let choice = if wild { self.random.below(6) } else { 5 };
        let host = &mut self.hosts[node];
        match choice {
            0 => {
                host.terms.clear();
                host.kept_term = 0;
                self.coverage.count("node started without its disk");
            }
            1 => {
                let keep = self.random.below(host.terms.len() as u64 + 1) as usize;
                host.terms.truncate(keep);
                host.kept_term = host.term();
                self.coverage.count("node started with an older disk");
            }
            _ => self.coverage.count("node started with its disk"),
        }
        self.start_node(node);
        self.push_on();
    }

    fn stop(&mut self, node: usize) {
        if self.hosts[node].process.is_some() && !self.hosts[node].is_frozen() {
            self.coverage.count("node stopped");
            self.say(|| format!("node {node} is told to stop"));
            self.event(node, Event::Stop);
        }
    }

    fn freeze(&mut self, node: usize, time: u64) {
        let host = &self.hosts[node];
        if host.process.is_none() || host.is_frozen() {
            return;
        }
        self.coverage.count("node frozen");
        self.say(|| format!("node {node} stands still for {} ms", time / MS));
        if time > 400 * MS {
            self.note_loss(node);
        }
        self.hosts[node].frozen_since = Some(self.now);
        self.watch_serving();
        self.at(self.now + time, Happening::Thaw(Machine::Node(node)));
    }

    pub(crate) fn thaw(&mut self, machine: Machine) {
        match machine {
            Machine::Node(node) => self.thaw_node(node),
            Machine::Client(client) => {
                let person = &mut self.people[client];
                if person.frozen_since.take().is_none() {
                    return;
                }
                person.frozen_until = self.now;
                person.timer_at = u64::MAX;
                self.client_timer(client);
                self.let_arrive(machine);
            }
        }
    }

    fn thaw_node(&mut self, node: usize) {
        let host = &mut self.hosts[node];
        let Some(since) = host.frozen_since.take() else {
            return;
        };
        host.steady_since = self.now;
        host.timer_at = u64::MAX;
        let reading = host.clock.read(self.now);
        if let Some(process) = host.process.as_mut()
            && process.serving_since.is_some()
        {
            process.serving_since = Some(reading);
        }
        let slept = host.clock.read(self.now) - host.clock.read(since);
        let long = slept > self.plan.timing.failure_timeout.0 * MS / 2;
        // What its sockets hold is read before its timers act.
        self.hosts[node].reads_first = true;
        if long {
            self.coverage.count("node woke up");
            self.hosts[node].woken_at = self.now;
            self.say(|| format!("node {node} wakes up"));
            self.event(node, Event::Woke);
        }
        let start = self.hosts[node].starts;
        for connection in 0..self.network.connections.len() {
            let wire = &self.network.connections[connection];
            let fresh = wire.unseen && wire.machines[1] == Machine::Node(node);
            if fresh && wire.starts[1] == start {
                let peer = wire.peer.is_some();
                self.accept(node, connection, peer);
            }
        }
        self.let_arrive(Machine::Node(node));
        self.hosts[node].reads_first = false;
        self.node_timer(node);
    }

    /// What waits for a machine's process arrives now.
    fn let_arrive(&mut self, machine: Machine) {
        for connection in 0..self.network.connections.len() {
            for side in 0..2 {
                let wire = &self.network.connections[connection];
                if wire.machines[1 - side] == machine && !wire.pipes[side].items.is_empty() {
                    self.arrive(connection, side);
                }
            }
        }
    }

    fn fill_disk(&mut self, node: usize) {
        self.coverage.count("disk full");
        let host = &mut self.hosts[node];
        host.disk_full = !host.disk_full;
    }

    fn set_wall_clock(&mut self, node: usize) {
        self.coverage.count("wall clock set");
        let error = self.random.below(200_000) as i64 - 100_000;
        let broken = self.random.once_in(4);
        let clock = &mut self.hosts[node].clock;
        // A clock beyond 2090 is no clock: the node takes it for 0.
        clock.wall = if broken {
            -10_000_000
        } else {
            1_000_000 + error
        };
    }

    fn trouble_client(&mut self) {
        let client = self.random.below(self.people.len() as u64) as usize;
        if self.people[client].user.is_none() {
            return self.start_client(client);
        }
        if self.random.once_in(2) {
            self.coverage.count("client killed");
            let silent = self.random.once_in(2);
            self.say(|| format!("client {client} is gone"));
            self.end_client(client, silent);
            self.start_client(client);
        } else if self.people[client].frozen_since.is_none() {
            self.coverage.count("client frozen");
            self.say(|| format!("client {client} stands still"));
            self.people[client].frozen_since = Some(self.now);
            let time = self.random.between(100 * MS, 12 * SECOND);
            self.at(self.now + time, Happening::Thaw(Machine::Client(client)));
        }
    }

    /// The lists of the nodes before they first start.
    pub(crate) fn change_lists(&mut self) {
        let count = self.hosts.len();
        if self.plan.lists_differ {
            self.coverage.count("lists differ");
            for node in 0..count {
                if self.random.once_in(2) {
                    self.hosts[node].list.push("x9:1".to_owned());
                }
            }
        }
        if self.plan.list_contradicts && count > 1 {
            self.coverage.count("lists differ");
            // Slots stay: two nodes of one place would be two clusters that repeat each other's tokens.
            let node = self.random.below(count as u64) as usize;
            for other in (0..count).filter(|other| *other != node) {
                self.hosts[node].list[other] = format!("x{other}:1");
            }
        }
    }
}
