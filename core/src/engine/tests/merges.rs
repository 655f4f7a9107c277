//! What a cluster asks of the engine: the state in parts while it changes, and two states that meet.

use super::copies::busy as busy_rig;
use super::{Rig, SECOND, Told, first, named};
use crate::engine::{
    Change, DumpCursor, DumpReader, Engine, EngineSettings, ForeignGrant, Inspection, Owner, Time,
};
use crate::protocol::{ClientId, Millis, NameRef, Tag, Token};
use std::collections::BTreeSet;
use std::sync::Arc;

fn token(number: u64) -> Token {
    Token::new(number).expect("a token")
}

/// A grant of another node to the client that is called so.
fn foreign(rig: &Rig, client: &str, key: &str, number: u64, tag: Tag) -> ForeignGrant {
    let mut id = [0; 16];
    id[..client.len()].copy_from_slice(client.as_bytes());
    ForeignGrant {
        key: named(key),
        token: token(number),
        owner: Arc::new(Owner::new(Some(ClientId(id)), NameRef::NONE, "far:1")),
        tag: Some(tag),
        lease: Millis(30 * SECOND),
        ends: rig.now.after(Millis(20 * SECOND)),
    }
}

fn holders(engine: &Engine, key: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = engine
        .grants()
        .filter_map(|change| match change {
            Change::Granted {
                key: held, token, ..
            } if held == named(key) => Some(token),
            _ => None,
        })
        .collect();
    tokens.sort();
    tokens
}

#[test]
fn parts_and_the_changes_between_them_lead_to_the_same_state() {
    let mut rig = busy_rig();
    let mut copy = Engine::new(EngineSettings::default(), 3);
    let (mut cursor, mut reader) = (DumpCursor::default(), DumpReader::default());
    rig.engine.take_changes();
    let one = rig.client("one");
    let mut more = true;
    let mut step = 0;
    while more {
        let mut part = Vec::new();
        more = rig.engine.dump(&mut cursor, 1, &mut part);
        for change in &part {
            copy.apply_dumped(rig.now, &mut reader, change)
                .expect("it fits");
        }
        // Between two parts everything goes on, in keys that were told and in those that were not.
        step += 1;
        let key = format!("k{}", step % 7);
        let answer = rig.acquire(
            one,
            &key,
            30 * SECOND,
            crate::protocol::Wait::Forever,
            first(100 + step),
        );
        if let crate::engine::Answer::Granted(grant) = answer
            && step % 2 == 0
        {
            rig.release(&key, grant);
        }
        while rig.engine.poll_effect().is_some() {}
        for change in rig.engine.take_changes() {
            copy.apply_between(rig.now, &mut reader, &change)
                .expect("it fits");
        }
    }
    copy.check_invariants();
    let state = |engine: &Engine| {
        let mut all: Vec<String> = engine
            .snapshot()
            .map(|change| format!("{change:?}"))
            .collect();
        all.retain(|change| !change.starts_with("TermOpened"));
        all.sort();
        all
    };
    assert_eq!(state(&copy), state(&rig.engine));
}

#[test]
fn a_key_held_on_both_sides_is_held_until_both_grants_are_gone() {
    let mut rig = Rig::new();
    let (one, three) = (rig.client("one"), rig.client("three"));
    let own = rig.hold(one, "a");
    rig.queue(three, "a", first(1));
    let theirs = foreign(
        &rig,
        "two",
        "a",
        (1 << 32) | (1 << 28) | 5,
        first(9).expect("a tag"),
    );
    rig.engine.merge(rig.now, &theirs);
    rig.engine.check_invariants();
    assert_eq!(holders(&rig.engine, "a"), [own.token, theirs.token]);
    let Inspection::Held(row) = rig.engine.inspect(rig.now, named("a").as_ref()) else {
        panic!("it is held");
    };
    assert_eq!(row.token, theirs.token, "the higher token is shown");

    assert!(rig.release("a", own));
    assert_eq!(
        rig.told(),
        [],
        "nobody gets it while the other grant is left"
    );
    assert!(
        rig.engine
            .keep(rig.now, named("a").as_ref(), theirs.token, Millis(SECOND))
    );
    rig.engine.open_term(2, 0, 0).expect("a term above both");
    assert!(
        rig.engine
            .release(rig.now, named("a").as_ref(), theirs.token)
    );
    let (to, next) = rig.handed_over();
    assert!(to == three && next.token > theirs.token);
}

