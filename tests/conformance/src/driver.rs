//! A driver: a small program in one of the languages that makes clients, does what its standard input
//! says and prints what the caller got. One driver serves many plays; each line begins with the play's number.

use crate::stage::{Event, What};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long a driver may take to load its language.
const START: Duration = Duration::from_secs(60);

/// Who makes the client of a play and does what the play says: a driver, or a puppet in tests.
pub(crate) trait Actor {
    /// From now on `events` hears what is said of this play. False if the actor has ended.
    fn attach(&self, play: u64, events: Sender<Event>) -> bool;
    /// Gives a command.
    fn tell(&self, play: u64, command: &str);
    /// The play is over: its client is forgotten.
    fn detach(&self, play: u64);
}

/// A running driver.
#[derive(Debug)]
pub(crate) struct Driver {
    child: Mutex<Child>,
    input: Mutex<ChildStdin>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Where the answers of each play go; none once the driver has ended.
    plays: Mutex<Option<HashMap<u64, Sender<Event>>>>,
    ready: (Mutex<bool>, Condvar),
    complaints: Mutex<String>,
}

impl Driver {
    /// Starts a driver.
    pub(crate) fn start(command: &[String]) -> Result<Driver, String> {
        let (program, arguments) = command.split_first().ok_or("an empty command")?;
        let mut child = Command::new(program)
            .args(arguments)
            // What a user may have set must not reach the client under test.
            .env_remove("FAIRLOCK_SERVERS")
            .env_remove("FAIRLOCK_SECRET")
            .env_remove("FAIRLOCK_SECRET_FILE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let input = child.stdin.take().expect("it was asked for");
        let output = child.stdout.take().expect("it was asked for");
        let complaints = child.stderr.take().expect("it was asked for");
        let shared = Arc::new(Shared::default());
        *shared.plays.lock().expect("no holder panics") = Some(HashMap::new());
        let listener = shared.clone();
        let collector = thread::spawn(move || listener.collect(complaints));
        let listener = shared.clone();
        thread::spawn(move || {
            listener.route(BufReader::new(output));
            let _ = collector.join();
            listener.end();
        });
        shared.wait_until_ready();
        Ok(Driver {
            child: Mutex::new(child),
            input: Mutex::new(input),
            shared,
        })
    }

    /// Whether the driver has not ended.
    pub(crate) fn lives(&self) -> bool {
        self.shared
            .plays
            .lock()
            .expect("no holder panics")
            .is_some()
    }
}

impl Actor for Driver {
    fn attach(&self, play: u64, events: Sender<Event>) -> bool {
        let mut plays = self.shared.plays.lock().expect("no holder panics");
        plays
            .as_mut()
            .is_some_and(|plays| plays.insert(play, events).is_none())
    }

    fn tell(&self, play: u64, command: &str) {
        let mut input = self.input.lock().expect("no holder panics");
        // If the driver has ended, each of its plays hears that on its own.
        let _ = writeln!(input, "{play} {command}");
    }

    fn detach(&self, play: u64) {
        self.tell(play, "end");
        if let Some(plays) = &mut *self.shared.plays.lock().expect("no holder panics") {
            plays.remove(&play);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut child = self.child.lock().expect("no holder panics");
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Shared {
    /// A driver says so when it has loaded all it needs, so that its start costs no play its time. One that has
    /// ended before is found out by its first play.
    fn wait_until_ready(&self) {
        let (ready, changed) = &self.ready;
        let guard = ready.lock().expect("no holder panics");
        let waited = changed.wait_timeout_while(guard, START, |ready| !*ready);
        drop(waited.expect("no holder panics"));
    }

    fn note_ready(&self) {
        let (ready, changed) = &self.ready;
        *ready.lock().expect("no holder panics") = true;
        changed.notify_all();
    }

    fn route(&self, output: impl BufRead) {
        for line in output.lines().map_while(Result::ok) {
            let at = Instant::now();
            if line == "ready" {
                self.note_ready();
                continue;
            }
            let plays = self.plays.lock().expect("no holder panics");
            let mut words = line.splitn(3, ' ');
            let (play, op, text) = (words.next(), words.next(), words.next());
            let events = play
                .and_then(|play| play.parse().ok())
                .and_then(|play: u64| plays.as_ref()?.get(&play));
            if let (Some(events), Some(op), Some(text)) = (events, op, text) {
                let what = What::Answer {
                    op: op.to_owned(),
                    text: text.to_owned(),
                };
                let _ = events.send(Event { at, what });
            }
        }
    }

    fn collect(&self, complaints: impl Read) {
        for line in BufReader::new(complaints).lines().map_while(Result::ok) {
            let mut text = self.complaints.lock().expect("no holder panics");
            text.push_str(&line);
            text.push('\n');
        }
    }

    /// The driver has ended: every play hears why.
    fn end(&self) {
        self.note_ready();
        let plays = self.plays.lock().expect("no holder panics").take();
        let why = self.complaints.lock().expect("no holder panics").clone();
        for events in plays.into_iter().flat_map(HashMap::into_values) {
            let what = What::DriverGone { why: why.clone() };
            let _ = events.send(Event {
                at: Instant::now(),
                what,
            });
        }
    }
}
