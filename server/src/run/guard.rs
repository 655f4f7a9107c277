//! The guard of `run`: a second small process that kills the process group of COMMAND when `run`
//! itself cannot do it any more. The kernel's parent death signal reaches only COMMAND, not what
//! COMMAND has started; and a `run` that is stopped or starved watches over no lease.
//!
//! ```text
//! run ──pipe──▶ guard     group P · lease ends at T · done
//!                         end of the pipe without `done`: run is dead, SIGKILL to the group
//!                         a deadline has passed unnoticed: SIGTERM, then SIGKILL
//! ```

use super::clock::now;
use super::group::send;
use super::plan::Time;
use super::terminal::Terminal;
use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What `run` tells its guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// COMMAND is about to be executed in the process group `group`; `run` is in `own`.
    Group { group: Pid, own: Pid },
    /// Unless it hears otherwise, the guard sends SIGTERM and SIGKILL at these times.
    Deadlines {
        term: Option<Time>,
        kill: Option<Time>,
    },
    /// The group has ended.
    Done,
}

const FRAME: usize = 17;

impl Word {
    /// A frame is far shorter than what a pipe takes in one piece, and made without allocation, since
    /// COMMAND's process writes one between fork and exec.
    fn encode(self) -> [u8; FRAME] {
        let (kind, one, other) = match self {
            Word::Group { group, own } => (
                1,
                group.as_raw_nonzero().get() as u64,
                own.as_raw_nonzero().get() as u64,
            ),
            Word::Deadlines { term, kill } => {
                let micros = |time: Option<Time>| time.map_or(u64::MAX, |time| time.0);
                (2, micros(term), micros(kill))
            }
            Word::Done => (3, 0, 0),
        };
        let mut frame = [0; FRAME];
        frame[0] = kind;
        frame[1..9].copy_from_slice(&one.to_ne_bytes());
        frame[9..].copy_from_slice(&other.to_ne_bytes());
        frame
    }

    fn decode(frame: &[u8; FRAME]) -> Option<Word> {
        let number = |from: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&frame[from..from + 8]);
            u64::from_ne_bytes(bytes)
        };
        let pid = |from| i32::try_from(number(from)).ok().and_then(Pid::from_raw);
        let time = |from| {
            Some(number(from))
                .filter(|micros| *micros != u64::MAX)
                .map(Time)
        };
        match frame[0] {
            1 => Some(Word::Group {
                group: pid(1)?,
                own: pid(9)?,
            }),
            2 => Some(Word::Deadlines {
                term: time(1),
                kill: time(9),
            }),
            3 => Some(Word::Done),
            _ => None,
        }
    }
}

/// The guard as `run` sees it.
#[derive(Debug)]
pub(super) struct Guard {
    line: Line,
    process: Child,
}

/// The way to the guard.
#[derive(Debug)]
pub(super) struct Line(PipeWriter);

impl Line {
    /// Tells the guard something. A guard that was killed cannot be told; `run` does all by itself
    /// as long as it can.
    pub(super) fn tell(&self, word: Word) {
        let _ = (&self.0).write_all(&word.encode());
    }
}

impl Guard {
    /// Starts the guard, in a group of its own, so that what the terminal sends passes it by, and
    /// with none of our outputs, so that it holds no pipe of the caller open.
    pub(super) fn start() -> io::Result<Guard> {
        let (reader, writer) = io::pipe()?;
        let process = Command::new("/proc/self/exe")
            .arg0("fairlock")
            .arg("run-guard")
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()?;
        Ok(Guard {
            line: Line(writer),
            process,
        })
    }

    pub(super) fn tell(&self, word: Word) {
        self.line.tell(word);
    }

    /// A second way to the guard, for COMMAND's process before it becomes COMMAND.
    pub(super) fn line(&self) -> io::Result<Line> {
        self.line.0.try_clone().map(Line)
    }

    /// Nothing is left to be guarded.
    pub(super) fn end(mut self) {
        self.tell(Word::Done);
        drop(self.line);
        // It may have been reaped with the other children.
        let _ = self.process.wait();
    }
}

/// How long the guard sleeps at most: the clock of `poll` stands still while the machine sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The guard's own process: reads from standard input what `run` tells it.
pub(crate) fn watch() -> u8 {
    // Whoever ends `run` by a signal must not end the guard with it.
    let _ = SigSet::all().thread_block();
    let mut watch = Watch::default();
    // Without a buffer: what has been read ahead would not wake `poll`.
    let Ok(mut input) = io::stdin().as_fd().try_clone_to_owned().map(File::from) else {
        return 1;
    };
    let mut frame = [0; FRAME];
    loop {
        let sleep = watch.act(now()).min(LONGEST_SLEEP);
        let limit = Timespec::try_from(sleep).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        let mut sources = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)];
        match poll(&mut sources, Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return watch.orphaned(),
        }
        if input.read_exact(&mut frame).is_err() {
            return watch.orphaned();
        }
        match Word::decode(&frame) {
            Some(Word::Group { group, own }) => {
                watch.group = Some((group, own));
            }
            Some(Word::Deadlines { term, kill }) => {
                watch.term_at = term;
                watch.kill_at = kill;
            }
            Some(Word::Done) | None => return 0,
        }
    }
}

#[derive(Default)]
struct Watch {
    /// The group of COMMAND, and that of `run`.
    group: Option<(Pid, Pid)>,
    term_at: Option<Time>,
    kill_at: Option<Time>,
}

impl Watch {
    /// Does what is due and says how long there is nothing to do.
    fn act(&mut self, now: Time) -> Duration {
        let Some((group, _)) = self.group else {
            return LONGEST_SLEEP;
        };
        if self.term_at.is_some_and(|time| time <= now) {
            self.term_at = None;
            let _ = send(group, Signal::TERM);
            let _ = send(group, Signal::CONT);
        }
        if self.kill_at.is_some_and(|time| time <= now) {
            self.kill_at = Some(now.plus(Duration::from_millis(50)));
            let _ = send(group, Signal::KILL);
        }
        [self.term_at, self.kill_at]
            .into_iter()
            .flatten()
            .map(|time| now.until(time))
            .min()
            .unwrap_or(LONGEST_SLEEP)
    }

    /// `run` is dead: nobody renews the lease, so nothing of COMMAND may go on.
    fn orphaned(&self) -> u8 {
        let Some((group, own)) = self.group else {
            return 0;
        };
        while send(group, Signal::KILL).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(terminal) = Terminal::open() {
            terminal.hand_over(group, own);
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_as_they_went_in() {
        let pid = |number| Pid::from_raw(number).expect("not 0");
        for word in [
            Word::Group {
                group: pid(1234),
                own: pid(4_194_303),
            },
            Word::Deadlines {
                term: Some(Time(0)),
                kill: Some(Time(u64::MAX - 1)),
            },
            Word::Deadlines {
                term: None,
                kill: None,
            },
            Word::Done,
        ] {
            assert_eq!(Word::decode(&word.encode()), Some(word));
        }
        assert_eq!(Word::decode(&[0; FRAME]), None);
    }
}
