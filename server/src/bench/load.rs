//! The load itself: many requests under way over some connections, driven by one thread, so that it
//! takes as little as it can from a server that is measured on the same machine.

use super::link::{Got, Link};
use super::report::Figures;
use super::workload::{Kind, Workload};
use crate::exit::{self, Failure};
use fairlock::protocol::{Key, Millis, Reply, Request, Tag, Token, Wait};
use fairlock::tls::Connector;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const LEASE: Millis = Millis(30_000);

/// How long replies that are due at the end are waited for.
const DRAIN: Duration = Duration::from_secs(1);

/// How much longer a load runs that has not had a single lock, for a machine that is busy with
/// something else.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often the caller is asked whether to go on.
const CHECK: Duration = Duration::from_millis(100);

/// One that takes a lock and gives it back, again and again.
struct Worker {
    link: usize,
    key: Key,
    /// When its request under way was made.
    asked: Instant,
    grants: u64,
}

pub(super) struct Load<'a> {
    workload: &'a Workload,
    links: Vec<Link>,
    workers: Vec<Worker>,
    figures: Figures,
    /// Requests that have not been answered.
    under_way: usize,
    /// When the hot key was last given back.
    given_back: Option<Instant>,
    stopping: bool,
}

impl<'a> Load<'a> {
    /// Opens the connections.
    pub(super) fn new(
        workload: &'a Workload,
        server: &str,
        secret: Option<&[u8]>,
        connector: Option<&Connector>,
    ) -> Result<Load<'a>, Failure> {
        let links = (0..workload.connections)
            .map(|_| Link::open(server, secret, connector))
            .collect::<Result<Vec<_>, _>>()?;
        let now = Instant::now();
        let workers = (0..workload.connections as usize * workload.depth as usize)
            .map(|number| Worker {
                link: number % links.len(),
                key: key(workload.kind, number),
                asked: now,
                grants: 0,
            })
            .collect();
        Ok(Load {
            workload,
            links,
            workers,
            figures: Figures::new(),
            under_way: 0,
            given_back: None,
            stopping: false,
        })
    }

    /// Runs for the given time, or until `go_on` says no. It is asked ten times a second and told the
    /// time that has passed and the pairs so far.
    pub(super) fn run(
        mut self,
        time: Duration,
        mut go_on: impl FnMut(Duration, u64) -> bool,
    ) -> Result<Figures, Failure> {
        let mut sockets = Sockets::new(self.workload.depth == 1, &self.links).map_err(broken)?;
        let start = Instant::now();
        for number in 0..self.workers.len() {
            self.acquire(number, start);
        }
        for number in 0..self.links.len() {
            self.flush(number, &mut sockets)?;
        }
        let mut next_check = start + CHECK;
        let mut ended: Option<Instant> = None;
        let mut ready = Vec::new();
        while self.under_way > 0 {
            sockets.wait(&mut ready).map_err(broken)?;
            for number in ready.drain(..) {
                self.serve(number)?;
                self.flush(number, &mut sockets)?;
            }
            let now = Instant::now();
            if now >= next_check {
                next_check = now + CHECK;
                if !self.stopping && !go_on(now - start, self.figures.pairs) {
                    self.figures.interrupted = true;
                    self.stopping = true;
                }
            }
            let patience = if self.figures.pairs == 0 {
                PATIENCE
            } else {
                Duration::ZERO
            };
            self.stopping |= now >= start + time + patience;
            if self.stopping {
                let ended = *ended.get_or_insert(now);
                if now >= ended + DRAIN {
                    break;
                }
            }
        }
        self.figures.time = ended.map_or_else(|| start.elapsed(), |ended| ended - start);
        if self.figures.pairs == 0 && !self.figures.interrupted {
            return Err(Failure::new(
                exit::UNREACHABLE,
                "the server did not answer in time",
            ));
        }
        if self.workload.kind == Kind::HotKey {
            self.figures.grants = self.workers.iter().map(|worker| worker.grants).collect();
        }
        Ok(self.figures)
    }

    /// Reads what a connection has and answers each line with the next request.
    fn serve(&mut self, number: usize) -> Result<(), Failure> {
        match self.links[number].read().map_err(broken)? {
            Got::Nothing => return Ok(()),
            Got::End => return Err(broken(io::ErrorKind::UnexpectedEof.into())),
            Got::Bytes => {}
        }
        let now = Instant::now();
        let mut news = std::mem::take(&mut self.figures.news);
        self.links[number].each_line(|reply| news.push(News::of(reply)));
        for one in news.drain(..) {
            match one {
                News::Granted(worker, token) => self.granted(worker, token, now)?,
                News::Released(worker) => self.released(worker, now)?,
                News::Pong => return Err(nonsense()),
                News::Failed(failure) => return Err(failure),
            }
        }
        self.figures.news = news;
        Ok(())
    }

    fn granted(&mut self, number: usize, token: Token, now: Instant) -> Result<(), Failure> {
        let hot = self.workload.kind == Kind::HotKey;
        let worker = self.workers.get_mut(number).ok_or_else(nonsense)?;
        if hot {
            if let Some(given_back) = self.given_back.take() {
                self.figures.record(now - given_back);
            }
        } else {
            self.figures.record(now - worker.asked);
        }
        worker.asked = now;
        worker.grants += u64::from(!self.stopping);
        // The grant is answered and the release under way, so their number stays.
        self.links[worker.link].push(&Request::Release {
            key: worker.key.as_ref(),
            token,
            tag: Some(Tag::first(number as u64)),
        });
        if hot {
            self.given_back = Some(now);
            if !self.stopping {
                self.acquire(number, now);
            }
        }
        Ok(())
    }

    fn released(&mut self, number: usize, now: Instant) -> Result<(), Failure> {
        let worker = self.workers.get(number).ok_or_else(nonsense)?;
        self.under_way -= 1;
        self.figures.pairs += u64::from(!self.stopping);
        if self.workload.kind == Kind::OwnKeys {
            self.figures.record(now - worker.asked);
            if !self.stopping {
                self.acquire(number, now);
            }
        }
        Ok(())
    }

    fn acquire(&mut self, number: usize, now: Instant) {
        let worker = &mut self.workers[number];
        worker.asked = now;
        self.links[worker.link].push(&Request::Acquire {
            key: worker.key.as_ref(),
            lease: LEASE,
            wait: Wait::Forever,
            tag: Some(Tag::first(number as u64)),
        });
        self.under_way += 1;
    }

    fn flush(&mut self, number: usize, sockets: &mut Sockets) -> Result<(), Failure> {
        let link = &mut self.links[number];
        if link.has_to_send() {
            if let Some(given_back) = &mut self.given_back {
                *given_back = Instant::now();
            }
            link.flush().map_err(broken)?;
        }
        sockets.watch(number, link).map_err(broken)
    }
}

