//! The protocol page, "Acquire happens once", and cancelling.

use super::{Answer, GRACE, Rig, SECOND, again, first, granted};
use crate::engine::EngineSettings;
use crate::protocol::{Millis, Tag, Wait};

const MEMORY: u64 = 600 * SECOND;

#[test]
fn a_held_grant_is_answered_again_and_its_lease_starts_anew() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let grant = granted(rig.acquire(one, "a", 10 * SECOND, Wait::Forever, first(1)));
    rig.pass(9 * SECOND);
    let answer = rig.acquire(one, "a", 10 * SECOND, Wait::Forever, again(1, 1));
    assert_eq!(answer, Answer::Granted(grant));
    rig.pass(9 * SECOND);
    let answer = rig.acquire(one, "a", SECOND / 2, Wait::Forever, again(1, 2));
    assert_eq!(answer, Answer::Granted(grant), "never earlier than before");
    rig.pass(SECOND - 1);
    assert!(rig.release("a", grant));
}

#[test]
fn an_older_attempt_is_dropped_while_the_newer_one_waits_or_holds() {
    let mut rig = Rig::new();
    let (one, two, late) = (rig.client("one"), rig.client("two"), rig.client("two"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", again(1, 2));
    for attempt in [0, 1] {
        let answer = rig.acquire(late, "a", SECOND, Wait::Forever, again(1, attempt));
        assert_eq!(answer, Answer::Dropped);
    }
    assert!(rig.release("a", grant));
    let (to, grant) = rig.handed_over();
    assert_eq!(to, two, "the late copy did not take the answer away");
    let answer = rig.acquire(late, "a", SECOND, Wait::Forever, again(1, 1));
    assert_eq!(answer, Answer::Dropped);
    let answer = rig.acquire(late, "a", SECOND, Wait::Forever, again(1, 2));
    assert_eq!(answer, Answer::Granted(grant), "an equal number attaches");
}

#[test]
fn an_older_attempt_is_dropped_for_ten_minutes_after_the_end() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let grant = granted(rig.acquire(one, "a", SECOND, Wait::Forever, again(1, 1)));
    assert!(rig.release("a", grant));
    rig.pass(MEMORY - 1);
    let answer = rig.acquire(one, "a", SECOND, Wait::Forever, first(1));
    assert_eq!(answer, Answer::Dropped);
    rig.pass(1);
    assert_eq!(rig.engine.stats().attempts_remembered, 0);
    granted(rig.acquire(one, "a", SECOND, Wait::Forever, first(1)));
}

#[test]
fn every_end_of_a_later_attempt_is_remembered() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let holder = rig.hold(one, "a");
    // Not had.
    let answer = rig.acquire(two, "a", SECOND, Wait::No, again(1, 1));
    assert_eq!(answer, Answer::NotHad);
    // Timed out.
    let answer = rig.acquire(two, "a", SECOND, Wait::For(Millis(5)), again(2, 1));
    assert_eq!(answer, Answer::Queued);
    rig.pass(5);
    // Cancelled.
    rig.queue(two, "a", first(3));
    assert!(rig.cancel(two, "a", again(3, 1).expect("a tag")));
    // Lost with its connection.
    rig.queue(two, "a", again(4, 1));
    rig.disconnect(two, &[]);
    rig.pass(GRACE);
    // Expired.
    assert!(rig.release("a", holder));
    let two = rig.client("two");
    granted(rig.acquire(two, "a", 5, Wait::Forever, again(5, 1)));
    rig.pass(5);
    rig.told();
    for number in 1..=5 {
        let answer = rig.acquire(two, "a", SECOND, Wait::Forever, first(number));
        assert_eq!(answer, Answer::Dropped, "request {number}");
    }
    assert_eq!(rig.engine.stats().dropped, 5);
}

#[test]
fn first_attempts_leave_nothing_behind() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    for number in 0..100 {
        let grant = granted(rig.acquire(one, "a", SECOND, Wait::Forever, first(number)));
        assert!(!rig.cancel(one, "b", Tag::first(number)));
        assert!(rig.release("a", grant));
    }
    rig.assert_empty();
}

#[test]
fn a_cancel_of_something_unseen_is_remembered() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    assert!(!rig.cancel(one, "a", again(1, 1).expect("a tag")));
    let answer = rig.acquire(one, "a", SECOND, Wait::Forever, first(1));
    assert_eq!(answer, Answer::Dropped, "it came after its cancel");
    let two = rig.client("two");
    granted(rig.acquire(two, "a", SECOND, Wait::Forever, first(1)));
}

#[test]
fn a_cancel_ends_a_waiting_request_without_a_reply() {
    let mut rig = Rig::new();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.client("three"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    rig.queue(three, "a", first(1));
    assert!(!rig.cancel(three, "b", Tag::first(1)), "not on that key");
    assert!(rig.cancel(two, "a", Tag::first(1)));
    assert!(!rig.cancel(two, "a", Tag::first(1)), "it is over");
    assert!(rig.release("a", grant));
    assert_eq!(rig.handed_over().0, three);
}

#[test]
fn a_cancel_ends_a_grant_and_hands_the_lock_on() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let grant = granted(rig.acquire(one, "a", SECOND, Wait::Forever, first(1)));
    rig.queue(two, "a", first(1));
    let other = rig.client("one");
    assert!(rig.cancel(other, "a", Tag::first(1)), "over any connection");
    assert_eq!(rig.handed_over().0, two);
    assert!(!rig.release("a", grant));
}

#[test]
fn a_cancel_leaves_a_newer_attempt_alone() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let grant = granted(rig.acquire(one, "a", SECOND, Wait::Forever, again(1, 2)));
    assert!(!rig.cancel(one, "a", again(1, 1).expect("a tag")));
    assert!(rig.cancel(one, "a", again(1, 2).expect("a tag")));
    assert!(!rig.release("a", grant));
}

#[test]
fn clients_do_not_cancel_each_other() {
    let mut rig = Rig::new();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.stranger());
    rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    for connection in [one, three] {
        assert!(!rig.cancel(connection, "a", Tag::first(1)));
    }
    assert!(rig.cancel(two, "a", Tag::first(1)));
}

#[test]
fn the_memory_of_attempts_is_bounded_and_the_oldest_goes_first() {
    let mut rig = Rig::with(EngineSettings {
        max_attempts_remembered: 3,
        ..EngineSettings::default()
    });
    let one = rig.client("one");
    for number in 1..=3 {
        assert!(!rig.cancel(one, "a", again(number, 1).expect("a tag")));
    }
    assert!(
        !rig.cancel(one, "a", again(1, 2).expect("a tag")),
        "now the newest"
    );
    assert!(!rig.cancel(one, "a", again(4, 1).expect("a tag")));
    let stats = rig.engine.stats();
    assert_eq!(
        (stats.attempts_remembered, stats.attempts_forgotten),
        (3, 1)
    );
    let answers = [1, 2, 3, 4].map(|number| {
        let answer = rig.acquire(one, "a", SECOND, Wait::No, first(number));
        answer == Answer::Dropped
    });
    assert_eq!(answers, [true, false, true, true]);
}
