//! Carries events to the [`plan`](super::plan) of `run` and does what it says: the one place where
//! the client, COMMAND's process group, the guard and the terminal meet.

use super::clock::now;
use super::group::{self, Change};
use super::guard::{Guard, Word};
use super::plan::{Action, Event, Lost, Plan, Released, Time, Wishes};
use super::terminal::Terminal;
use crate::arguments::{OnLost, Run};
use crate::connect;
use crate::exit::{self, Failure, tell};
use crate::inbox::{Inbox, Received};
use crate::text;
use fairlock::{Client, Error, ErrorKind, Lock, LostReason, Pending};
use nix::sys::signal::{SigSet, Signal as Name};
use rustix::process::{Pid, Signal, getpgid, getpgrp};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// How often this process looks around while COMMAND runs: the clock of `poll` stands still while
/// the machine sleeps.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// How often it is looked whether the group has become empty: a member whose parent is not this
/// process ends without a word to us.
const LOOK_AT_GROUP: Duration = Duration::from_millis(50);

/// What the client's thread tells.
pub(super) enum Message {
    Acquired(Result<Option<Lock>, Error>),
    Lost(LostReason),
    Released(Result<bool, Error>),
}

pub(super) struct Supervisor {
    plan: Plan,
    arguments: Run,
    inbox: Inbox<Message>,
    client: Client,
    pending: Option<Pending>,
    /// When people are told that it waits.
    tell_of_wait_at: Option<Time>,
    lock: Option<Lock>,
    /// When the lease ends, as last confirmed.
    lease_end: Time,
    /// When the guard sends SIGTERM unless it is told another time before.
    guard_acts_at: Option<Time>,
    told_lost: bool,
    /// The process group of COMMAND, which is also the id of COMMAND.
    group: Option<Pid>,
    guard: Guard,
    terminal: Option<Terminal>,
    /// The signals that were blocked when this process began.
    blocked: SigSet,
}

impl Supervisor {
    pub(super) fn new(
        arguments: Run,
        inbox: Inbox<Message>,
        client: Client,
        guard: Guard,
        blocked: SigSet,
    ) -> Supervisor {
        Supervisor {
            plan: Plan::new(Wishes {
                lease: arguments.want.lease,
                stop_on_lost: arguments.on_lost == OnLost::Stop,
                timeout_code: arguments.timeout_code,
                lost_code: arguments.lost_code,
            }),
            arguments,
            inbox,
            client,
            pending: None,
            tell_of_wait_at: None,
            lock: None,
            lease_end: Time(0),
            guard_acts_at: None,
            told_lost: false,
            group: None,
            guard,
            terminal: Terminal::open(),
            blocked,
        }
    }

    /// From the acquire to the exit code.
    pub(super) fn supervise(&mut self) -> io::Result<u8> {
        self.acquire();
        loop {
            let received = self.inbox.next(self.sleep())?;
            let mut events = VecDeque::from_iter(self.overslept());
            events.extend(self.events(received));
            events.push_back(Event::Tick);
            while let Some(event) = events.pop_front() {
                for action in self.plan.handle(now(), event) {
                    if let Action::Exit(code) = action {
                        return Ok(code);
                    }
                    events.extend(self.perform(action));
                }
                if self.plan.is_draining() && self.group.is_none_or(group::is_empty) {
                    events.push_back(Event::GroupEmpty);
                }
            }
            self.inform_guard();
            self.tell_of_wait();
        }
    }

    /// Nothing of COMMAND is left.
    pub(super) fn end(self) {
        self.take_terminal_back();
        self.guard.end();
    }

    fn acquire(&mut self) {
        let done = self.inbox.sender();
        let pending = self.arguments.want.submit(
            &self.client,
            self.arguments.key.bytes(),
            self.arguments.keep_alive(),
            move |result| done.send(Message::Acquired(result)),
        );
        self.pending = Some(pending);
        self.tell_of_wait_at = connect::quiet_wait().map(|time| now().plus(time));
    }

    fn tell_of_wait(&mut self) {
        let is_due = self.tell_of_wait_at.take_if(|time| *time <= now());
        if is_due.is_some() && self.pending.is_some() {
            connect::tell_of_wait(&self.client, self.arguments.key.bytes());
        }
    }

    /// How long nothing has to be done unless something happens.
    fn sleep(&self) -> Option<Duration> {
        if self.group.is_none() {
            return self.tell_of_wait_at.map(|time| now().until(time));
        }
        let look_around = if self.plan.is_draining() {
            LOOK_AT_GROUP
        } else {
            (self.arguments.want.lease / 24).min(LOOK_AROUND)
        };
        let wake = self.plan.wake_at().map(|time| now().until(time));
        Some(wake.map_or(look_around, |wake| wake.min(look_around)))
    }

