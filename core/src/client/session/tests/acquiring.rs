//! Acquiring: 4.3, 4.5 and 4.7.

use super::*;

#[test]
fn rule_4_3_answers_are_matched_by_their_tags_in_any_order() {
    let mut world = World::up(&["a:1", "b:1"]);
    let first = world.acquire("k", wait_ms(5000)).0;
    world.acquire("other", wait_ms(5000));
    let second = world.acquire("k", wait_ms(1000)).0;
    let lines = world.all_lines();
    assert_eq!(
        lines,
        [
            (0, "A other 30 5 #2".to_owned()),
            (1, "A k 30 5 #1".to_owned()),
            (1, "A k 30 1 #3".to_owned()),
        ]
    );
    world.say(1, "T k #3");
    assert_eq!(world.error(second), ErrorKind::WaitTimeout);
    world.say(1, "A k 9 #1");
    assert_eq!(world.grant(first).token, token(9));
}

#[test]
fn a_try_that_does_not_get_the_lock_says_so() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", Wait::No);
    let (index, line) = world.all_lines().pop().expect("sent");
    assert_eq!(line, "A k 30 - #1");
    world.say(index, "T k #1");
    assert_eq!(world.result(face), Some(Ok(Outcome::NotHad)));
    world.pass(20 * S);
    let all = world.all_lines();
    assert!(all.iter().all(|(_, line)| line.starts_with('P')), "{all:?}");
}

#[test]
fn rule_4_5_a_broken_connection_is_a_failed_try_and_the_next_is_tried_at_once() {
    let mut world = World::up(&["a:1", "b:1", "c:1"]);
    let (face, _) = world.acquire("k", wait_ms(5000));
    assert_eq!(world.line(1), "A k 30 5 #1");
    world.pass(1500 * MS);
    world.cut(1);
    assert_eq!(world.line(2), "A k 30 3.5 #1.1", "the wait that is left");
    world.cut(2);
    assert_eq!(world.line(0), "A k 30 3.5 #1.2");
    world.cut(0);
    assert_eq!(world.result(face), None, "is the server still there?");
    world.accept(1);
    assert_eq!(
        world.error(face),
        ErrorKind::ConnectionFailed,
        "three of three"
    );
}

#[test]
fn rule_4_5_the_text_names_each_address_and_why() {
    let mut world = World::new(&["a:1", "b:1"]);
    world.accept(0);
    world.refuse(1);
    let (face, _) = world.acquire("k", wait_ms(20_000));
    world.cut(0);
    let broken = world.now;
    let error = loop {
        for index in [0, 1] {
            if world.pipes.contains_key(&index) {
                world.refuse(index);
            }
        }
        if let Some(result) = world.result(face) {
            break result.expect_err("nobody has granted it anything");
        }
        assert!(world.now < broken + 7 * S, "for ever");
        world.pass(10 * MS);
    };
    let text = error.to_string();
    assert!(text.contains("a:1: connection re"), "{text}");
    assert!(text.contains("b:1: connection refused"), "{text}");
}

#[test]
fn rule_4_5_unavailable_is_a_failed_try_and_every_other_refusal_is_final() {
    let mut world = World::up(&["a:1", "b:1"]);
    let (face, _) = world.acquire("k", Wait::Forever);
    let line = world.line(1);
    world.say(
        1,
        &format!("E A k unavailable {} no node is active", tag(&line)),
    );
    assert_eq!(
        world.line(0),
        "A k 30 0 #1",
        "nothing was done: the same attempt"
    );
    world.say(0, "E A k unavailable #1 no node is active");
    assert_eq!(world.result(face), None, "is the node stopping?");
    world.pass(200 * MS);
    assert_eq!(world.error(face), ErrorKind::ConnectionFailed);
    for code in ["denied", "busy", "internal", "quota"] {
        let (face, _) = world.acquire("k", Wait::Forever);
        let (index, line) = world.all_lines().pop().expect("sent");
        world.say(index, &format!("E A k {code} {} because", tag(&line)));
        let kind = ErrorKind::Refused { code: code.into() };
        assert_eq!(world.error(face), kind);
    }
    for code in ["lease", "wait", "key"] {
        let (face, _) = world.acquire("k", Wait::Forever);
        let (index, line) = world.all_lines().pop().expect("sent");
        world.say(index, &format!("E A k {code} {} because", tag(&line)));
        assert_eq!(world.error(face), ErrorKind::InvalidArgument);
    }
}

