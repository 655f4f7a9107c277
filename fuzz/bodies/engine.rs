//! What holds for the engine whatever happens: it does what the naive model does, its invariants hold
//! after each step, and a copy that applies its changes has the same state. Run by the fuzzer over
//! bytes of its own making, by a property test over random ones and by the ordinary tests over the
//! kept ones.

#[path = "engine_model.rs"]
mod model;

use fairlock::engine::{
    Answer, Change, ClaimId, ConnectionId, Effect, Engine, EngineSettings, Grant, Inspection,
    ListCursor, Recording, Time,
};
use fairlock::protocol::{ClientId, Key, Millis, NameRef, Prefix, Tag, Token, Wait};
use model::{Acquire, Claim, End, Model, end_of};

/// Lets the bytes choose what happens, step by step, to their end. Returns the number of steps.
pub(crate) fn check(data: &[u8]) -> usize {
    let mut choices = Choices(data);
    let mut pair = Pair::new(&mut choices);
    let mut steps = 0;
    while !choices.0.is_empty() {
        pair.step(&mut choices);
        pair.compare();
        steps += 1;
    }
    pair.compare_copy();
    steps
}

/// Bytes as a row of decisions; zeros at its end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, limit: u64) -> u64 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        u64::from(*first) % limit
    }

    /// Mostly short, sometimes long.
    fn length(&mut self) -> u64 {
        match self.below(8) {
            0 => 1,
            1..=5 => 1 + self.below(40),
            6 => 1 + self.below(256) * 10,
            _ => 1 << (self.below(36)),
        }
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len().max(1) as u64) as usize)
    }
}

/// The engine and the model side by side.
struct Pair {
    engine: Engine,
    copy: Engine,
    model: Model,
    now: Time,
    keys: Vec<Key>,
    /// Connections whose last steps may have left replies behind, with these.
    replies: Vec<(ConnectionId, Grant)>,
    /// What the engine told since the last comparison.
    changes: Vec<Change>,
}

impl Pair {
    fn new(choices: &mut Choices<'_>) -> Pair {
        let settings = EngineSettings {
            max_keys: 4,
            max_waiters_per_key: 5,
            max_waiters: 9,
            max_waiting_per_connection: 3,
            reattach_grace: Millis(30),
            attempt_memory: Millis(400),
            max_attempts_remembered: 3,
            recording: Recording::WhatLasts,
            ..EngineSettings::default()
        };
        let mut engine = Engine::new(settings.clone(), choices.below(256));
        let left = 1 << choices.below(20);
        let (term, counter) = (1, (1 << 28) - 1 - left);
        engine.open_term(term, 0, counter).expect("the first term");
        let names: [&[u8]; 6] = [b"a", b"b", b"ab", b"a b", b"c", &[b'x'; 40]];
        let keys = names.map(|name| Key::encode(name).expect("a key"));
        let mut pair = Pair {
            engine,
            copy: Engine::new(settings.clone(), choices.below(256)),
            model: Model {
                settings,
                claims: Vec::new(),
                memory: Vec::new(),
                connections: Vec::new(),
                term,
                counter,
                half_told: false,
                next_term: None,
                effects: Vec::new(),
                ends: Vec::new(),
            },
            now: Time(choices.below(256) * 777_777),
            keys: keys.into(),
            replies: Vec::new(),
            changes: Vec::new(),
        };
        pair.take_changes();
        pair.connect(choices);
        pair
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let operation = choices.below(32);
        match operation {
            0..=10 => self.acquire(choices),
            11..=14 => self.release(choices),
            15..=16 => self.keep(choices),
            17..=19 => self.cancel(choices),
            20..=21 => self.disconnect(choices),
            22..=23 => self.connect(choices),
            24..=29 => self.pass_time(choices),
            30 => self.look(choices),
            _ => self.change_term(choices),
        }
    }

