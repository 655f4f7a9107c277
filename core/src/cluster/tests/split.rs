//! Two members that are active at once and meet, step by step: what the one gives to the other.

use super::member_world::{HOP, LEASE, SECOND, client_id, key};
use crate::cluster::*;
use crate::engine::{Answer, ConnectionId, Effect, Engine, EngineSettings, Time};
use crate::protocol::{NameRef, Tag, Token, Wait};

struct Side {
    member: Member,
    engine: Engine,
    connection: ConnectionId,
    /// Terms that are being written.
    terms: Vec<u32>,
    effects: Vec<Effect>,
}

struct Pair {
    now: u64,
    sides: [Side; 2],
    linked: bool,
    disks_work: bool,
}

fn side(index: u8, now: Now) -> Side {
    let members = Members::new(["a:1", "b:1"], ["a:1", "b:1"][usize::from(index)]);
    let members = members.expect("a list");
    let mut engine = Engine::new(EngineSettings::default(), u64::from(index));
    let connection = engine.connect("c:1");
    engine.hello(
        connection,
        Some(client_id(usize::from(index))),
        NameRef::NONE,
    );
    let beginning = Beginning {
        incarnation: now.time.0 + u64::from(index),
        disk_term: 0,
        copy: Copy::default(),
    };
    let settings = MemberSettings::default();
    Side {
        member: Member::new(now, members, settings, beginning, &mut engine),
        engine,
        connection,
        terms: Vec::new(),
        effects: Vec::new(),
    }
}

impl Pair {
    /// Two nodes that are linked; the first one serves and the other has a copy.
    fn new() -> Pair {
        let now = SECOND;
        let at = Now {
            time: Time(now),
            wall: 1,
        };
        let mut pair = Pair {
            now,
            sides: [side(0, at), side(1, at)],
            linked: false,
            disks_work: true,
        };
        pair.link();
        pair.run(SECOND);
        assert_eq!(pair.stances(), [Stance::Serve, Stance::Redirect(Slot(0))]);
        pair
    }

    fn at(&self) -> Now {
        Now {
            time: Time(self.now),
            wall: 1,
        }
    }

    fn stances(&self) -> [Stance; 2] {
        [0, 1].map(|index: usize| self.sides[index].member.stance())
    }

    fn give(&mut self, index: usize, event: Event) {
        let now = self.at();
        let side = &mut self.sides[index];
        side.member.handle(now, event, &mut side.engine);
        self.settle();
    }

    fn link(&mut self) {
        self.linked = true;
        for index in [0, 1] {
            let peer = Slot(1 - index as u8);
            self.give(index, Event::Connected { peer });
        }
    }

    fn cut(&mut self) {
        self.linked = false;
        for index in [0, 1] {
            let peer = Slot(1 - index as u8);
            self.give(index, Event::Lost { peer });
        }
    }

    fn run(&mut self, micros: u64) {
        let end = self.now + micros;
        while self.now < end {
            self.now += HOP;
            for index in [0, 1] {
                self.give(index, Event::Tick);
                let side = &mut self.sides[index];
                if side.member.stance() == Stance::Serve {
                    side.engine.expire(Time(self.now), usize::MAX);
                }
            }
        }
    }

