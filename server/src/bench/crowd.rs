//! Loads of a fixed size instead of a fixed time: keys that are held, requests that wait, leases that end.

use super::link::{Got, Link};
use super::load::{News, Sockets, broken, nonsense};
use super::machine::Process;
use super::report::Figures;
use super::workload::{Kind, Workload};
use crate::exit::{self, Failure};
use fairlock::protocol::{Key, Millis, Request, Tag, Token, Wait};
use std::time::{Duration, Instant};

/// Longer than any of these loads takes.
const LONG: Millis = Millis(600_000);
/// The lease of those that end together: long enough for all of them to be taken in time.
const SHORT: Millis = Millis(3000);
/// A server that is silent for so long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// What asks whether to go on; it is told the time that has passed and how far the load is.
pub(super) type GoOn<'a> = &'a mut dyn FnMut(Duration, u64) -> bool;

pub(super) struct Crowd<'a> {
    workload: &'a Workload,
    server: Option<Process>,
    links: Vec<Link>,
    sockets: Sockets,
    figures: Figures,
    start: Instant,
    go_on: GoOn<'a>,
}

impl<'a> Crowd<'a> {
    pub(super) fn new(
        workload: &'a Workload,
        links: Vec<Link>,
        server: Option<Process>,
        go_on: GoOn<'a>,
    ) -> Result<Crowd<'a>, Failure> {
        let sockets = Sockets::new(false, &links).map_err(broken)?;
        Ok(Crowd {
            workload,
            server,
            links,
            sockets,
            figures: Figures::new(),
            start: Instant::now(),
            go_on,
        })
    }

    pub(super) fn run(mut self) -> Result<Figures, Failure> {
        match self.workload.kind {
            Kind::Held => self.hold()?,
            Kind::Queue => self.queue_up()?,
            Kind::Expiry => self.let_end()?,
            Kind::OwnKeys | Kind::HotKey => {}
        }
        Ok(self.figures)
    }

    /// Takes many keys, looks what they cost, and gives them back.
    fn hold(&mut self) -> Result<(), Failure> {
        let before = self.memory();
        let tokens = self.acquire_all(LONG)?;
        self.figures.time = self.start.elapsed();
        self.figures.bytes_each = self.bytes_each(before, tokens.len());
        self.figures.pairs = tokens.len() as u64;
        self.release_all(&tokens)
    }

    /// One holds, all others wait; then each gives the key to the next at once.
    fn queue_up(&mut self) -> Result<(), Failure> {
        let hot = key("hot", 0);
        let count = self.workload.count as usize;
        let before = self.memory();
        for number in 0..=count {
            let link = number % self.links.len();
            self.acquire(link, &hot, number, LONG, Wait::Forever);
        }
        for link in 0..self.links.len() {
            self.links[link].push(&Request::Ping { tag: None });
        }
        let mut holder = None;
        let mut answered = 0;
        while answered < self.links.len() {
            for (_, one, _) in self.poll(0)? {
                match one {
                    News::Granted(number, token) => holder = Some((number, token)),
                    News::Pong => answered += 1,
                    other => return Err(unexpected(other)),
                }
            }
        }
        self.figures.bytes_each = self.bytes_each(before, count);
        let (mut number, mut token) = holder.ok_or_else(nonsense)?;
        let begun = Instant::now();
        for handed_over in 0..=count {
            let link = number % self.links.len();
            let given_back = Instant::now();
            self.release(link, &hot, number, token);
            let mut next = None;
            let mut released = false;
            while !released || (next.is_none() && handed_over < count) {
                for (_, one, at) in self.poll(handed_over as u64)? {
                    match one {
                        News::Granted(number, token) => {
                            self.figures.record(at - given_back);
                            next = Some((number, token));
                        }
                        News::Released(_) => released = true,
                        other => return Err(unexpected(other)),
                    }
                }
            }
            if self.figures.interrupted {
                break;
            }
            self.figures.pairs = handed_over as u64;
            if let Some(next) = next {
                (number, token) = next;
            }
        }
        self.figures.time = begun.elapsed();
        Ok(())
    }

    /// Takes many keys for a short while, waits behind each of them, and looks how late they come.
    fn let_end(&mut self) -> Result<(), Failure> {
        let count = self.workload.count as usize;
        let mut due: Vec<Option<Instant>> = vec![None; count];
        let mut tokens: Vec<Option<Token>> = vec![None; count];
        let lease = SHORT.duration();
        let (mut next, mut under_way, mut came) = (0, 0, 0);
        while came < count && !self.figures.interrupted {
            while next < count && under_way < self.window() {
                let link = next % self.links.len();
                let key = key("end", next);
                self.acquire(link, &key, next, SHORT, Wait::No);
                // Who waits has the tag behind all of the first ones.
                self.acquire(link, &key, count + next, LONG, Wait::Forever);
                next += 1;
                under_way += 1;
            }
            for (_, one, at) in self.poll(came as u64)? {
                match one {
                    News::Granted(number, _) if number < count => {
                        due[number] = Some(at + lease);
                        under_way -= 1;
                    }
                    News::Granted(number, token) => {
                        let number = number - count;
                        let due = due.get(number).copied().flatten().ok_or_else(nonsense)?;
                        // A lease begins before its grant arrives here, so a little before is not early.
                        self.figures.record(at.saturating_duration_since(due));
                        tokens[number] = Some(token);
                        came += 1;
                    }
                    other => return Err(unexpected(other)),
                }
            }
        }
        self.figures.time = self.start.elapsed();
        self.figures.pairs = came as u64;
        let held = tokens.iter().enumerate();
        let held = held.filter_map(|(number, token)| Some((number, (*token)?)));
        self.give_back("end", held.collect())
    }

    fn acquire_all(&mut self, lease: Millis) -> Result<Vec<Token>, Failure> {
        let count = self.workload.count as usize;
        let mut tokens = vec![None; count];
        let (mut next, mut under_way) = (0, 0);
        while (next < count || under_way > 0) && !(self.figures.interrupted && under_way == 0) {
            while next < count && under_way < self.window() && !self.figures.interrupted {
                let link = next % self.links.len();
                self.acquire(link, &key("held", next), next, lease, Wait::No);
                next += 1;
                under_way += 1;
            }
            for (_, one, _) in self.poll((next - under_way) as u64)? {
                let News::Granted(number, token) = one else {
                    return Err(unexpected(one));
                };
                *tokens.get_mut(number).ok_or_else(nonsense)? = Some(token);
                under_way -= 1;
            }
        }
        // Requests were made in order and all have been answered.
        Ok(tokens.into_iter().map_while(|token| token).collect())
    }

    fn release_all(&mut self, tokens: &[Token]) -> Result<(), Failure> {
        self.give_back("held", tokens.iter().copied().enumerate().collect())
    }

    fn give_back(&mut self, kind: &str, held: Vec<(usize, Token)>) -> Result<(), Failure> {
        let (mut next, mut under_way) = (0, 0);
        while next < held.len() || under_way > 0 {
            while next < held.len() && under_way < self.window() {
                let (number, token) = held[next];
                let link = number % self.links.len();
                self.release(link, &key(kind, number), number, token);
                next += 1;
                under_way += 1;
            }
            for (_, one, _) in self.poll(held.len() as u64)? {
                match one {
                    News::Released(_) => under_way -= 1,
                    // A lease that has ended while the load was interrupted.
                    News::Granted(..) => {}
                    other => return Err(unexpected(other)),
                }
            }
        }
        Ok(())
    }

    /// Requests under way on all connections together.
    fn window(&self) -> usize {
        self.workload.connections as usize * self.workload.depth as usize
    }

    fn memory(&self) -> Option<u64> {
        self.server.and_then(Process::memory)
    }

    fn bytes_each(&self, before: Option<u64>, count: usize) -> Option<f64> {
        let grown = self.memory()?.saturating_sub(before?);
        Some(grown as f64 / count.max(1) as f64)
    }

    fn acquire(&mut self, link: usize, key: &Key, number: usize, lease: Millis, wait: Wait) {
        self.links[link].push(&Request::Acquire {
            key: key.as_ref(),
            lease,
            wait,
            tag: Some(Tag::first(number as u64)),
        });
    }

    fn release(&mut self, link: usize, key: &Key, number: usize, token: Token) {
        self.links[link].push(&Request::Release {
            key: key.as_ref(),
            token,
            tag: Some(Tag::first(number as u64)),
        });
    }

    /// Sends what is to be sent and waits for what comes, with the connection it came on and when.
    fn poll(&mut self, progress: u64) -> Result<Vec<(usize, News, Instant)>, Failure> {
        let mut news = Vec::new();
        let mut ready = Vec::new();
        let patience = Instant::now() + PATIENCE;
        while news.is_empty() {
            for (number, link) in self.links.iter_mut().enumerate() {
                link.flush().map_err(broken)?;
                self.sockets.watch(number, link).map_err(broken)?;
            }
            self.sockets.wait(&mut ready).map_err(broken)?;
            for number in ready.drain(..) {
                match self.links[number].read().map_err(broken)? {
                    Got::Nothing => continue,
                    Got::End => return Err(broken(std::io::ErrorKind::UnexpectedEof.into())),
                    Got::Bytes => {}
                }
                let now = Instant::now();
                self.links[number].each_line(|reply| news.push((number, News::of(reply), now)));
            }
            if !(self.go_on)(self.start.elapsed(), progress) {
                self.figures.interrupted = true;
            }
            if Instant::now() > patience {
                let text = "the server did not answer in time";
                return Err(Failure::new(exit::UNREACHABLE, text));
            }
        }
        Ok(news)
    }
}

fn unexpected(news: News) -> Failure {
    match news {
        News::Failed(failure) => failure,
        News::Granted(..) | News::Released(_) | News::Pong => nonsense(),
    }
}

/// Twenty bytes, mostly.
fn key(kind: &str, number: usize) -> Key {
    let id = std::process::id();
    let name = format!("bench:{id}:{kind}:{number:05}");
    Key::encode(name.as_bytes()).expect("a short name is a key")
}
