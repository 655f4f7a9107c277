//! What nodes do in the world: start, take in, carry out, end.

use crate::desk::Work;
use crate::network::{Item, Machine};
use crate::node::{Link, Process};
use crate::plan::{Harm, MS};
use crate::world::{Happening, World};
use fairlock::cluster::{
    Beginning, Copy, Event, Member, MemberSettings, Members, Now, Output, Parking, Stance,
};
use fairlock::engine::{Engine, EngineSettings, Time};
use fairlock::protocol::Millis;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    pub(crate) fn node_now(&self, node: usize) -> Now {
        let clock = &self.hosts[node].clock;
        Now {
            time: Time(clock.read(self.now)),
            wall: clock.wall(self.now),
        }
    }

    /// A machine with power and without a process gets one.
    pub(crate) fn start_node(&mut self, node: usize) {
        if self.hosts[node].process.is_some() {
            return;
        }
        let now = self.node_now(node);
        let incarnation = self.random.next() | 1;
        let seed = self.random.next();
        let host = &mut self.hosts[node];
        host.powered = true;
        host.frozen_since = None;
        host.starts += 1;
        host.knew.clear();
        host.steady_since = self.now;
        let list = host.list.iter().map(String::as_str);
        let members = Members::new(list, &host.address).expect("a list with this node");
        let settings = EngineSettings {
            // So that what is left for later steps is left there.
            parted_at_once: 1,
            mutation: self.plan.mutation,
            ..EngineSettings::default()
        };
        let mut engine = Engine::new(settings, seed);
        let settings = MemberSettings {
            timing: self.plan.timing,
            confirm_at_once: self.plan.confirm_at_once,
            mutation: self.plan.mutation,
            ..MemberSettings::default()
        };
        let beginning = Beginning {
            incarnation,
            disk_term: host.term(),
            copy: Copy::default(),
        };
        let first_term = host.term().max(now.wall);
        let member = Member::new(now, members, settings, beginning, &mut engine);
        let links = vec![Link::default(); fairlock::cluster::MAX_NODES];
        host.process = Some(Box::new(Process {
            start: host.starts,
            member,
            engine,
            parking: Parking::new(Millis(5000), 1000),
            stance: Stance::Park,
            visitors: BTreeMap::new(),
            names: BTreeMap::new(),
            links,
            dirty: BTreeSet::new(),
            told_active: None,
            seen_from: 0,
            seen_later: None,
            first_term,
            kept_term: host.kept_term,
            term: None,
            serving_since: None,
            granted: 0,
            told: 0,
            client_term: 0,
            was_active: false,
            copied: None,
        }));
        self.say(|| format!("node {node} starts"));
        self.after(node);
    }

    /// The connections of a node's process, with the side on which it is.
    fn sockets(&self, node: usize) -> Vec<(usize, usize)> {
        let start = self.hosts[node].starts;
        let machine = Machine::Node(node);
        (0..self.network.connections.len())
            .filter_map(|connection| {
                let side = self.network.side_of(connection, machine, start)?;
                Some((connection, side))
            })
            .collect()
    }

    /// A node's process is gone. `silent`: and its machine with it, so that nobody is told.
    pub(crate) fn end_node(&mut self, node: usize, silent: bool) {
        self.note_loss(node);
        let sockets = self.sockets(node);
        let host = &mut self.hosts[node];
        host.process = None;
        host.frozen_since = None;
        host.powered = !silent;
        self.checker.tokens.close(self.now, node);
        self.checker.order.left(node);
        for (connection, side) in sockets {
            self.network.connections[connection].open[side] = false;
            if silent {
                self.network.connections[connection].pipes[side]
                    .items
                    .clear();
            } else {
                self.put(connection, side, Item::Reset);
            }
        }
        self.watch_serving();
    }

    /// Gives a node something to do and carries out what comes of it.
    pub(crate) fn step(&mut self, node: usize, what: impl FnOnce(&mut Process, &mut Work<'_>)) {
        self.expire(node);
        self.work(node, what);
        self.after(node);
    }

    pub(crate) fn work<T>(
        &mut self,
        node: usize,
        what: impl FnOnce(&mut Process, &mut Work<'_>) -> T,
    ) -> Option<T> {
        let now = self.node_now(node);
        let process = self.hosts[node].process.as_mut()?;
        let mut work = Work {
            world: self.now,
            now,
            node,
            harm: self.plan.harm,
            checker: &mut self.checker,
            coverage: &mut self.coverage,
        };
        Some(what(process, &mut work))
    }

    pub(crate) fn event(&mut self, node: usize, event: Event) {
        self.step(node, |process, work| {
            process.member.handle(work.now, event, &mut process.engine);
        });
    }

    /// Carries out what a node wants, until it wants no more.
    pub(crate) fn after(&mut self, node: usize) {
        loop {
            let before = self.work(node, |process, work| {
                process.member.replicate(work.now, &mut process.engine);
            });
            if before.is_none() {
                return;
            }
            self.track_term(node);
            let output = self.work(node, |process, work| {
                process.deliver(work);
                process.member.poll_output()
            });
            match output.flatten() {
                Some(output) => self.carry_out(node, output),
                None => break,
            }
        }
        self.track_term(node);
        self.note_known_term(node);
        self.check_grants(node);
        self.send_frames(node);
        self.flush(node);
        self.watch_serving();
        self.set_timer(node);
    }

    fn set_timer(&mut self, node: usize) {
        let host = &self.hosts[node];
        let deadline = host
            .process
            .as_ref()
            .and_then(|process| process.next_deadline());
        if let Some(deadline) = deadline.filter(|_| !host.is_frozen()) {
            let at = host.clock.when(deadline).max(self.now);
            if at < host.timer_at {
                self.hosts[node].timer_at = at;
                self.at(at, Happening::NodeTimer(node));
            }
        }
    }

    pub(crate) fn node_timer(&mut self, node: usize) {
        if self.hosts[node].is_frozen() {
            return;
        }
        self.step(node, |process, work| {
            let now = work.now;
            process.end_parked(work);
            process.heed_seen(work);
            let due = process.member.next_deadline();
            if due.is_some_and(|due| due <= now.time) {
                process.member.handle(now, Event::Tick, &mut process.engine);
            }
        });
    }

    fn carry_out(&mut self, node: usize, output: Output) {
        let start = self.hosts[node].starts;
        match output {
            Output::WriteTerm { term } => {
                let slow = self.random.once_in(30);
                let most = if slow { 600 * MS } else { 5 * MS };
                let at = self.now + self.random.between(50, most);
                let room = !self.hosts[node].disk_full;
                self.at(at, Happening::Written(node, start, term, room));
            }
            Output::Connect { to } => self.dial(node, to),
            Output::Stance(stance) => {
                self.say(|| format!("node {node} is to {stance:?}"));
                let reading = self.node_now(node).time.0;
                self.work(node, |process, work| {
                    process.was_active = matches!(process.stance, Stance::Serve | Stance::Freeze);
                    process.stance = stance;
                    process.parking.set_handing_over(stance == Stance::Freeze);
                    if stance == Stance::Serve {
                        process.serving_since.get_or_insert(reading);
                    } else {
                        process.serving_since = None;
                    }
                    if !matches!(stance, Stance::Serve | Stance::Freeze) {
                        work.checker.order.left(node);
                    }
                    process.tell_active(work);
                    if stance == Stance::Leave(None) && process.was_active {
                        process.refuse_all(work);
                    }
                    process.unpark(work);
                });
                if let Stance::Leave(successor) = stance {
                    if successor.is_none() {
                        self.coverage.count("stop without a successor");
                        self.checker.holders.lose_all(self.now);
                    }
                    self.check_drained(node);
                }
            }
            Output::Exit => {
                self.say(|| format!("node {node} exits"));
                self.flush(node);
                let stopped = self.hosts[node].process.as_ref();
                let handed = stopped.is_some_and(|process| process.stance != Stance::Leave(None));
                if handed {
                    self.checker.tokens.close(self.now, node);
                }
                self.end_node(node, false);
            }
            Output::Note(note) => {
                self.count_note(node, &note);
                self.say(|| format!("node {node}: {note}"));
            }
        }
    }

    pub(crate) fn term_written(&mut self, node: usize, start: u32, term: u32, room: bool) {
        let host = &mut self.hosts[node];
        if host.starts != start || host.process.is_none() {
            return;
        }
        let written = room || self.plan.harm == Harm::TermNotWritten;
        if written {
            host.kept_term = host.kept_term.max(term);
        }
        if room && self.plan.harm != Harm::TermNotWritten && term > host.term() {
            host.terms.push(term);
        }
        if host.is_frozen() {
            // The process hears of it when it goes on.
            return self.at(
                self.now + 10 * MS,
                Happening::Written(node, start, term, room),
            );
        }
        self.event(
            node,
            if written {
                Event::TermWritten { term }
            } else {
                Event::TermFailed { term }
            },
        );
    }
}
