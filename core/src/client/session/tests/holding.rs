//! Held locks: 4.8 and 4.9.

use super::*;

/// Answers all probes, so that connections stay.
fn pong(world: &mut World) -> Vec<(u32, String)> {
    let mut others = Vec::new();
    for (index, line) in world.all_lines() {
        if line.starts_with('P') {
            world.say(index, &line);
        } else {
            others.push((index, line));
        }
    }
    others
}

/// Lets time pass while the server answers probes.
fn idle(world: &mut World, time: Micros) -> Vec<(u32, String)> {
    let mut lines = Vec::new();
    let until = world.now + time;
    while world.now < until {
        world.pass((until - world.now).min(MS));
        lines.extend(pong(world));
    }
    lines
}

#[test]
fn rule_4_8_time_left_counts_from_the_sending_of_the_request() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", Wait::Forever);
    let (index, line) = world.all_lines().pop().expect("sent");
    world.pass(3 * S);
    world.say(index, &format!("A k 100 {}", tag(&line)));
    let grant = world.grant(face);
    assert_eq!(world.view(grant.lock).remaining, 27 * S);
    world.pass(S);
    assert_eq!(world.view(grant.lock).remaining, 26 * S);
}

#[test]
fn rule_4_8_or_from_the_latest_request_that_was_answered_before_the_grant() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.acquire("k", Wait::Forever);
    let (index, line) = world.all_lines().pop().expect("sent");
    world.pass(5 * S);
    let probe = world.line(index);
    world.pass(S);
    world.say(index, &probe);
    world.pass(2 * S);
    world.say(index, &format!("A k 100 {}", tag(&line)));
    let grant = world.grant(face);
    assert_eq!(
        world.view(grant.lock).remaining,
        27 * S,
        "from the probe's sending"
    );
}

#[test]
fn rule_4_8_with_less_than_seven_eighths_it_is_confirmed_first() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.ask(acquire("k", 8_000, Wait::Forever));
    let (index, line) = world.all_lines().pop().expect("sent");
    world.pass(1001 * MS);
    world.say(index, &format!("A k 100 {}", tag(&line)));
    assert_eq!(world.result(face), None);
    let (index, line) = world.all_lines().pop().expect("a keep");
    assert!(line.starts_with("K k 100 8 #"), "{line}");
    world.pass(100 * MS);
    world.say(index, &format!("K k ok {}", tag(&line)));
    let grant = world.grant(face);
    assert_eq!(world.view(grant.lock).remaining, 7_900 * MS);
    // Exactly seven eighths is enough.
    let (face, _) = world.ask(acquire("k", 8_000, Wait::Forever));
    let (index, line) = world.all_lines().pop().expect("sent");
    world.pass(S);
    world.say(index, &format!("A k 101 {}", tag(&line)));
    world.grant(face);
}

/// A grant that needs confirmation; its `K` has been sent and is returned.
fn confirming(world: &mut World, lease: u64, wait: Wait) -> (FaceId, OperationId, u32, String) {
    let (face, operation) = world.ask(acquire("k", lease, wait));
    let (index, line) = world.all_lines().pop().expect("sent");
    world.pass(lease * MS / 4);
    world.say(index, &format!("A k 100 {}", tag(&line)));
    let (index, line) = world.all_lines().pop().expect("a keep");
    (face, operation.expect("under way"), index, line)
}

#[test]
fn rule_4_8_a_confirmation_is_asked_for_every_twelfth_over_any_connection() {
    let mut world = World::up(&["a:1"]);
    let (face, _, first, _) = confirming(&mut world, 1200, Wait::Forever);
    world.pass(100 * MS);
    let (second, line) = world.all_lines().pop().expect("again");
    assert_ne!(first, second);
    world.say(second, &format!("E K k unavailable {} none", tag(&line)));
    world.pass(100 * MS);
    let (index, line) = world.all_lines().pop().expect("again");
    world.say(index, &format!("K k ok {}", tag(&line)));
    let grant = world.grant(face);
    assert_eq!(world.view(grant.lock).remaining, 1200 * MS);
}

#[test]
fn rule_4_8_stale_goes_on_with_a_new_tag_and_the_wait_that_is_left() {
    let mut world = World::up(&["a:1"]);
    let (face, _, index, line) = confirming(&mut world, 1200, wait_ms(5000));
    world.say(index, &format!("K k stale {}", tag(&line)));
    let (index, line) = world.all_lines().pop().expect("a new acquire");
    assert!(
        line.starts_with("A k 1.2 4.7 #") && tag(&line) != "#1",
        "{line}"
    );
    world.say(index, &format!("A k 200 {}", tag(&line)));
    assert_eq!(world.grant(face).token, token(200));
}

