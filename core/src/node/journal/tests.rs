//! Goal: whatever a crash, a disk or a bit does to a journal, a start finds a state that there was, or says
//! that it cannot. Method: engines that are asked for many things, and their journals in real files, cut,
//! altered and made to fail at every place. Here are the engines and how they are compared.

mod anew;
mod crashes;
mod reading;
mod telling;

use super::format::{self, Stamp};
use super::*;
use crate::cluster::Stream;
use crate::engine::{Answer, EngineSettings, Recording, Refusal};
use crate::protocol::{ClientId, Key, KeyRef, NameRef, Tag, Token, Wait};
use std::fs;
use std::path::PathBuf;

const NODE: &str = "10.0.0.1:7420";
/// How far the wall clock is ahead of the engine's.
const AHEAD: u64 = 1 << 50;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("fairlock-journal-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    fn journal(&self) -> Vec<u8> {
        fs::read(self.0.join(NAME)).expect("there is one")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An engine with clients, and its journal.
struct Life {
    engine: Engine,
    journal: Journal,
    now: Time,
    clients: Vec<ConnectionId>,
    tags: u64,
    held: Vec<(Key, Token)>,
    random: u64,
    sequence: u64,
    /// Whether the engine has the whole state.
    whole: bool,
}

impl Life {
    fn new(folder: &Folder) -> Life {
        let dir = Arc::new(DataDir::open(&folder.0).expect("it is ours"));
        let mut engine = Engine::new(EngineSettings::default(), 1);
        engine.open_term(7, 0, 0).expect("the first term");
        let mut journal = Journal::new(dir, NODE, None, false).expect("a new one");
        journal.install_first(&mut engine, 7).expect("it is empty");
        journal.ahead = AHEAD;
        let mut life = Life {
            engine,
            journal,
            now: Time(1_000_000_000),
            clients: Vec::new(),
            tags: 0,
            held: Vec::new(),
            random: 0x9E37_79B9_7F4A_7C15,
            sequence: 0,
            whole: true,
        };
        (0..4).for_each(|_| life.connect());
        life
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % limit
    }

    fn connect(&mut self) {
        let id = self.engine.connect("127.0.0.1:4711");
        let number = self.clients.len() as u8;
        let client = (!number.is_multiple_of(3)).then_some(ClientId([number; 16]));
        let name = NameRef::parse(b"worker").expect("a name");
        self.engine.hello(id, client, name);
        self.clients.push(id);
    }

    /// Something happens.
    fn step(&mut self) {
        self.now = self.now.after(Millis(1 + self.below(20) as u64));
        let count = self.clients.len();
        let which = self.below(count);
        let client = self.clients[which];
        let key = Key::encode(format!("key {}", self.below(6)).as_bytes()).expect("a key");
        match self.below(12) {
            0..=5 => {
                self.tags += 1;
                let number = if self.below(4) == 0 {
                    self.tags / 2 + 1
                } else {
                    self.tags
                };
                let attempt = self.below(3) as u32;
                let wait = [Wait::No, Wait::Forever, Wait::For(Millis(200))][self.below(3)];
                let (lease, tag) = (Millis(300), Some(Tag { number, attempt }));
                let answer = self
                    .engine
                    .acquire(self.now, client, key.as_ref(), lease, wait, tag);
                if let Answer::Granted(grant) = answer {
                    self.held.push((key, grant.token));
                }
            }
            6..=8 if !self.held.is_empty() => {
                let which = self.below(self.held.len());
                let (key, token) = self.held.swap_remove(which);
                self.engine.release(self.now, key.as_ref(), token);
            }
            9 if !self.held.is_empty() => {
                let which = self.below(self.held.len());
                let (key, token) = self.held[which].clone();
                self.engine.keep(self.now, key.as_ref(), token, Millis(700));
            }
            10 => {
                let (number, attempt) = (1 + self.below(20) as u64, 3);
                let tag = Tag { number, attempt };
                self.engine.cancel(self.now, client, key.as_ref(), tag);
            }
            _ if self.below(4) == 0 => {
                let which = self.below(count);
                let id = self.clients.swap_remove(which);
                self.engine.disconnect(self.now, id, &[]);
                self.connect();
            }
            _ => {
                self.engine.expire(self.now, 100);
            }
        }
        while let Some(effect) = self.engine.poll_effect() {
            if let crate::engine::Effect::Granted { key, grant, .. } = effect {
                self.held.push((key, grant.token));
            }
        }
    }

    fn position(&mut self) -> Position {
        self.sequence += 1;
        (Stream { term: 7, slot: 0 }, self.sequence)
    }

    fn write(&mut self) {
        let position = self.position();
        self.journal
            .write(self.now, &mut self.engine, position, self.whole);
    }

    /// Does what the worker would do. Returns whether there was anything.
    fn work(&mut self) -> bool {
        let Some(work) = self.journal.take_work() else {
            return false;
        };
        let done = work.run();
        self.journal.done(self.now, done);
        true
    }
}

/// What of a state does not depend on clocks, in an order that does not depend on where things lie.
fn state(engine: &Engine) -> Vec<String> {
    let mut state: Vec<String> = engine
        .snapshot()
        .filter_map(|change| match change {
            Change::Granted {
                key,
                token,
                owner,
                tag,
                lease,
                claim,
                ..
            } => Some(format!(
                "{key:?} held {token:?} {owner:?} {tag:?} {lease:?} {claim:?}"
            )),
            Change::Enqueued {
                key,
                owner,
                tag,
                lease,
                claim,
                ..
            } => Some(format!(
                "{key:?} queue {owner:?} {tag:?} {lease:?} {claim:?}"
            )),
            Change::AttemptRemembered {
                client,
                number,
                attempt,
                ..
            } => Some(format!("attempt {client:?} {number} {attempt}")),
            _ => None,
        })
        .collect();
    // Waiters of one key have to stay in order; each line begins with its key, and this keeps the rest.
    state.sort_by(|one, other| {
        let key = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        key(one).cmp(&key(other))
    });
    state
}

fn read(bytes: &[u8], now: Time) -> Result<(Engine, Recovered), Problem> {
    let mut engine = Engine::new(EngineSettings::default(), 2);
    let recovered = recover(bytes, NODE, (now, now.0 + AHEAD), &mut engine)?;
    engine.check_invariants();
    Ok((engine, recovered))
}

/// A length of a journal, and the state that it leads to.
type Moment = (usize, Vec<String>);

/// A history: the journal, and after which byte of it which state is there.
fn history(name: &str, steps: usize) -> (Vec<u8>, Vec<Moment>, Time) {
    let folder = Folder::new(name);
    let mut life = Life::new(&folder);
    let mut states = vec![(folder.journal().len(), state(&life.engine))];
    for _ in 0..steps {
        life.step();
        if life.below(3) != 0 {
            life.write();
            states.push((folder.journal().len(), state(&life.engine)));
        }
    }
    (folder.journal(), states, life.now)
}
