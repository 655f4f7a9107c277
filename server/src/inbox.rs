//! One place to wait for everything that can happen to a command: signals sent to this process and
//! messages from the threads of the client. Signals are blocked and read like messages, so no code
//! runs inside a signal handler, and none is missed between a look and a sleep.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

/// Signals and messages, in the order in which they are found.
pub(crate) struct Inbox<T> {
    signals: SignalFd,
    messages: mpsc::Receiver<T>,
    sender: mpsc::Sender<T>,
    bell: Arc<OwnedFd>,
}

/// What came in.
pub(crate) enum Received<T> {
    /// A signal.
    Signal {
        /// Its number.
        number: i32,
        /// The process that sent it, unless it was the kernel.
        sender: Option<u32>,
    },
    /// A message.
    Message(T),
}

/// Puts messages into an inbox, from any thread.
pub(crate) struct Sender<T> {
    messages: mpsc::Sender<T>,
    bell: Arc<OwnedFd>,
}

impl<T> Sender<T> {
    pub(crate) fn send(&self, message: T) {
        // An inbox that is gone needs no message any more.
        if self.messages.send(message).is_ok() {
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
    }
}

impl<T> Inbox<T> {
    /// Blocks `signals` in this thread and in all that it starts from now on, and receives them here.
    /// A signal that this process was started to ignore (`nohup`) stays ignored.
    pub(crate) fn new(signals: &[Signal]) -> io::Result<Inbox<T>> {
        let ignored = ignored_signals();
        let set: SigSet = signals
            .iter()
            .filter(|signal| ignored & (1 << (**signal as i32 - 1)) == 0)
            .copied()
            .collect();
        set.thread_block()?;
        let (sender, messages) = mpsc::channel();
        Ok(Inbox {
            signals: SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?,
            messages,
            sender,
            bell: Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?),
        })
    }

    pub(crate) fn sender(&self) -> Sender<T> {
        Sender {
            messages: self.sender.clone(),
            bell: self.bell.clone(),
        }
    }

    /// The next signal or message; `None` if there is none within `limit`.
    pub(crate) fn next(&self, limit: Option<Duration>) -> io::Result<Option<Received<T>>> {
        if let Some(received) = self.take()? {
            return Ok(Some(received));
        }
        let limit = limit.map(|limit| {
            // Rounded up, so that who comes back finds the time to have come.
            let limit = limit + Duration::from_micros(1);
            Timespec::try_from(limit).unwrap_or(Timespec {
                tv_sec: 3600,
                tv_nsec: 0,
            })
        });
        let mut sources = [
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
        ];
        match poll(&mut sources, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => self.take(),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&self) -> io::Result<Option<Received<T>>> {
        match self.signals.read_signal() {
            Ok(Some(info)) => {
                return Ok(Some(Received::Signal {
                    number: info.ssi_signo as i32,
                    sender: (info.ssi_code <= 0).then_some(info.ssi_pid),
                }));
            }
            Ok(None) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // The bell is stilled before the look, so that a message after the look rings it again.
        let mut rung = [0; 8];
        let _ = rustix::io::read(&*self.bell, &mut rung);
        let message = self.messages.try_recv().ok();
        if message.is_some() {
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
        Ok(message.map(Received::Message))
    }
}

/// The signals that this process ignores, bit 0 for signal 1. The kernel tells it; asking by
/// `sigaction` would take unsafe code.
fn ignored_signals() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}
