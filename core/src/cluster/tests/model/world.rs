//! One state of the modelled cluster: processes, disks, and the ways between them.

use super::faults::{Breakage, Faults};
use crate::cluster::*;
use crate::engine::Time;
use crate::protocol::Millis;
use std::rc::Rc;

pub(super) const NODES: usize = 3;

/// All times are whole halves of a second, so that a few of them stand for all.
pub(super) const TIMING: Timing = Timing {
    heartbeat: Millis(500),
    failure_timeout: Millis(1500),
    discovery_timeout: Millis(2000),
    preempt_delay: Millis(1000),
    preempt_delay_max: Millis(2000),
    calm: Millis(3000),
    drain_timeout: Millis(1000),
    preempt: true,
};

/// Asked for and not begun after this time, the whole state is asked for again.
pub(super) const ASK_AGAIN: Millis = Millis(1000);

/// What travels on a way, in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Packet {
    Roles(Message),
    /// Give me the whole state.
    Join,
    /// It begins, as of this change.
    Begin(Stream, u64),
    /// That was all of it.
    Whole,
    /// One change.
    Change(Stream, u64),
    /// The connection has ended.
    Lost,
    Refused,
    /// With which start of the process.
    Connected(u64),
}

/// From one node to another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Way {
    /// Each with its number.
    pub(super) packets: Vec<(u32, Packet)>,
    /// What is sent is lost.
    pub(super) cut: bool,
    /// Something was lost to a cut, so that the connection will not outlive it.
    pub(super) torn: bool,
    /// What is sent waits.
    pub(super) stalled: bool,
    /// The start of the receiver that the sender is connected with.
    pub(super) open: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) roles: Roles,
    pub(super) incarnation: u64,
    pub(super) copy: Copy,
    /// What it would say of its copy if it were honest; differs from `copy` in a broken build only.
    pub(super) has_all: bool,
    pub(super) follows: Option<Slot>,
    /// Since when it has asked for the whole state in vain.
    pub(super) asked: Option<u64>,
    /// Bits of those that copy it.
    pub(super) feeds: u8,
    /// Terms on their way to the disk, each with its number among all that is under way.
    pub(super) writes: Vec<(u32, u32)>,
    pub(super) asleep_since: Option<u64>,
    /// The highest term that it was told of, whatever it made of that.
    pub(super) told_term: u32,
}

impl Node {
    pub(super) fn awake(&self) -> bool {
        self.asleep_since.is_none()
    }

    pub(super) fn serves(&self) -> bool {
        self.awake() && self.roles.stance() == Stance::Serve
    }

    fn deadline(&self) -> Option<u64> {
        let asks = self.asked.map(|at| Time(at).after(ASK_AGAIN));
        let deadline = self.roles.next_deadline().into_iter().chain(asks).min();
        deadline.map(|time| time.0)
    }
}

/// A node that has just begun to serve, as it was before: looked at by the rules.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) index: usize,
    pub(super) term: u32,
    /// None for a higher term of a node that serves already.
    pub(super) origin: Option<Origin>,
    pub(super) had_all: bool,
    pub(super) told_term: u32,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) now: u64,
    pub(super) nodes: [Option<Rc<Node>>; NODES],
    pub(super) disks: [u32; NODES],
    pub(super) disk_broken: [bool; NODES],
    pub(super) starts: [u8; NODES],
    /// By sender and receiver.
    pub(super) ways: [[Way; NODES]; NODES],
    pub(super) used: Faults,
    /// The highest term that tokens were ever taken from, by node.
    pub(super) opened: [u32; NODES],
    /// Since a fault that can make two nodes active at once, until all is calm again.
    pub(super) excused: bool,
    /// Since when everything has been calm.
    pub(super) calm_since: Option<u64>,
    pub(super) breakage: Breakage,
    /// Whether the wall clocks can be right; otherwise nobody goes by them.
    pub(super) wall_clocks: bool,
    /// Numbers what is under way in the order in which it began.
    pub(super) begun: u32,
    /// How often something has overtaken what began before it, at this moment.
    pub(super) overtaken: u8,
    /// What was opened in the last step.
    pub(super) news: Vec<Opened>,
    /// Beats that repeat what the receiver knows and so arrive at once: to, from, what.
    pub(super) at_once: Vec<(usize, usize, Beat)>,
}

