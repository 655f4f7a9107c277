//! What a node is told, and what becomes of the effects that come out of it.

use super::world::{Opened, Packet, World};
use crate::cluster::*;

impl World {
    pub(super) fn give(&mut self, index: usize, event: Event) {
        let now = self.at();
        if let Some(node) = self.node_mut(index) {
            node.roles.handle(now, event);
            self.drain(index);
        }
        while let Some((to, from, beat)) = self.at_once.pop() {
            self.hear(to, from, Message::Beat(beat));
        }
    }

    pub(super) fn drain(&mut self, index: usize) {
        let breakage = self.breakage;
        while let Some(node) = self.node_mut(index)
            && let Some(effect) = node.roles.poll_effect()
        {
            match effect {
                Effect::Send { to, message } => {
                    self.send(index, to.index(), Packet::Roles(message));
                }
                Effect::Connect { to } => self.connect(index, to.index()),
                Effect::WriteTerm { term } if breakage.says_written_at_once() => {
                    self.write_later(index, term);
                    self.give(index, Event::TermWritten { term });
                }
                Effect::WriteTerm { term } => self.write_later(index, term),
                Effect::Supply { to, round, copy } => {
                    let (first, last) = (copy.sequence + 1, node.copy.sequence);
                    let stream = node.copy.stream;
                    for sequence in first.max(node.copy.oldest)..=last {
                        self.send(index, to.index(), Packet::Change(stream, sequence));
                    }
                    let done = Packet::Roles(Message::Fetched { round });
                    self.send(index, to.index(), done);
                }
                Effect::Lead { term, origin } => self.lead(index, term, origin),
                Effect::Raise { term } => {
                    let opened = Opened {
                        index,
                        term,
                        origin: None,
                        had_all: true,
                        told_term: node.told_term.min(term - 1),
                    };
                    self.news.push(opened);
                }
                Effect::Follow { active } => {
                    node.follows = Some(active);
                    node.feeds = 0;
                    self.ask(index, active.index());
                }
                Effect::Retire | Effect::Yield { .. } => {
                    node.copy = Copy::default();
                    node.has_all = false;
                    node.feeds = 0;
                }
                Effect::Freeze => {
                    let sequence = node.copy.sequence;
                    self.give(index, Event::Frozen { sequence });
                }
                Effect::Exit => self.crash(index),
                Effect::Stance(_) | Effect::Note(_) => {}
            }
        }
    }

    pub(super) fn lead(&mut self, index: usize, term: u32, origin: Origin) {
        let Some(node) = self.node_mut(index) else {
            return;
        };
        let opened = Opened {
            index,
            term,
            origin: Some(origin),
            had_all: node.has_all,
            told_term: node.told_term,
        };
        let stream = Stream {
            term,
            slot: index as u8,
        };
        node.copy = Copy {
            stream,
            sequence: 0,
            oldest: 0,
            complete: true,
        };
        node.has_all = true;
        node.follows = None;
        node.asked = None;
        node.feeds = 0;
        self.news.push(opened);
    }

    pub(super) fn connect(&mut self, from: usize, to: usize) {
        if self.ways[from][to].cut || self.ways[to][from].cut {
            return;
        }
        let answer = self
            .node(to)
            .map_or(Packet::Refused, |node| Packet::Connected(node.incarnation));
        self.put(to, from, answer);
    }

    /// Sends if there is a connection with the process that is there now.
    pub(super) fn send(&mut self, from: usize, to: usize, packet: Packet) {
        let way = &self.ways[from][to];
        if way.open.is_none() {
            return;
        }
        if way.cut {
            self.ways[from][to].torn = true;
            return;
        }
        let Some(receiver) = self
            .node(to)
            .filter(|node| way.open == Some(node.incarnation))
        else {
            // The other end says that it knows nothing of this connection.
            if !self.ways[to][from].cut {
                self.ways[from][to].open = None;
                self.put(to, from, Packet::Lost);
            }
            return;
        };
        if let Packet::Roles(Message::Beat(beat)) = packet {
            // One that waits unread and says the same stands for both.
            if way.packets.last().is_some_and(|(_, last)| *last == packet) {
                return;
            }
            let now = self.at();
            let is_known = || {
                let mut known = receiver.roles.peers(now);
                let heard = self.breakage.heard(Message::Beat(beat));
                known.any(|(slot, known, lives)| {
                    slot == Slot(from as u8) && lives && Message::Beat(known) == heard
                })
            };
            if way.packets.is_empty() && !way.stalled && receiver.awake() && is_known() {
                self.at_once.push((to, from, beat));
                return;
            }
        }
        self.put(from, to, packet);
    }

    pub(super) fn put(&mut self, from: usize, to: usize, packet: Packet) {
        self.begun += 1;
        self.ways[from][to].packets.push((self.begun, packet));
    }
}
