//! What nodes do in the world: start, take in, carry out, end.

use crate::checker::Rule;
use crate::desk::Work;
use crate::network::{Item, Machine};
use crate::node::{Link, Process, Visitor};
use crate::plan::{Harm, MS, Profile};
use crate::world::{Happening, World};
use fairlock::cluster::{
    Beginning, Copy, Event, Member, MemberSettings, Members, Note, Now, Output, Parking, Slot,
    Stage, Stance, Unit, split_frame,
};
use fairlock::engine::{Engine, EngineSettings, Grant, Time};
use fairlock::protocol::Millis;
use std::collections::{BTreeMap, BTreeSet};

/// The kind of the frames that carry the whole state.
const DUMP: u8 = 12;

/// As much as a socket takes before its reader has read.
const SOCKET_BYTES: usize = 64 << 10;

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
            mutation: self.plan.mutation,
            ..EngineSettings::default()
        };
        let mut engine = Engine::new(settings, seed);
        let settings = MemberSettings {
            timing: self.plan.timing,
            tell_everything: self.plan.tell_everything,
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

    fn work<T>(
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

    /// Ends what is over by now on a node that serves. A client has to know before.
    fn expire(&mut self, node: usize) {
        let now = self.node_now(node);
        let Some(process) = &self.hosts[node].process else {
            return;
        };
        let serves = match process.stance {
            Stance::Serve => true,
            Stance::Leave(None) => process.was_active,
            Stance::Park | Stance::Freeze | Stance::Redirect(_) | Stance::Leave(Some(_)) => false,
        };
        let due = process.engine.next_deadline();
        if self.hosts[node].reads_first || !serves || due.is_none_or(|due| due > now.time) {
            return;
        }
        let believed: Vec<_> = self
            .believed()
            .into_iter()
            .filter(|(_, key, token)| {
                let key = crate::client::key(*key);
                process.engine.grant_of(key.as_ref(), *token).is_some()
            })
            .collect();
        let ended = process.engine.stats().expired;
        self.work(node, |process, work| {
            while process.engine.expire(now.time, 1000) {}
            let stats = process.engine.stats();
            for _ in ended..stats.expired {
                work.coverage.count("lease ended");
            }
            process.deliver(work);
        });
        let Some(process) = &self.hosts[node].process else {
            return;
        };
        for (client, key, token) in believed {
            let spelled = crate::client::key(key);
            let grants = &self.checker.tokens.grants;
            let granted = grants.get(&token.get()).map_or(0, |grant| grant.at);
            if self.checker.holders.is_split_since(granted) {
                // It may have been kept on the other side.
                continue;
            }
            if process.engine.grant_of(spelled.as_ref(), token).is_none() {
                self.checker.fail(Rule::ToldInTime, self.now, || {
                    format!("node {node} ends {token} of key {key}, and client {client} has not been told")
                });
            }
        }
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

    /// Every grant that the engine has counted must have been answered to somebody in the same step.
    fn check_grants(&mut self, node: usize) {
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        let granted = process.engine.stats().granted;
        let told = std::mem::take(&mut process.told);
        let new = granted - std::mem::replace(&mut process.granted, granted);
        if new != told {
            self.checker.fail(Rule::GrantedToSomebody, self.now, || {
                format!("node {node} has granted {new} locks and told {told} clients")
            });
        }
        self.steps += 1;
        if self.steps.is_multiple_of(64) {
            self.check_engine(node);
        }
    }

    pub(crate) fn check_engine(&self, node: usize) {
        if let Some(process) = &self.hosts[node].process {
            process.engine.check_invariants();
        }
    }

    fn note_known_term(&mut self, node: usize) {
        let host = &mut self.hosts[node];
        let known = host
            .process
            .as_ref()
            .map(|process| process.member.known_term());
        if let Some(known) = known
            && host.knew.last().is_none_or(|(_, last)| *last != known)
        {
            host.knew.push((self.now, known));
        }
    }

    /// Follows the terms that a node opens, and the end of its being active.
    fn track_term(&mut self, node: usize) {
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        let active = matches!(process.member.stage(), Stage::Active | Stage::HandingOver);
        let term = active.then(|| process.engine.stats().term);
        if process.term == term {
            return;
        }
        let before = std::mem::replace(&mut process.term, term);
        match term {
            Some(term) => {
                if before.is_some() {
                    self.coverage.count("term raised");
                } else {
                    let copied = process.copied.map(usize::from);
                    let exact = self.plan.profile != Profile::Wild;
                    self.checker.order.begin(node, copied, exact);
                }
                let blind = self.is_blind(node);
                let opened = self.checker.tokens.open(self.now, node, term, blind);
                if opened.is_err() || self.checker.tokens.highest_term() >= term {
                    self.coverage.count("every belt cut");
                }
                self.checker.take(self.now, Rule::TermsRise, opened);
                self.say(|| format!("node {node} opens term {term}"));
            }
            None => self.checker.tokens.close(self.now, node),
        }
    }

    /// Whether nobody could tell this node of the highest term: no living node within reach knows it, and
    /// no client has said it.
    fn is_blind(&self, node: usize) -> bool {
        let term = self.checker.tokens.highest_term();
        let Some(own) = &self.hosts[node].process else {
            return true;
        };
        if own.client_term >= term || own.kept_term >= term {
            return false;
        }
        let steady = self.now.saturating_sub(2_000_000);
        let reachable = (0..self.hosts.len()).any(|other| {
            let host = &self.hosts[other];
            // What it has just heard is still on its way.
            let told = self.now.saturating_sub(500 * MS);
            let knew = host.knew.iter().rev().find(|(since, _)| *since < told);
            let knows = host.process.is_some() && knew.is_some_and(|(_, knew)| *knew >= term);
            other != node
                && knows
                && !host.is_frozen()
                && self.accepts_peer(node, other)
                && host.steady_since < steady
                && self.hosts[node].woken_at < steady
                && self
                    .network
                    .is_steady(Machine::Node(node), Machine::Node(other), steady)
        });
        !reachable || self.plan.loose_frames
    }

    /// Where two nodes serve at once, and where that must not be.
    pub(crate) fn watch_serving(&mut self) {
        let serving = self.hosts.iter().filter(|host| host.serves()).count();
        let were = std::mem::replace(&mut self.serving, serving);
        if serving > 1 || were > 1 {
            if were <= 1 {
                self.coverage.count("two nodes active");
            }
            self.checker.holders.together(self.now);
            let strict = matches!(self.plan.profile, Profile::Stops | Profile::Single);
            if strict && serving > 1 {
                let nodes: Vec<usize> = (0..self.hosts.len())
                    .filter(|node| self.hosts[*node].serves())
                    .collect();
                self.checker.fail(Rule::OneServes, self.now, || {
                    format!("nodes {nodes:?} serve")
                });
            }
        }
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

    fn count_note(&mut self, node: usize, note: &Note) {
        match note {
            Note::Stage(Stage::Active, why) if why.starts_with("no other") => {
                // Whatever there was is gone.
                self.checker.holders.lose_all(self.now);
                self.coverage.count("election: start");
            }
            Note::Stage(Stage::Active, why) if why.starts_with("the active node is gone") => {
                self.coverage.count("election: takeover");
            }
            Note::Stage(Stage::Active, _) => self.coverage.count("election: handoff"),
            Note::Stage(Stage::Standby, why) if why.starts_with("another node is active too") => {
                let slept = self.now < self.hosts[node].woken_at + 3_000_000;
                self.coverage.count(if slept {
                    "yield after a sleep"
                } else {
                    "merge"
                });
            }
            Note::Stage(Stage::Standby, why) if why.starts_with("handed over") => {
                self.coverage.count("preempt");
            }
            Note::Incomplete => {
                let better = self.hosts.iter().any(|host| {
                    let process = host.process.as_ref().filter(|_| !host.is_frozen());
                    process.is_some_and(|process| process.member.copy().complete)
                });
                // Where nothing keeps the nodes from each other, this one has no business to serve then.
                if !better || self.plan.profile != Profile::Single {
                    self.checker.holders.lose_all(self.now);
                }
                self.coverage.count("incomplete copy served");
            }
            Note::CannotWrite(_) => self.coverage.count("term not written"),
            Note::HandoffFailed(_) => self.coverage.count("handoff failed"),
            Note::Stage(..) | Note::TermsUsedUp => {}
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

    fn dial(&mut self, node: usize, to: Slot) {
        let Some(process) = &self.hosts[node].process else {
            return;
        };
        let address = process.member.members().address(to).unwrap_or("-");
        let Some(target) = self.hosts.iter().position(|host| host.address == address) else {
            return;
        };
        let machines = [Machine::Node(node), Machine::Node(target)];
        let start = self.hosts[node].starts;
        let connection = self.network.add(machines, start, Some(to.index()));
        if let Some(process) = self.hosts[node].process.as_mut() {
            let link = &mut process.links[to.index()];
            link.dials.push(connection);
            // Whatever is still hoped for from long ago is given up.
            if link.dials.len() > 8 {
                let old = link.dials.remove(0);
                self.network.connections[old].open[0] = false;
            }
        }
        self.put(connection, 0, Item::Dial);
    }

    /// Takes the frames for each peer that its socket is ready for.
    fn send_frames(&mut self, node: usize) {
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        let mut sends = Vec::new();
        for (slot, link) in process.links.iter().enumerate() {
            let Some(connection) = link.out else { continue };
            let pipe = &self.network.connections[connection].pipes[0];
            let to = Slot(slot as u8);
            if pipe.bytes < SOCKET_BYTES && process.member.has_frames(to) {
                let mut bytes = Vec::new();
                process.member.take_frames(to, &mut bytes);
                sends.push((connection, bytes));
            }
        }
        for (connection, bytes) in sends {
            let mut bytes = if self.plan.loose_frames {
                self.loosen(bytes)
            } else {
                bytes
            };
            let breaks_off = self.breaks_off(connection, &mut bytes);
            self.put_bytes(connection, 0, bytes);
            if breaks_off {
                return self.kill(node);
            }
        }
    }

    /// Half of the whole state is sent, and then the sender dies.
    fn breaks_off(&mut self, connection: usize, bytes: &mut Vec<u8>) -> bool {
        let receiver = self.network.connections[connection].machines[1];
        let wanted = self.half_a_copy.map(Machine::Node) == Some(receiver);
        if !wanted {
            return false;
        }
        let mut place = 0;
        while let Ok(Unit::Whole { body, used }) = split_frame(&bytes[place..]) {
            if body.first() == Some(&DUMP) {
                bytes.truncate(place + used / 2);
                self.half_a_copy = None;
                self.coverage.count("killed while another copies");
                return true;
            }
            place += used;
        }
        false
    }

    /// Loses and doubles frames about roles, which have to bear it.
    fn loosen(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = &bytes[..];
        while let Ok(Unit::Whole { body, used }) = split_frame(rest) {
            let frame = &rest[..used];
            rest = &rest[used..];
            let about_roles = body.first().is_some_and(|kind| *kind < 10);
            if about_roles && self.random.once_in(20) {
                self.coverage.count("frame lost");
                continue;
            }
            if about_roles && self.random.once_in(20) {
                self.coverage.count("frame doubled");
                out.extend_from_slice(frame);
            }
            out.extend_from_slice(frame);
        }
        out
    }

    /// Sends what is in the outboxes of those who read.
    pub(crate) fn flush(&mut self, node: usize) {
        let now = self.now;
        let start = self.hosts[node].starts;
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        let mut sends = Vec::new();
        for connection in std::mem::take(&mut process.dirty) {
            let Some(visitor) = process.visitors.get_mut(&connection) else {
                continue;
            };
            if visitor.blocked_until > now {
                process.dirty.insert(connection);
                continue;
            }
            let parts = std::mem::take(&mut visitor.outbox).into_iter();
            let bytes: Vec<u8> = parts.flat_map(|(bytes, _)| bytes).collect();
            sends.push((connection, bytes));
        }
        for (connection, bytes) in sends {
            let side = self.network.side_of(connection, Machine::Node(node), start);
            if let Some(side) = side {
                self.put_bytes(connection, side, bytes);
            }
        }
    }

    pub(crate) fn unblock(&mut self, node: usize, start: u32) {
        if self.hosts[node].starts == start && !self.hosts[node].is_frozen() {
            self.flush(node);
        }
    }

    /// A client's connection is there.
    pub(crate) fn welcome(&mut self, node: usize, connection: usize, client: usize) {
        let reading = self.node_now(node).time.0;
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        let address = format!("c{client}.{connection}:1");
        let id = process.engine.connect(&address);
        process.names.insert(id.index, connection);
        let visitor = Visitor {
            id,
            client: None,
            greeted: false,
            heard: reading,
            input: Vec::new(),
            outbox: Vec::new(),
            blocked_until: 0,
        };
        process.visitors.insert(connection, visitor);
    }

    /// A client's connection is gone.
    pub(crate) fn part(&mut self, node: usize, connection: usize) {
        let never = self.plan.harm == Harm::NeverDisconnect;
        self.step(node, |process, work| {
            let Some(visitor) = process.visitors.remove(&connection) else {
                return;
            };
            process.names.remove(&visitor.id.index);
            let grants = visitor.outbox.iter();
            let unsent: Vec<Grant> = grants.filter_map(|(_, grant)| *grant).collect();
            process.parking.disconnect(visitor.id);
            work.checker.order.broken(work.node, connection);
            let before = process.engine.stats();
            if !never {
                process
                    .engine
                    .disconnect(work.now.time, visitor.id, &unsent);
            }
            if process.engine.stats().detached > before.detached {
                work.coverage.count("detached");
            }
            if !unsent.is_empty() {
                work.coverage.count("grant taken back");
            }
        });
        self.check_drained(node);
    }

    fn check_drained(&mut self, node: usize) {
        let drained = self.hosts[node].process.as_ref().is_some_and(|process| {
            matches!(process.stance, Stance::Leave(_)) && process.visitors.is_empty()
        });
        if drained {
            self.event(node, Event::Drained);
        }
    }
}