#[test]
fn rule_4_8_without_confirmation_within_a_lease_it_is_released_and_a_failed_try() {
    let mut world = World::up(&["a:1"]);
    let (face, ..) = confirming(&mut world, 1200, Wait::Forever);
    let lines = idle(&mut world, 1200 * MS);
    let released = lines.iter().any(|(_, line)| line.starts_with("R k 100 #"));
    assert!(released, "{lines:?}");
    let (_, line) = lines.last().expect("a new try");
    assert!(
        line.starts_with("A k 1.2 0 #") && tag(line) != "#1",
        "{line}"
    );
    assert_eq!(world.result(face), None);
}

#[test]
fn rule_4_8_a_caller_who_gives_up_meanwhile_leaves_nothing() {
    let mut world = World::up(&["a:1"]);
    let (face, operation, ..) = confirming(&mut world, 1200, Wait::Forever);
    world.session.cancel(operation, world.now);
    world.settle();
    assert_eq!(world.error(face), ErrorKind::Cancelled);
    let (index, line) = world.all_lines().pop().expect("a release");
    assert!(line.starts_with("R k 100 #"), "{line}");
    world.say(index, &format!("R k ok {}", tag(&line)));
    assert_eq!(world.session.operations.len(), 0);
}

#[test]
fn rule_4_8_one_second_past_the_budget_it_is_a_time_out() {
    let mut world = World::up(&["a:1"]);
    let (face, ..) = confirming(&mut world, 12_000, wait_ms(3500));
    idle(&mut world, 1499 * MS);
    assert_eq!(world.result(face), None);
    let lines = idle(&mut world, 2 * MS);
    assert_eq!(world.error(face), ErrorKind::WaitTimeout);
    assert!(lines.iter().any(|(_, line)| line.starts_with("R k 100 #")));
}

#[test]
fn rule_4_8_keep_counts_from_its_sending_and_never_shortens() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 8_000, false);
    world.pass(2 * S);
    let lock = grant.lock;
    let (face, _) = world.ask(Ask::KeepLock { lock, lease: None });
    let (index, line) = world.all_lines().pop().expect("a keep");
    assert!(line.starts_with("K k 100 8 #"), "{line}");
    world.pass(100 * MS);
    world.say(index, &format!("K k ok {}", tag(&line)));
    assert_eq!(world.result(face), Some(Ok(Outcome::Done)));
    assert_eq!(world.view(lock).remaining, 7_900 * MS);
    let (face, _) = world.ask(Ask::KeepLock {
        lock,
        lease: Some(Millis(1000)),
    });
    let (index, line) = world.all_lines().pop().expect("a keep");
    world.say(index, &format!("K k ok {}", tag(&line)));
    assert_eq!(world.result(face), Some(Ok(Outcome::Done)));
    let view = world.view(lock);
    assert_eq!((view.remaining, view.lease), (7_900 * MS, 8 * S));
    let (_, _) = world.ask(Ask::KeepLock {
        lock,
        lease: Some(Millis(60_000)),
    });
    let (index, line) = world.all_lines().pop().expect("a keep");
    world.say(index, &format!("K k ok {}", tag(&line)));
    let view = world.view(lock);
    assert_eq!((view.remaining, view.lease), (60 * S, 60 * S));
    // A shorter one counts once it puts the end off.
    idle(&mut world, 20 * S);
    world.ask(Ask::KeepLock {
        lock,
        lease: Some(Millis(50_000)),
    });
    let (index, line) = world.all_lines().pop().expect("a keep");
    world.say(index, &format!("K k ok {}", tag(&line)));
    let view = world.view(lock);
    assert_eq!((view.remaining, view.lease), (50 * S, 50 * S));
}

#[test]
fn rule_4_8_a_keep_without_answer_ends_when_an_eighth_is_left() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 8_000, false);
    let (face, _) = world.ask(Ask::KeepLock {
        lock: grant.lock,
        lease: None,
    });
    let lines = idle(&mut world, 7 * S - MS);
    assert_eq!(world.result(face), None);
    assert!(lines.len() >= 10, "every twelfth: {lines:?}");
    idle(&mut world, MS);
    let reason = LostReason::Unconfirmed;
    assert_eq!(world.error(face), ErrorKind::LockLost { reason });
    assert_eq!(world.lost, [(grant.lock, reason)]);
}