#[test]
fn two_grants_of_one_request_are_one_and_the_higher_token_stays() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let answer = rig.acquire(
        one,
        "a",
        30 * SECOND,
        crate::protocol::Wait::Forever,
        first(7),
    );
    let own = super::granted(answer);
    let higher = foreign(
        &rig,
        "one",
        "a",
        own.token.get() + 9,
        first(7).expect("a tag"),
    );
    rig.engine.merge(rig.now, &higher);
    assert_eq!(holders(&rig.engine, "a"), [higher.token]);
    let lower = foreign(&rig, "one", "a", 3, first(7).expect("a tag"));
    rig.engine.merge(rig.now, &lower);
    assert_eq!(holders(&rig.engine, "a"), [higher.token]);
    rig.engine.check_invariants();
}

#[test]
fn a_request_that_waits_here_and_was_granted_there_gets_that_grant() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    rig.hold(one, "a");
    rig.queue(two, "a", first(4));
    let theirs = foreign(
        &rig,
        "two",
        "a",
        (1 << 32) | (1 << 28) | 5,
        first(4).expect("a tag"),
    );
    rig.engine.merge(rig.now, &theirs);
    rig.engine.check_invariants();
    assert_eq!(rig.told(), [Told::Granted(two, theirs.token)]);
    assert_eq!(rig.engine.queue_length(named("a").as_ref()), 0);
}

#[test]
fn releases_of_the_other_side_end_the_grants_that_are_known_here() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let (a, b) = (rig.hold(one, "a"), rig.hold(one, "b"));
    let ended: BTreeSet<Token> = [a.token, token(77)].into();
    assert_eq!(rig.engine.end_tokens(rig.now, &ended), [token(77)]);
    assert_eq!(holders(&rig.engine, "a"), []);
    assert_eq!(holders(&rig.engine, "b"), [b.token]);
}

#[test]
fn who_resigns_sends_its_waiters_away_and_keeps_only_its_connections() {
    let mut rig = busy_rig();
    let four = rig.client("four");
    rig.queue(four, "a", first(8));
    let highest = rig.engine.highest_token();
    while rig.engine.poll_effect().is_some() {}
    rig.engine.resign();
    rig.engine.check_invariants();
    let told = rig.told();
    assert!(
        told.iter().all(|told| matches!(told, Told::Moved(_))),
        "{told:?}"
    );
    assert!(told.contains(&Told::Moved(four)));
    let stats = rig.engine.stats();
    assert_eq!(
        (stats.held, stats.keys, stats.waiting, stats.detached),
        (0, 0, 0, 0)
    );
    assert_eq!(
        rig.engine.next_deadline().filter(|at| *at < Time::NEVER),
        None
    );
    assert_eq!(rig.engine.highest_token(), highest, "tokens only rise");
    rig.hold(four, "a");
}

#[test]
fn a_copy_of_two_that_have_met_may_have_two_holders_too() {
    let mut rig = Rig::with(EngineSettings {
        recording: crate::engine::Recording::Everything,
        ..EngineSettings::default()
    });
    let one = rig.client("one");
    rig.hold(one, "key");
    let given = foreign(&rig, "two", "key", u64::MAX >> 2, first(7).expect("a tag"));
    rig.engine.merge(rig.now, &given);
    let mut copy = Engine::new(EngineSettings::default(), 5);
    for change in rig.engine.take_changes() {
        copy.apply(rig.now, &change).expect("it fits");
    }
    copy.check_invariants();
    assert_eq!(holders(&copy, "key").len(), 2);
}
