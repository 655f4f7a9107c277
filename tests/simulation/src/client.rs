//! A simulated process with a client in it: the real session, and a user who asks for locks, holds them
//! for a while, writes to the protected register, gives up, or forgets.

use crate::checker::Replies;
use crate::clock::Clock;
use crate::random::Random;
use fairlock::Token;
use fairlock::protocol::{ClientId, Key, Millis, Wait};
use fairlock::simulation::{Ask, ConnectionId, LockId, Mutation, OperationId, Session, Settings};
use std::collections::BTreeMap;

/// A machine with a client.
pub(crate) struct Person {
    pub(crate) clock: Clock,
    pub(crate) start: u32,
    pub(crate) timer_at: u64,
    pub(crate) frozen_since: Option<u64>,
    /// When it last stood still.
    pub(crate) frozen_until: u64,
    /// Nobody while the process is gone.
    pub(crate) user: Option<Box<User>>,
}

/// A running client and who uses it.
pub(crate) struct User {
    pub(crate) session: Session,
    pub(crate) connections: BTreeMap<usize, ConnectionId>,
    pub(crate) numbers: BTreeMap<ConnectionId, usize>,
    pub(crate) replies: BTreeMap<usize, Replies>,
    pub(crate) calls: BTreeMap<u64, Call>,
    pub(crate) last_call: u64,
    pub(crate) locks: Vec<Held>,
    /// Asks for nothing more.
    pub(crate) quiet: bool,
}

/// A call under way.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) operation: Option<OperationId>,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Acquire {
        key: u8,
        /// When it has to be over, by the client's clock.
        until: Option<u64>,
        cancelled: bool,
    },
    Release {
        lock: LockId,
    },
    Other,
}

/// A lock in the user's hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) lock: LockId,
    pub(crate) key: u8,
    pub(crate) token: Token,
    /// When the user is done, in the world's time.
    pub(crate) until: u64,
}

/// How long a client may take beyond the wait, by its own clock.
pub(crate) const BEYOND_WAIT: u64 = 1_060_000;

pub(crate) fn key(number: u8) -> Key {
    Key::encode(&[b'k', b'0' + number]).expect("a key")
}

impl User {
    pub(crate) fn new(
        index: usize,
        start: u32,
        servers: Vec<String>,
        mutation: Mutation,
        now: u64,
        random: &mut Random,
    ) -> User {
        let mut id = [0; 16];
        id[0] = index as u8 + 1;
        id[1..5].copy_from_slice(&start.to_le_bytes());
        let settings = Settings {
            id: ClientId(id),
            name: b"user".to_vec(),
            servers,
            connect_timeout: 3_000_000,
            retry_for: if random.once_in(2) { 0 } else { 5_000_000 },
            seed: random.next(),
            mutation,
        };
        User {
            session: Session::new(settings, now),
            connections: BTreeMap::new(),
            numbers: BTreeMap::new(),
            replies: BTreeMap::new(),
            calls: BTreeMap::new(),
            last_call: 0,
            locks: Vec::new(),
            quiet: false,
        }
    }

    fn begin(&mut self, ask: Ask, what: What, now: u64) {
        self.last_call += 1;
        let call = self.last_call;
        self.calls.insert(
            call,
            Call {
                operation: None,
                what,
            },
        );
        let operation = self.session.ask(ask, call, now);
        if let Some(call) = self.calls.get_mut(&call) {
            call.operation = operation;
        }
    }

    /// The user does something; `now` is the client's clock, `world` the world's.
    pub(crate) fn act(
        &mut self,
        random: &mut Random,
        keys: usize,
        leases: (u64, u64),
        now: u64,
        world: u64,
    ) {
        let done = self.locks.iter().position(|held| held.until <= world);
        if let Some(place) = done {
            return self.let_go(place, random, now);
        }
        if self.quiet {
            return;
        }
        match random.below(10) {
            0 => self.give_up_one(random, now),
            1 if !self.locks.is_empty() => {
                let place = random.below(self.locks.len() as u64) as usize;
                self.begin(Ask::KeepLock(self.locks[place].lock), What::Other, now);
            }
            2 => {
                let asked = key(random.below(keys as u64) as u8);
                self.begin(Ask::Inspect(asked), What::Other, now);
            }
            _ if self.calls.len() + self.locks.len() < 4 => {
                let number = random.below(keys as u64) as u8;
                let wait = match random.below(6) {
                    0 => Wait::No,
                    1 | 2 => Wait::Forever,
                    3 => Wait::For(Millis(random.between(1, 60))),
                    _ => Wait::For(Millis(random.between(100, 6000))),
                };
                let until = match wait {
                    Wait::For(length) => Some(now + length.0 * 1000),
                    Wait::No | Wait::Forever => None,
                };
                let ask = Ask::Acquire {
                    key: key(number),
                    lease: Millis(random.between(leases.0, leases.1)),
                    wait,
                    keep_alive: random.once_in(2),
                    max_hold: None,
                };
                let what = What::Acquire {
                    key: number,
                    until,
                    cancelled: false,
                };
                self.begin(ask, what, now);
            }
            _ => {}
        }
    }

    fn let_go(&mut self, place: usize, random: &mut Random, now: u64) {
        let Held { lock, .. } = self.locks.swap_remove(place);
        if random.once_in(3) {
            self.session.drop_lock(lock, now);
        } else {
            self.begin(Ask::ReleaseLock(lock), What::Release { lock }, now);
        }
    }

    fn give_up_one(&mut self, random: &mut Random, now: u64) {
        let acquires: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| matches!(call.what, What::Acquire { .. }))
            .map(|(number, _)| *number)
            .collect();
        if let Some(number) = random.pick(&acquires) {
            self.give_up(*number, now);
        }
    }

    /// The caller of an acquire goes away.
    pub(crate) fn give_up(&mut self, number: u64, now: u64) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        if let What::Acquire { cancelled, .. } = &mut call.what {
            *cancelled = true;
        }
        if let Some(operation) = call.operation {
            self.session.cancel(operation, now);
        }
    }

    /// Nobody asks for anything more; what is waited for is given up, what is held is let go.
    pub(crate) fn go_home(&mut self, random: &mut Random, now: u64) {
        self.quiet = true;
        let calls: Vec<u64> = self.calls.keys().copied().collect();
        for call in calls {
            if matches!(self.calls[&call].what, What::Acquire { .. }) {
                self.give_up(call, now);
            }
        }
        while !self.locks.is_empty() {
            self.let_go(0, random, now);
        }
    }
}
