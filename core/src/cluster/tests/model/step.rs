//! What can happen next.

use super::faults::{Kind, Limits};
use super::world::{NODES, TIMING, World};
use crate::cluster::*;

/// One thing that happens. Numbers are nodes; of two the first one sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The oldest packet of a way arrives.
    Deliver(u8, u8),
    /// The disk is done with a term.
    Disk(u8),
    /// A timer of the node is due.
    Tick(u8),
    /// Nothing else is left to do at this moment: time passes up to the next one.
    Advance,
    /// The last client of a node that is leaving has gone.
    Drained(u8),
    /// The active node grants a lock.
    Change(u8),
    Start(u8),
    /// The process starts with an empty disk.
    StartBlank(u8),
    Crash(u8),
    Stop(u8),
    Freeze(u8),
    Wake(u8),
    Cut(u8, u8),
    CutBoth(u8, u8),
    /// Cut off from both others.
    Isolate(u8),
    /// Ends all cuts and stalls.
    Heal,
    Stall(u8, u8),
    /// The connection ends, and with it all that was under way.
    Break(u8, u8),
    Lose(u8, u8),
    Repeat(u8, u8),
    /// Again, behind all that was said since.
    RepeatLate(u8, u8),
    BreakDisk(u8),
    MendDisk(u8),
}

impl Step {
    /// What counts against the limits; `None` for what always goes on.
    pub(super) fn kind(self) -> Option<Kind> {
        Some(match self {
            Step::Deliver(..) | Step::Disk(_) | Step::Tick(_) | Step::Advance => return None,
            Step::Drained(_) | Step::Wake(_) | Step::Heal | Step::MendDisk(_) => return None,
            Step::Change(_) => Kind::Change,
            Step::Start(_) => Kind::Start,
            Step::StartBlank(_) => Kind::StartBlank,
            Step::Crash(_) => Kind::Crash,
            Step::Stop(_) => Kind::Stop,
            Step::Freeze(_) => Kind::Freeze,
            Step::Cut(..) => Kind::CutOneWay,
            Step::CutBoth(..) => Kind::CutBoth,
            Step::Isolate(_) => Kind::Isolate,
            Step::Stall(..) => Kind::Stall,
            Step::Break(..) => Kind::Break,
            Step::Lose(..) => Kind::Lose,
            Step::Repeat(..) => Kind::Repeat,
            Step::RepeatLate(..) => Kind::RepeatLate,
            Step::BreakDisk(_) => Kind::BreakDisk,
        })
    }

    /// Whether two nodes may be active for a while after it: somebody's silence may be misjudged, or a
    /// word that decides was lost or came too late, which no connection does.
    pub(super) fn can_divide(self) -> bool {
        matches!(
            self,
            Step::Cut(..)
                | Step::CutBoth(..)
                | Step::Isolate(_)
                | Step::Stall(..)
                | Step::Lose(..)
                | Step::RepeatLate(..)
        )
    }
}

impl World {
    /// What goes on by itself, that first which began first; what is due has always been.
    pub(super) fn ordinary_steps(&self, into: &mut Vec<Step>) {
        let mut numbered = Vec::new();
        for (to, node) in self.up().filter(|(_, node)| node.awake()) {
            for from in 0..NODES {
                let way = &self.ways[from][to];
                if let Some((number, _)) = way.packets.first().filter(|_| !way.stalled) {
                    numbered.push((*number, Step::Deliver(from as u8, to as u8)));
                }
            }
            if let Some((number, _)) = node.writes.first() {
                numbered.push((*number, Step::Disk(to as u8)));
            }
            if self.is_due(to) {
                numbered.push((0, Step::Tick(to as u8)));
            }
        }
        numbered.sort_by_key(|(number, _)| *number);
        into.extend(numbered.into_iter().map(|(_, step)| step));
        if into.is_empty() && self.next_moment().is_some() {
            into.push(Step::Advance);
        }
    }

    /// What may go wrong within the limits, and what ends it.
    pub(super) fn faults(&self, limits: &Limits, into: &mut Vec<Step>) {
        let first = into.len();
        for index in 0..NODES {
            let number = index as u8;
            let Some(node) = self.node(index) else {
                into.push(Step::Start(number));
                into.push(Step::StartBlank(number));
                continue;
            };
            into.push(Step::Crash(number));
            if node.awake() {
                into.push(Step::Freeze(number));
                if node.serves() {
                    into.push(Step::Change(number));
                }
                if matches!(node.roles.stance(), Stance::Leave(_)) {
                    into.push(Step::Drained(number));
                } else {
                    into.push(Step::Stop(number));
                }
            } else {
                into.push(Step::Wake(number));
            }
            into.push(Step::Isolate(number));
            into.push(if self.disk_broken[index] {
                Step::MendDisk(number)
            } else {
                Step::BreakDisk(number)
            });
            for other in (0..NODES).filter(|other| *other != index) {
                self.faults_of_way(index, other, into);
            }
        }
        let disturbed = |way: &super::world::Way| way.cut || way.stalled;
        if self.ways.iter().flatten().any(disturbed) {
            into.push(Step::Heal);
        }
        let mut kept = first;
        for place in first..into.len() {
            let step = into[place];
            if step.kind().is_none_or(|kind| self.used.allow(kind, limits)) {
                into[kept] = step;
                kept += 1;
            }
        }
        into.truncate(kept);
    }

    fn faults_of_way(&self, from: usize, to: usize, into: &mut Vec<Step>) {
        let way = &self.ways[from][to];
        let (a, b) = (from as u8, to as u8);
        if !way.cut {
            into.push(Step::Cut(a, b));
        }
        if !way.stalled {
            into.push(Step::Stall(a, b));
        }
        let connected = |way: &super::world::Way| way.open.is_some();
        if from < to {
            into.push(Step::CutBoth(a, b));
            if connected(way) || connected(&self.ways[to][from]) {
                into.push(Step::Break(a, b));
            }
        }
        if matches!(
            way.packets.first(),
            Some((_, super::world::Packet::Roles(_)))
        ) {
            into.push(Step::Lose(a, b));
            into.push(Step::Repeat(a, b));
            into.push(Step::RepeatLate(a, b));
        }
    }

    /// All faults are over: what is left is to come to rest.
    pub(super) fn end_of_faults(&mut self) {
        self.heal();
        self.disk_broken = [false; NODES];
        for index in 0..NODES {
            if self.node(index).is_some_and(|node| !node.awake()) {
                self.take(Step::Wake(index as u8));
            }
        }
    }

    /// Whether everything is as it is to be: the living node of highest priority serves, the others
    /// are complete standbys of it, and nobody is about to leave.
    pub(super) fn is_settled(&self) -> bool {
        let Some((best, node)) = self.up().next() else {
            return true;
        };
        let stream = node.copy.stream;
        node.serves()
            && self.up().skip(1).all(|(_, other)| {
                other.awake()
                    && other.roles.stance() == Stance::Redirect(Slot(best as u8))
                    && other.copy.complete
                    && other.copy.stream == stream
            })
    }

    /// How long all that takes at most: every delay at its longest, one after the other.
    pub(super) fn longest_unrest(&self) -> u64 {
        let Timing {
            discovery_timeout,
            preempt_delay_max,
            calm,
            ..
        } = TIMING;
        (discovery_timeout.0 + 3 * preempt_delay_max.0 + calm.0 + 5000) * 1000
    }
}
