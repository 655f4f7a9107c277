//! A simulated machine for a node: its disk, its clocks, its list, and the process that may run there.

use crate::clock::Clock;
use fairlock::cluster::{Member, Parking, Stance};
use fairlock::engine::{ConnectionId, Engine, Grant};
use fairlock::protocol::ClientId;
use std::collections::{BTreeMap, BTreeSet};

/// A machine that a node runs on.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) address: String,
    /// The list that the next process is given.
    pub(crate) list: Vec<String>,
    pub(crate) powered: bool,
    pub(crate) frozen_since: Option<u64>,
    pub(crate) clock: Clock,
    /// The term that stands on the disk, and those that stood there before.
    pub(crate) terms: Vec<u32>,
    pub(crate) disk_full: bool,
    /// What its process knew of terms since when, the latest last.
    pub(crate) knew: Vec<(u64, u32)>,
    /// The highest term that this machine has been told to keep and has not lost since.
    pub(crate) kept_term: u32,
    pub(crate) starts: u32,
    /// Since when its process runs without standing still.
    pub(crate) steady_since: u64,
    pub(crate) woken_at: u64,
    /// It has just gone on, and looks at its sockets before its timers.
    pub(crate) reads_first: bool,
    pub(crate) timer_at: u64,
    pub(crate) process: Option<Box<Process>>,
}

impl Host {
    pub(crate) fn term(&self) -> u32 {
        self.terms.last().copied().unwrap_or(0)
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen_since.is_some()
    }

    /// Whether it serves at this moment.
    pub(crate) fn serves(&self) -> bool {
        let process = self.process.as_ref();
        !self.is_frozen() && process.is_some_and(|process| process.stance == Stance::Serve)
    }
}

/// A running node.
pub(crate) struct Process {
    pub(crate) start: u32,
    pub(crate) member: Member,
    pub(crate) engine: Engine,
    pub(crate) parking: Parking,
    pub(crate) stance: Stance,
    /// Clients, by connection.
    pub(crate) visitors: BTreeMap<usize, Visitor>,
    /// Which connection the engine means.
    pub(crate) names: BTreeMap<u32, usize>,
    /// By slot.
    pub(crate) links: Vec<Link>,
    /// Who has something to be sent.
    pub(crate) dirty: BTreeSet<usize>,
    pub(crate) told_active: Option<String>,
    /// What clients say of terms counts again from then on, and what was said meanwhile.
    pub(crate) seen_from: u64,
    pub(crate) seen_later: Option<u32>,
    /// The term of its own choice, where the wall clock cannot be believed.
    pub(crate) first_term: u32,
    /// What its machine had been told to keep when it started.
    pub(crate) kept_term: u32,
    /// The term that its engine takes tokens from, while it is active.
    pub(crate) term: Option<u32>,
    /// Since when it serves without a break, by its own clock.
    pub(crate) serving_since: Option<u64>,
    /// How many grants the engine had counted.
    pub(crate) granted: u64,
    pub(crate) told: u64,
    /// The highest term that a client has told this process of.
    pub(crate) client_term: u32,
    /// It was active until it was told to stop.
    pub(crate) was_active: bool,
    /// The slot of the node whose state it has copied last.
    pub(crate) copied: Option<u8>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("start", &self.start)
            .field("stance", &self.stance)
            .finish_non_exhaustive()
    }
}

/// A client's connection, as the node has it.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub(crate) id: ConnectionId,
    pub(crate) client: Option<ClientId>,
    pub(crate) greeted: bool,
    pub(crate) heard: u64,
    pub(crate) input: Vec<u8>,
    pub(crate) outbox: Vec<(Vec<u8>, Option<Grant>)>,
    /// Its reader takes nothing before this moment of the world.
    pub(crate) blocked_until: u64,
}

/// The connections with another node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    pub(crate) out: Option<usize>,
    pub(crate) dials: Vec<usize>,
    pub(crate) incoming: Option<usize>,
    /// Whether a frame has come over it.
    pub(crate) spoke: bool,
    pub(crate) input: Vec<u8>,
}

impl Process {
    /// When this node has to be woken, by its own clock.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let serves = match self.stance {
            Stance::Serve => true,
            Stance::Leave(None) => self.was_active,
            Stance::Park | Stance::Freeze | Stance::Redirect(_) | Stance::Leave(Some(_)) => false,
        };
        let engine = self.engine.next_deadline().filter(|_| serves);
        let deadlines = [
            self.member.next_deadline(),
            engine,
            self.parking.next_deadline(),
        ];
        let seen = self.seen_later.map(|_| self.seen_from);
        let deadlines = deadlines.into_iter().flatten().map(|time| time.0);
        deadlines.chain(seen).min()
    }
}