    /// What has come in, as events of the plan.
    fn events(&mut self, received: Option<Received<Message>>) -> Vec<Event> {
        match received {
            None => Vec::new(),
            Some(Received::Signal { number, sender }) => self.signal(number, sender),
            Some(Received::Message(Message::Acquired(result))) => vec![self.acquired(result)],
            Some(Received::Message(Message::Lost(reason))) => vec![self.lost(reason)],
            Some(Received::Message(Message::Released(result))) => {
                vec![Event::Released(released(result))]
            }
        }
    }

    fn signal(&mut self, number: i32, sender: Option<u32>) -> Vec<Event> {
        match Name::try_from(number) {
            Ok(Name::SIGCHLD) => self.changes_of_children(),
            Ok(Name::SIGTTOU | Name::SIGTTIN) => Vec::new(),
            // A command that signals everybody (`kill 0` in a script that changed its group) means
            // others; passed on, it would hear its own words.
            _ if self.is_of_command(sender) => Vec::new(),
            _ => vec![Event::Signal(number)],
        }
    }

    fn is_of_command(&self, sender: Option<u32>) -> bool {
        let sender = sender
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        match (sender, self.group) {
            (Some(sender), Some(group)) => getpgid(Some(sender)) == Ok(group),
            _ => false,
        }
    }

    fn changes_of_children(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some((pid, change)) = group::next_change() {
            if Some(pid) != self.group {
                continue;
            }
            match change {
                Change::Ended(ended) => events.push(Event::Ended(ended)),
                Change::Stopped(signal) => {
                    let for_terminal =
                        matches!(Name::try_from(signal), Ok(Name::SIGTTIN | Name::SIGTTOU));
                    let has_terminal = self
                        .terminal
                        .as_ref()
                        .is_some_and(|terminal| terminal.belongs_to(pid));
                    if for_terminal && has_terminal {
                        // It asked for the terminal in the moment before it got it.
                        let _ = group::send(pid, Signal::CONT);
                    } else if for_terminal || signal == Name::SIGTSTP as i32 {
                        events.push(Event::Stopped);
                    }
                }
                Change::Continued => {}
            }
        }
        events
    }

    fn acquired(&mut self, result: Result<Option<Lock>, Error>) -> Event {
        self.pending = None;
        let key = text::key(self.arguments.key.bytes());
        match result {
            Ok(Some(lock)) => {
                self.lease_end = now().plus(lock.remaining());
                let lost = self.inbox.sender();
                lock.on_lost(move |reason| lost.send(Message::Lost(reason)));
                self.lock = Some(lock);
                Event::Granted
            }
            Ok(None) => {
                tell(format_args!("somebody else holds {key}"));
                Event::NotHad {
                    code: exit::NOT_HAD,
                }
            }
            Err(error) => {
                if matches!(error.kind(), ErrorKind::Cancelled) {
                    // Until the server knows that nobody waits any more, for at most a second.
                    let _ = self.client.close().call();
                    return Event::NotHad { code: exit::FAILED };
                }
                let failure = Failure::from(error);
                tell(&failure.message);
                Event::NotHad { code: failure.code }
            }
        }
    }

    fn lost(&mut self, reason: LostReason) -> Event {
        self.tell_lost(describe(reason));
        Event::Lost(match reason {
            LostReason::Expired | LostReason::Unconfirmed => Lost::Until(self.lease_end),
            _ => Lost::Taken,
        })
    }

    /// Says once how the lock was lost.
    fn tell_lost(&mut self, how: &str) {
        if !std::mem::replace(&mut self.told_lost, true) {
            let key = text::key(self.arguments.key.bytes());
            tell(format_args!("the lock {key} is lost: {how}"));
        }
    }

