//! The end of a client: 4.11.

use super::*;

#[test]
fn rule_4_11_closing_fails_what_is_under_way_and_releases_what_is_held() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("held", 60_000, true);
    let (waiting, _) = world.acquire("waiting", Wait::Forever);
    let key = Key::encode(b"k").expect("a key");
    let (asking, _) = world.ask(Ask::Inspect { key });
    world.all_lines();
    let (closing, _) = world.ask(Ask::Close);
    assert_eq!(world.error(waiting), ErrorKind::Closed);
    assert_eq!(world.error(asking), ErrorKind::Closed);
    assert_eq!(world.lost, [(grant.lock, LostReason::Closed)]);
    assert_eq!(world.result(closing), None, "until it is released");
    let (late, _) = world.acquire("late", Wait::Forever);
    assert_eq!(world.error(late), ErrorKind::Closed);
    for (index, line) in world.all_lines() {
        let reply = match line.as_bytes()[0] {
            b'R' => format!("R held ok {}", tag(&line)),
            b'C' => format!("C waiting ok {}", tag(&line)),
            _ => panic!("{line}"),
        };
        world.say(index, &reply);
    }
    assert_eq!(world.result(closing), Some(Ok(Outcome::Done)));
    assert!(world.finished && world.pipes.is_empty());
    assert_eq!(world.session.next_deadline(), None);
    // The object is still there, and says what happened.
    let (face, _) = world.ask(Ask::ReleaseLock { lock: grant.lock });
    assert_eq!(world.result(face), Some(Ok(Outcome::Confirmed(false))));
    let (face, _) = world.ask(Ask::KeepLock {
        lock: grant.lock,
        lease: None,
    });
    assert_eq!(world.error(face), ErrorKind::Closed);
    world.session.drop_lock(grant.lock, world.now);
    let (again, _) = world.ask(Ask::Close);
    assert_eq!(world.result(again), Some(Ok(Outcome::Done)));
}

#[test]
fn rule_4_11_closing_takes_at_most_a_second() {
    let mut world = World::up(&["a:1"]);
    world.hold("held", 60_000, false);
    let (closing, _) = world.ask(Ask::Close);
    world.pass(S - 1);
    assert_eq!(world.result(closing), None);
    world.pass(1);
    assert_eq!(world.result(closing), Some(Ok(Outcome::Done)));
    assert!(world.finished);
}

#[test]
fn rule_4_11_a_client_without_handles_says_its_last_releases_and_ends() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("held", 60_000, false);
    world.session.drop_lock(grant.lock, world.now);
    world.session.retire(world.now);
    world.settle();
    assert!(!world.finished);
    let (index, line) = world.all_lines().pop().expect("a release");
    world.say(index, &format!("R held ok {}", tag(&line)));
    assert!(world.finished && world.pipes.is_empty());

    let mut world = World::up(&["a:1"]);
    world.session.retire(world.now);
    world.settle();
    assert!(world.finished);
}

#[test]
fn closing_before_a_connection_is_up_ends_at_once() {
    let mut world = World::new(&["a:1"]);
    let (face, _) = world.acquire("k", Wait::Forever);
    let (closing, _) = world.ask(Ask::Close);
    assert_eq!(world.error(face), ErrorKind::Closed);
    assert_eq!(world.result(closing), Some(Ok(Outcome::Done)));
    assert!(world.finished && world.pipes.is_empty());
}

/// Goal: closing gives back what is left of a lock whose time is over at that moment. Method: close after its time and
/// before its timer.
#[test]
fn rule_4_11_a_lock_that_closing_finds_lost_is_given_back_too() {
    let mut world = World::up(&["a:1"]);
    let grant = world.hold("k", 8_000, false);
    world.now += 7 * S;
    world.ask(Ask::Close);
    assert_eq!(world.lost, [(grant.lock, LostReason::Expired)]);
    let (_, line) = world.all_lines().pop().expect("a release");
    assert!(line.starts_with("R k 100 #"), "{line}");
}
