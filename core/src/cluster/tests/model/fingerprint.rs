//! Which worlds are the same: those that have the same future.

use super::search::Mix;
use super::world::{ASK_AGAIN, Node, Packet, TIMING, World};
use crate::cluster::*;
use crate::engine::Time;
use std::hash::{Hash, Hasher};

impl World {
    /// Equal for two worlds that have the same future; `with_past` adds what the rules remember,
    /// `with_order` in which order that began which is under way.
    pub(super) fn fingerprint(&self, with_past: bool, with_order: bool) -> u64 {
        let mut into = Mix::default();
        let latest = |slot: Slot| {
            self.node(slot.index())
                .map_or(0, |n| n.roles.latest_round())
        };
        for node in &self.nodes {
            let Some(node) = node else {
                into.write_u8(0);
                continue;
            };
            let Node {
                roles,
                incarnation: _,
                copy,
                has_all,
                follows,
                asked,
                feeds,
                writes,
                asleep_since,
                told_term,
            } = &**node;
            roles.fingerprint(Time(self.now), latest, &mut into);
            (copy, has_all, follows, feeds).hash(&mut into);
            for (_, term) in writes {
                term.hash(&mut into);
            }
            asked
                .map(|at| (self.now - at).min(ASK_AGAIN.0 * 1000))
                .hash(&mut into);
            asleep_since
                .map(|at| (self.now - at).min(TIMING.failure_timeout.0 * 1000))
                .hash(&mut into);
            if with_past {
                told_term.hash(&mut into);
            }
        }
        for (from, ways) in self.ways.iter().enumerate() {
            for (to, way) in ways.iter().enumerate() {
                (way.cut, way.torn, way.stalled, way.open, way.packets.len()).hash(&mut into);
                for (_, packet) in &way.packets {
                    let (sender, receiver) = (latest(Slot(from as u8)), latest(Slot(to as u8)));
                    relative(*packet, sender, receiver).hash(&mut into);
                }
            }
        }
        (self.disks, self.disk_broken, self.starts).hash(&mut into);
        if with_order {
            self.overtaken.hash(&mut into);
            self.hash_order(&mut into);
        }
        if with_past {
            (self.used, self.opened, self.excused).hash(&mut into);
            if self.excused {
                self.calm_since.map(|at| self.now - at).hash(&mut into);
            }
        }
        into.finish()
    }

    fn hash_order(&self, into: &mut impl Hasher) {
        let mut order: Vec<(u32, usize, usize)> = Vec::new();
        for (from, ways) in self.ways.iter().enumerate() {
            for (to, way) in ways.iter().enumerate() {
                order.extend(way.packets.iter().map(|(number, _)| (*number, from, to)));
            }
        }
        for (index, node) in self.up() {
            order.extend(
                node.writes
                    .iter()
                    .map(|(number, _)| (*number, index, index)),
            );
        }
        order.sort_unstable();
        for (_, from, to) in order {
            (from, to).hash(into);
        }
    }
}

/// With rounds that count back from the latest one of the node that counts them.
fn relative(packet: Packet, sender: u64, receiver: u64) -> Packet {
    let Packet::Roles(message) = packet else {
        return packet;
    };
    Packet::Roles(match message {
        Message::Beat(_) => message,
        Message::Handoff { round, step } => {
            let counted_by = match step {
                Handoff::Offer | Handoff::Withdraw | Handoff::Final { .. } => sender,
                Handoff::Ready | Handoff::Taken => receiver,
            };
            let round = counted_by.wrapping_sub(round);
            Message::Handoff { round, step }
        }
        Message::Fetch { round, copy } => Message::Fetch {
            round: sender.wrapping_sub(round),
            copy,
        },
        Message::Fetched { round } => Message::Fetched {
            round: receiver.wrapping_sub(round),
        },
    })
}
