//! What happens to a node, and what it is to do.

use crate::cluster::members::Slot;
use crate::cluster::message::{Copy, Message, Stage};
use crate::engine::Time;
use std::fmt;

/// A moment, by both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// By the clock that everything is timed with.
    pub time: Time,
    /// The least term by the wall clock: seconds since 2026, or 0 if the clock cannot be right.
    pub wall: u32,
}

/// What happens to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A peer has said something.
    Heard {
        /// Who.
        from: Slot,
        /// What.
        message: Message,
    },
    /// A connection to a peer has ended, and what was to be sent over it is lost.
    Lost {
        /// Whose.
        peer: Slot,
    },
    /// A connection that a peer had made has ended. What it is sent is not affected.
    Doubted {
        /// Whose.
        peer: Slot,
    },
    /// A peer has made a fresh connection and speaks over it; what was under way over the one before
    /// may be lost.
    Relinked {
        /// Which.
        peer: Slot,
    },
    /// A fresh connection to a peer was refused.
    Refused {
        /// Whose.
        peer: Slot,
    },
    /// A fresh connection to a peer has ended before the peer had answered.
    CutShort {
        /// Whose.
        peer: Slot,
    },
    /// A peer is there but does not take this node for its peer: it knows another secret or another
    /// list, or speaks another version.
    Rejected {
        /// Which.
        peer: Slot,
    },
    /// A fresh connection to a peer was made.
    Connected {
        /// Whose.
        peer: Slot,
    },
    /// The term is on disk.
    TermWritten {
        /// Which.
        term: u32,
    },
    /// The term could not be written.
    TermFailed {
        /// Which.
        term: u32,
    },
    /// What this node has of the state now.
    Copied(Copy),
    /// The node is frozen, as asked: this was its last change.
    Frozen {
        /// The number of the last change.
        sequence: u64,
    },
    /// This active node takes its tokens from this term from now on, because the counter of the one
    /// before has ended.
    TermOpened {
        /// Which.
        term: u32,
    },
    /// Somebody knows a token of this term.
    TermSeen {
        /// Which.
        term: u32,
    },
    /// An operator asks the node to stop.
    Stop,
    /// The node is stopping and its last client has gone.
    Drained,
    /// The node has stood still, for at least half of the failure timeout.
    Woke,
}

/// What the node does with its clients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stance {
    /// Keeps their requests until it knows who is active.
    Park,
    /// Sends them to the active node.
    Redirect(Slot),
    /// Serves them.
    Serve,
    /// Keeps requests and timers still: it hands over, waits for its term to be on disk, or has just
    /// woken up and does not know whether it is still the one.
    Freeze,
    /// Is about to exit: sends them to its successor, or answers what it can.
    Leave(Option<Slot>),
}

/// How a node comes to serve.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// It was asked for the first time, or nobody alive has anything to copy.
    Start,
    /// Every node was down, and of those alive none has a newer state on its disk: leases count as renewed,
    /// requests get time to come back.
    Restart,
    /// The active node is gone: leases count as renewed, requests get time to come back.
    Takeover,
    /// The active node handed over: leases are exact, requests get time to come back.
    Handoff,
}

/// What a node is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Tell a peer, if there is a connection to it.
    Send {
        /// Whom.
        to: Slot,
        /// What.
        message: Message,
    },
    /// Connect to a peer afresh and tell how that went.
    Connect {
        /// To whom.
        to: Slot,
    },
    /// Write a term to disk and tell how that went.
    WriteTerm {
        /// Which.
        term: u32,
    },
    /// Give the candidate what it lacks of the stream, then send it `Fetched`.
    Supply {
        /// Whom.
        to: Slot,
        /// Its try.
        round: u64,
        /// What it has.
        copy: Copy,
    },
    /// Serve from this moment with tokens of the term.
    Lead {
        /// Of the tokens.
        term: u32,
        /// How it came.
        origin: Origin,
    },
    /// Take tokens from a higher term from now on.
    Raise {
        /// Of the tokens.
        term: u32,
    },
    /// Copy the state of the active node.
    Follow {
        /// Whose.
        active: Slot,
    },
    /// Give an active node what it does not have, and then forget the own state.
    Yield {
        /// To whom.
        to: Slot,
        /// True after a sleep: only the grants that no standby had confirmed are given.
        unconfirmed_only: bool,
    },
    /// The successor serves: send waiting requests there and forget the state.
    Retire,
    /// Change nothing any more, send every peer what it lacks, and tell the last number with
    /// [`Event::Frozen`].
    Freeze,
    /// Treat clients so from now on.
    Stance(Stance),
    /// Exit the process.
    Exit,
    /// Tell the operator.
    Note(Note),
}

/// A line for the operator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Note {
    /// Another stage, and why.
    Stage(Stage, &'static str),
    /// The term could not be written.
    CannotWrite(u32),
    /// No term is left.
    TermsUsedUp,
    /// It serves with an incomplete copy, because nobody has more.
    Incomplete,
    /// A handoff came to nothing.
    HandoffFailed(Slot),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Stage(stage, why) => write!(f, "{stage:?}: {why}"),
            Note::CannotWrite(term) => {
                write!(f, "cannot write term {term}: this node does not take over")
            }
            Note::TermsUsedUp => f.write_str("no term is left: this node does not take over"),
            Note::Incomplete => {
                f.write_str("no living node has a complete copy: serving with what is here")
            }
            Note::HandoffFailed(to) => write!(f, "node {to} did not take over"),
        }
    }
}
