//! What nodes say to each other about themselves: who lives, who is active, who could be.

use super::members::Slot;
use crate::protocol::Millis;

/// Names the changes that one active node made in one period of being active. A later period has a
/// higher term, and two nodes that are active at once differ in the slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stream {
    /// The first term of the period.
    pub term: u32,
    /// The place of the node.
    pub slot: u8,
}

/// How much of the state a node has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Copy {
    /// Whose changes it has applied; the default one is before all others.
    pub stream: Stream,
    /// The number of the last one.
    pub sequence: u64,
    /// The number of the oldest one that it could still give to another.
    pub oldest: u64,
    /// Whether it has the whole state as of that change, and not only a part.
    pub complete: bool,
}

impl Copy {
    /// Whether this copy leads to the other's position with what a node that has that one can give.
    pub(super) fn reaches(&self, other: &Copy) -> bool {
        self.stream == other.stream
            && (self.sequence >= other.sequence || other.oldest <= self.sequence + 1)
    }

    /// The order in which copies are worth more.
    pub(super) fn position(&self) -> (Stream, u64) {
        (self.stream, self.sequence)
    }
}

/// What a node is, as its peers need to know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Stage {
    /// It has just begun and knows nothing yet.
    #[default]
    Starting,
    /// It copies an active node, or looks for one.
    Standby,
    /// It is about to become active.
    Candidate,
    /// It serves.
    Active,
    /// It stands still, because its successor is about to serve, or because it has just woken up and
    /// does not know yet what its peers have done meanwhile.
    HandingOver,
    /// It is about to stop and serves no more.
    Leaving,
}

/// What a node says of itself: every heartbeat, and at once when something of it has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Beat {
    /// New with every start of the process.
    pub incarnation: u64,
    /// What it is.
    pub stage: Stage,
    /// The highest term it has seen anywhere.
    pub term: u32,
    /// The active node that it hears itself, and that node's incarnation.
    pub active: Option<(Slot, u64)>,
    /// What it has of the state.
    pub copy: Copy,
    /// False if it cannot write its term, or will not take over for another reason.
    pub can_lead: bool,
}

/// A step of the orderly change from one active node to another; all of one change have its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Handoff {
    /// Active to successor: will you take over?
    Offer,
    /// Successor to active: my next term is on disk.
    Ready,
    /// Active to successor: no longer; stay what you are.
    Withdraw,
    /// Active to successor: nothing changes any more; take over once you have this much.
    Final {
        /// The number of the last change.
        sequence: u64,
    },
    /// Successor to active: I serve.
    Taken,
}

/// A message between two nodes about their roles. The state itself goes another way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// See [`Beat`].
    Beat(Beat),
    /// See [`Handoff`].
    Handoff {
        /// Which change it belongs to.
        round: u64,
        /// The step.
        step: Handoff,
    },
    /// A candidate asks for what it lacks of its stream; an active node that has woken up, or has met another one, asks for
    /// a word that is newer than what it has not read.
    Fetch {
        /// Which try of the one that asks.
        round: u64,
        /// The stream and the last change it has.
        copy: Copy,
    },
    /// The last of what was asked for has been sent before this, or there was nothing.
    Fetched {
        /// Which try of the one that asked.
        round: u64,
    },
}

/// The times of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// How often a node speaks when nothing happens.
    pub heartbeat: Millis,
    /// How long a node may be silent before it counts as dead.
    pub failure_timeout: Millis,
    /// How long a starting node waits for those that do not answer.
    pub discovery_timeout: Millis,
    /// How long a better node has to be a complete standby before it is given the active place.
    pub preempt_delay: Millis,
    /// The longest that delay grows to.
    pub preempt_delay_max: Millis,
    /// How long it has to be calm for that delay to shrink again.
    pub calm: Millis,
    /// How long a node that is told to stop goes on trying to hand over, and then drains.
    pub drain_timeout: Millis,
    /// Whether a better node is given the active place at all.
    pub preempt: bool,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            heartbeat: Millis(250),
            failure_timeout: Millis(1000),
            discovery_timeout: Millis(3000),
            preempt_delay: Millis(2000),
            preempt_delay_max: Millis(300_000),
            calm: Millis(600_000),
            drain_timeout: Millis(2000),
            preempt: true,
        }
    }
}
