//! The links between nodes: made afresh, filled as far as the socket takes it, and broken off.

use crate::network::{Item, Machine};
use crate::world::World;
use fairlock::cluster::{Slot, Unit, split_frame};

/// The kind of the frames that carry the whole state.
const DUMP: u8 = 12;

/// As much as a socket takes before its reader has read.
const SOCKET_BYTES: usize = 64 << 10;

impl World {
    pub(crate) fn dial(&mut self, node: usize, to: Slot) {
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
    pub(crate) fn send_frames(&mut self, node: usize) {
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
    pub(crate) fn breaks_off(&mut self, connection: usize, bytes: &mut Vec<u8>) -> bool {
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
    pub(crate) fn loosen(&mut self, bytes: Vec<u8>) -> Vec<u8> {
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
}
