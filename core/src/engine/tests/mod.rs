//! The rules of the behaviour page, one test each, named for the rule. Each tells a short story and
//! compares everything that came out.

mod attempts;
mod connections;
mod copies;
mod limits;
mod locks;
mod merges;
mod surveys;
mod tokens;
mod views;

use super::{Answer, ConnectionId, Effect, Engine, EngineSettings, Grant, Time};
use crate::protocol::{ClientId, Key, Millis, NameRef, Tag, Token, Wait};

/// An engine with a clock that the test moves, checked after every step.
struct Rig {
    engine: Engine,
    now: Time,
}

const SECOND: u64 = 1000;
const GRACE: u64 = 500;

impl Rig {
    fn new() -> Rig {
        Rig::with(EngineSettings::default())
    }

    fn with(settings: EngineSettings) -> Rig {
        let mut engine = Engine::new(settings, 1);
        engine.open_term(1, 0, 0).expect("the first term");
        let now = Time(86_400_000_000);
        Rig { engine, now }
    }

    /// A connection that says nothing of itself.
    fn stranger(&mut self) -> ConnectionId {
        self.engine.connect("10.0.0.9:1")
    }

    /// A connection of the client that is called so.
    fn client(&mut self, name: &str) -> ConnectionId {
        let connection = self.engine.connect(&format!("{name}:1"));
        let mut id = [0; 16];
        id[..name.len()].copy_from_slice(name.as_bytes());
        let name = NameRef::parse(name.as_bytes()).expect("a name");
        assert!(self.engine.hello(connection, Some(ClientId(id)), name));
        connection
    }

    fn acquire(
        &mut self,
        connection: ConnectionId,
        key: &str,
        lease: u64,
        wait: Wait,
        tag: Option<Tag>,
    ) -> Answer {
        let key = named(key);
        let lease = Millis(lease);
        let answer = self
            .engine
            .acquire(self.now, connection, key.as_ref(), lease, wait, tag);
        self.engine.check_invariants();
        answer
    }

    /// Acquires a key that is free, for half a minute and without a tag.
    fn hold(&mut self, connection: ConnectionId, key: &str) -> Grant {
        granted(self.acquire(connection, key, 30 * SECOND, Wait::Forever, None))
    }

    /// Waits for a key that is taken.
    fn queue(&mut self, connection: ConnectionId, key: &str, tag: Option<Tag>) {
        let answer = self.acquire(connection, key, 30 * SECOND, Wait::Forever, tag);
        assert_eq!(answer, Answer::Queued);
    }

    fn release(&mut self, key: &str, grant: Grant) -> bool {
        let released = self
            .engine
            .release(self.now, named(key).as_ref(), grant.token);
        self.engine.check_invariants();
        released
    }

    fn keep(&mut self, key: &str, grant: Grant, lease: u64) -> bool {
        let lease = Millis(lease);
        let kept = self
            .engine
            .keep(self.now, named(key).as_ref(), grant.token, lease);
        self.engine.check_invariants();
        kept
    }

    fn cancel(&mut self, connection: ConnectionId, key: &str, tag: Tag) -> bool {
        let found = self
            .engine
            .cancel(self.now, connection, named(key).as_ref(), tag);
        self.engine.check_invariants();
        found
    }

    fn disconnect(&mut self, connection: ConnectionId, unsent: &[Grant]) {
        self.engine.disconnect(self.now, connection, unsent);
        self.engine.check_invariants();
    }

    /// Lets time pass as a node does: from one deadline to the next.
    fn pass(&mut self, length: u64) {
        let end = self.now.after(Millis(length));
        while let Some(deadline) = self.engine.next_deadline().filter(|next| *next <= end) {
            self.now = self.now.max(deadline);
            self.engine.expire(self.now, 10);
            self.engine.check_invariants();
        }
        self.now = end;
        assert!(!self.engine.expire(end, 10));
    }

    /// What the engine has to tell, without what is of no interest here.
    fn told(&mut self) -> Vec<Told> {
        let mut told = Vec::new();
        while let Some(effect) = self.engine.poll_effect() {
            told.push(match effect {
                Effect::Granted {
                    connection, grant, ..
                } => Told::Granted(connection, grant.token),
                Effect::TimedOut { connection, .. } => Told::TimedOut(connection),
                Effect::Refused { connection, .. } => Told::Refused(connection),
                Effect::Moved { connection, .. } => Told::Moved(connection),
                Effect::TermHalfUsed { term } => Told::TermHalfUsed(term),
                Effect::TermOpened { term } => Told::TermOpened(term),
            });
        }
        told
    }

    /// The one grant that the engine has to tell of, and nothing else.
    fn handed_over(&mut self) -> (ConnectionId, Grant) {
        let effect = self.engine.poll_effect();
        let Some(Effect::Granted {
            connection, grant, ..
        }) = effect
        else {
            panic!("{effect:?} instead of a grant");
        };
        assert_eq!(self.engine.poll_effect(), None);
        (connection, grant)
    }

    /// Nothing is held, nobody waits, nothing is kept.
    fn assert_empty(&mut self) {
        assert_eq!(self.told(), []);
        let stats = self.engine.stats();
        assert_eq!((stats.held, stats.keys, stats.waiting), (0, 0, 0));
        assert_eq!(self.engine.snapshot().count(), 1, "the term alone");
    }
}

#[derive(PartialEq, Debug)]
enum Told {
    Granted(ConnectionId, Token),
    TimedOut(ConnectionId),
    Refused(ConnectionId),
    Moved(ConnectionId),
    TermHalfUsed(u32),
    TermOpened(u32),
}

fn named(key: &str) -> Key {
    Key::encode(key.as_bytes()).expect("a key")
}

fn granted(answer: Answer) -> Grant {
    let Answer::Granted(grant) = answer else {
        panic!("{answer:?} instead of a grant");
    };
    grant
}

/// The tag of an acquire that is sent for the second time, or more.
fn again(number: u64, attempt: u32) -> Option<Tag> {
    Some(Tag { number, attempt })
}

fn first(number: u64) -> Option<Tag> {
    Some(Tag::first(number))
}
