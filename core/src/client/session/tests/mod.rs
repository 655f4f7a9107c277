//! The session against a scripted server, in memory and in virtual time. The numbers in the names are
//! the rules of section 4 of the behaviour.

mod acquiring;
mod asking;
mod closing;
mod connecting;
mod holding;
mod model;
mod moving;
mod random;
mod releasing;
mod restarting;

use super::*;
use crate::error::ErrorKind;
use std::collections::BTreeMap;
use std::time::Duration;

/// A client's session and the world around it.
pub(super) struct World {
    pub(super) session: Session,
    pub(super) now: Micros,
    /// By place in the session's list.
    pub(super) pipes: BTreeMap<u32, Pipe>,
    faces: Slab<FaceId, ()>,
    pub(super) results: Vec<(FaceId, Result<Outcome, Error>)>,
    pub(super) lost: Vec<(LockId, LostReason)>,
    /// When a connection was asked for, and which.
    pub(super) tries: Vec<(Micros, u32)>,
    pub(super) resets: u32,
    pub(super) finished: bool,
}

pub(super) struct Pipe {
    pub(super) id: ConnectionId,
    pub(super) address: String,
    pub(super) connected: bool,
    /// Whole lines that the client has written and nobody has read.
    pub(super) lines: Vec<String>,
    partial: Vec<u8>,
}

pub(super) const MS: Micros = MILLISECOND;
pub(super) const S: Micros = SECOND;

impl World {
    pub(super) fn new(servers: &[&str]) -> World {
        World::with(servers, |_| {})
    }

    pub(super) fn with(servers: &[&str], change: impl FnOnce(&mut Settings)) -> World {
        let mut settings = Settings {
            id: ClientId([7; 16]),
            name: b"me".to_vec(),
            secret: None,
            servers: servers
                .iter()
                .map(|text| Address::parse(text).expect("an address"))
                .collect(),
            connect_timeout: 3 * S,
            retry_for: 0,
            listed_only: false,
            seed: 1,
            mutation: crate::mutation::Mutation::None,
        };
        change(&mut settings);
        let now = 1_000 * S;
        let mut world = World {
            session: Session::new(settings, now),
            now,
            pipes: BTreeMap::new(),
            faces: Slab::new(),
            results: Vec::new(),
            lost: Vec::new(),
            tries: Vec::new(),
            resets: 0,
            finished: false,
        };
        world.settle();
        world
    }

    /// A client whose connections are all up.
    pub(super) fn up(servers: &[&str]) -> World {
        let mut world = World::new(servers);
        world.accept_all();
        world
    }

    /// Does what the session wants done.
    pub(super) fn settle(&mut self) {
        while let Some(effect) = self.session.poll_effect() {
            match effect {
                Effect::Connect {
                    connection,
                    address,
                } => {
                    self.tries.push((self.now, connection.index));
                    let pipe = Pipe {
                        id: connection,
                        address: address.to_string(),
                        connected: false,
                        lines: Vec::new(),
                        partial: Vec::new(),
                    };
                    self.pipes.insert(connection.index, pipe);
                }
                Effect::Write { connection } => {
                    let mut bytes = Vec::new();
                    self.session.take_outgoing(connection, &mut bytes);
                    if let Some(pipe) = self.pipes.get_mut(&connection.index)
                        && pipe.id == connection
                    {
                        pipe.write(&bytes);
                    }
                }
                Effect::Close { connection, reset } => {
                    self.resets += u32::from(reset);
                    if self.pipes.get(&connection.index).map(|pipe| pipe.id) == Some(connection) {
                        self.pipes.remove(&connection.index);
                    }
                }
                Effect::Complete { face, result } => self.results.push((face, result)),
                Effect::Lost { lock, reason } => self.lost.push((lock, reason)),
                Effect::Finished => self.finished = true,
            }
        }
    }

    /// Lets time pass; deadlines come one by one.
    pub(super) fn pass(&mut self, time: Micros) {
        let until = self.now + time;
        while let Some(due) = self.session.next_deadline()
            && due <= until
        {
            self.now = self.now.max(due);
            self.session.handle_due(self.now);
            self.settle();
        }
        self.now = until;
    }

    pub(super) fn refuse(&mut self, index: u32) {
        let id = self.pipes[&index].id;
        let text = "connection refused".to_owned();
        self.session.handle_connect_failed(id, text, self.now);
        self.settle();
    }

    /// The network makes the connection; the hello is not answered.
    pub(super) fn connect(&mut self, index: u32) -> String {
        let pipe = self.pipes.get_mut(&index).expect("a try is under way");
        pipe.connected = true;
        let id = pipe.id;
        self.session.handle_connected(id, self.now);
        self.settle();
        self.line(index)
    }