#[test]
fn rule_4_9_a_lock_without_keep_alive_says_that_it_is_lost_with_an_eighth_left() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 8_000, false);
    idle(&mut world, 7 * S - MS);
    assert!(world.view(grant.lock).held);
    assert_eq!(world.lost, []);
    idle(&mut world, MS);
    assert_eq!(world.lost, [(grant.lock, LostReason::Expired)]);
    let view = world.view(grant.lock);
    assert_eq!(
        (view.held, view.remaining, view.lost),
        (false, 0, Some(LostReason::Expired))
    );
    // Released all the same: nobody has to wait for the rest.
    let (face, _) = world.ask(Ask::ReleaseLock { lock: grant.lock });
    assert_eq!(world.result(face), Some(Ok(Outcome::Confirmed(false))));
    let (index, line) = world.all_lines().pop().expect("in the background");
    assert!(line.starts_with("R k 100 #"), "{line}");
    world.say(index, &format!("R k ok {}", tag(&line)));
    world.session.drop_lock(grant.lock, world.now);
    world.settle();
    assert!(world.all_lines().is_empty());
    assert_eq!(world.lost.len(), 1, "once");
    assert_eq!(world.session.locks.len(), 0);
}

#[test]
fn rule_4_9_keep_alive_renews_at_a_third_of_the_lease() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 3_000, true);
    for _ in 0..50 {
        assert!(idle(&mut world, S - MS).is_empty());
        let lines = idle(&mut world, MS);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let (index, line) = &lines[0];
        assert!(line.starts_with("K k 100 3 #"), "{line}");
        world.say(*index, &format!("K k ok {}", tag(line)));
    }
    assert!(world.view(grant.lock).held);
    world.session.drop_lock(grant.lock, world.now);
    world.settle();
    let (index, line) = world.all_lines().pop().expect("a release");
    world.say(index, &format!("R k ok {}", tag(&line)));
    assert!(
        idle(&mut world, 10 * S).is_empty(),
        "a renewal does not outlive the release"
    );
}

#[test]
fn rule_4_9_an_unanswered_renewal_is_sent_again_every_twelfth_over_any_connection() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 12_000, true);
    let begin = world.now;
    idle(&mut world, 4 * S - MS);
    let mut places = Vec::new();
    while world.lost.is_empty() {
        for (index, _) in idle(&mut world, MS) {
            places.push((index, (world.now - begin) / MS));
        }
    }
    let times: Vec<u64> = places.iter().map(|(_, at)| *at).collect();
    assert_eq!(times, [4000, 5000, 6000, 7000, 8000, 9000, 10_000]);
    assert!(
        places.iter().any(|(index, _)| *index == 0) && places.iter().any(|(index, _)| *index == 1)
    );
    assert_eq!(world.now - begin, 10_500 * MS);
    assert_eq!(world.lost, [(grant.lock, LostReason::Unconfirmed)]);
}

#[test]
fn rule_4_8_a_keep_whose_connection_breaks_is_sent_again_at_once() {
    let mut world = World::up(&["a:1"]);
    let lock = world.hold("k", 3_600_000, false).lock;
    let (face, _) = world.ask(Ask::KeepLock { lock, lease: None });
    let (index, _) = world.all_lines().pop().expect("a keep");
    world.cut(index);
    let (other, again) = world.all_lines().pop().expect("at once");
    assert_ne!(other, index);
    world.say(other, &format!("K k ok {}", tag(&again)));
    assert_eq!(world.result(face), Some(Ok(Outcome::Done)));
}

#[test]
fn rule_4_9_a_refused_renewal_is_no_end() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 12_000, true);
    let lines = idle(&mut world, 4 * S);
    let (index, line) = lines.last().expect("a renewal");
    world.say(*index, &format!("E K k busy {} full", tag(line)));
    let lines = idle(&mut world, S);
    let (index, line) = lines.last().expect("again");
    world.say(*index, &format!("K k ok {}", tag(line)));
    idle(&mut world, 3 * S);
    assert!(world.view(grant.lock).held);
}

/// Lets time pass while the server answers probes and confirms what keep-alive asks; counts that.
fn idle_renewed(world: &mut World, time: Micros) -> usize {
    let mut renewals = 0;
    let until = world.now + time;
    while world.now < until {
        for (index, line) in idle(world, 100 * MS) {
            world.say(index, &format!("K k ok {}", tag(&line)));
            renewals += 1;
        }
    }
    renewals
}