#[test]
fn rule_4_5_the_count_starts_again_when_the_active_node_has_answered_something_later() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", Wait::Forever);
    for round in 0..5_u32 {
        let (index, _) = world.all_lines().pop().expect("sent again");
        assert_eq!(world.result(face), None, "round {round}");
        if round < 4 {
            world.pass(5 * S);
            for (other, probe) in world.all_lines() {
                world.say(other, &probe);
            }
        }
        world.cut(index);
        world.accept_all();
    }
    assert_eq!(
        world.error(face),
        ErrorKind::ConnectionFailed,
        "two without an answer"
    );
}

#[test]
fn rule_4_5_a_refusal_or_a_standbys_probe_does_not_count_as_an_answer() {
    let mut world = World::new(&["a:1", "b:1"]);
    world.accept_as(0, "standby", "x:1", "-");
    world.accept_as(1, "standby", "x:1", "-");
    let (face, _) = world.acquire("k", Wait::Forever);
    for _ in 0..2 {
        let (index, _) = world.all_lines().pop().expect("sent");
        world.pass(5 * S);
        for (other, line) in world.all_lines() {
            world.say(other, &line);
        }
        world.cut(index);
    }
    world.accept_as(0, "standby", "x:1", "-");
    assert_eq!(world.error(face), ErrorKind::ConnectionFailed);
}

#[test]
fn rule_4_5_with_no_connection_a_call_waits_for_one() {
    let mut world = World::with(&["a:1"], |settings| settings.connect_timeout = 5 * S);
    let (face, _) = world.acquire("k", wait_ms(10_000));
    world.refuse(0);
    world.refuse(1);
    world.pass(3_300 * MS);
    assert_eq!(world.result(face), None);
    world.accept(0);
    let line = world.line(0);
    assert_eq!(
        line, "A k 30 6.7 #1",
        "the first attempt, with what is left"
    );
}

#[test]
fn rule_4_5_with_no_connection_a_call_fails_when_each_was_tried_for_it() {
    let mut world = World::new(&["a:1"]);
    world.refuse(0);
    world.refuse(1);
    // The first tries of a new client count for the call that follows its making.
    let (face, _) = world.acquire("k", Wait::Forever);
    world.pass(3 * S);
    for index in [0, 1] {
        if world.pipes.contains_key(&index) {
            world.refuse(index);
        }
    }
    assert_eq!(world.error(face), ErrorKind::ConnectionFailed);
    // Later ones do not: both have to be tried again.
    let (face, _) = world.acquire("k", Wait::Forever);
    let began = world.now;
    while world.result(face).is_none() {
        world.pass(MS);
        for index in [0, 1] {
            if world.pipes.contains_key(&index) {
                world.refuse(index);
            }
        }
        assert!(world.now < began + 7 * S, "for ever");
    }
    assert!(world.now >= began + 3 * S);
}

#[test]
fn rule_4_5_the_budget_ends_a_call_that_waits_for_a_connection() {
    let mut world = World::new(&["a:1"]);
    let (face, _) = world.acquire("k", wait_ms(500));
    world.pass(500 * MS - 1);
    assert_eq!(world.result(face), None);
    world.pass(1);
    assert_eq!(world.error(face), ErrorKind::ConnectionFailed);
    assert!(world.session.tags.is_empty());
}

#[test]
fn rule_1_4_the_wait_that_is_left_is_not_rounded_down_so_no_time_out_comes_early() {
    let mut world = World::new(&["a:1", "b:1"]);
    world.accept_as(0, "active", "a:1", "a:1,b:1");
    world.accept_as(1, "standby", "a:1", "a:1,b:1");
    let (face, _) = world.acquire("k", wait_ms(10));
    assert_eq!(world.line(0), "A k 30 0.01 #1");
    world.pass(8 * MS + 300);
    world.cut(0);
    assert_eq!(world.line(1), "A k 30 0.002 #1.1");
    // Less than a millisecond is left, which cannot be asked for.
    world.pass(MS);
    world.say(1, "M A k b:1 #1.1");
    assert_eq!(world.lines(1), [""; 0]);
    assert_eq!(world.result(face), None);
    world.pass(699);
    assert_eq!(world.result(face), None);
    world.pass(1);
    assert_eq!(world.error(face), ErrorKind::WaitTimeout);
}

#[test]
fn a_client_that_is_refused_by_all_says_so_at_once() {
    let mut world = World::new(&["a:1"]);
    let (face, _) = world.acquire("k", Wait::Forever);
    for index in [0, 1] {
        world.connect(index);
        world.say(index, "E H - auth wrong secret");
    }
    assert_eq!(
        world.error(face),
        ErrorKind::Refused {
            code: "auth".into()
        }
    );
}

