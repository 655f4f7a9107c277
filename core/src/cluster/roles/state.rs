//! How far a node has come.

use super::event::Origin;
use crate::cluster::members::Slot;
use crate::engine::Time;
use crate::protocol::Millis;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// `begun`: since when nobody is known to be active.
    Looking {
        begun: Time,
    },
    /// An active node is known; heard by this node, or only by another one.
    Following {
        active: Slot,
        heard: bool,
    },
    Candidate(Candidate),
    Active(Active),
    Leaving {
        successor: Option<Slot>,
        until: Time,
    },
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub(super) round: u64,
    pub(super) origin: Origin,
    pub(super) begun: Time,
    pub(super) term: u32,
    pub(super) written: bool,
    /// Bits of the peers whose `Fetched` is awaited, and until when.
    pub(super) awaits: u16,
    pub(super) until: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Active {
    /// Of the tokens.
    pub(super) term: u32,
    /// A higher term that is being written; nothing is granted until it is.
    pub(super) raising: Option<u32>,
    /// When it last opened a higher term.
    pub(super) raised: Option<Time>,
    pub(super) handoff: Option<Round>,
    /// After a sleep.
    pub(super) doubt: Option<Doubt>,
    /// It has met an active node to which it has to give up its place.
    pub(super) met: Option<Meeting>,
    /// A successor that was asked in vain, bits.
    pub(super) refused: u16,
    /// Once it was told to stop: until when it looks for a successor.
    pub(super) stop_until: Option<Time>,
}

impl Active {
    /// Whether its term is not so new that the next one has to wait.
    pub(super) fn raised_enough(&self, now: Time, pause: Millis) -> bool {
        self.raised.is_none_or(|at| now >= at.after(pause))
    }

    /// The try in which it asks this peer for a word, if it does.
    pub(super) fn asks(&self, peer: Slot) -> Option<u64> {
        let met = self.met.filter(|met| met.other == peer);
        let met = met.map(|met| met.round);
        self.doubt.map(|doubt| doubt.round).or(met)
    }

    pub(super) fn is_handing_over(&self) -> bool {
        self.handoff
            .is_some_and(|handoff| handoff.step != Step::Offered)
    }
}

/// An active node that has woken up does nothing until its peers have answered or the time has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Doubt {
    pub(super) round: u64,
    pub(super) until: Time,
}

/// Two active nodes have met, and this one is to give up its place. What the other one said may be over by the time
/// it is read here, and then all that it is given would be lost; so this one stands still until that has answered over
/// the connection that takes what it is given, or the time has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Meeting {
    pub(super) other: Slot,
    pub(super) round: u64,
    pub(super) until: Time,
}

/// A handoff as the active node sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Round {
    pub(super) number: u64,
    pub(super) to: Slot,
    pub(super) step: Step,
    pub(super) until: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Offered,
    Freezing,
    Frozen,
}

/// A handoff as the successor sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Accepted {
    pub(super) from: Slot,
    pub(super) number: u64,
    pub(super) term: u32,
    pub(super) written: bool,
    pub(super) last: Option<u64>,
}
