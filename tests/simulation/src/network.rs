//! The network as TCP shows it: byte streams that keep their order, connections that are refused, reset
//! or simply silent, machines that are there without a process, and ways that are cut in one direction.
//!
//! Nothing is lost, doubled or overtaken within a connection, because TCP does not do that either: what
//! is lost on a wire shows as a delay, what is lost for good as the end of the connection. Across
//! connections everything may overtake. Only frames about roles are also lost and doubled, in runs that
//! say so: the roles promise to bear it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Machine {
    Node(usize),
    Client(usize),
}

/// What travels.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Dial,
    Accepted,
    Refused,
    /// The process does not take it, and says why.
    Rejected,
    Bytes(Vec<u8>),
    /// The sender ends its side after everything before.
    End,
    /// The sender has no such connection.
    Reset,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// When each item arrives, and when it was sent.
    pub(crate) items: VecDeque<(u64, u64, Item)>,
    last: u64,
    pub(crate) stalled_until: u64,
    pub(crate) bytes: usize,
}

/// A connection. Side 0 has dialled, side 1 is to accept.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) machines: [Machine; 2],
    /// Which process, counted by the starts on that machine.
    pub(crate) starts: [u32; 2],
    /// Whether the process on this side still has it.
    pub(crate) open: [bool; 2],
    /// Between nodes, from the one whose slot this is to the other.
    pub(crate) peer: Option<usize>,
    /// `pipes[0]` leads from side 0 to side 1.
    pub(crate) pipes: [Pipe; 2],
    /// Accepted by the machine while the process stood still.
    pub(crate) unseen: bool,
}

/// All connections and the ways that they take.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) connections: Vec<Connection>,
    /// From, to.
    pub(crate) cuts: BTreeSet<(Machine, Machine)>,
    /// From, to, and how much longer it takes.
    pub(crate) slow: Vec<(Machine, Machine, u64)>,
    /// When a way last changed.
    changed: BTreeMap<(Machine, Machine), u64>,
}

impl Network {
    pub(crate) fn add(
        &mut self,
        machines: [Machine; 2],
        dialler_start: u32,
        peer: Option<usize>,
    ) -> usize {
        self.connections.push(Connection {
            machines,
            starts: [dialler_start, 0],
            open: [true, false],
            peer,
            pipes: [Pipe::default(), Pipe::default()],
            unseen: false,
        });
        self.connections.len() - 1
    }

    /// Puts an item on its way. Returns when it arrives.
    pub(crate) fn put(
        &mut self,
        now: u64,
        connection: usize,
        side: usize,
        delay: u64,
        item: Item,
    ) -> u64 {
        let machines = self.connections[connection].machines;
        let (from, to) = (machines[side], machines[1 - side]);
        let more: u64 = self
            .slow
            .iter()
            .filter(|(a, b, _)| (*a, *b) == (from, to))
            .map(|(.., more)| more)
            .sum();
        let pipe = &mut self.connections[connection].pipes[side];
        if let Item::Bytes(bytes) = &item {
            pipe.bytes += bytes.len();
        }
        pipe.last = pipe.last.max(now + delay + more);
        let at = pipe.last;
        pipe.items.push_back((at, now, item));
        at
    }

    pub(crate) fn is_cut(&self, connection: usize, side: usize) -> bool {
        let machines = self.connections[connection].machines;
        self.cuts.contains(&(machines[side], machines[1 - side]))
    }

    /// The side of a connection on which this process is.
    pub(crate) fn side_of(&self, connection: usize, machine: Machine, start: u32) -> Option<usize> {
        let connection = &self.connections[connection];
        (0..2).find(|side| {
            connection.machines[*side] == machine
                && connection.starts[*side] == start
                && connection.open[*side]
        })
    }

    /// Cuts both ways between two machines.
    pub(crate) fn cut(&mut self, a: Machine, b: Machine) {
        self.cuts.insert((a, b));
        self.cuts.insert((b, a));
    }

    /// Something is done to the way between two machines.
    pub(crate) fn touch(&mut self, now: u64, a: Machine, b: Machine) {
        self.changed.insert((a.min(b), a.max(b)), now);
    }

    /// Whether nothing has hindered two machines to talk since then.
    pub(crate) fn is_steady(&self, a: Machine, b: Machine, since: u64) -> bool {
        let changed = self.changed.get(&(a.min(b), a.max(b)));
        changed.is_none_or(|changed| *changed < since)
            && !self.cuts.contains(&(a, b))
            && !self.cuts.contains(&(b, a))
            && !self
                .slow
                .iter()
                .any(|(from, to, _)| (*from, *to) == (a, b) || (*from, *to) == (b, a))
    }
}
