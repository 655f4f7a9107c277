//! The connections of clients as a node has them: welcomed, written to, and parted with.

use crate::network::Machine;
use crate::node::Visitor;
use crate::plan::Harm;
use crate::world::World;
use fairlock::cluster::{Event, Stance};
use fairlock::engine::Grant;

impl World {
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

    pub(crate) fn check_drained(&mut self, node: usize) {
        let drained = self.hosts[node].process.as_ref().is_some_and(|process| {
            matches!(process.stance, Stance::Leave(_)) && process.visitors.is_empty()
        });
        if drained {
            self.event(node, Event::Drained);
        }
    }
}
