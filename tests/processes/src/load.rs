//! Clients that work while nodes fail, and write down what they see: threads with Rust clients, and a
//! process with Python clients.

use crate::history::{Attempt, Moment, Outcome, Release, moment};
use crate::{LIMIT, skip};
use fairlock::{Client, Error, ErrorKind, Lock};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Far longer than a client has to wait for anything in these tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// Which lease the workers ask for: longer than a fault lasts.
const LEASE: Duration = Duration::from_secs(20);

/// What clients have seen so far; cheap to clone.
#[derive(Clone, Default)]
pub struct Record(Arc<Mutex<Vec<Attempt>>>);

impl Record {
    /// Adds a call that has ended.
    pub fn add(&self, attempt: Attempt) {
        self.0.lock().expect("nobody panics in it").push(attempt);
    }

    /// All of it.
    #[must_use]
    pub fn take(&self) -> Vec<Attempt> {
        std::mem::take(&mut self.0.lock().expect("nobody panics in it"))
    }

    /// How many grants there are.
    #[must_use]
    pub fn grants(&self) -> usize {
        let attempts = self.0.lock().expect("nobody panics in it");
        let granted = |attempt: &&Attempt| matches!(attempt.outcome, Outcome::Granted(_));
        attempts.iter().filter(granted).count()
    }

