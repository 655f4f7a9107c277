//! The controlling terminal, as far as `run` has to do with it: whose process group is in the
//! foreground, and so gets Ctrl+C and may read. Never touches the modes of the terminal.

use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::fs::{File, OpenOptions};
use std::io;

/// The controlling terminal of this process.
#[derive(Debug)]
pub(super) struct Terminal(File);

impl Terminal {
    /// Opens it; there is none in a service or a cron job.
    pub(super) fn open() -> Option<Terminal> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty");
        tty.ok().map(Terminal)
    }

    pub(super) fn try_clone(&self) -> io::Result<Terminal> {
        self.0.try_clone().map(Terminal)
    }

    /// Whether `group` is in the foreground.
    pub(super) fn belongs_to(&self, group: Pid) -> bool {
        tcgetpgrp(&self.0) == Ok(group)
    }

    /// Whether this process's own group is in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        self.belongs_to(getpgrp())
    }

    /// Puts `group` into the foreground. SIGTTOU has to be blocked. A terminal that is gone by now
    /// belongs to nobody, which is no failure of ours.
    pub(super) fn give_to(&self, group: Pid) {
        let _ = tcsetpgrp(&self.0, group);
    }

    /// Puts `to` into the foreground, if it is `from` that stands there.
    pub(super) fn hand_over(&self, from: Pid, to: Pid) {
        if self.belongs_to(from) {
            self.give_to(to);
        }
    }
}