    fn acquire(&mut self, choices: &mut Choices<'_>) {
        let Some(connection) = self.connection(choices) else {
            return;
        };
        let key = self.key(choices);
        let lease = Millis(choices.length());
        let wait = match choices.below(6) {
            0 => Wait::No,
            1..=2 => Wait::Forever,
            _ => Wait::For(Millis(choices.length())),
        };
        let tag = (choices.below(5) > 0).then(|| tag(choices));
        let (now, engine) = (self.now, &mut self.engine);
        let answer = engine.acquire(now, connection, key.as_ref(), lease, wait, tag);
        self.take_changes();
        let asked = Acquire {
            id: self.new_claim(&answer),
            connection,
            key: &key,
            lease,
            wait,
            tag,
        };
        let expected = self.model.acquire(now, &asked);
        assert_eq!(answer, expected);
        if let Answer::Granted(grant) = answer {
            self.replies.push((connection, grant));
        }
    }

    fn release(&mut self, choices: &mut Choices<'_>) {
        let (key, token) = self.grant(choices);
        let released = self.engine.release(self.now, key.as_ref(), token);
        assert_eq!(released, self.model.release(self.now, &key, token));
        if released {
            assert!(
                !self.engine.release(self.now, key.as_ref(), token),
                "released once"
            );
        }
    }

    fn keep(&mut self, choices: &mut Choices<'_>) {
        let (key, token) = self.grant(choices);
        let lease = Millis(choices.length());
        let kept = self.engine.keep(self.now, key.as_ref(), token, lease);
        assert_eq!(kept, self.model.keep(self.now, &key, token, lease));
    }

    fn cancel(&mut self, choices: &mut Choices<'_>) {
        let Some(connection) = self.connection(choices) else {
            return;
        };
        let (key, tag) = (self.key(choices), tag(choices));
        let found = self.engine.cancel(self.now, connection, key.as_ref(), tag);
        assert_eq!(found, self.model.cancel(self.now, connection, &key, tag));
    }

    fn connect(&mut self, choices: &mut Choices<'_>) {
        if self.model.connections.len() == 6 {
            return;
        }
        let connection = self.engine.connect("10.0.0.1:80");
        let client = [None, Some(ClientId([1; 16])), Some(ClientId([2; 16]))];
        let client = client[choices.below(3) as usize];
        if client.is_some() || choices.below(2) == 0 {
            assert!(self.engine.hello(connection, client, NameRef::NONE));
        }
        self.model.connections.push((connection, client));
    }

    fn disconnect(&mut self, choices: &mut Choices<'_>) {
        let Some(connection) = self.connection(choices) else {
            return;
        };
        let unsent: Vec<Grant> = if choices.below(2) == 0 {
            let replies = self.replies.iter();
            let own = replies.filter(|(to, _)| *to == connection);
            own.map(|(_, grant)| *grant).collect()
        } else {
            Vec::new()
        };
        self.engine.disconnect(self.now, connection, &unsent);
        self.model.disconnect(self.now, connection, &unsent);
        // In a step of its own, nobody has seen in which order requests left.
        self.take_changes();
        sort_leaves(&mut self.changes, &mut self.model.ends);
        let (lease, key) = (Millis(1), self.keys[0].clone());
        let late = self
            .engine
            .acquire(self.now, connection, key.as_ref(), lease, Wait::No, None);
        assert_eq!(
            late,
            Answer::Dropped,
            "nothing for a connection that is gone"
        );
    }

    fn pass_time(&mut self, choices: &mut Choices<'_>) {
        self.now.0 += match choices.below(4) {
            0 => choices.below(3),
            1 => choices.below(256) * 100,
            2 => choices.below(64) * 1000,
            _ => choices.length() * 1000,
        };
        if let Some(deadline) = self.engine.next_deadline()
            && choices.below(2) == 0
        {
            self.now = self.now.max(deadline);
        }
        let at_most = [1, 2, 1000][choices.below(3) as usize];
        let before = self.engine.stats();
        let more = self.engine.expire(self.now, at_most);
        self.take_changes();
        self.end_in_time(more);
        let after = self.engine.stats();
        let remembered = after.attempts_remembered as usize;
        let ended = after.expired + after.undelivered + after.timed_out;
        assert!(ended - (before.expired + before.undelivered + before.timed_out) <= at_most as u64);
        let over = |memory: &(_, _, _, Time)| memory.3.after(Millis(400)) <= self.now;
        while self.model.memory.len() > remembered {
            assert!(
                over(&self.model.memory.remove(0)),
                "remembered for its time"
            );
        }
        assert!(more || !self.model.memory.iter().any(over), "and no longer");
    }

