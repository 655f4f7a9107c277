//! What each step does to the world: what comes to a node, and what the faults do.

use super::step::Step;
use super::world::{ASK_AGAIN, NODES, Packet, TIMING, Way, World, leads};
use crate::cluster::*;
use crate::engine::Time;

impl World {
    /// Carries out a step that is possible.
    pub(super) fn take(&mut self, step: Step) {
        self.news.clear();
        match step {
            Step::Deliver(from, to) => self.deliver(from.into(), to.into()),
            Step::Disk(index) => self.write(index.into()),
            Step::Tick(index) => self.tick(index.into()),
            Step::Advance => self.advance(),
            Step::Drained(index) => self.give(index.into(), Event::Drained),
            Step::Change(index) => self.change(index.into()),
            Step::Start(index) => self.start(index.into()),
            Step::StartBlank(index) => {
                self.disks[usize::from(index)] = 0;
                self.start(index.into());
            }
            Step::Crash(index) => self.crash(index.into()),
            Step::Stop(index) => self.give(index.into(), Event::Stop),
            Step::Freeze(index) => {
                let now = self.now;
                if let Some(node) = self.node_mut(index.into()) {
                    node.asleep_since = Some(now);
                }
            }
            Step::Wake(index) => self.wake(index.into()),
            Step::Cut(from, to) => self.cut(from.into(), to.into()),
            Step::Isolate(index) => {
                for other in (0..NODES).filter(|other| *other != usize::from(index)) {
                    self.cut(index.into(), other);
                    self.cut(other, index.into());
                }
            }
            Step::CutBoth(a, b) => {
                self.cut(a.into(), b.into());
                self.cut(b.into(), a.into());
            }
            Step::Heal => self.heal(),
            Step::Stall(from, to) => self.ways[usize::from(from)][usize::from(to)].stalled = true,
            Step::Break(a, b) => self.break_link(a.into(), b.into()),
            Step::Lose(from, to) => {
                self.ways[usize::from(from)][usize::from(to)]
                    .packets
                    .remove(0);
            }
            Step::Repeat(from, to) => {
                let way = &mut self.ways[usize::from(from)][usize::from(to)];
                way.packets.insert(0, way.packets[0]);
            }
            Step::RepeatLate(from, to) => {
                let (from, to) = (usize::from(from), usize::from(to));
                let (_, packet) = self.ways[from][to].packets[0];
                self.put(from, to, packet);
            }
            Step::BreakDisk(index) => self.disk_broken[usize::from(index)] = true,
            Step::MendDisk(index) => self.disk_broken[usize::from(index)] = false,
        }
        if step.can_divide() {
            self.excused = true;
            self.calm_since = None;
        }
        self.used.count(step);
    }

    pub(super) fn deliver(&mut self, from: usize, to: usize) {
        let (_, packet) = self.ways[from][to].packets.remove(0);
        let peer = Slot(from as u8);
        match packet {
            Packet::Roles(message) => self.hear(to, from, message),
            Packet::Join => self.join(to, from),
            Packet::Begin(stream, sequence) => {
                let Some(node) = self.node_mut(to).filter(|node| node.follows == Some(peer)) else {
                    return;
                };
                node.copy = Copy {
                    stream,
                    sequence,
                    oldest: sequence + 1,
                    complete: false,
                };
                node.has_all = false;
                node.asked = None;
                self.copied(to);
            }
            Packet::Whole => {
                if let Some(node) = self.node_mut(to)
                    && node.follows == Some(peer)
                    && node.asked.is_none()
                {
                    node.copy.complete = true;
                    node.has_all = true;
                    self.copied(to);
                }
            }
            Packet::Change(stream, sequence) => self.changed(to, peer, stream, sequence),
            Packet::Lost | Packet::Refused => {
                self.ways[to][from].open = None;
                if let Some(node) = self.node_mut(to) {
                    node.feeds &= !(1 << from);
                }
                self.give(
                    to,
                    if packet == Packet::Lost {
                        Event::Lost { peer }
                    } else {
                        Event::Refused { peer }
                    },
                );
            }
            Packet::Connected(incarnation) => {
                self.ways[to][from].open = Some(incarnation);
                if self.node(to).is_some_and(|node| node.follows == Some(peer)) {
                    self.ask(to, from);
                }
                self.give(to, Event::Connected { peer });
            }
        }
    }

    pub(super) fn hear(&mut self, to: usize, from: usize, message: Message) {
        if let (Message::Beat(beat), Some(node)) = (message, self.node_mut(to)) {
            node.told_term = node.told_term.max(beat.term).max(beat.copy.stream.term);
        }
        let message = self.breakage.heard(message);
        let from = Slot(from as u8);
        self.give(to, Event::Heard { from, message });
    }

    /// Somebody asks for the whole state.
    pub(super) fn join(&mut self, of: usize, from: usize) {
        let Some(node) = self.node_mut(of).filter(|node| leads(node)) else {
            return;
        };
        node.feeds |= 1 << from;
        let Copy {
            stream, sequence, ..
        } = node.copy;
        self.send(of, from, Packet::Begin(stream, sequence));
        self.send(of, from, Packet::Whole);
    }

