//! What comes out of the network: at the machine's kernel, and at the process if it moves.

use crate::checker::Rule;
use crate::network::{Item, Machine};
use crate::world::World;
use fairlock::cluster::{Copy, Event, Slot, Unit, split_frame};
use fairlock::protocol::{Split, split};

impl World {
    /// Takes everything that has arrived over one direction of a connection.
    pub(crate) fn arrive(&mut self, connection: usize, side: usize) {
        loop {
            let wire = &self.network.connections[connection];
            let pipe = &wire.pipes[side];
            let Some((at, _, item)) = pipe.items.front() else {
                return;
            };
            let until = (*at).max(pipe.stalled_until);
            if until > self.now {
                if *at <= self.now {
                    self.at(until, crate::world::Happening::Arrive(connection, side));
                }
                return;
            }
            let receiver = wire.machines[1 - side];
            let kernel = matches!(item, Item::Dial);
            let stands_still = match receiver {
                Machine::Node(node) => {
                    let host = &self.hosts[node];
                    if !host.powered {
                        return;
                    }
                    host.is_frozen() && wire.starts[1 - side] == host.starts
                }
                Machine::Client(client) => {
                    let person = &self.people[client];
                    person.frozen_since.is_some() && wire.starts[1 - side] == person.start
                }
            };
            if self.network.is_cut(connection, side) || (stands_still && !kernel) {
                return;
            }
            let pipe = &mut self.network.connections[connection].pipes[side];
            let Some((.., item)) = pipe.items.pop_front() else {
                return;
            };
            if let Item::Bytes(bytes) = &item {
                pipe.bytes -= bytes.len();
            }
            self.take(connection, side, receiver, item);
        }
    }

    fn take(&mut self, connection: usize, side: usize, receiver: Machine, item: Item) {
        let own = 1 - side;
        if let Item::Dial = item {
            return self.take_dial(connection, receiver);
        }
        if !self.network.connections[connection].open[own] {
            // There is no such connection on that machine.
            let knocks = matches!(item, Item::Bytes(_) | Item::Accepted);
            if knocks && self.network.connections[connection].open[side] {
                self.put(connection, own, Item::Reset);
            }
            return;
        }
        match item {
            Item::Dial => {}
            Item::Accepted => match receiver {
                Machine::Node(node) => self.link_made(node, connection),
                Machine::Client(client) => self.connected(client, connection),
            },
            Item::Refused => {
                self.network.connections[connection].open[own] = false;
                match receiver {
                    Machine::Node(node) => self.link_refused(node, connection),
                    Machine::Client(client) => self.connect_failed(client, connection),
                }
            }
            Item::Rejected => {
                self.network.connections[connection].open[own] = false;
                if let Machine::Node(node) = receiver {
                    self.link_rejected(node, connection);
                }
            }
            Item::Bytes(bytes) => {
                self.note(1, connection as u64 * 2 + side as u64, &bytes);
                match receiver {
                    Machine::Node(node) => match self.network.connections[connection].peer {
                        Some(_) => self.hear_frames(node, connection, &bytes),
                        None => self.hear_lines(node, connection, &bytes),
                    },
                    Machine::Client(client) => self.hear_node(client, connection, &bytes),
                }
            }
            Item::End | Item::Reset => {
                let wire = &mut self.network.connections[connection];
                wire.open[own] = false;
                match (receiver, wire.peer) {
                    (Machine::Node(node), Some(_)) => self.link_lost(node, connection, own),
                    (Machine::Node(node), None) => {
                        // The side that ended may still read.
                        wire.open[side] = false;
                        self.part(node, connection);
                    }
                    (Machine::Client(client), _) => self.hang_up(client, connection),
                }
            }
        }
    }

    /// The kernel of a node's machine answers for a process that stands still.
    fn take_dial(&mut self, connection: usize, receiver: Machine) {
        let Machine::Node(node) = receiver else {
            return;
        };
        let host = &self.hosts[node];
        if host.process.is_none() {
            return self.put(connection, 1, Item::Refused);
        }
        let wire = &mut self.network.connections[connection];
        wire.starts[1] = host.starts;
        wire.open[1] = true;
        if host.is_frozen() {
            wire.unseen = true;
            if wire.peer.is_none() {
                self.put(connection, 1, Item::Accepted);
            }
        } else {
            self.accept(node, connection, true);
        }
    }

    /// A process sees a new connection. `answer`: the kernel has not done so yet.
    pub(crate) fn accept(&mut self, node: usize, connection: usize, answer: bool) {
        let wire = &mut self.network.connections[connection];
        wire.unseen = false;
        let is_peer = wire.peer.is_some();
        match wire.machines[0] {
            Machine::Client(client) => {
                if answer {
                    self.put(connection, 1, Item::Accepted);
                }
                self.welcome(node, connection, client);
            }
            Machine::Node(dialler) => {
                debug_assert!(is_peer);
                if self.accepts_peer(node, dialler) {
                    self.take_link(node, dialler, connection);
                    self.put(connection, 1, Item::Accepted);
                } else {
                    self.coverage.count("link refused by its list");
                    self.network.connections[connection].open[1] = false;
                    self.put(connection, 1, Item::Rejected);
                }
            }
        }
    }

    /// Whether the two lists agree.
    pub(crate) fn accepts_peer(&self, node: usize, dialler: usize) -> bool {
        let members = |node: usize| {
            let process = self.hosts[node].process.as_ref()?;
            Some(process.member.members())
        };
        match (members(node), members(dialler)) {
            (Some(own), Some(other)) => own.agrees_with(other),
            _ => false,
        }
    }

