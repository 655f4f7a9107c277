//! What the benches need of the parts that are not public: nothing in here is for users.

use super::address::Address;
use super::session::{Ask, Effect, FaceId, LockId, Outcome, Session, Settings, Slab};
use crate::protocol::{ClientId, Key, Millis, Reply, Request, Role, Split, Token, Wait, split};

/// Takes and gives back so many locks, one at a time, with a server that answers at once and without a
/// socket.
pub fn session_pairs(count: usize) {
    let mut world = World::new();
    for _ in 0..count {
        let key = Key::encode(b"order:00000000000042").expect("a short name is a key");
        let acquire = Ask::Acquire {
            key,
            lease: Millis(30_000),
            wait: Wait::Forever,
            keep_alive: false,
            max_hold: None,
        };
        world.ask(acquire);
        let lock = world.lock.take().expect("the server grants it");
        world.ask(Ask::ReleaseLock { lock });
        world.session.drop_lock(lock, world.now);
        world.settle();
    }
}

struct World {
    session: Session,
    faces: Slab<FaceId, ()>,
    now: u64,
    token: u64,
    lock: Option<LockId>,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl World {
    fn new() -> World {
        const BEGIN: u64 = 1_000_000_000;
        let settings = Settings {
            id: ClientId([7; 16]),
            name: b"bench".to_vec(),
            secret: None,
            servers: vec![Address::parse("127.0.0.1:7420").expect("an address")],
            connect_timeout: 3_000_000,
            retry_for: 0,
            listed_only: false,
            seed: 1,
            mutation: crate::mutation::Mutation::None,
        };
        let mut world = World {
            session: Session::new(settings, BEGIN),
            faces: Slab::new(),
            now: BEGIN,
            token: 123_695_058_124_800_000,
            lock: None,
            outgoing: Vec::new(),
            incoming: Vec::new(),
        };
        world.settle();
        world
    }

    fn ask(&mut self, ask: Ask) {
        self.now += 10;
        let face = self.faces.insert(());
        self.session.ask(ask, face, self.now);
        self.settle();
    }

    /// Does what the session wants done, and answers what it asks.
    fn settle(&mut self) {
        while let Some(effect) = self.session.poll_effect() {
            match effect {
                Effect::Connect { connection, .. } => {
                    self.session.handle_connected(connection, self.now);
                }
                Effect::Write { connection } => {
                    self.outgoing.clear();
                    self.session.take_outgoing(connection, &mut self.outgoing);
                    self.answer();
                    self.session
                        .handle_bytes(connection, &self.incoming, self.now);
                }
                Effect::Complete { face, result } => {
                    self.faces.remove(face);
                    if let Outcome::Locked(grant) = result.expect("the server refuses nothing") {
                        self.lock = Some(grant.lock);
                    }
                }
                Effect::Close { .. } | Effect::Lost { .. } | Effect::Finished => {}
            }
        }
    }

    fn answer(&mut self) {
        self.incoming.clear();
        let mut rest = &self.outgoing[..];
        while let Split::Line { line, used } = split(rest) {
            rest = &rest[used..];
            let reply = match Request::parse(line).expect("the client speaks the protocol") {
                Request::Hello(_) => Reply::Hello(crate::protocol::HelloReply {
                    role: Role::Active,
                    node: "127.0.0.1:7420",
                    active: Some("127.0.0.1:7420"),
                    peers: crate::protocol::AddressList("127.0.0.1:7420"),
                    server: "0",
                }),
                Request::Acquire { key, tag, .. } => {
                    self.token += 1;
                    let token = Token::new(self.token).expect("a token");
                    Reply::Granted { key, token, tag }
                }
                Request::Release { key, tag, .. } => Reply::Released { key, ok: true, tag },
                other => unreachable!("not asked for: {other:?}"),
            };
            reply.encode(&mut self.incoming);
        }
    }
}