#[test]
fn rule_4_5_without_an_answer_the_client_times_out_itself_and_cancels() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", wait_ms(500));
    let (index, line) = world.all_lines().pop().expect("sent");
    assert_eq!(line, "A k 30 0.5 #1");
    world.pass(1500 * MS - 1);
    assert_eq!(world.result(face), None);
    world.pass(1);
    assert_eq!(world.error(face), ErrorKind::WaitTimeout);
    let cancels = world.all_lines();
    assert_eq!(cancels.len(), 1);
    assert_eq!(cancels[0].1, "C k #1.1");
    // It is said again until somebody answers.
    world.pass(200 * MS);
    let (other, line) = world.all_lines().pop().expect("again");
    assert_eq!(line, "C k #1.1");
    assert_ne!(other, cancels[0].0, "over another connection");
    world.say(other, "C k none #1.1");
    world.pass(4 * S);
    let all = world.all_lines();
    assert!(
        !all.iter().any(|(_, line)| line.starts_with('C')),
        "{all:?}"
    );
    // A grant that comes after all is given back.
    world.say(index, "A k 9 #1");
    let (_, line) = world.all_lines().pop().expect("a release");
    assert!(line.starts_with("R k 9 #"), "{line}");
}

#[test]
fn rule_4_5_the_wait_is_never_sent_as_nothing() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", wait_ms(1000));
    let (index, _) = world.all_lines().pop().expect("sent");
    world.pass(S - 999);
    world.cut(index);
    assert_eq!(world.all_lines(), []);
    world.pass(999);
    assert_eq!(world.error(face), ErrorKind::WaitTimeout);
    let (_, line) = world
        .all_lines()
        .pop()
        .expect("a cancel: the fate is unknown");
    assert_eq!(line, "C k #1.1");
}

#[test]
fn rule_4_5_a_time_out_after_a_lost_copy_is_followed_by_a_cancel_with_the_next_attempt() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", wait_ms(1000));
    let (index, _) = world.all_lines().pop().expect("sent");
    world.cut(index);
    let (index, line) = world.all_lines().pop().expect("sent again");
    assert_eq!(line, "A k 30 1 #1.1");
    world.say(index, "T k #1.1");
    assert_eq!(world.error(face), ErrorKind::WaitTimeout);
    let (_, line) = world
        .all_lines()
        .pop()
        .expect("the fate of the first is unknown");
    assert_eq!(line, "C k #1.2");
}

#[test]
fn rule_4_5_retry_for_goes_on_when_the_tries_are_used_up() {
    let mut world = World::with(&["a:1"], |settings| settings.retry_for = 10 * S);
    world.accept_all();
    let (face, _) = world.acquire("k", Wait::Forever);
    let begin = world.now;
    let mut asked = 0;
    while world.now < begin + 10 * S - MS {
        for (index, line) in world.all_lines() {
            if line.starts_with('A') {
                asked += 1;
                world.say(index, &format!("E A k unavailable {} none", tag(&line)));
            }
        }
        assert_eq!(world.result(face), None);
        world.pass(MS);
    }
    assert!((50..200).contains(&asked), "with pauses: {asked}");
    world.pass(100 * MS);
    for (index, line) in world.all_lines() {
        world.say(index, &format!("E A k unavailable {} none", tag(&line)));
    }
    assert_eq!(world.error(face), ErrorKind::ConnectionFailed);
}

#[test]
fn rule_4_7_a_caller_who_gives_up_leaves_nothing_behind() {
    let mut world = World::up(&["a:1"]);
    let (face, operation) = world.acquire("k", Wait::Forever);
    let (index, _) = world.all_lines().pop().expect("sent");
    world
        .session
        .cancel(operation.expect("under way"), world.now);
    world.settle();
    assert_eq!(world.error(face), ErrorKind::Cancelled);
    assert_eq!(world.line(index), "C k #1", "right behind it");
    // The grant was under way already.
    world.say(index, "A k 9 #1");
    assert!(world.line(index).starts_with("R k 9 #"));
    world.say(index, "C k ok #1");
    world.say(index, "R k stale #2");
    world.pass(4 * S);
    assert!(world.all_lines().is_empty());
    assert!(world.session.tags.is_empty() && world.session.busy_keys.is_empty());
}

#[test]
fn rule_4_7_a_cancel_whose_connection_breaks_is_said_with_the_next_attempt() {
    let mut world = World::up(&["a:1"]);
    let (_, operation) = world.acquire("k", Wait::Forever);
    let (index, _) = world.all_lines().pop().expect("sent");
    world
        .session
        .cancel(operation.expect("under way"), world.now);
    world.settle();
    world.cut(index);
    world.pass(200 * MS);
    let (other, line) = world.all_lines().pop().expect("again");
    assert_eq!(line, "C k #1.1");
    world.say(other, "C k ok #1.1");
    assert!(world.session.tags.is_empty());
}