    /// Carries frames and outputs until there are no more.
    fn settle(&mut self) {
        let now = self.at();
        loop {
            let mut quiet = true;
            for index in [0, 1] {
                let side = &mut self.sides[index];
                side.member.replicate(now, &mut side.engine);
                side.effects
                    .extend(std::iter::from_fn(|| side.engine.poll_effect()));
                while let Some(output) = side.member.poll_output() {
                    if let Output::WriteTerm { term } = output {
                        side.terms.push(term);
                    }
                }
                if self.disks_work && !side.terms.is_empty() {
                    quiet = false;
                    for term in std::mem::take(&mut side.terms) {
                        let event = Event::TermWritten { term };
                        side.member.handle(now, event, &mut side.engine);
                    }
                }
                let mut bytes = Vec::new();
                side.member.take_frames(Slot(1 - index as u8), &mut bytes);
                let mut rest = &bytes[..];
                let other = &mut self.sides[1 - index];
                while self.linked
                    && let Ok(Unit::Whole { body, used }) = split_frame(rest)
                {
                    quiet = false;
                    let from = Slot(index as u8);
                    let taken = other
                        .member
                        .handle_frame(now, from, body, &mut other.engine);
                    taken.expect("our own frames");
                    rest = &rest[used..];
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn acquire(&mut self, index: usize, number: u64) -> Option<Token> {
        let side = &mut self.sides[index];
        let tag = Some(Tag::first(number));
        let (at, key) = (Time(self.now), key(0));
        let key = key.as_ref();
        let answer = side
            .engine
            .acquire(at, side.connection, key, LEASE, Wait::Forever, tag);
        self.settle();
        match answer {
            Answer::Granted(grant) => Some(grant.token),
            Answer::Queued => None,
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, index: usize, token: Token) {
        let at = Time(self.now);
        let engine = &mut self.sides[index].engine;
        assert!(engine.release(at, key(0).as_ref(), token));
        self.settle();
    }

    fn held(&self, index: usize) -> usize {
        self.sides[index].engine.grants().count()
    }

    /// Both sides serve, because they do not hear each other.
    fn split(&mut self) {
        self.cut();
        self.run(2 * SECOND);
        assert_eq!(self.stances(), [Stance::Serve, Stance::Serve]);
    }
}

#[test]
fn what_was_released_on_one_side_of_a_split_ends_on_the_other_although_nobody_copied() {
    let mut pair = Pair::new();
    let token = pair.acquire(0, 1).expect("it is free");
    pair.split();
    pair.release(1, token);
    assert_eq!((pair.held(0), pair.held(1)), (1, 0));
    pair.link();
    pair.run(SECOND);
    assert_eq!(pair.stances(), [Stance::Serve, Stance::Redirect(Slot(0))]);
    assert_eq!((pair.held(0), pair.held(1)), (0, 0));
}

/// Goal: the token that the next in a queue gets after a split is above all of both sides. Method: the
/// disk of the node that stays active does not write while it is told what was released.
#[test]
fn after_a_split_nobody_is_granted_anything_below_the_tokens_of_the_other_side() {
    let mut pair = Pair::new();
    let first = pair.acquire(0, 1).expect("it is free");
    assert_eq!(pair.acquire(0, 2), None);
    pair.split();
    pair.release(1, first);
    // The waiting request is known there too, but nobody sends it again.
    pair.run(3 * SECOND);
    let other = pair.acquire(1, 3).expect("it is free");
    pair.release(1, other);
    pair.sides[0].effects.clear();
    pair.disks_work = false;
    pair.link();
    assert_eq!(pair.stances(), [Stance::Freeze, Stance::Redirect(Slot(0))]);
    assert_eq!(pair.sides[0].effects, []);
    pair.disks_work = true;
    pair.run(SECOND);
    let granted = pair.sides[0]
        .effects
        .iter()
        .find_map(|effect| match effect {
            Effect::Granted { grant, .. } => Some(grant.token),
            _ => None,
        });
    let granted = granted.expect("its turn has come");
    assert!(granted > other, "{granted:?} after {other:?}");
}

#[test]
fn a_grant_made_while_nobody_copied_outlives_a_sleep_of_its_node() {
    let mut pair = Pair::new();
    pair.cut();
    pair.give(0, Event::Refused { peer: Slot(1) });
    let token = pair.acquire(0, 1).expect("it is free");
    // The first one sleeps, and the second one is a new process that finds nobody.
    let at = pair.at();
    pair.sides[1] = side(1, at);
    for _ in 0..4 {
        pair.now += SECOND;
        pair.give(1, Event::Tick);
    }
    assert_eq!(pair.sides[1].member.stance(), Stance::Serve);
    pair.give(0, Event::Woke);
    pair.link();
    let held: Vec<bool> = [0, 1]
        .map(|index: usize| {
            let grant = pair.sides[index].engine.grant_of(key(0).as_ref(), token);
            grant.is_some()
        })
        .to_vec();
    assert!(held[1], "{held:?} {:?}", pair.stances());
}