    pub(super) fn accept_as(
        &mut self,
        index: u32,
        role: &str,
        active: &str,
        peers: &str,
    ) -> String {
        let hello = self.connect(index);
        let node = self.pipes[&index].address.clone();
        self.say(
            index,
            &format!("H 1 role={role} node={node} active={active} peers={peers} server=0"),
        );
        hello
    }

    pub(super) fn accept(&mut self, index: u32) -> String {
        let node = self.pipes[&index].address.clone();
        self.accept_as(index, "active", &node, &node)
    }

    pub(super) fn accept_all(&mut self) {
        let indices: Vec<u32> = self.pipes.keys().copied().collect();
        for index in indices {
            if !self.pipes[&index].connected {
                self.accept(index);
            }
        }
    }

    /// The server says a line.
    pub(super) fn say(&mut self, index: u32, line: &str) {
        let id = self.pipes[&index].id;
        let bytes = format!("{line}\n");
        self.session.handle_bytes(id, bytes.as_bytes(), self.now);
        self.settle();
    }

    /// The server, or something between, ends the connection.
    pub(super) fn cut(&mut self, index: u32) {
        let pipe = self.pipes.remove(&index).expect("there is a connection");
        let text = "connection reset".to_owned();
        self.session.handle_closed(pipe.id, text, self.now);
        self.settle();
    }

    /// The one line that the client has written there.
    pub(super) fn line(&mut self, index: u32) -> String {
        let lines = self.lines(index);
        assert_eq!(lines.len(), 1, "one line on {index}: {lines:?}");
        lines.into_iter().next().expect("there is one")
    }

    pub(super) fn lines(&mut self, index: u32) -> Vec<String> {
        match self.pipes.get_mut(&index) {
            Some(pipe) => std::mem::take(&mut pipe.lines),
            None => Vec::new(),
        }
    }

    /// All that was written, with the connection it was written to.
    pub(super) fn all_lines(&mut self) -> Vec<(u32, String)> {
        let mut all = Vec::new();
        for (index, pipe) in &mut self.pipes {
            all.extend(pipe.lines.drain(..).map(|line| (*index, line)));
        }
        all
    }

    pub(super) fn ask(&mut self, ask: Ask) -> (FaceId, Option<OperationId>) {
        let face = self.faces.insert(());
        let operation = self.session.ask(ask, face, self.now);
        self.settle();
        (face, operation)
    }

    pub(super) fn acquire(&mut self, key: &str, wait: Wait) -> (FaceId, Option<OperationId>) {
        self.ask(acquire(key, 30_000, wait))
    }

    /// The result that an operation has had.
    pub(super) fn result(&mut self, face: FaceId) -> Option<Result<Outcome, Error>> {
        let place = self.results.iter().position(|(done, _)| *done == face)?;
        let (_, result) = self.results.remove(place);
        let again = self.results.iter().any(|(done, _)| *done == face);
        assert!(!again, "an operation ends once");
        Some(result)
    }

    pub(super) fn grant(&mut self, face: FaceId) -> Grant {
        match self.result(face) {
            Some(Ok(Outcome::Locked(grant))) => grant,
            other => panic!("no lock but {other:?}"),
        }
    }

    pub(super) fn error(&mut self, face: FaceId) -> ErrorKind {
        match self.result(face) {
            Some(Err(error)) => error.kind().clone(),
            other => panic!("no error but {other:?}"),
        }
    }

    pub(super) fn view(&mut self, lock: LockId) -> super::lock::LockView {
        let view = self.session.view_lock(lock, self.now);
        self.settle();
        view.expect("a known lock")
    }

    /// A lock that is held, by the whole way over the wire.
    pub(super) fn hold(&mut self, key: &str, lease_ms: u64, keep_alive: bool) -> Grant {
        let (face, _) = self.ask(Ask::Acquire {
            key: Key::encode(key.as_bytes()).expect("a key"),
            lease: Millis(lease_ms),
            wait: Wait::Forever,
            keep_alive,
            max_hold: None,
        });
        let (index, line) = self.all_lines().pop().expect("an acquire");
        self.say(index, &format!("A {key} 100 {}", tag(&line)));
        self.grant(face)
    }
}

impl Pipe {
    fn write(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            let line = String::from_utf8(line).expect("text");
            self.lines.push(line.trim_end().to_owned());
        }
    }
}

pub(super) fn acquire(key: &str, lease_ms: u64, wait: Wait) -> Ask {
    Ask::Acquire {
        key: Key::encode(key.as_bytes()).expect("a key"),
        lease: Millis(lease_ms),
        wait,
        keep_alive: false,
        max_hold: None,
    }
}

/// The tag of a line, with its `#`.
pub(super) fn tag(line: &str) -> &str {
    line.rsplit(' ').next().expect("there is a last field")
}

pub(super) fn token(number: u64) -> Token {
    Token::new(number).expect("a small number")
}

pub(super) fn wait_ms(ms: u64) -> Wait {
    Wait::For(Millis(ms))
}
