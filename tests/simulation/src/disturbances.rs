//! What goes wrong between machines: ways are cut, slow or broken, and readers that do not read.

use crate::network::{Item, Machine};
use crate::plan::{MS, SECOND};
use crate::world::{Happening, World};

impl World {
    pub(crate) fn cut_nodes(&mut self) {
        let count = self.hosts.len() as u64;
        if count < 2 {
            return;
        }
        let one = self.random.below(count) as usize;
        let other = (one + self.random.between(1, count - 1) as usize) % count as usize;
        let (a, b) = (Machine::Node(one), Machine::Node(other));
        match self.random.below(4) {
            0 => {
                self.coverage.count("way cut one way");
                self.say(|| format!("cut from node {one} to node {other}"));
                self.network.cuts.insert((a, b));
                self.network.touch(self.now, a, b);
            }
            1 => {
                self.coverage.count("way cut");
                self.say(|| format!("cut between nodes {one} and {other}"));
                self.network.cut(a, b);
                self.network.touch(self.now, a, b);
            }
            // One side of the cluster from the other.
            _ => {
                self.coverage.count("way cut");
                let sides = self.random.between(1, (1 << count) - 2);
                self.say(|| format!("the nodes of {sides:b} are cut from the others"));
                for left in (0..count as usize).filter(|node| sides >> node & 1 == 1) {
                    for right in (0..count as usize).filter(|node| sides >> node & 1 == 0) {
                        let (a, b) = (Machine::Node(left), Machine::Node(right));
                        self.network.cut(a, b);
                        self.network.touch(self.now, a, b);
                    }
                }
            }
        }
    }

    pub(crate) fn cut_client(&mut self) {
        let node = Machine::Node(self.random.below(self.hosts.len() as u64) as usize);
        let client = Machine::Client(self.random.below(self.people.len() as u64) as usize);
        if self.random.once_in(2) {
            self.network.cut(node, client);
        } else {
            self.network.cuts.insert((client, node));
        }
        self.coverage.count("way cut");
        self.say(|| format!("cut between {node:?} and {client:?}"));
    }

    pub(crate) fn heal(&mut self) {
        if self.network.cuts.is_empty() && self.network.slow.is_empty() {
            return;
        }
        self.coverage.count("ways healed");
        self.say(|| "all ways are open".to_owned());
        for (a, b) in std::mem::take(&mut self.network.cuts) {
            self.network.touch(self.now, a, b);
        }
        for (a, b, _) in std::mem::take(&mut self.network.slow) {
            self.network.touch(self.now, a, b);
        }
        self.push_on();
    }

    pub(crate) fn some_connection(&mut self) -> Option<usize> {
        let count = self.network.connections.len() as u64;
        for _ in 0..20 {
            let connection = self.random.below(count.max(1)) as usize;
            let wire = self.network.connections.get(connection)?;
            if wire.open == [true, true] {
                return Some(connection);
            }
        }
        None
    }

    pub(crate) fn touch_connection(&mut self, connection: usize) {
        let [a, b] = self.network.connections[connection].machines;
        self.network.touch(self.now, a, b);
    }

    /// Something between breaks a connection: both sides hear of it, each in its own time.
    pub(crate) fn reset_one(&mut self) {
        let Some(connection) = self.some_connection() else {
            return;
        };
        self.coverage.count("connection reset");
        self.say(|| format!("connection {connection} is reset"));
        self.touch_connection(connection);
        for side in 0..2 {
            if self.random.once_in(2) {
                let pipe = &mut self.network.connections[connection].pipes[side];
                pipe.items.clear();
                pipe.bytes = 0;
            }
            self.put(connection, side, Item::Reset);
        }
    }

    /// Packets get lost: a connection stands still until they have been sent again.
    pub(crate) fn stall_one(&mut self) {
        let Some(connection) = self.some_connection() else {
            return;
        };
        self.coverage.count("connection stalled");
        self.touch_connection(connection);
        let side = self.random.below(2) as usize;
        let until = self.now + self.random.between(50 * MS, 2 * SECOND);
        self.network.connections[connection].pipes[side].stalled_until = until;
    }

    pub(crate) fn slow_one(&mut self) {
        let count = self.hosts.len() as u64;
        let one = Machine::Node(self.random.below(count) as usize);
        let other = if self.random.once_in(2) {
            Machine::Node(self.random.below(count) as usize)
        } else {
            Machine::Client(self.random.below(self.people.len() as u64) as usize)
        };
        if one == other {
            return;
        }
        self.coverage.count("way slow");
        let more = self.random.between(20 * MS, 900 * MS);
        let way = if self.random.once_in(2) {
            (one, other, more)
        } else {
            (other, one, more)
        };
        self.network.slow.push(way);
    }

    /// A client's process reads nothing, so that replies stay in the node.
    pub(crate) fn block_reader(&mut self) {
        let running = self.running();
        let Some(node) = self.random.pick(&running).copied() else {
            return;
        };
        let until = self.now + self.random.between(50 * MS, 2 * SECOND);
        let Some(process) = self.hosts[node].process.as_mut() else {
            return;
        };
        let start = process.start;
        let connections: Vec<usize> = process.visitors.keys().copied().collect();
        if let Some(connection) = self.random.pick(&connections)
            && let Some(visitor) = process.visitors.get_mut(connection)
        {
            visitor.blocked_until = until;
            self.coverage.count("client reads nothing");
            self.at(until, Happening::Unblock(node, start));
        }
    }
}