    /// A peer's link: the newest one counts, and the one before is over.
    fn take_link(&mut self, node: usize, dialler: usize, connection: usize) {
        let address = self.hosts[dialler].address.clone();
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        let Some(slot) = process.member.members().slot(&address) else {
            return;
        };
        let link = &mut process.links[slot.index()];
        link.input.clear();
        link.spoke = false;
        if let Some(old) = link.incoming.replace(connection) {
            self.network.connections[old].open[1] = false;
            self.put(old, 1, Item::Reset);
        }
    }

    fn slot_of_link(&self, connection: usize) -> Option<usize> {
        self.network.connections[connection].peer
    }

    fn link_made(&mut self, node: usize, connection: usize) {
        let Some(slot) = self.slot_of_link(connection) else {
            return;
        };
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        let link = &mut process.links[slot];
        let dials = std::mem::take(&mut link.dials);
        let old = link.out.replace(connection);
        for other in dials
            .into_iter()
            .chain(old)
            .filter(|other| *other != connection)
        {
            if std::mem::take(&mut self.network.connections[other].open[0]) {
                self.put(other, 0, Item::Reset);
            }
        }
        let peer = Slot(slot as u8);
        self.event(node, Event::Connected { peer });
    }

    fn link_rejected(&mut self, node: usize, connection: usize) {
        let Some(slot) = self.slot_of_link(connection) else {
            return;
        };
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        process.links[slot].dials.retain(|dial| *dial != connection);
        let peer = Slot(slot as u8);
        self.event(node, Event::Rejected { peer });
    }

    fn link_refused(&mut self, node: usize, connection: usize) {
        let Some(slot) = self.slot_of_link(connection) else {
            return;
        };
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        process.links[slot].dials.retain(|dial| *dial != connection);
        // Nobody listens there, so a link that was not seen to end has ended too.
        if let Some(out) = process.links[slot].out.take() {
            self.network.connections[out].open[0] = false;
        }
        let peer = Slot(slot as u8);
        self.event(node, Event::Refused { peer });
    }

    fn link_lost(&mut self, node: usize, connection: usize, own: usize) {
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        if own == 1 {
            let ended = process
                .links
                .iter()
                .position(|link| link.incoming == Some(connection));
            if let Some(slot) = ended {
                process.links[slot].incoming = None;
                process.links[slot].input.clear();
                let peer = Slot(slot as u8);
                self.event(node, Event::Doubted { peer });
            }
            return;
        }
        let Some(slot) = self.slot_of_link(connection) else {
            return;
        };
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        let link = &mut process.links[slot];
        let dials = link.dials.len();
        link.dials.retain(|dial| *dial != connection);
        let peer = Slot(slot as u8);
        if link.out == Some(connection) {
            link.out = None;
            self.event(node, Event::Lost { peer });
        } else if link.dials.len() < dials {
            self.event(node, Event::CutShort { peer });
        }
    }

    fn hear_frames(&mut self, node: usize, connection: usize, bytes: &[u8]) {
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        let Some(slot) = process
            .links
            .iter()
            .position(|link| link.incoming == Some(connection))
        else {
            return;
        };
        let mut input = std::mem::take(&mut process.links[slot].input);
        input.extend_from_slice(bytes);
        let from = Slot(slot as u8);
        let mut used = 0;
        let mut garbage = None;
        self.step(node, |process, work| {
            let before = process.member.copy();
            let mut spoke = process.links[slot].spoke;
            loop {
                match split_frame(&input[used..]) {
                    Ok(Unit::Partial) => break,
                    Ok(Unit::Whole { body, used: length }) => {
                        used += length;
                        let (member, engine) = (&mut process.member, &mut process.engine);
                        if !std::mem::replace(&mut spoke, true) {
                            let event = Event::Relinked { peer: from };
                            member.handle(work.now, event, engine);
                        }
                        if let Err(error) = member.handle_frame(work.now, from, body, engine) {
                            garbage = Some(error);
                            break;
                        }
                    }
                    Err(error) => {
                        garbage = Some(error);
                        break;
                    }
                }
            }
            process.links[slot].spoke = spoke;
            let after = process.member.copy();
            let own = process.member.members().own().0;
            if process.term.is_none() && after != Copy::default() && after.stream.slot != own {
                process.copied = Some(after.stream.slot);
            }
            if after.complete && !before.complete {
                work.coverage.count("whole state copied");
            }
            if before.complete && !after.complete && after.stream == before.stream {
                work.coverage.count("gap");
            }
        });
        if let Some(error) = garbage {
            let now = self.now;
            self.checker.fail(Rule::Invariants, now, || {
                format!("node {node} cannot read a frame of node {slot}: {error}")
            });
        }
        if let Some(process) = self.hosts[node].process.as_mut() {
            process.links[slot].input = input.split_off(used);
        }
    }

    fn hear_lines(&mut self, node: usize, connection: usize, bytes: &[u8]) {
        let reading = self.node_now(node).time.0;
        if self.trace.is_some() {
            let text = String::from_utf8_lossy(bytes)
                .trim_end()
                .replace('\n', " | ");
            self.say(|| format!("node {node} <- {connection}: {text}"));
        }
        self.step(node, |process, work| {
            let Some(visitor) = process.visitors.get_mut(&connection) else {
                return;
            };
            visitor.heard = reading;
            visitor.input.extend_from_slice(bytes);
            let input = std::mem::take(&mut visitor.input);
            let mut rest = &input[..];
            while let Split::Line { line, used } = split(rest) {
                rest = &rest[used..];
                process.handle_line(work, connection, line);
            }
            if let Some(visitor) = process.visitors.get_mut(&connection) {
                visitor.input = rest.to_vec();
            }
        });
    }
}