    /// Does what the plan says; what comes of it at once are further events.
    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Cancel => {
                if let Some(pending) = &self.pending {
                    pending.cancel();
                }
            }
            Action::Start => return Some(self.start()),
            Action::Send(number) => self.send(number),
            Action::Terminate => {
                self.signal_group(Signal::TERM);
                // One that is stopped hears nothing before it is awake.
                self.signal_group(Signal::CONT);
            }
            Action::Kill => self.signal_group(Signal::KILL),
            Action::Suspend => return self.suspend(),
            Action::TellDraining => tell(
                "COMMAND has ended, but not all that it started in its process group: the lock is held until that has ended too",
            ),
            Action::TellIgnored => {
                tell("COMMAND goes on without the lock, as --on-lost ignore says")
            }
            Action::Release => self.release(),
            Action::Exit(_) => {}
        }
        None
    }

    fn start(&mut self) -> Event {
        let Some(token) = self.lock.as_ref().map(|lock| lock.token().get()) else {
            return Event::NotStarted { code: exit::FAILED };
        };
        let terminal = self
            .terminal
            .as_ref()
            .filter(|terminal| terminal.is_ours())
            .and_then(|terminal| terminal.try_clone().ok());
        // The guard keeps the time from the first moment on.
        self.inform_guard();
        let started = group::start(group::Start {
            command: &self.arguments.command,
            key: self.arguments.key.os_str(),
            token,
            terminal,
            guard: self.guard.line().ok(),
            blocked: self.blocked,
        });
        match started {
            Ok(pid) => {
                self.group = Some(pid);
                Event::Started
            }
            Err(error) => {
                let command = self.arguments.command.first();
                let name = command.map_or_else(String::new, |name| name.display().to_string());
                tell(format_args!("cannot run {name}: {error}"));
                Event::NotStarted {
                    code: match error.kind() {
                        io::ErrorKind::NotFound => exit::NOT_FOUND,
                        _ => exit::NOT_EXECUTABLE,
                    },
                }
            }
        }
    }

    /// Passes a signal on.
    fn send(&mut self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else {
            return;
        };
        if signal == Signal::CONT
            && let (Some(terminal), Some(group)) = (&self.terminal, self.group)
        {
            // A shell that says `fg` has put us into the foreground, and means COMMAND.
            terminal.hand_over(getpgrp(), group);
        }
        self.signal_group(signal);
    }

    fn signal_group(&self, signal: Signal) {
        let Some(group) = self.group else { return };
        match group::send(group, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => tell(format_args!(
                "cannot send a signal to COMMAND: {}",
                io::Error::from(error)
            )),
        }
    }

    /// Stops this process's group as Ctrl+Z has stopped COMMAND, and goes on when it is continued. In
    /// a group that no shell looks after the kernel does not stop anybody, and all goes on at once.
    fn suspend(&mut self) -> Option<Event> {
        self.take_terminal_back();
        let stop: SigSet = [Name::SIGTSTP].into_iter().collect();
        let _ = group::send(getpgrp(), Signal::TSTP);
        let _ = stop.thread_unblock();
        // Stopped here.
        let _ = stop.thread_block();
        let group = self.group?;
        if let Some(terminal) = &self.terminal {
            terminal.hand_over(getpgrp(), group);
        }
        // Looked at before COMMAND wakes up: it must not write once more.
        let overslept = self.overslept();
        if overslept.is_none() {
            self.signal_group(Signal::CONT);
        }
        overslept
    }

    /// Whether this process stood still for so long that the guard has acted in its place. Whatever
    /// the client says now, COMMAND has been told to end.
    fn overslept(&mut self) -> Option<Event> {
        self.guard_acts_at.take_if(|time| *time <= now())?;
        self.group?;
        self.tell_lost("this process stood still for too long to renew it");
        Some(Event::Lost(Lost::Until(self.lease_end)))
    }

    fn release(&mut self) {
        let done = self.inbox.sender();
        match self.lock.take() {
            Some(lock) => {
                lock.release()
                    .submit(move |result| done.send(Message::Released(result)));
            }
            None => done.send(Message::Released(Ok(false))),
        }
    }

    /// Tells the guard until when the lease has been confirmed.
    fn inform_guard(&mut self) {
        if self.arguments.on_lost == OnLost::Ignore {
            return;
        }
        let Some(lock) = &self.lock else { return };
        if let Some(kill_at) = self.plan.kill_at() {
            self.guard_acts_at = None;
            self.guard.tell(Word::Deadlines {
                term: None,
                kill: Some(kill_at),
            });
            return;
        }
        let end = now().plus(lock.remaining());
        if end > self.lease_end || self.group.is_none() {
            self.lease_end = self.lease_end.max(end);
            let (term, kill) = self.plan.wishes().deadlines(self.lease_end);
            // A little later than this process itself, so that COMMAND hears SIGTERM once.
            let term = term.plus(self.arguments.want.lease / 64);
            self.guard_acts_at = Some(term);
            self.guard.tell(Word::Deadlines {
                term: Some(term),
                kill: Some(kill),
            });
        }
    }

    fn take_terminal_back(&self) {
        if let (Some(terminal), Some(group)) = (&self.terminal, self.group) {
            terminal.hand_over(group, getpgrp());
        }
    }
}

fn released(result: Result<bool, Error>) -> Released {
    match result {
        Ok(true) => Released::Yes,
        Ok(false) => Released::LostBefore,
        Err(error) => {
            tell(format_args!("{error}"));
            Released::Unconfirmed
        }
    }
}

fn describe(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Expired => "its lease is over",
        LostReason::Taken => "the server says that it is not held any more",
        LostReason::Unconfirmed => "no server has confirmed its renewal in time",
        LostReason::Closed => "the client was closed",
    }
}