    /// The engine decides in which order the claims of one millisecond end, the model whether.
    fn end_in_time(&mut self, more: bool) {
        let tick = self.now.0 / 1000;
        let changes = std::mem::take(&mut self.changes);
        for (index, end) in changes.iter().filter_map(end_of).enumerate() {
            if index == self.model.ends.len() {
                let (End::Expired(id) | End::Left(id)) = end else {
                    panic!("{end:?} without a cause");
                };
                let claims = self.model.claims.iter();
                let first = claims.clone().map(Claim::due).min();
                let ended = claims
                    .clone()
                    .find(|claim| claim.id == id)
                    .expect("a claim");
                assert!(ended.due() <= tick, "never early");
                assert_eq!(Some(ended.due()), first, "in the order of time");
                if ended.token.is_none() && !ended.gone {
                    self.model.effects.push(Effect::TimedOut {
                        connection: ended.connection,
                        key: ended.key.clone(),
                        tag: ended.tag,
                    });
                }
                let held = ended.token.is_some();
                self.model
                    .end(self.now, id, if held { End::Expired } else { End::Left });
            }
            assert_eq!(self.model.ends.get(index), Some(&end));
        }
        self.changes = changes;
        let late = self.model.claims.iter().any(|claim| claim.due() <= tick);
        assert!(more || !late, "what is over has ended");
    }

    fn change_term(&mut self, choices: &mut Choices<'_>) {
        let model = &mut self.model;
        if choices.below(2) == 0 {
            let term = model.term + choices.below(3) as u32;
            let fits = term > model.term;
            assert_eq!(self.engine.provide_next_term(term).is_ok(), fits);
            if fits {
                model.next_term = Some(term);
            }
        } else if choices.below(8) == 0 {
            let (term, counter) = (model.term + 2, (1 << 28) - 1 - choices.below(256) as u32);
            self.engine
                .open_term(term, 0, counter)
                .expect("a higher term");
            (model.term, model.counter, model.half_told) = (term, counter, false);
            model.next_term = model.next_term.filter(|next| *next > term);
        }
    }

