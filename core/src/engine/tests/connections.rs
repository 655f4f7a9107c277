//! Behaviour 1.6: what becomes of requests and grants when their connection breaks.

use super::{Answer, GRACE, Rig, SECOND, Told, again, first, granted, named};
use crate::engine::{EngineSettings, Inspection, Refusal, Time};
use crate::protocol::{KeyRef, Millis, NameRef, Tag, Wait};

#[test]
fn a_request_that_can_be_recognised_keeps_its_place_for_the_grace() {
    let mut rig = Rig::new();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.client("three"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    rig.queue(three, "a", first(1));
    rig.disconnect(two, &[]);
    rig.pass(GRACE - 1);
    let two = rig.client("two");
    rig.queue(two, "a", again(1, 1));
    rig.pass(10 * SECOND);
    assert!(rig.release("a", grant));
    assert_eq!(rig.handed_over().0, two, "before the third");
}

#[test]
fn without_an_id_or_a_tag_it_is_out_at_once() {
    let mut rig = Rig::new();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.stranger());
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", None);
    rig.queue(three, "a", first(1));
    rig.disconnect(two, &[]);
    rig.disconnect(three, &[]);
    assert_eq!(rig.engine.stats().waiting, 0);
    assert!(rig.release("a", grant));
    rig.assert_empty();
}

#[test]
fn a_free_lock_waits_for_a_detached_head_and_is_not_free_to_others() {
    let mut rig = Rig::new();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.client("three"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    rig.disconnect(two, &[]);
    assert!(rig.release("a", grant));
    let answer = rig.acquire(three, "a", SECOND, Wait::No, None);
    assert_eq!(answer, Answer::NotHad);
    rig.queue(three, "a", first(1));
    let state = rig.engine.inspect(rig.now, named("a").as_ref());
    assert_eq!(state, Inspection::Free { waiters: 2 });
    let two = rig.client("two");
    let answer = rig.acquire(two, "a", SECOND, Wait::Forever, again(1, 1));
    let grant = granted(answer);
    assert!(rig.release("a", grant));
    assert_eq!(rig.handed_over().0, three);
}

#[test]
fn after_the_grace_a_detached_head_leaves_in_silence_and_the_next_is_served() {
    let mut rig = Rig::new();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.client("three"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    rig.queue(three, "a", first(1));
    rig.disconnect(two, &[]);
    assert!(rig.release("a", grant));
    rig.pass(GRACE - 1);
    assert_eq!(rig.told(), []);
    rig.pass(1);
    assert_eq!(rig.handed_over().0, three);
}

#[test]
fn if_the_wait_of_a_detached_head_ends_first_the_next_is_served_in_that_step() {
    let mut rig = Rig::new();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.client("three"));
    let grant = rig.hold(one, "a");
    let wait = Wait::For(Millis(100));
    let answer = rig.acquire(two, "a", SECOND, wait, first(1));
    assert_eq!(answer, Answer::Queued);
    rig.queue(three, "a", first(1));
    rig.disconnect(two, &[]);
    assert!(rig.release("a", grant));
    rig.pass(99);
    assert_eq!(rig.told(), []);
    rig.pass(1);
    assert_eq!(rig.handed_over().0, three);
}

#[test]
fn a_request_that_came_back_keeps_its_old_deadline() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    rig.hold(one, "a");
    let answer = rig.acquire(two, "a", SECOND, Wait::For(Millis(1000)), first(1));
    assert_eq!(answer, Answer::Queued);
    rig.pass(800);
    rig.disconnect(two, &[]);
    rig.pass(100);
    let two = rig.client("two");
    let answer = rig.acquire(two, "a", SECOND, Wait::For(Millis(5000)), again(1, 1));
    assert_eq!(answer, Answer::Queued);
    rig.pass(99);
    assert_eq!(rig.told(), []);
    rig.pass(1);
    assert_eq!(rig.told(), [Told::TimedOut(two)]);
}

#[test]
fn no_lock_goes_to_a_connection_that_is_gone() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    rig.disconnect(two, &[]);
    assert!(rig.release("a", grant));
    assert_eq!(
        rig.acquire(two, "b", SECOND, Wait::No, first(2)),
        Answer::Dropped
    );
    let three = rig.client("three");
    assert_eq!(three.index, two.index, "the place is used again");
    assert_eq!(
        rig.acquire(two, "b", SECOND, Wait::No, first(2)),
        Answer::Dropped
    );
    assert!(!rig.cancel(two, "a", Tag::first(1)));
    rig.disconnect(two, &[]);
    assert_eq!(rig.engine.stats().connections, 2);
    rig.pass(GRACE);
    rig.assert_empty();
}

