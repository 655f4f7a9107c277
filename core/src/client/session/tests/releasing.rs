//! Releasing: 4.3 and 4.6.

use super::*;

fn release(world: &mut World, lock: LockId) -> FaceId {
    world.ask(Ask::ReleaseLock { lock }).0
}

#[test]
fn rule_4_6_a_release_is_repeated_every_200_ms_for_5_s_over_any_connection() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 60_000, false);
    let begin = world.now;
    let face = release(&mut world, grant.lock);
    let mut sent = Vec::new();
    let mut places = Vec::new();
    while world.result(face).is_none() {
        for (index, line) in world.all_lines() {
            match line.starts_with('R') {
                true => {
                    sent.push((world.now - begin) / MS);
                    places.push(index);
                }
                // The connections are alive; only the release has no answer.
                false => world.say(index, &line),
            }
        }
        world.pass(MS);
        assert!(world.now <= begin + 5 * S + MS);
    }
    let expected: Vec<u64> = (0..25).map(|nth| nth * 200).collect();
    assert_eq!(sent, expected);
    assert!(places.contains(&0) && places.contains(&1));
    // It is not forgotten: the next try may succeed, and a first copy may have worked.
    let face = release(&mut world, grant.lock);
    let (index, line) = world.all_lines().pop().expect("a release");
    world.say(index, &format!("R k stale {}", tag(&line)));
    assert_eq!(world.result(face), Some(Ok(Outcome::Confirmed(true))));
}

#[test]
fn rule_4_6_a_release_goes_on_at_once_when_its_connection_breaks_and_where_the_old_node_is_named() {
    let mut world = World::new(&["a:1", "b:1"]);
    world.accept_as(0, "active", "a:1", "a:1,b:1");
    world.accept_as(1, "standby", "a:1", "a:1,b:1");
    let grant = world.hold("k", 60_000, false);
    let face = release(&mut world, grant.lock);
    assert!(world.line(0).starts_with("R k 100 #"));
    world.cut(0);
    world.refuse(0);
    let again = world.line(1);
    assert!(again.starts_with("R k 100 #"), "{again}");
    // The standby has not seen yet what the client has.
    world.say(1, &format!("M R k a:1 {}", tag(&again)));
    world.pass(20 * MS);
    let again = world.line(1);
    world.say(1, &format!("M R k a:1 {}", tag(&again)));
    world.pass(39 * MS);
    assert_eq!(world.lines(1), [""; 0]);
    world.say(1, "N b:1");
    let again = world.line(1);
    world.say(1, &format!("R k ok {}", tag(&again)));
    assert_eq!(world.result(face), Some(Ok(Outcome::Confirmed(true))));
}

#[test]
fn rule_4_6_unconfirmed_says_so() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 60_000, false);
    let face = release(&mut world, grant.lock);
    world.pass(5 * S);
    assert_eq!(world.error(face), ErrorKind::ReleaseUnconfirmed);
}

#[test]
fn rule_4_6_unconfirmed_says_what_is_wrong_with_the_servers() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 60_000, false);
    let face = release(&mut world, grant.lock);
    world.cut(0);
    world.cut(1);
    world.refuse(0);
    world.refuse(1);
    let text = unconfirmed(&mut world, face);
    assert!(text.contains("(a:1: connection refused)"), "{text}");

    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 60_000, false);
    let face = release(&mut world, grant.lock);
    for _ in 0..49 {
        for (index, line) in world.all_lines() {
            match line.starts_with('R') {
                true => world.say(index, &format!("E R k unavailable {} none", tag(&line))),
                false => world.say(index, &line),
            }
        }
        world.pass(100 * MS);
    }
    let text = unconfirmed(&mut world, face);
    assert!(text.contains("no node is active there: none"), "{text}");
}

fn unconfirmed(world: &mut World, face: FaceId) -> String {
    world.pass(5 * S);
    let error = world.result(face).expect("over").expect_err("unconfirmed");
    assert_eq!(error.kind(), &ErrorKind::ReleaseUnconfirmed);
    error.to_string()
}

#[test]
fn rule_4_6_stale_is_ok_if_more_than_one_copy_was_sent_and_a_lost_lock_if_not() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 60_000, false);
    let face = release(&mut world, grant.lock);
    let (index, line) = world.all_lines().pop().expect("a release");
    world.say(index, &format!("R k stale {}", tag(&line)));
    assert_eq!(world.result(face), Some(Ok(Outcome::Confirmed(false))));
    assert_eq!(world.lost, [], "the result says it");

    let grant = world.hold("k", 60_000, false);
    let face = release(&mut world, grant.lock);
    let (index, _) = world.all_lines().pop().expect("a release");
    world.cut(index);
    world.pass(200 * MS);
    let (index, line) = world.all_lines().pop().expect("again");
    world.say(index, &format!("R k stale {}", tag(&line)));
    assert_eq!(world.result(face), Some(Ok(Outcome::Confirmed(true))));
    assert!(world.session.tags.is_empty() && world.session.busy_keys.is_empty());
}