    fn look(&mut self, choices: &mut Choices<'_>) {
        let key = self.key(choices);
        let queue: Vec<(u64, Millis)> = (1..)
            .zip(
                self.model
                    .queue(&key)
                    .map(|claim| self.now.since(claim.since)),
            )
            .collect();
        let rows = self.engine.waiters(self.now, key.as_ref(), None);
        let rows: Vec<_> = rows.map(|row| (row.position, row.waited)).collect();
        assert_eq!(rows, queue);
        assert_eq!(self.engine.queue_length(key.as_ref()), queue.len() as u64);

        let now = self.now;
        let holder = self.model.holder(&key);
        let holder = holder.map(|claim| (claim.token, claim.deadline.since(now), claim.client));
        match self.engine.inspect(now, key.as_ref()) {
            Inspection::Free { waiters } => {
                assert_eq!((waiters, holder), (queue.len() as u64, None))
            }
            Inspection::Held(row) => {
                assert_eq!((row.key, row.waiters), (key.as_ref(), queue.len() as u64));
                assert_eq!(
                    Some((Some(row.token), row.remaining, row.owner.client)),
                    holder
                );
            }
        }

        let prefix = Prefix::of_spelling([&b""[..], b"a", b"a%", b"q"][choices.below(4) as usize]);
        let mut cursor = ListCursor::new(prefix, None);
        let mut listed = Vec::new();
        while self
            .engine
            .list(now, &mut cursor, 2, |row| listed.push(row.key.to_key()))
        {}
        let held = self
            .model
            .claims
            .iter()
            .filter(|claim| claim.token.is_some());
        let mut expected: Vec<Key> = held
            .map(|claim| claim.key.clone())
            .filter(|key| key.spelling().starts_with(prefix.spelling()))
            .collect();
        if let Some(after) = choices.pick(&listed) {
            let place = listed.iter().position(|key| key == after);
            let mut cursor = ListCursor::new(prefix, Some(after.as_ref()));
            let mut behind = Vec::new();
            while self
                .engine
                .list(now, &mut cursor, 1, |row| behind.push(row.key.to_key()))
            {}
            assert_eq!(Some(&behind[..]), place.map(|place| &listed[place + 1..]));
        }
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected);
        self.compare_copy();
    }

    /// Compares what both told in this step.
    fn compare(&mut self) {
        let mut effects = Vec::new();
        while let Some(effect) = self.engine.poll_effect() {
            if let Effect::Granted {
                connection, grant, ..
            } = &effect
            {
                self.replies.push((*connection, *grant));
            }
            effects.push(effect);
        }
        assert_eq!(effects, self.model.effects);
        self.model.effects.clear();
        self.take_changes();
        let ends: Vec<End> = self.changes.iter().filter_map(end_of).collect();
        assert_eq!(ends, self.model.ends);
        self.model.ends.clear();
        self.changes.clear();
        if self.replies.len() > 20 {
            self.replies.drain(..10);
        }

        let stats = self.engine.stats();
        let waiting = self
            .model
            .claims
            .iter()
            .filter(|claim| claim.token.is_none());
        let detached = waiting.clone().filter(|claim| claim.gone).count() as u64;
        let waiting = waiting.count() as u64;
        assert_eq!((stats.waiting, stats.detached), (waiting, detached));
        assert_eq!(stats.held, self.model.claims.len() as u64 - waiting);
        assert_eq!(stats.attempts_remembered, self.model.memory.len() as u64);
        self.engine.check_invariants();
    }

    /// Whoever applied every change has the same claims, and the same memory of attempts as far as it
    /// counts.
    fn compare_copy(&mut self) {
        self.copy.check_invariants();
        let now = self.now;
        let state = |engine: &Engine| {
            let mut state: Vec<(Option<Key>, Change)> = Vec::new();
            for change in engine.snapshot() {
                let key = match &change {
                    Change::Granted { key, .. } | Change::Enqueued { key, .. } => Some(key.clone()),
                    Change::AttemptRemembered { at, .. } if at.after(Millis(400)) > now => None,
                    _ => continue,
                };
                state.push((key, change));
            }
            state.sort_by(|one, other| one.0.cmp(&other.0));
            state
        };
        assert_eq!(state(&self.copy), state(&self.engine));
    }

    fn take_changes(&mut self) {
        for change in self.engine.take_changes() {
            self.copy
                .apply(self.now, &change)
                .expect("every change fits");
            self.copy.take_changes();
            self.changes.push(change);
        }
    }

    /// The number of the claim that an acquire has just made, if it made one.
    fn new_claim(&self, answer: &Answer) -> ClaimId {
        let enqueued = self.changes.iter().find_map(|change| match change {
            Change::Enqueued { claim, .. } => Some(*claim),
            _ => None,
        });
        match answer {
            Answer::Granted(grant) => grant.claim,
            _ => enqueued.unwrap_or_else(|| {
                // No claim was made, so any number will do.
                self.replies
                    .first()
                    .map_or_else(ClaimId::default, |reply| reply.1.claim)
            }),
        }
    }

    fn connection(&mut self, choices: &mut Choices<'_>) -> Option<ConnectionId> {
        choices.pick(&self.model.connections).map(|known| known.0)
    }

    fn key(&mut self, choices: &mut Choices<'_>) -> Key {
        self.keys[choices.below(self.keys.len() as u64) as usize].clone()
    }

    /// A grant that is held, or was, or never was.
    fn grant(&mut self, choices: &mut Choices<'_>) -> (Key, Token) {
        let held: Vec<_> = self
            .model
            .claims
            .iter()
            .filter(|claim| claim.token.is_some())
            .collect();
        if choices.below(4) > 0
            && let Some(claim) = choices.pick(&held)
        {
            return (claim.key.clone(), claim.token.expect("it holds"));
        }
        let token = self.replies.last().map(|reply| reply.1.token);
        (
            self.key(choices),
            token.or(Token::new(1)).expect("not zero"),
        )
    }
}

/// Requests that leave with their connection do so in an order that nobody sees.
fn sort_leaves(changes: &mut [Change], ends: &mut [End]) {
    let number = |end: &End| match end {
        End::Left(id) => Some(*id),
        End::Granted(..) | End::Released(_) | End::Expired(_) => None,
    };
    changes.sort_by_key(|change| end_of(change).as_ref().and_then(number));
    ends.sort_by_key(number);
}

fn tag(choices: &mut Choices<'_>) -> Tag {
    Tag {
        number: choices.below(6),
        attempt: choices.below(12).saturating_sub(7) as u32,
    }
}