#[test]
fn a_grant_whose_reply_had_not_left_is_taken_back_after_the_grace() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let answer = rig.acquire(one, "a", 30 * SECOND, Wait::Forever, first(1));
    let unsent = granted(answer);
    rig.queue(two, "a", first(1));
    rig.disconnect(one, &[unsent]);
    rig.pass(GRACE - 1);
    assert_eq!(rig.told(), []);
    rig.pass(1);
    assert_eq!(rig.handed_over().0, two);
    assert!(!rig.release("a", unsent));
    assert_eq!(rig.engine.stats().undelivered, 1);
}

#[test]
fn a_grant_that_is_asked_for_again_stays() {
    for asked_before in [false, true] {
        let mut rig = Rig::new();
        let (one, other) = (rig.client("one"), rig.client("one"));
        let unsent = granted(rig.acquire(one, "a", 30 * SECOND, Wait::Forever, first(1)));
        if !asked_before {
            rig.disconnect(one, &[unsent]);
            rig.pass(GRACE - 1);
        }
        let answer = rig.acquire(other, "a", 30 * SECOND, Wait::Forever, again(1, 1));
        assert_eq!(answer, Answer::Granted(unsent), "the same token");
        if asked_before {
            rig.disconnect(one, &[unsent]);
        }
        rig.pass(29 * SECOND);
        assert!(rig.release("a", unsent));
    }
}

#[test]
fn a_keep_shows_that_the_reply_of_a_grant_arrived_after_all() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let unsent = granted(rig.acquire(one, "a", 30 * SECOND, Wait::Forever, first(1)));
    rig.disconnect(one, &[unsent]);
    assert!(rig.keep("a", unsent, 30 * SECOND));
    rig.pass(29 * SECOND);
    assert!(rig.release("a", unsent));
}

#[test]
fn answers_go_to_the_connection_on_which_a_request_was_sent_last() {
    let mut rig = Rig::new();
    let (one, two, other) = (rig.client("one"), rig.client("two"), rig.client("two"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    rig.queue(other, "a", again(1, 1));
    assert_eq!(rig.engine.queue_length(named("a").as_ref()), 1);
    rig.disconnect(two, &[]);
    rig.pass(GRACE);
    assert!(rig.release("a", grant));
    assert_eq!(rig.handed_over().0, other);
}

#[test]
fn a_hello_is_late_once_a_connection_has_spoken() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    assert!(!rig.engine.hello(one, None, NameRef::NONE));
    let two = rig.stranger();
    rig.hold(two, "a");
    assert!(!rig.engine.hello(two, None, NameRef::NONE));
    rig.engine.check_invariants();
}

#[test]
fn a_node_that_stops_refuses_those_who_wait() {
    let mut rig = Rig::new();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.client("three"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    rig.queue(two, "a", first(2));
    rig.queue(three, "a", first(1));
    let (engine, now) = (&mut rig.engine, rig.now);
    assert!(engine.refuse_waiting(now, two, Refusal::Leaving, 1));
    assert!(!engine.refuse_waiting(now, two, Refusal::Leaving, 1));
    engine.check_invariants();
    assert_eq!(rig.told(), [Told::Refused(two), Told::Refused(two)]);
    assert!(rig.release("a", grant));
    assert_eq!(rig.handed_over().0, three);
}

/// Method: one connection that waits for three keys and twice for one of them; the others of that queue go on.
#[test]
fn who_may_not_lock_a_key_any_more_waits_for_it_no_longer_and_for_others_as_before() {
    let mut rig = Rig::new();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.client("three"));
    let grants = ["a", "b", "c"].map(|key| (key, rig.hold(one, key)));
    for (key, tag) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
        rig.queue(two, key, first(tag));
    }
    rig.queue(three, "a", first(1));
    let forbidden = named("a");
    let allowed = |key: KeyRef<'_>| key.spelling() != forbidden.spelling();
    let (engine, now) = (&mut rig.engine, rig.now);
    let looked_at = engine.refuse_waiting_for(now, two, Refusal::Denied, allowed);
    assert_eq!(looked_at, 4);
    engine.check_invariants();
    assert_eq!(rig.told(), [Told::Refused(two), Told::Refused(two)]);
    for ((key, grant), next) in grants.into_iter().zip([three, two, two]) {
        assert!(rig.release(key, grant));
        assert_eq!(rig.handed_over().0, next, "{key}");
    }
}