    /// Waits until this many more grants have come.
    pub fn until_more(&self, count: usize) {
        let (begin, before) = (Instant::now(), self.grants());
        while self.grants() < before + count {
            assert!(begin.elapsed() < PATIENCE, "the clients get no locks");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until so many more grants have come for each of so many clients. Then all have found the server that is there: one
    /// that is refused tries again after three seconds only, and may find that one gone too.
    pub fn until_each_has_more(&self, clients: usize, count: usize) {
        let (begin, before) = (Instant::now(), self.grants_of_each());
        let of = |grants: &BTreeMap<u64, usize>, client: u64| {
            grants.get(&client).copied().unwrap_or_default()
        };
        loop {
            let now = self.grants_of_each();
            let served = now
                .keys()
                .filter(|client| of(&now, **client) >= of(&before, **client) + count);
            if served.count() >= clients {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "some clients get no locks");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn grants_of_each(&self) -> BTreeMap<u64, usize> {
        let mut grants = BTreeMap::new();
        for attempt in self.0.lock().expect("nobody panics in it").iter() {
            if matches!(attempt.outcome, Outcome::Granted(_)) {
                *grants.entry(attempt.client).or_default() += 1;
            }
        }
        grants
    }
}

fn client(servers: Vec<String>, retry_for: Duration) -> Client {
    let client = Client::builder().servers(servers).retry_for(retry_for);
    client.build().expect("plain addresses")
}

/// A number that no other client has.
fn client_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Threads that lock and release until they are told to stop.
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    record: Record,
    python: Option<Python>,
}

impl Load {
    /// Starts some Rust clients with some threads each, all on a few shared keys and some of their own.
    #[must_use]
    pub fn start(servers: &[String], clients: usize, threads: usize) -> Load {
        Load::start_as(servers, clients, threads, Duration::ZERO)
    }

    /// The same with clients that go on trying for so long when no server can be reached.
    #[must_use]
    pub fn start_as(
        servers: &[String],
        clients: usize,
        threads: usize,
        retry_for: Duration,
    ) -> Load {
        let mut load = Load {
            stop: Arc::default(),
            threads: Vec::new(),
            record: Record::default(),
            python: None,
        };
        for number in 0..clients {
            // Each names the nodes in another order.
            let mut servers = servers.to_vec();
            let shift = number % servers.len();
            servers.rotate_left(shift);
            let client = client(servers, retry_for);
            // A wait that is over before the first connection is up ends with an error.
            client.connected().call().expect("a node runs");
            let id = client_number();
            for thread in 0..threads {
                let worker = Worker {
                    client: client.clone(),
                    id,
                    own_key: format!("own-{id}-{thread}"),
                    random: id << 8 | thread as u64 | 1 << 40,
                    record: load.record.clone(),
                };
                let stop = load.stop.clone();
                load.threads
                    .push(std::thread::spawn(move || worker.run(&stop)));
            }
        }
        load
    }

    /// Has Python clients work beside, where the package is installed.
    #[must_use]
    pub fn and_python(mut self, servers: &[String]) -> Load {
        self.python = Python::start(servers);
        self
    }

    /// What the Rust clients have seen.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Ends the work, and returns what all have seen.
    #[must_use]
    pub fn finish(mut self) -> Vec<Attempt> {
        self.stop.store(true, Ordering::Relaxed);
        let begin = Instant::now();
        for thread in self.threads.drain(..) {
            while !thread.is_finished() {
                assert!(begin.elapsed() < PATIENCE, "a client waits for ever");
                std::thread::sleep(Duration::from_millis(2));
            }
            thread.join().expect("no client panics");
        }
        let mut history = self.record.take();
        if let Some(python) = self.python.take() {
            history.extend(python.finish());
        }
        history
    }
}

struct Worker {
    client: Client,
    id: u64,
    own_key: String,
    random: u64,
    record: Record,
}

impl Worker {
    fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let dice = self.dice(10);
            let key = match self.dice(2) {
                0 => self.own_key.clone(),
                _ => format!("shared-{}", self.dice(3)),
            };
            let wait_ms = match dice {
                0 => None,
                1 => Some(1 + self.dice(20)),
                2..=4 => Some(20_000),
                _ => Some(0),
            };
            let attempt = self.once(key, wait_ms, dice < 5);
            self.record.add(attempt);
            std::thread::sleep(Duration::from_micros(self.dice(2000)));
        }
    }

    fn once(&mut self, key: String, wait_ms: Option<u64>, keep_alive: bool) -> Attempt {
        let asked = moment();
        let lock = match wait_ms {
            None => self.client.try_acquire(&key).lease(LEASE).call(),
            Some(wait) => {
                let mut acquire = self.client.acquire(&key).lease(LEASE);
                if keep_alive {
                    acquire = acquire.keep_alive();
                }
                let wait = Duration::from_millis(wait);
                acquire.wait(wait).call().map(Some)
            }
        };
        let ended = moment();
        let mut attempt = Attempt {
            client: self.id,
            key,
            wait_ms,
            asked,
            sent: None,
            ended,
            outcome: outcome(&lock),
            release: None,
            lost: None,
        };
        if let Ok(Some(lock)) = lock {
            std::thread::sleep(Duration::from_micros(self.dice(1500)));
            let lost = lock.lost_reason();
            let began = moment();
            attempt.lost = lost.map(|reason| (began, reason.as_str().to_owned()));
            let released = lock.release().call();
            attempt.release = Some(Release {
                began,
                ended: moment(),
                outcome: released.map_err(|error| format!("{error:?}")),
            });
        }
        attempt
    }

    fn dice(&mut self, sides: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % sides
    }
}

fn outcome(result: &Result<Option<Lock>, Error>) -> Outcome {
    match result {
        Ok(Some(lock)) => Outcome::Granted(lock.token().get()),
        Ok(None) => Outcome::NotHad,
        Err(error) if *error.kind() == ErrorKind::WaitTimeout => Outcome::NotHad,
        Err(error) => Outcome::Failed(format!("{error:?}")),
    }
}

/// A lock that is held over a fault, and a line of requests of one client that wait for it. Each
/// releases as soon as it has had it.
pub struct Line {
    client: Client,
    id: u64,
    key: String,
    holder: Lock,
    held: Attempt,
    record: Record,
    pending: Arc<(Mutex<usize>, Condvar)>,
}

impl Line {
    /// Takes the key.
    #[must_use]
    pub fn behind(servers: &[String], key: &str, lease: Duration) -> Line {
        Line::behind_as(servers, key, lease, Duration::ZERO)
    }

    /// The same with a client that goes on trying for so long when no server can be reached.
    #[must_use]
    pub fn behind_as(servers: &[String], key: &str, lease: Duration, retry_for: Duration) -> Line {
        let client = client(servers.to_vec(), retry_for);
        let asked = moment();
        let acquire = client.acquire(key).lease(lease).keep_alive();
        let holder = acquire.call().expect("the key is free");
        let id = client_number();
        let held = Attempt {
            client: id,
            key: key.to_owned(),
            wait_ms: Some(0),
            asked,
            sent: None,
            ended: moment(),
            outcome: Outcome::Granted(holder.token().get()),
            release: None,
            lost: None,
        };
        Line {
            client,
            id,
            key: key.to_owned(),
            holder,
            held,
            record: Record::default(),
            pending: Arc::default(),
        }
    }