#[test]
fn a_call_that_was_never_sent_is_cancelled_without_a_word() {
    let mut world = World::new(&["a:1"]);
    let (face, operation) = world.acquire("k", Wait::Forever);
    world
        .session
        .cancel(operation.expect("under way"), world.now);
    world.settle();
    assert_eq!(world.error(face), ErrorKind::Cancelled);
    world.accept_all();
    assert!(world.all_lines().is_empty());
    assert_eq!(world.session.operations.len(), 0);
}

#[test]
fn ten_thousand_failed_tries_leave_nothing() {
    let mut world = World::up(&["a:1"]);
    for round in 0..10_000 {
        let wait = if round % 2 == 0 {
            Wait::No
        } else {
            wait_ms(50)
        };
        let (face, operation) = world.acquire("k", wait);
        let (index, line) = world.all_lines().pop().expect("sent");
        match round % 3 {
            0 => world.say(index, &format!("T k {}", tag(&line))),
            1 => {
                world
                    .session
                    .cancel(operation.expect("under way"), world.now);
                world.settle();
                let cancel = world.line(index);
                world.say(index, &format!("C k ok {}", tag(&cancel)));
            }
            _ => world.say(index, &format!("E A k busy {} full", tag(&line))),
        }
        assert!(world.result(face).is_some());
    }
    let session = &world.session;
    assert_eq!(session.operations.len() + session.locks.len(), 0);
    assert!(session.tags.is_empty() && session.waiting.is_empty());
    assert!(session.operation_deadlines.next().is_none());
}

#[test]
fn calls_that_wait_for_a_connection_and_end_are_forgotten() {
    let mut world = World::new(&["a:1"]);
    for _ in 0..1000 {
        let (face, operation) = world.acquire("k", Wait::Forever);
        world
            .session
            .cancel(operation.expect("under way"), world.now);
        world.settle();
        assert!(world.result(face).is_some());
    }
    assert!(world.session.waiting.len() < 200);
}

#[test]
fn a_view_is_asked_for_and_comes() {
    let mut world = World::up(&["a:1"]);
    let key = Key::encode(b"k").expect("a key");
    let (face, _) = world.ask(Ask::Inspect { key: key.clone() });
    let (index, line) = world.all_lines().pop().expect("sent");
    world.say(
        index,
        &format!("I k held 5 1.5 2 me%20too 10.0.0.1:5 {}", tag(&line)),
    );
    let Some(Ok(Outcome::Key(state))) = world.result(face) else {
        panic!("no state");
    };
    let KeyState::Held(held) = *state else {
        panic!("free");
    };
    assert_eq!((held.waiters, held.name), (2, Some(b"me too".to_vec())));
    assert_eq!(held.remaining, Duration::from_millis(1500));

    let (face, _) = world.ask(Ask::Waiters { key, limit: 2 });
    let (index, line) = world.all_lines().pop().expect("sent");
    world.say(index, &format!("w k 1 3.25 - 10.0.0.2:7 {}", tag(&line)));
    world.say(index, &format!("W k 9 {}", tag(&line)));
    let Some(Ok(Outcome::Waiters(waiters))) = world.result(face) else {
        panic!("no waiters");
    };
    assert_eq!((waiters.count, waiters.first.len()), (9, 1));

    let (face, _) = world.ask(Ask::Locks {
        prefix: None,
        after: None,
        limit: 1,
    });
    let (index, line) = world.all_lines().pop().expect("sent");
    assert!(line.starts_with("L - 1 #"), "{line}");
    world.say(index, &format!("l k 5 1 0 - 10.0.0.1:5 {}", tag(&line)));
    world.say(index, &format!("L - 1 {}", tag(&line)));
    let Some(Ok(Outcome::Locks(page))) = world.result(face) else {
        panic!("no page");
    };
    assert_eq!(page.next.as_deref(), Some(&b"k"[..]));

    let (face, _) = world.ask(Ask::Status);
    let (index, line) = world.all_lines().pop().expect("sent");
    assert_eq!(line, "S");
    world.say(
        index,
        "S role=active node=a:1 active=a:1 term=3 held=1 waiting=2 connections=3 standbys=-",
    );
    let Some(Ok(Outcome::Status(status))) = world.result(face) else {
        panic!("no status");
    };
    assert_eq!((status.term, status.held), (3, 1));
    assert_eq!(status.peers, ["a:1"]);
}
