//! COMMAND and its process group: how it is started, told something, and found to have ended.

use super::guard::{Line, Word};
use super::plan::Ended;
use super::terminal::Terminal;
use nix::sys::signal::{SigHandler, SigSet, Signal as NixSignal};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, getpid, getppid, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal, test_kill_process_group, wait,
};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What to start, and with what.
pub(super) struct Start<'a> {
    pub(super) command: &'a [OsString],
    pub(super) key: &'a OsStr,
    pub(super) token: u64,
    /// The terminal, if this process's group is in its foreground.
    pub(super) terminal: Option<Terminal>,
    /// Where the guard hears of the new group.
    pub(super) guard: Option<Line>,
    /// The signals that COMMAND is to find blocked: those that were when this process began.
    pub(super) blocked: SigSet,
}

/// Lets the ends of children be told to this process, should it have been started with SIGCHLD
/// ignored, as some careless parents do.
pub(super) fn restore_child_signal() {
    // SAFETY: the default action replaces whatever was there; no handler of ours exists that could
    // be lost, and no other thread is there yet.
    #[allow(unsafe_code)]
    let _ = unsafe { nix::sys::signal::signal(NixSignal::SIGCHLD, SigHandler::SigDfl) };
}

/// Starts COMMAND in a process group of its own and gives its id, which is that of the group too.
///
/// To be called on the thread that lives as long as this process: the death signal is sent when the
/// *thread* ends that started COMMAND.
pub(super) fn start(start: Start<'_>) -> io::Result<Pid> {
    // What COMMAND leaves behind becomes our child, so that its end is told to us.
    let _ = set_child_subreaper(getpid().into());
    let (program, arguments) = start
        .command
        .split_first()
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("FAIRLOCK_KEY", start.key)
        .env("FAIRLOCK_TOKEN", start.token.to_string())
        .process_group(0);
    let parent = getpid();
    let own = getpgrp();
    let (terminal, guard, signals) = (start.terminal, start.guard, start.blocked);
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(parent) {
            // The parent died before the line above: nobody will send that signal.
            return Err(Errno::SRCH.into());
        }
        let group = getpid();
        if let Some(guard) = &guard {
            guard.tell(Word::Group { group, own });
        }
        // The signals of this process are still blocked here, SIGTTOU among them, as it has to be
        // for a process of the background that moves itself into the foreground.
        if let Some(terminal) = &terminal {
            terminal.give_to(group);
        }
        signals.thread_set_mask()?;
        Ok(())
    };
    // SAFETY: between fork and exec `prepare` makes system calls only (prctl, getppid, getpid, write,
    // sigprocmask, ioctl), on values made before the fork; it allocates nothing and takes no lock.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(prepare);
    }
    let child = command.spawn()?;
    // The child is waited for by `next_change` alone.
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::from(Errno::SRCH))
}

/// Sends a signal to every member of a process group.
pub(super) fn send(group: Pid, signal: Signal) -> rustix::io::Result<()> {
    kill_process_group(group, signal)
}

/// Whether a process group has no member any more. One that may not be signalled is there.
pub(super) fn is_empty(group: Pid) -> bool {
    test_kill_process_group(group) == Err(Errno::SRCH)
}

/// What a child has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Ended(Ended),
    Stopped(i32),
    Continued,
}

/// The next thing that a child of this process has done, or one that it has inherited; `None` if
/// nothing is new.
pub(super) fn next_change() -> Option<(Pid, Change)> {
    loop {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        let (pid, status) = match wait(options) {
            Ok(changed) => changed?,
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        };
        let change = if let Some(code) = status.exit_status() {
            Change::Ended(Ended::Exit(u8::try_from(code & 0xFF).unwrap_or(u8::MAX)))
        } else if let Some(signal) = status.terminating_signal() {
            Change::Ended(Ended::Signal(signal))
        } else if let Some(signal) = status.stopping_signal() {
            Change::Stopped(signal)
        } else {
            Change::Continued
        };
        return Some((pid, change));
    }
}