#[test]
fn rule_4_6_unavailable_goes_on_and_another_refusal_ends_it() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 60_000, false);
    let face = release(&mut world, grant.lock);
    let (index, line) = world.all_lines().pop().expect("a release");
    world.say(index, &format!("E R k unavailable {} none", tag(&line)));
    assert_eq!(world.result(face), None);
    world.pass(200 * MS);
    let (index, line) = world.all_lines().pop().expect("again");
    world.say(index, &format!("E R k denied {} no", tag(&line)));
    let kind = ErrorKind::Refused {
        code: "denied".into(),
    };
    assert_eq!(world.error(face), kind);
}

#[test]
fn rule_4_6_cancelling_the_caller_does_not_stop_a_release() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 60_000, false);
    let (face, operation) = world.ask(Ask::ReleaseLock { lock: grant.lock });
    world
        .session
        .cancel(operation.expect("under way"), world.now);
    world.settle();
    assert_eq!(world.error(face), ErrorKind::Cancelled);
    world.session.drop_lock(grant.lock, world.now);
    world.settle();
    let first = world.all_lines();
    assert_eq!(first.len(), 1);
    world.pass(200 * MS);
    assert!(world.all_lines()[0].1.starts_with("R k 100 #"));
}

#[test]
fn rule_4_3_requests_on_a_key_follow_its_release() {
    let mut world = World::up(&["a:1", "b:1", "c:1"]);
    let grant = world.hold("k", 60_000, false);
    release(&mut world, grant.lock);
    let (place, line) = world.all_lines().pop().expect("a release");
    let release_tag = tag(&line).to_owned();
    for _ in 0..5 {
        world.acquire("k", Wait::Forever);
        assert_eq!(world.all_lines().pop().map(|(index, _)| index), Some(place));
        world.acquire("other", Wait::Forever);
        world.all_lines();
    }
    world.say(place, &format!("R k ok {release_tag}"));
    let mut places = Vec::new();
    for _ in 0..3 {
        world.acquire("k", Wait::Forever);
        places.extend(world.all_lines().pop().map(|(index, _)| index));
    }
    places.sort_unstable();
    assert_eq!(places, [0, 1, 2]);
}

#[test]
fn rule_4_6_what_a_replaced_node_had_confirmed_is_said_once_more() {
    let mut world = World::new(&["a:1", "b:1"]);
    world.accept_as(0, "starting", "-", "a:1,b:1");
    world.accept_as(1, "standby", "a:1", "a:1,b:1");
    // The first request learns who is active.
    let (face, _) = world.acquire("k", Wait::Forever);
    let line = world.line(1);
    world.say(1, &format!("M A k a:1 {}", tag(&line)));
    let line = world.line(0);
    world.say(0, &format!("A k 100 {}", tag(&line)));
    let grant = world.grant(face);
    let face = release(&mut world, grant.lock);
    let line = world.line(0);
    world.say(0, &format!("R k ok {}", tag(&line)));
    assert_eq!(world.result(face), Some(Ok(Outcome::Confirmed(true))));
    world.pass(S);
    world.all_lines();
    world.cut(0);
    let line = world.line(1);
    assert!(line.starts_with("R k 100 #"), "{line}");
    world.say(1, &format!("R k stale {}", tag(&line)));
    // The grant may not have been copied, but that the request waited.
    let cancel = world.line(1);
    assert_eq!(cancel, "C k #1.1");
    world.say(1, "C k ok #1.1");
    world.pass(4 * S);
    let all = world.all_lines();
    assert!(
        !all.iter().any(|(_, line)| line.starts_with(['R', 'C'])),
        "once: {all:?}"
    );
}

#[test]
fn rule_4_6_the_same_when_n_names_another_node_and_not_after_3_s() {
    for (passed, expected) in [(S, 1), (4 * S, 0)] {
        let mut world = World::new(&["a:1", "b:1"]);
        world.accept_as(0, "active", "a:1", "a:1,b:1");
        world.accept_as(1, "standby", "a:1", "a:1,b:1");
        world.say(1, "N a:1");
        let grant = world.hold("k", 60_000, false);
        release(&mut world, grant.lock);
        let line = world.line(0);
        world.say(0, &format!("R k ok {}", tag(&line)));
        world.pass(passed);
        world.all_lines();
        world.say(1, "N b:1");
        let again = world
            .lines(1)
            .iter()
            .filter(|line| line.starts_with("R k 100"))
            .count();
        assert_eq!(again, expected);
    }
}

