//! Behaviour 1.1 to 1.5 and 1.7.

use super::{Answer, Rig, SECOND, Told, first, granted, named};
use crate::engine::{Inspection, Time};
use crate::protocol::{Millis, Wait};

#[test]
fn a_free_key_is_granted_at_once_and_a_held_one_is_not() {
    let mut rig = Rig::new();
    let one = rig.stranger();
    let grant = rig.hold(one, "a");
    let answer = rig.acquire(one, "a", SECOND, Wait::No, None);
    assert_eq!(answer, Answer::NotHad);
    rig.hold(one, "b");
    assert!(rig.release("a", grant));
    rig.hold(one, "a");
    assert_eq!(rig.told(), []);
}

/// 1.2
#[test]
fn requests_are_served_in_the_order_in_which_they_came() {
    let mut rig = Rig::new();
    let mut grant = rig.hold_as("z", "a");
    let names = ["e", "b", "d", "a", "c"];
    let waiting = names.map(|name| rig.client(name));
    for connection in waiting {
        rig.queue(connection, "a", first(1));
    }
    for connection in waiting {
        assert!(rig.release("a", grant));
        let (to, next) = rig.handed_over();
        assert_eq!(to, connection);
        assert!(next.token > grant.token);
        grant = next;
    }
    assert!(rig.release("a", grant));
    rig.assert_empty();
}

/// 1.2
#[test]
fn a_release_hands_the_lock_over_before_anybody_else_can_ask() {
    let mut rig = Rig::new();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.client("three"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    rig.release("a", grant);
    let answer = rig.acquire(three, "a", SECOND, Wait::No, None);
    assert_eq!(answer, Answer::NotHad, "it is held already");
    assert_eq!(rig.handed_over().0, two);
}

/// 1.3
#[test]
fn a_lease_ends_never_early_and_within_a_millisecond() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    rig.now = Time(1_000_000_001);
    granted(rig.acquire(one, "a", 7, Wait::Forever, None));
    let two = rig.client("two");
    rig.queue(two, "a", first(1));
    rig.now = Time(1_000_007_000);
    assert!(!rig.engine.expire(rig.now, 100));
    assert_eq!(rig.told(), [], "one microsecond is left");
    rig.now = Time(1_000_008_000);
    assert!(!rig.engine.expire(rig.now, 100));
    assert_eq!(rig.handed_over().0, two);
}

/// 1.3
#[test]
fn after_the_end_of_a_lease_its_token_is_stale() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let old = granted(rig.acquire(one, "a", SECOND, Wait::Forever, None));
    rig.pass(SECOND);
    assert!(!rig.release("a", old) && !rig.keep("a", old, SECOND));
    let new = rig.hold(one, "a");
    assert!(!rig.release("a", old) && !rig.keep("a", old, SECOND));
    assert!(new.token > old.token && rig.keep("a", new, SECOND));
}

#[test]
fn a_keep_makes_a_lease_longer_and_never_shorter() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let grant = granted(rig.acquire(one, "a", 10 * SECOND, Wait::Forever, None));
    rig.pass(SECOND);
    assert!(rig.keep("a", grant, SECOND));
    rig.pass(8 * SECOND);
    assert!(rig.keep("a", grant, 5 * SECOND), "nine seconds had passed");
    rig.pass(4 * SECOND);
    let key = named("a");
    let Inspection::Held(row) = rig.engine.inspect(rig.now, key.as_ref()) else {
        panic!("the lease was made longer");
    };
    assert_eq!((row.token, row.remaining), (grant.token, Millis(SECOND)));
    rig.pass(SECOND);
    rig.assert_empty();
}

#[test]
fn a_second_release_is_stale_and_harmless() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let grant = rig.hold(one, "a");
    let other = rig.hold(one, "b");
    assert!(!rig.release("b", grant), "a token holds its own key only");
    assert!(rig.release("a", grant));
    assert!(!rig.release("a", grant));
    assert!(!rig.release("a", other));
    assert!(rig.release("b", other));
    rig.assert_empty();
}

