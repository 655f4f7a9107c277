//! What `run` does next: the state machine alone. Events and the time come in, actions go out; no
//! process, signal, clock or socket is touched here, so every order of events can be tried in a test.

use crate::exit;
use nix::libc::{SIGCONT, SIGTSTP, SIGWINCH};
use std::time::Duration;

/// Microseconds of a clock that runs while the machine sleeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Time(pub(super) u64);

impl Time {
    pub(super) fn plus(self, time: Duration) -> Time {
        Time(self.0.saturating_add(micros(time)))
    }

    pub(super) fn minus(self, time: Duration) -> Time {
        Time(self.0.saturating_sub(micros(time)))
    }

    /// How long it is until `later`; nothing if that has passed.
    pub(super) fn until(self, later: Time) -> Duration {
        Duration::from_micros(later.0.saturating_sub(self.0))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A signal by its number.
pub(super) type Signal = i32;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Exit(u8),
    Signal(Signal),
}

impl Ended {
    fn code(self) -> u8 {
        match self {
            Ended::Exit(code) => code,
            Ended::Signal(number) => exit::code_of_signal(number),
        }
    }
}

/// How the lock was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lost {
    /// Nobody else can have it before this time.
    Until(Time),
    /// Somebody else may have it already.
    Taken,
}

/// What came of the release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Released {
    /// The server has freed the lock.
    Yes,
    /// The lock had been lost before.
    LostBefore,
    /// No answer: the lease will free it.
    Unconfirmed,
}

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// The lock was had.
    Granted,
    /// The lock was not had; the exit code says why.
    NotHad { code: u8 },
    /// COMMAND runs.
    Started,
    /// COMMAND could not be started; the exit code says why.
    NotStarted { code: u8 },
    /// Somebody wants this process to end, to stop, or to tell COMMAND something.
    Signal(Signal),
    /// COMMAND has been stopped by the terminal.
    Stopped,
    /// COMMAND has ended.
    Ended(Ended),
    /// Nothing is left of the process group of COMMAND.
    GroupEmpty,
    /// The lock is not held any more, or will not be in a moment.
    Lost(Lost),
    /// The release has ended.
    Released(Released),
    /// A time that was asked for may have come.
    Tick,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Give up waiting for the lock, on the server too.
    Cancel,
    /// Start COMMAND.
    Start,
    /// Send the signal to the process group of COMMAND.
    Send(Signal),
    /// The lock is lost: SIGTERM to the group, and awake it so that it can hear.
    Terminate,
    /// The time is over: SIGKILL to the group.
    Kill,
    /// Stop with this process's own group, as the terminal asks; once continued, continue COMMAND.
    Suspend,
    /// Say that the lock is held for what COMMAND has left behind.
    TellDraining,
    /// Say that the lock is lost and COMMAND left alone.
    TellIgnored,
    /// Release the lock.
    Release,
    /// End with this code.
    Exit(u8),
}

/// What the user has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wishes {
    pub(super) lease: Duration,
    pub(super) stop_on_lost: bool,
    pub(super) timeout_code: u8,
    pub(super) lost_code: u8,
}

impl Wishes {
    /// When the group gets SIGTERM and SIGKILL if the lease ends at `end` and is not renewed.
    pub(super) fn deadlines(&self, end: Time) -> (Time, Time) {
        (end.minus(self.lease / 8), end.minus(self.lease / 16))
    }
}

/// After a lock was taken away COMMAND has a sixteenth of the lease to end, and never more than this:
/// somebody else may be at work already.
const TAKEN_GRACE: Duration = Duration::from_secs(5);

/// How long what COMMAND left behind may go on without a word about it.
const QUIET_DRAIN: Duration = Duration::from_secs(1);

/// How long after a SIGKILL the next one follows, for a member that was just being born.
const KILL_AGAIN: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Waiting,
    Cancelling { code: u8 },
    Starting,
    Running,
    Draining { ended: Ended, tell_at: Option<Time> },
    Releasing { code: u8, command_ran: bool },
    Done,
}

/// Where `run` is.
#[derive(Debug)]
pub(super) struct Plan {
    wishes: Wishes,
    phase: Phase,
    lost: Option<Lost>,
    kill_at: Option<Time>,
}

impl Plan {
    pub(super) fn new(wishes: Wishes) -> Plan {
        Plan {
            wishes,
            phase: Phase::Waiting,
            lost: None,
            kill_at: None,
        }
    }

