//! `fairlock run`: holds a lock while a command runs, and never lets the command run without it.
//!
//! ```text
//!                 signal                  signal: passed on     stopped: the job stops with it
//!    ┌───────────────▶ Cancelling         lost: SIGTERM, SIGKILL
//!    │                     │                   ┌───┐
//! Waiting ──granted──▶ Starting ──started──▶ Running ──ended──▶ Draining ──group empty──▶ Releasing
//!    │                     └──cannot start─────────────────────────────────────────────────▲   │
//!    └──not had──────────────────────────▶ exit ◀──────────────────────────────────────────────┘
//! ```
//!
//! What is decided is decided in [`plan`], without a process or a clock; this file carries events to
//! it and does what it says. The rest has one place each:
//!
//! - COMMAND runs in a process group of its own ([`group`]), so that a signal reaches everything it
//!   has started. The lock is released when nothing of the group is left, because what is left may
//!   still write; as with `flock`, whoever wants to leave something behind puts it into a session of
//!   its own.
//! - On a terminal ([`terminal`]) the group of COMMAND is put into the foreground, so Ctrl+C and
//!   Ctrl+Z go to it alone and it may read. If it is stopped, this process stops with its own group
//!   too, so that the shell sees the job stopped; on `fg` or `bg` the lock is looked at first.
//! - All signals are blocked and read as messages ([`crate::inbox`]); those that this process was
//!   started to ignore stay ignored, for COMMAND too.
//! - If this process is killed, the kernel kills COMMAND (parent death signal), and the [`guard`] the
//!   rest of the group. The guard also keeps the time: if this process is stopped or starved while
//!   the lease runs out, it is the guard that sends SIGTERM and SIGKILL.

mod clock;
mod group;
pub(crate) mod guard;
mod plan;
mod supervisor;
mod terminal;

use crate::arguments::Run;
use crate::exit::{self, Failure};
use crate::inbox::Inbox;
use crate::values::show_seconds;
use guard::Guard;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::time::Duration;
use supervisor::Supervisor;

/// What is read as messages: what is passed on, the news of children, and what would stop this
/// process when it hands the terminal over.
const SIGNALS: [Signal; 12] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGCHLD,
    Signal::SIGTTOU,
    Signal::SIGTTIN,
];

/// Keep-alive needs room for renewals.
const SHORTEST_KEPT_LEASE: Duration = Duration::from_secs(1);

/// Runs COMMAND under the lock and gives the exit code.
pub(crate) fn run(arguments: Run) -> Result<u8, Failure> {
    if arguments.keep_alive() && arguments.want.lease < SHORTEST_KEPT_LEASE {
        return Err(Failure::usage(format_args!(
            "--lease {} is too short to be renewed: give at least 1, or --no-keep-alive",
            show_seconds(arguments.want.lease)
        )));
    }
    group::restore_child_signal();
    let blocked = SigSet::thread_get_mask().unwrap_or_else(|_| SigSet::empty());
    // Before any thread is there, so that all of them leave the signals to the inbox.
    let inbox = Inbox::new(&SIGNALS).map_err(|error| cannot("listen for signals", &error))?;
    let client = arguments.connection.client_for(&arguments.want)?;
    let key = arguments.key.bytes();
    arguments.want.check_for_outer_run(&client, key)?;
    let guard = Guard::start().map_err(|error| cannot("start the guard", &error))?;
    let mut supervisor = Supervisor::new(arguments, inbox, client, guard, blocked);
    let code = supervisor
        .supervise()
        .map_err(|error| cannot("wait for events", &error));
    supervisor.end();
    code
}

fn cannot(what: &str, error: &io::Error) -> Failure {
    Failure::new(exit::FAILED, format_args!("cannot {what}: {error}"))
}