impl World {
    pub(super) fn new(breakage: Breakage) -> World {
        World {
            now: 1_000_000,
            nodes: [const { None }; NODES],
            disks: [0; NODES],
            disk_broken: [false; NODES],
            starts: [0; NODES],
            ways: Default::default(),
            used: Faults::default(),
            opened: [0; NODES],
            excused: false,
            calm_since: None,
            breakage,
            wall_clocks: true,
            begun: 0,
            overtaken: 0,
            news: Vec::new(),
            at_once: Vec::new(),
        }
    }

    pub(super) fn up(&self) -> impl Iterator<Item = (usize, &Node)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(index, node)| Some((index, node.as_deref()?)))
    }

    pub(super) fn node(&self, index: usize) -> Option<&Node> {
        self.nodes[index].as_deref()
    }

    pub(super) fn node_mut(&mut self, index: usize) -> Option<&mut Node> {
        self.nodes[index].as_mut().map(Rc::make_mut)
    }

    /// The wall clock counts seconds, and a process does not start ten times in one: each start moves
    /// it on by more terms than the others can open meanwhile.
    pub(super) fn at(&self) -> Now {
        let starts: u32 = self.starts.iter().map(|starts| u32::from(*starts)).sum();
        Now {
            time: Time(self.now),
            wall: if self.wall_clocks { 10 * starts } else { 0 },
        }
    }

    pub(super) fn start(&mut self, index: usize) {
        self.starts[index] += 1;
        let others = (0..NODES).filter(|other| *other != index);
        let incarnation = u64::from(self.starts[index]) << 32;
        let beginning = Beginning {
            incarnation,
            disk_term: self.breakage.term_from_disk(self.disks[index]),
            copy: Copy::default(),
        };
        let roles = Roles::new(
            self.at(),
            Slot(index as u8),
            others.map(|other| Slot(other as u8)),
            TIMING,
            beginning,
        );
        self.nodes[index] = Some(Rc::new(Node {
            roles,
            incarnation,
            copy: Copy::default(),
            has_all: false,
            follows: None,
            asked: None,
            feeds: 0,
            writes: Vec::new(),
            asleep_since: None,
            told_term: self.disks[index],
        }));
        self.drain(index);
    }

    pub(super) fn crash(&mut self, index: usize) {
        self.nodes[index] = None;
        for other in 0..NODES {
            if other == index {
                continue;
            }
            self.ways[other][index].packets.clear();
            self.ways[index][other].open = None;
            if self.nodes[other].is_some() && !self.ways[index][other].cut {
                self.put(index, other, Packet::Lost);
            }
        }
    }

    /// Whether anything can still happen at this moment.
    pub(super) fn at_rest(&self) -> bool {
        self.up()
            .filter(|(_, node)| node.awake())
            .all(|(to, node)| {
                let nothing_comes = (0..NODES).all(|from| {
                    let way = &self.ways[from][to];
                    way.packets.is_empty() || way.stalled
                });
                nothing_comes && node.writes.is_empty() && !self.is_due(to)
            })
    }

    pub(super) fn is_due(&self, index: usize) -> bool {
        self.node(index)
            .filter(|node| node.awake())
            .and_then(Node::deadline)
            .is_some_and(|at| at <= self.now)
    }

    /// The next moment at which somebody has something to do.
    pub(super) fn next_moment(&self) -> Option<u64> {
        self.up()
            .filter(|(_, node)| node.awake())
            .filter_map(|(_, node)| node.deadline())
            .min()
    }

    /// What was opened in the last step belongs to the past now.
    pub(super) fn note_opened(&mut self) {
        for opened in self.news.drain(..) {
            let highest = &mut self.opened[opened.index];
            *highest = opened.term.max(*highest);
        }
    }
}

/// Whether it gives its state to those that ask.
pub(super) fn leads(node: &Node) -> bool {
    matches!(node.roles.stage(), Stage::Active | Stage::HandingOver)
}