#[test]
fn an_operator_releases_by_token() {
    let mut world = World::up(&["a:1"]);
    let key = Key::encode(b"k").expect("a key");
    let (face, _) = world.ask(Ask::Release {
        key,
        token: token(5),
    });
    let (index, line) = world.all_lines().pop().expect("sent");
    world.say(index, &format!("R k stale {}", tag(&line)));
    assert_eq!(world.result(face), Some(Ok(Outcome::Confirmed(false))));
}

fn by_operator(world: &mut World, keeps: bool) -> FaceId {
    let key = Key::encode(b"k").expect("a key");
    let token = token(5);
    let ask = match keeps {
        false => Ask::Release { key, token },
        true => Ask::Keep {
            key,
            token,
            lease: Millis(30_000),
        },
    };
    world.ask(ask).0
}

#[test]
fn what_an_operator_asks_ends_at_once_where_all_servers_refuse_the_client() {
    for keeps in [false, true] {
        for asks_first in [true, false] {
            let mut world = World::new(&["a:1", "b:1"]);
            let before = asks_first.then(|| by_operator(&mut world, keeps));
            world.connect(0);
            world.say(0, "E ? - auth wrong secret");
            if let Some(face) = before {
                assert_eq!(world.result(face), None, "the other one may serve it");
            }
            world.connect(1);
            world.say(1, "E ? - auth wrong secret");
            let face = before.unwrap_or_else(|| by_operator(&mut world, keeps));
            let error = world.result(face).expect("at once").expect_err("refused");
            let code = "auth".into();
            assert_eq!(error.kind(), &ErrorKind::Refused { code });
            assert!(error.to_string().contains("a:1"), "{error}");
        }
    }
}

#[test]
fn what_an_operator_asks_names_the_servers_that_it_never_reached() {
    for keeps in [false, true] {
        let mut world = World::new(&["a:1", "b:1"]);
        let face = by_operator(&mut world, keeps);
        world.refuse(0);
        world.refuse(1);
        world.pass(5 * S);
        let error = world.result(face).expect("over").expect_err("failed");
        assert_eq!(error.kind(), &ErrorKind::ConnectionFailed);
        let text = error.to_string();
        assert!(text.contains("a:1: ") && text.contains("b:1: "), "{text}");
    }
}

#[test]
fn a_release_that_an_operator_has_sent_is_unconfirmed_whatever_happens_then() {
    let mut world = World::up(&["a:1"]);
    let face = by_operator(&mut world, false);
    assert_eq!(world.all_lines().len(), 1);
    for index in [0, 1] {
        world.cut(index);
        world.connect(index);
        world.say(index, "E ? - auth wrong secret");
    }
    assert_eq!(world.result(face), None);
    let text = unconfirmed(&mut world, face);
    assert!(text.contains("wrong secret"), "{text}");
}

#[test]
fn a_dropped_lock_is_released_and_forgotten() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 60_000, true);
    world.session.drop_lock(grant.lock, world.now);
    world.settle();
    let (index, line) = world.all_lines().pop().expect("a release");
    world.say(index, &format!("R k ok {}", tag(&line)));
    assert_eq!(
        world.session.locks.len() + world.session.operations.len(),
        0
    );
    assert!(world.session.lock_deadlines.next().is_none());
}

/// Rule 4.8: what an answer says of the time is about the copy that it answers.
#[test]
fn copies_with_one_tag_on_one_connection_are_answered_in_the_order_of_sending() {
    use crate::client::session::operation::{Age, Kind, Operation, Sent};
    use crate::client::session::repeat::{Release, Repeat};
    let key =
        crate::client::session::hash::Seeded::new(1).hashed(Key::encode(b"k").expect("a key"));
    let repeat = Repeat::new(key, S, S, S);
    let release = Release {
        token: token(5),
        lock: None,
        once_more: false,
        fresh: None,
    };
    let mut operation = Operation::new(Kind::Release(repeat, release), None);
    let copy = |sequence| Sent {
        tag: crate::protocol::Tag::first(7),
        connection: Some(0),
        sequence,
        at: sequence * S,
    };
    operation.older = vec![copy(1), copy(2)];
    operation.current = Some(copy(3));
    for expected in 1..=3 {
        let taken = operation.take_copy(copy(0).tag, 0);
        assert_eq!(taken, Some((copy(expected), Age::Current)));
    }
    assert_eq!(operation.take_copy(copy(0).tag, 0), None);
}