    /// Sends more requests, one after the other.
    pub fn queue_up(&self, count: usize) {
        for _ in 0..count {
            *self.pending.0.lock().expect("nobody panics in it") += 1;
            let asked = moment();
            let sent = Arc::new(AtomicU64::new(0));
            let place = Place {
                client: self.id,
                key: self.key.clone(),
                asked,
                sent: sent.clone(),
                record: self.record.clone(),
                pending: self.pending.clone(),
            };
            let acquire = self.client.acquire(&self.key).lease(LEASE);
            acquire.submit(move |result| place.had(result));
            sent.store(moment(), Ordering::Relaxed);
        }
    }

    /// The holder lets go, and all others have it in turn.
    #[must_use]
    pub fn move_on(mut self) -> Vec<Attempt> {
        let lost = self.holder.lost_reason();
        let began = moment();
        self.held.lost = lost.map(|reason| (began, reason.as_str().to_owned()));
        let released = self.holder.release().call();
        self.held.release = Some(Release {
            began,
            ended: moment(),
            outcome: released.map_err(|error| format!("{error:?}")),
        });
        let (pending, ended) = &*self.pending;
        let left = pending.lock().expect("nobody panics in it");
        let (left, waited) = ended
            .wait_timeout_while(left, PATIENCE, |left| *left > 0)
            .expect("nobody panics in it");
        assert!(!waited.timed_out(), "{left} requests wait for ever");
        let mut history = self.record.take();
        history.push(self.held);
        history
    }
}

/// A request that waits in line.
struct Place {
    client: u64,
    key: String,
    asked: Moment,
    sent: Arc<AtomicU64>,
    record: Record,
    pending: Arc<(Mutex<usize>, Condvar)>,
}

impl Place {
    fn had(self, result: Result<Lock, Error>) {
        let ended = moment();
        let result = result.map(Some);
        let attempt = Attempt {
            client: self.client,
            key: self.key,
            wait_ms: Some(0),
            asked: self.asked,
            // Zero if it was granted at once, before the caller could say.
            sent: Some(self.sent.load(Ordering::Relaxed)).filter(|sent| *sent > 0),
            ended,
            outcome: outcome(&result),
            release: None,
            lost: None,
        };
        let (record, pending) = (self.record, self.pending);
        let finish = move |attempt| {
            record.add(attempt);
            *pending.0.lock().expect("nobody panics in it") -= 1;
            pending.1.notify_all();
        };
        let Ok(Some(lock)) = result else {
            return finish(attempt);
        };
        let began = moment();
        lock.release().submit(move |outcome| {
            let release = Release {
                began,
                ended: moment(),
                outcome: outcome.map_err(|error| format!("{error:?}")),
            };
            finish(Attempt {
                release: Some(release),
                ..attempt
            });
        });
    }
}

/// A process with Python clients.
struct Python {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Python {
    /// `None`, and said so, where the package is not installed. `tests/run` installs it and names the
    /// interpreter; there it has to be usable.
    fn start(servers: &[String]) -> Option<Python> {
        let named = std::env::var_os("FAIRLOCK_TEST_PYTHON").map(PathBuf::from);
        let must = named.is_some();
        let python = named.or_else(installed)?;
        let works = Command::new(&python)
            .args(["-c", "import fairlock"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !works {
            assert!(!must, "{} has no fairlock", python.display());
            skip(
                "Python clients: the package is not installed (bindings/python/test.sh --install)",
            );
            return None;
        }
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("python/load.py");
        let mut process = Command::new(python)
            .arg(script)
            .arg(servers.join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python can be started");
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("it writes text");
        assert_eq!(line, "working\n");
        Some(Python { process, output })
    }

    fn finish(mut self) -> Vec<Attempt> {
        let mut input = self.process.stdin.take().expect("it is piped");
        input.write_all(b"stop\n").expect("it runs");
        let history = self.output.by_ref().lines().map(|line| {
            let line = line.expect("it writes text");
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
        });
        let history: Vec<Attempt> = history.collect();
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait().expect("it is our child") {
                break status;
            }
            assert!(begin.elapsed() < LIMIT, "Python does not end");
            std::thread::sleep(Duration::from_millis(2));
        };
        assert!(status.success(), "{status}");
        history
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The interpreter of the environment that `bindings/python/test.sh` makes.
fn installed() -> Option<PathBuf> {
    let environment = std::env::var_os("FAIRLOCK_VENV").map(PathBuf::from);
    let environment = environment.or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        Some(cache.or_else(home)?.join("fairlock/venv"))
    })?;
    Some(environment.join("bin/python"))
}