    /// What the user has asked for.
    pub(super) fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    /// Whether COMMAND has ended and its group may still have members.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. })
    }

    /// When the group is killed, if the lock is lost.
    pub(super) fn kill_at(&self) -> Option<Time> {
        self.kill_at
    }

    /// When the next [`Event::Tick`] is wanted.
    pub(super) fn wake_at(&self) -> Option<Time> {
        let tell_at = match self.phase {
            Phase::Draining { tell_at, .. } => tell_at,
            _ => None,
        };
        [self.kill_at, tell_at].into_iter().flatten().min()
    }

    /// Takes an event and says what to do, in this order.
    pub(super) fn handle(&mut self, now: Time, event: Event) -> Vec<Action> {
        match event {
            Event::Granted => self.granted(),
            Event::NotHad { code } => self.not_had(code),
            Event::Started => {
                self.phase = Phase::Running;
                self.lost
                    .map_or_else(Vec::new, |lost| self.stop_group(now, lost))
            }
            Event::NotStarted { code } => self.release(code, false),
            Event::Signal(signal) => self.signal(signal),
            Event::Stopped if self.has_group() => vec![Action::Suspend],
            Event::Stopped => Vec::new(),
            Event::Ended(ended) => {
                self.phase = Phase::Draining {
                    ended,
                    tell_at: Some(now.plus(QUIET_DRAIN)),
                };
                Vec::new()
            }
            Event::GroupEmpty => match self.phase {
                Phase::Draining { ended, .. } => self.release(ended.code(), true),
                _ => Vec::new(),
            },
            Event::Lost(lost) => self.lost(now, lost),
            Event::Released(released) => self.released(released),
            Event::Tick => self.tick(now),
        }
    }

    fn has_group(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Draining { .. })
    }

    fn granted(&mut self) -> Vec<Action> {
        match self.phase {
            Phase::Waiting => {
                self.phase = Phase::Starting;
                vec![Action::Start]
            }
            // The grant was under way when the wait was cancelled.
            Phase::Cancelling { code } => self.release(code, false),
            _ => Vec::new(),
        }
    }

    fn not_had(&mut self, code: u8) -> Vec<Action> {
        let code = match self.phase {
            Phase::Cancelling { code } => code,
            _ if code == exit::NOT_HAD => self.wishes.timeout_code,
            _ if code == exit::LOST => self.wishes.lost_code,
            _ => code,
        };
        self.done(code)
    }

    fn signal(&mut self, signal: Signal) -> Vec<Action> {
        match self.phase {
            _ if self.has_group() => vec![Action::Send(signal)],
            _ if signal == SIGTSTP => vec![Action::Suspend],
            _ if matches!(signal, SIGWINCH | SIGCONT) => Vec::new(),
            Phase::Waiting => {
                self.phase = Phase::Cancelling {
                    code: exit::code_of_signal(signal),
                };
                vec![Action::Cancel]
            }
            // Whoever says it again does not want to wait for an answer of the server.
            Phase::Cancelling { code } | Phase::Releasing { code, .. } => self.done(code),
            _ => Vec::new(),
        }
    }

    fn lost(&mut self, now: Time, lost: Lost) -> Vec<Action> {
        if matches!(self.phase, Phase::Releasing { .. } | Phase::Done) {
            // COMMAND had ended in time; only the release is late.
            return Vec::new();
        }
        let first = self.lost.is_none();
        self.lost = self.lost.or(Some(lost));
        if first && self.has_group() {
            self.stop_group(now, lost)
        } else {
            Vec::new()
        }
    }

    fn stop_group(&mut self, now: Time, lost: Lost) -> Vec<Action> {
        if !self.wishes.stop_on_lost {
            return vec![Action::TellIgnored];
        }
        let kill_at = match lost {
            Lost::Until(end) => self.wishes.deadlines(end).1,
            Lost::Taken => now.plus((self.wishes.lease / 16).min(TAKEN_GRACE)),
        };
        self.kill_at = Some(kill_at);
        if kill_at <= now {
            // This process stood still for too long: somebody else may have the lock.
            self.tick(now)
        } else {
            vec![Action::Terminate]
        }
    }

    fn tick(&mut self, now: Time) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Phase::Draining { tell_at, .. } = &mut self.phase
            && tell_at.is_some_and(|time| time <= now)
        {
            *tell_at = None;
            actions.push(Action::TellDraining);
        }
        if self.has_group() && self.kill_at.is_some_and(|time| time <= now) {
            self.kill_at = Some(now.plus(KILL_AGAIN));
            actions.push(Action::Kill);
        }
        actions
    }

    fn release(&mut self, code: u8, command_ran: bool) -> Vec<Action> {
        self.kill_at = None;
        self.phase = Phase::Releasing { code, command_ran };
        vec![Action::Release]
    }

    fn released(&mut self, released: Released) -> Vec<Action> {
        let Phase::Releasing { code, command_ran } = self.phase else {
            return Vec::new();
        };
        let lost = self.lost.is_some() || released == Released::LostBefore;
        if command_ran && lost && self.wishes.stop_on_lost {
            self.done(self.wishes.lost_code)
        } else {
            self.done(code)
        }
    }

    fn done(&mut self, code: u8) -> Vec<Action> {
        self.phase = Phase::Done;
        vec![Action::Exit(code)]
    }
}

#[cfg(test)]
mod tests;