/// Goal: all forbidden requests go, even where one that goes takes others with it. Method: a queue that no token is left for,
/// so that each who leaves it lets two more be refused; and requests for another key before and behind it.
#[test]
fn none_waits_on_for_a_key_that_may_not_be_locked_where_others_of_its_queue_go_meanwhile() {
    let mut rig = few_at_once();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let last = rig.hold(one, "a");
    rig.hold(one, "z");
    rig.queue(two, "z", first(1));
    (2..12).for_each(|tag| rig.queue(two, "a", first(tag)));
    rig.queue(two, "z", first(12));
    let term = rig.engine.open_term(2, 0, (1 << 28) - 2);
    term.expect("a higher term");
    rig.hold(one, "b");
    assert!(rig.release("a", last));
    assert_eq!(
        rig.engine.stats().waiting,
        10,
        "two could be refused at once"
    );
    let (engine, now) = (&mut rig.engine, rig.now);
    engine.refuse_waiting_for(now, two, Refusal::Denied, |_| false);
    engine.check_invariants();
    assert_eq!(rig.engine.stats().waiting, 0);
    let refused = rig
        .told()
        .into_iter()
        .filter(|told| *told == Told::Refused(two));
    assert_eq!(refused.count(), 12);
}

#[test]
fn replies_that_prove_undelivered_late_are_taken_back_too() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let grant = rig.hold(one, "a");
    rig.disconnect(one, &[]);
    rig.engine.undelivered(rig.now, "two:1", &[grant]);
    rig.pass(GRACE);
    assert_eq!(rig.engine.stats().held, 1, "that was somebody else");
    let grant = rig.engine.grant_of(named("a").as_ref(), grant.token);
    let grant = grant.expect("it is held");
    rig.engine.undelivered(rig.now, "one:1", &[grant]);
    rig.engine.check_invariants();
    rig.pass(GRACE);
    rig.assert_empty();
}

/// Two of a queue are left in the step in which their connection breaks.
fn few_at_once() -> Rig {
    Rig::with(EngineSettings {
        parted_at_once: 2,
        ..EngineSettings::default()
    })
}

/// Goal: what a connection with many requests leaves is seen to in bounded steps, and meanwhile nobody who is gone
/// is granted anything, nobody is passed over and nobody overtakes.
#[test]
fn many_requests_of_a_broken_connection_leave_in_bounded_steps_and_none_is_granted() {
    let mut rig = few_at_once();
    let (one, gone, three) = (rig.client("one"), rig.stranger(), rig.client("three"));
    let grant = rig.hold(one, "a");
    for _ in 0..10 {
        rig.queue(gone, "a", None);
    }
    rig.queue(three, "a", first(1));
    rig.disconnect(gone, &[]);
    assert_eq!(rig.engine.stats().waiting, 9);
    assert_eq!(rig.engine.stats().connections, 2);
    assert_eq!(
        rig.engine.next_deadline(),
        Some(Time(0)),
        "there is work left"
    );
    assert!(rig.release("a", grant));
    assert_eq!(rig.told(), [], "those who are gone still stand before it");
    let answer = rig.acquire(one, "a", SECOND, Wait::No, None);
    assert_eq!(answer, Answer::NotHad);
    assert!(rig.engine.expire(rig.now, 8));
    rig.engine.check_invariants();
    assert_eq!(rig.engine.stats().waiting, 5);
    assert_eq!(rig.told(), []);
    assert!(!rig.engine.expire(rig.now, 8));
    assert_eq!(rig.handed_over().0, three);
    assert_eq!(rig.engine.stats().waiting, 0);
}

#[test]
fn many_recognised_requests_keep_their_places_while_they_are_seen_to() {
    let mut rig = few_at_once();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let grant = rig.hold(one, "a");
    for number in 1..=6 {
        rig.queue(two, "a", first(number));
    }
    let begin = rig.now;
    rig.disconnect(two, &[]);
    // The first of the queue has not been seen to, and comes back: to its old place, with the lock that is free by then.
    assert!(rig.release("a", grant));
    assert_eq!(rig.told(), []);
    let two = rig.client("two");
    let grant = granted(rig.acquire(two, "a", SECOND, Wait::Forever, again(1, 1)));
    assert!(rig.release("a", grant));
    // The others keep their places for the grace, however long it takes until each has been seen to.
    granted(rig.acquire(two, "a", SECOND, Wait::Forever, again(2, 1)));
    rig.pass(GRACE);
    assert_eq!(rig.now, begin.after(Millis(GRACE)));
    assert_eq!(rig.engine.stats().waiting, 0);
}

#[test]
fn what_ends_while_its_connection_is_seen_to_ends_in_silence() {
    let mut rig = few_at_once();
    let (one, two) = (rig.client("one"), rig.client("two"));
    rig.hold(one, "a");
    for number in 1..=6 {
        let wait = Wait::For(Millis(10));
        assert_eq!(
            rig.acquire(two, "a", SECOND, wait, first(number)),
            Answer::Queued
        );
    }
    rig.disconnect(two, &[]);
    rig.now = rig.now.after(Millis(10));
    while rig.engine.expire(rig.now, 2) {
        rig.engine.check_invariants();
    }
    assert_eq!(rig.told(), []);
    assert_eq!(rig.engine.stats().waiting, 0);
}