#[test]
fn rule_4_9_a_keep_that_is_refused_or_given_up_does_not_end_the_renewals() {
    let mut world = World::up(&["a:1"]);
    let lock = world.hold("k", 3_000, true).lock;
    let keep = Ask::KeepLock {
        lock,
        lease: Some(Millis(90_000_000)),
    };
    let (face, _) = world.ask(keep);
    let (index, line) = world.all_lines().pop().expect("a keep");
    world.say(index, &format!("E K k lease {} too long", tag(&line)));
    assert_eq!(world.error(face), ErrorKind::InvalidArgument);
    assert!(idle_renewed(&mut world, 10 * S) >= 9);

    let (face, operation) = world.ask(Ask::KeepLock { lock, lease: None });
    let begun = operation.expect("under way");
    world.session.cancel(begun, world.now);
    world.settle();
    assert_eq!(world.error(face), ErrorKind::Cancelled);
    world.all_lines();
    assert!(idle_renewed(&mut world, 10 * S) >= 9);
    assert_eq!(world.lost, []);
    assert!(world.view(lock).held);
}

#[test]
fn rule_4_9_keeps_with_a_shorter_lease_do_not_put_the_renewals_off() {
    let mut world = World::up(&["a:1"]);
    let lock = world.hold("k", 12_000, true).lock;
    for _ in 0..10 {
        idle_renewed(&mut world, 3_500 * MS);
        let keep = Ask::KeepLock {
            lock,
            lease: Some(Millis(2_000)),
        };
        let (face, _) = world.ask(keep);
        let (index, line) = world.all_lines().pop().expect("a keep");
        world.say(index, &format!("K k ok {}", tag(&line)));
        assert_eq!(world.result(face), Some(Ok(Outcome::Done)));
    }
    assert_eq!(world.lost, []);
    assert!(world.view(lock).held);
}

#[test]
fn rule_4_9_taken_is_told_at_once() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 3_000, true);
    let lines = idle(&mut world, S);
    let (index, line) = lines.last().expect("a renewal");
    world.say(*index, &format!("K k stale {}", tag(line)));
    assert_eq!(world.lost, [(grant.lock, LostReason::Taken)]);
    world.session.drop_lock(grant.lock, world.now);
    world.settle();
    assert!(world.all_lines().is_empty(), "there is nothing to release");
    idle(&mut world, 10 * S);
    assert_eq!(world.lost.len(), 1, "once");
}

#[test]
fn rule_4_9_a_process_that_stood_still_hears_it_when_it_wakes() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 3_000, true);
    world.now += 3600 * S;
    world.session.handle_due(world.now);
    world.settle();
    assert_eq!(world.lost, [(grant.lock, LostReason::Expired)]);
    assert!(!world.view(grant.lock).held);
}

/// Goal: a lock that has said that it is not held is never held again, and its loss is told once. Method: look at it
/// after its time and before its timer, then let a renewal that had been sent in time be confirmed.
#[test]
fn rule_4_9_who_finds_a_lock_overdue_decides_its_loss() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 8_000, false);
    idle(&mut world, 6 * S);
    let (keeping, _) = world.ask(Ask::KeepLock {
        lock: grant.lock,
        lease: None,
    });
    let (index, line) = world.all_lines().pop().expect("a keep");
    world.now += S;
    let view = world.view(grant.lock);
    let lost = Some(LostReason::Unconfirmed);
    assert_eq!((view.held, view.remaining, view.lost), (false, 0, lost));
    assert_eq!(world.lost, [(grant.lock, LostReason::Unconfirmed)]);
    let reason = LostReason::Unconfirmed;
    assert_eq!(world.error(keeping), ErrorKind::LockLost { reason });
    world.say(index, &format!("K k ok {}", tag(&line)));
    assert_eq!(world.view(grant.lock), view, "lost is lost");
    idle(&mut world, 10 * S);
    assert_eq!(world.view(grant.lock), view);
    assert_eq!(world.lost.len(), 1, "once");
}

#[test]
fn rule_4_9_max_hold_ends_the_renewals() {
    let mut world = World::up(&["a:1"]);
    let (face, _) = world.ask(Ask::Acquire {
        key: Key::encode(b"k").expect("a key"),
        lease: Millis(3000),
        wait: Wait::Forever,
        keep_alive: true,
        max_hold: Some(Millis(2500)),
    });
    let (index, line) = world.all_lines().pop().expect("sent");
    world.say(index, &format!("A k 100 {}", tag(&line)));
    let grant = world.grant(face);
    let mut renewed = 0;
    while world.lost.is_empty() {
        for (index, line) in idle(&mut world, MS) {
            renewed += 1;
            world.say(index, &format!("K k ok {}", tag(&line)));
        }
    }
    assert_eq!(renewed, 2, "at 1 s and 2 s");
    assert_eq!(world.lost, [(grant.lock, LostReason::Expired)]);
}

#[test]
fn a_lock_that_is_left_held_is_not_touched_any_more() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 3_000, true);
    world.session.leave_held(grant.lock);
    world.settle();
    assert!(idle(&mut world, 10 * S).is_empty());
    assert_eq!(world.lost, []);
}