/// 1.4
#[test]
fn a_wait_ends_with_one_of_grant_and_time_out() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    for (lease, wait) in [(20, 20), (20, 21), (21, 20)] {
        granted(rig.acquire(one, "a", lease, Wait::Forever, None));
        let answer = rig.acquire(two, "a", SECOND, Wait::For(Millis(wait)), first(1));
        assert_eq!(answer, Answer::Queued);
        rig.pass(30);
        let told = rig.told();
        assert_eq!(told.len(), 1, "{told:?}");
        match told[0] {
            Told::Granted(to, _) => assert!(to == two && lease <= wait),
            Told::TimedOut(to) => assert!(to == two && wait <= lease),
            _ => panic!("{told:?}"),
        }
        rig.pass(2 * SECOND);
        rig.assert_empty();
    }
}

/// 1.4
#[test]
fn a_wait_without_limit_lasts_for_years() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    let year = 31_536_000 * SECOND;
    for _ in 0..3 {
        assert!(rig.keep("a", grant, year));
        rig.pass(year - 1);
    }
    assert_eq!(rig.told(), []);
    rig.pass(1);
    assert_eq!(rig.handed_over().0, two);
}

/// 1.4
#[test]
fn the_second_of_two_may_time_out_first() {
    let mut rig = Rig::new();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.client("three"));
    let grant = rig.hold(one, "a");
    for (connection, wait) in [(two, 200), (three, 100)] {
        let answer = rig.acquire(connection, "a", SECOND, Wait::For(Millis(wait)), first(1));
        assert_eq!(answer, Answer::Queued);
    }
    rig.pass(150);
    assert_eq!(rig.told(), [Told::TimedOut(three)]);
    rig.release("a", grant);
    assert_eq!(rig.handed_over().0, two);
}

/// 1.5
#[test]
fn a_lock_outlives_its_connection_and_is_released_over_another() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let grant = rig.hold(one, "a");
    rig.disconnect(one, &[]);
    rig.pass(10 * SECOND);
    let two = rig.client("one");
    let answer = rig.acquire(two, "a", SECOND, Wait::No, None);
    assert_eq!(answer, Answer::NotHad);
    assert!(rig.keep("a", grant, SECOND) && rig.release("a", grant));
    rig.assert_empty();
}

/// 1.7
#[test]
fn nothing_is_kept_for_ten_thousand_requests_that_failed() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let grant = rig.hold(one, "a");
    for number in 0..10_000 {
        let wait = match number % 3 {
            0 => Wait::No,
            1 => Wait::For(Millis(1)),
            _ => Wait::Forever,
        };
        let key = named("a");
        let lease = Millis(SECOND);
        rig.engine
            .acquire(rig.now, two, key.as_ref(), lease, wait, first(number));
        if number % 3 == 2 {
            let tag = first(number).expect("a tag");
            assert!(rig.engine.cancel(rig.now, two, key.as_ref(), tag));
        }
    }
    rig.pass(5);
    rig.told();
    assert_eq!(rig.engine.stats().waiting, 0);
    assert!(rig.release("a", grant));
    rig.assert_empty();
}

/// Ten thousand leases end in one millisecond, a few a call, each with its hand-over.
#[test]
fn many_leases_end_in_one_millisecond_a_bounded_number_a_call() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    for number in 0..10_000 {
        let key = named(&number.to_string());
        let lease = Millis(SECOND);
        let (engine, now) = (&mut rig.engine, rig.now);
        granted(engine.acquire(now, one, key.as_ref(), lease, Wait::Forever, None));
        engine.acquire(
            now,
            two,
            key.as_ref(),
            Millis(60_000),
            Wait::Forever,
            first(number),
        );
    }
    while rig.engine.next_deadline() < Some(rig.now.after(Millis(SECOND))) {
        let next = rig.engine.next_deadline().expect("it is set");
        rig.engine.expire(rig.now.max(next), 1000);
    }
    rig.now = rig.now.after(Millis(SECOND));
    let mut calls = 1;
    while rig.engine.expire(rig.now, 100) {
        assert_eq!(rig.told().len(), 100);
        calls += 1;
    }
    assert_eq!((calls, rig.told().len()), (100, 100));
    rig.engine.check_invariants();
}

impl Rig {
    fn hold_as(&mut self, name: &str, key: &str) -> crate::engine::Grant {
        let connection = self.client(name);
        self.hold(connection, key)
    }
}