    pub(super) fn changed(&mut self, to: usize, peer: Slot, stream: Stream, sequence: u64) {
        let Some(node) = self.node_mut(to).filter(|node| !leads(node)) else {
            return;
        };
        if stream != node.copy.stream || node.asked.is_some() || sequence <= node.copy.sequence {
            return;
        }
        if sequence == node.copy.sequence + 1 {
            node.copy.sequence = sequence;
            self.copied(to);
            return;
        }
        node.copy.complete = false;
        node.has_all = false;
        let follows = node.follows == Some(peer);
        self.copied(to);
        if follows {
            self.ask(to, peer.index());
        }
    }

    pub(super) fn copied(&mut self, index: usize) {
        let breakage = self.breakage;
        let Some(node) = self.node_mut(index) else {
            return;
        };
        let term = node.copy.stream.term;
        node.told_term = node.told_term.max(term);
        let copy = breakage.copied(node.copy);
        if !breakage.forgets_terms() {
            self.give(index, Event::TermSeen { term });
        }
        self.give(index, Event::Copied(copy));
    }

    pub(super) fn ask(&mut self, index: usize, active: usize) {
        let now = self.now;
        if let Some(node) = self.node_mut(index) {
            node.asked = Some(now);
        }
        self.send(index, active, Packet::Join);
    }

    pub(super) fn write_later(&mut self, index: usize, term: u32) {
        self.begun += 1;
        let number = self.begun;
        if let Some(node) = self.node_mut(index) {
            node.writes.push((number, term));
        }
    }

    pub(super) fn write(&mut self, index: usize) {
        let broken = self.disk_broken[index];
        let Some(node) = self.node_mut(index) else {
            return;
        };
        let (_, term) = node.writes.remove(0);
        if broken {
            self.give(index, Event::TermFailed { term });
            return;
        }
        self.disks[index] = self.disks[index].max(term);
        self.give(index, Event::TermWritten { term });
    }

    pub(super) fn tick(&mut self, index: usize) {
        let now = self.now;
        self.give(index, Event::Tick);
        let again = self.node(index).and_then(|node| {
            let overdue = Time(node.asked?).after(ASK_AGAIN).0 <= now;
            node.follows.filter(|_| overdue)
        });
        if let Some(active) = again {
            self.ask(index, active.index());
        }
    }

    pub(super) fn advance(&mut self) {
        self.overtaken = 0;
        if self.is_calm() {
            let since = *self.calm_since.get_or_insert(self.now);
            self.excused &= self.now <= since + TIMING.failure_timeout.0 * 1000;
        } else {
            self.calm_since = None;
        }
        if let Some(moment) = self.next_moment() {
            self.now = moment;
        }
    }

    /// Nothing is in the way of anything, and all that live agree on who is active.
    pub(super) fn is_calm(&self) -> bool {
        let leaders = self.up().filter(|(_, node)| leads(node)).count();
        let clear = |way: &Way| !way.cut && !way.stalled && way.packets.is_empty();
        leaders <= 1
            && self.ways.iter().flatten().all(clear)
            && self.up().all(|(_, node)| {
                node.awake()
                    && match node.roles.stance() {
                        Stance::Serve | Stance::Leave(_) => true,
                        Stance::Redirect(active) => self.node(active.index()).is_some_and(leads),
                        Stance::Park | Stance::Freeze => false,
                    }
            })
    }

    /// The active node makes a change and tells those that copy it.
    pub(super) fn change(&mut self, index: usize) {
        let Some(node) = self.node_mut(index) else {
            return;
        };
        node.copy.sequence += 1;
        let copy = node.copy;
        let feeds = node.feeds;
        for other in (0..NODES).filter(|other| feeds & (1 << other) != 0) {
            self.send(index, other, Packet::Change(copy.stream, copy.sequence));
        }
        self.give(index, Event::Copied(copy));
    }

    pub(super) fn wake(&mut self, index: usize) {
        let now = self.now;
        let Some(node) = self.node_mut(index) else {
            return;
        };
        let slept = node.asleep_since.take().map_or(0, |since| now - since);
        if slept > TIMING.failure_timeout.0 * 1000 / 2 && !self.breakage.sleeps_unnoticed() {
            self.give(index, Event::Woke);
        }
    }

    pub(super) fn cut(&mut self, from: usize, to: usize) {
        let way = &mut self.ways[from][to];
        way.cut = true;
        way.torn |= !way.packets.is_empty();
        way.packets.clear();
    }

    pub(super) fn heal(&mut self) {
        for way in self.ways.iter_mut().flatten() {
            way.cut = false;
            way.stalled = false;
        }
        for a in 0..NODES {
            for b in a + 1..NODES {
                let torn = |from: usize, to: usize| self.ways[from][to].torn;
                if torn(a, b) || torn(b, a) {
                    self.ways[a][b].torn = false;
                    self.ways[b][a].torn = false;
                    self.break_link(a, b);
                }
            }
        }
    }

    /// What was under way is lost, and both sides hear of it.
    pub(super) fn break_link(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.ways[from][to].packets.clear();
            self.ways[from][to].open = None;
            if self.nodes[to].is_some() {
                self.put(from, to, Packet::Lost);
            }
        }
    }
}
