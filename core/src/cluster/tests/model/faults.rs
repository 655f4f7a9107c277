//! What may go wrong, how often, and what a broken build would do.

use super::step::Step;
use crate::cluster::*;

macro_rules! kinds {
    ($($kind:ident),*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Kind { $($kind),* }

        impl Kind {
            pub(super) const ALL: [Kind; [$(Kind::$kind),*].len()] = [$(Kind::$kind),*];
        }
    };
}

kinds!(
    Change, Start, StartBlank, Crash, Stop, Freeze, CutOneWay, CutBoth, Isolate, Stall, Break,
    Lose, Repeat, RepeatLate, BreakDisk
);

/// How often each kind has happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Faults {
    by_kind: [u8; Kind::ALL.len()],
    faults: u8,
}

impl Faults {
    pub(super) fn count(&mut self, step: Step) {
        if let Some(kind) = step.kind() {
            self.by_kind[kind as usize] += 1;
            if is_fault(kind) {
                self.faults += 1;
            }
        }
    }

    pub(super) fn allow(&self, kind: Kind, limits: &Limits) -> bool {
        self.by_kind[kind as usize] < limits.by_kind[kind as usize]
            && (!is_fault(kind) || self.faults < limits.faults)
    }
}

/// A start and a grant are no faults.
fn is_fault(kind: Kind) -> bool {
    !matches!(kind, Kind::Change | Kind::Start | Kind::StartBlank)
}

/// How much may happen in one run of the cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    by_kind: [u8; Kind::ALL.len()],
    faults: u8,
    /// How often at one moment something overtakes what began before it; `None`: as often as it likes.
    pub(super) overtakes: Option<u8>,
}

impl Limits {
    /// At most so many faults in all, of the kinds that are allowed below.
    pub(super) fn of(faults: u8) -> Limits {
        Limits {
            by_kind: [0; Kind::ALL.len()],
            faults,
            overtakes: None,
        }
    }

    pub(super) fn more(mut self, faults: u8) -> Limits {
        self.faults += faults;
        for most in self.by_kind.iter_mut().filter(|most| **most > 0) {
            *most += faults;
        }
        self
    }

    pub(super) fn overtaking(mut self, most: u8) -> Limits {
        self.overtakes = Some(most);
        self
    }

    pub(super) fn allow(mut self, most: u8, kinds: &[Kind]) -> Limits {
        for kind in kinds {
            self.by_kind[*kind as usize] = most;
        }
        self
    }
}

/// What a broken build would do. The model has to find each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum Breakage {
    #[default]
    None,
    /// A new term is above the own ones only, not above those that others named.
    SkipTermBump,
    /// The term file is not read at the start.
    ForgetTermFile,
    /// A term counts as written before it is.
    ServeBeforeDisk,
    /// It does not matter that another standby still hears the active node.
    TakeOverAnyway,
    /// A copy counts as complete as soon as it has begun.
    PromoteIncomplete,
    /// An active node does not notice another one.
    IgnoreOtherActive,
    /// A sleep is not noticed.
    SleepUnnoticed,
}

impl Breakage {
    pub(super) fn forgets_terms(self) -> bool {
        self == Breakage::SkipTermBump
    }

    pub(super) fn term_from_disk(self, term: u32) -> u32 {
        if self == Breakage::ForgetTermFile {
            0
        } else {
            term
        }
    }

    pub(super) fn says_written_at_once(self) -> bool {
        self == Breakage::ServeBeforeDisk
    }

    pub(super) fn sleeps_unnoticed(self) -> bool {
        self == Breakage::SleepUnnoticed
    }

    pub(super) fn copied(self, copy: Copy) -> Copy {
        let complete = copy.complete || self == Breakage::PromoteIncomplete;
        Copy { complete, ..copy }
    }

    /// What the node makes of what it hears.
    pub(super) fn heard(self, message: Message) -> Message {
        let Message::Beat(mut beat) = message else {
            return message;
        };
        match self {
            Breakage::SkipTermBump => beat.term = 0,
            Breakage::TakeOverAnyway => beat.active = None,
            Breakage::IgnoreOtherActive if beat.stage == Stage::Active => {
                beat.stage = Stage::HandingOver;
            }
            Breakage::None
            | Breakage::IgnoreOtherActive
            | Breakage::ForgetTermFile
            | Breakage::ServeBeforeDisk
            | Breakage::PromoteIncomplete
            | Breakage::SleepUnnoticed => {}
        }
        Message::Beat(beat)
    }
}