pub(super) fn broken(error: io::Error) -> Failure {
    Failure::new(
        exit::UNREACHABLE,
        format_args!("the connection broke: {error}"),
    )
}

pub(super) fn nonsense() -> Failure {
    Failure::new(exit::FAILED, "the server sent a line that answers nothing")
}

/// What a line of the server means to a load.
pub(super) enum News {
    Granted(usize, Token),
    Released(usize),
    Pong,
    Failed(Failure),
}

impl News {
    pub(super) fn of(reply: Option<Reply<'_>>) -> News {
        let worker = |tag: Option<Tag>| tag.map_or(usize::MAX, |tag| tag.number as usize);
        News::Failed(match reply {
            Some(Reply::Granted { token, tag, .. }) => return News::Granted(worker(tag), token),
            Some(Reply::Released { ok: true, tag, .. }) => return News::Released(worker(tag)),
            Some(Reply::Pong { .. }) => return News::Pong,
            Some(Reply::Released { .. }) => {
                Failure::new(exit::LOST, "the server lost a lock of the load")
            }
            Some(Reply::Refused { code, text, .. }) => Failure::new(
                exit::REFUSED,
                format_args!("the server refuses ({code}): {text}"),
            ),
            Some(Reply::Moved { address, .. }) => Failure::new(
                exit::UNREACHABLE,
                format_args!("the active node is now {address}"),
            ),
            _ => nonsense(),
        })
    }
}

/// A key of its own for each worker, or the one that all of them want.
fn key(kind: Kind, number: usize) -> Key {
    let id = std::process::id();
    let name = if kind == Kind::HotKey {
        format!("bench:{id}:hot")
    } else {
        format!("bench:{id}:{number}")
    };
    Key::encode(name.as_bytes()).expect("a short name is a key")
}

/// Which connections have something to read or take more to send. A lone one that has only one
/// request under way is simply read from.
pub(super) struct Sockets {
    poll: Option<OwnedFd>,
    events: Vec<Event>,
    /// For each connection whether it is asked to take more.
    writing: Vec<bool>,
}

impl Sockets {
    pub(super) fn new(one_at_a_time: bool, links: &[Link]) -> io::Result<Sockets> {
        let poll = match links {
            [link] if one_at_a_time => {
                link.set_patience(Some(CHECK))?;
                None
            }
            _ => {
                let poll = epoll::create(CreateFlags::CLOEXEC)?;
                for (number, link) in links.iter().enumerate() {
                    link.set_patience(None)?;
                    epoll::add(
                        &poll,
                        link,
                        EventData::new_u64(number as u64),
                        EventFlags::IN,
                    )?;
                }
                Some(poll)
            }
        };
        Ok(Sockets {
            poll,
            events: Vec::with_capacity(1024),
            writing: vec![false; links.len()],
        })
    }

    pub(super) fn wait(&mut self, ready: &mut Vec<usize>) -> io::Result<()> {
        let Some(poll) = &self.poll else {
            ready.push(0);
            return Ok(());
        };
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(CHECK.subsec_nanos()),
        };
        self.events.clear();
        match epoll::wait(
            poll,
            rustix::buffer::spare_capacity(&mut self.events),
            Some(&limit),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        ready.extend(self.events.iter().map(|event| event.data.u64() as usize));
        Ok(())
    }

    /// Asks to be woken when the connection takes more, as long as it has more to send.
    pub(super) fn watch(&mut self, number: usize, link: &Link) -> io::Result<()> {
        let Some(poll) = &self.poll else {
            return Ok(());
        };
        if link.has_to_send() != self.writing[number] {
            self.writing[number] = link.has_to_send();
            let flags = if self.writing[number] {
                EventFlags::IN | EventFlags::OUT
            } else {
                EventFlags::IN
            };
            epoll::modify(poll, link, EventData::new_u64(number as u64), flags)?;
        }
        Ok(())
    }
}
