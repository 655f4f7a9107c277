//! Inspecting, queues and lists.

use super::{Rig, SECOND, first, named};
use crate::engine::{Inspection, ListCursor, QueuePlace, Stats};
use crate::protocol::{Key, KeyRef, Millis, Prefix, Wait};
use std::collections::BTreeSet;

#[test]
fn an_inspection_tells_holder_lease_and_queue() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let key = named("a");
    let free = Inspection::Free { waiters: 0 };
    assert_eq!(rig.engine.inspect(rig.now, key.as_ref()), free);
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    rig.pass(10 * SECOND);
    let Inspection::Held(row) = rig.engine.inspect(rig.now, key.as_ref()) else {
        panic!("it is held");
    };
    assert_eq!((row.key, row.token), (key.as_ref(), grant.token));
    assert_eq!((row.remaining, row.waiters), (Millis(20 * SECOND), 1));
    assert_eq!(
        (row.owner.name().spelling(), row.owner.address()),
        (&b"one"[..], "one:1")
    );
}

#[test]
fn a_queue_is_shown_in_its_order_with_the_time_waited() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    rig.hold(one, "a");
    for name in ["c", "a", "b"] {
        let connection = rig.client(name);
        rig.queue(connection, "a", first(1));
        rig.pass(100);
    }
    let key = named("a");
    let rows = rig.engine.waiters(rig.now, key.as_ref(), None);
    let rows: Vec<_> = rows
        .map(|row| (row.position, row.waited.0, row.owner.address()))
        .collect();
    assert_eq!(rows, [(1, 300, "c:1"), (2, 200, "a:1"), (3, 100, "b:1")]);
    assert_eq!(rig.engine.queue_length(key.as_ref()), 3);
    assert_eq!(rig.engine.queue_length(named("b").as_ref()), 0);
}

#[test]
fn a_queue_goes_on_behind_a_row_whoever_has_left_before_it() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let held = rig.hold(one, "a");
    for name in ["c", "a", "b", "d"] {
        let connection = rig.client(name);
        rig.queue(connection, "a", first(1));
        rig.pass(100);
    }
    let key = named("a");
    let rows = |rig: &Rig, behind| -> Vec<_> {
        let rows = rig.engine.waiters(rig.now, key.as_ref(), behind);
        rows.map(|row| (row.position, row.owner.address().to_owned(), row.place))
            .collect()
    };
    let told = |rows: Vec<(u64, String, QueuePlace)>| -> Vec<_> {
        let told = rows.into_iter();
        told.map(|(position, address, _)| (position, address))
            .collect()
    };
    let second = rows(&rig, None)[1].2;
    let rest = |from| vec![(from, "b:1".to_owned()), (from + 1, "d:1".to_owned())];
    assert_eq!(told(rows(&rig, Some(second))), rest(3));
    // The first waiter holds the key now, and the row before the rest is another one's.
    assert!(rig.engine.release(rig.now, key.as_ref(), held.token));
    assert_eq!(told(rows(&rig, Some(second))), rest(3));
    let last = rows(&rig, None)[2].2;
    assert_eq!(told(rows(&rig, Some(last))), []);
}

/// Method: the row behind which it goes on has given up, has the key, or has had it; those before it are there or not.
#[test]
fn behind_a_row_that_is_gone_nobody_is_left_out() {
    for apart in [0, 100] {
        let mut rig = Rig::new();
        let one = rig.client("one");
        let held = rig.hold(one, "a");
        let key = named("a");
        let names = ["c", "a", "b", "d"];
        let connections = names.map(|name| {
            let connection = rig.client(name);
            rig.queue(connection, "a", first(1));
            rig.pass(apart);
            connection
        });
        let rows = |rig: &Rig, behind| -> Vec<_> {
            let rows = rig.engine.waiters(rig.now, key.as_ref(), behind);
            rows.map(|row| (row.owner.address().to_owned(), row.place))
                .collect()
        };
        let behind = |rig: &Rig, place: QueuePlace| -> Vec<String> {
            let rows = rows(rig, Some(place)).into_iter();
            rows.map(|(address, _)| address).collect()
        };
        let next = |rig: &mut Rig| {
            let Inspection::Held(row) = rig.engine.inspect(rig.now, key.as_ref()) else {
                panic!("it is held");
            };
            let token = row.token;
            assert!(rig.engine.release(rig.now, key.as_ref(), token));
        };
        let (second, third) = (rows(&rig, None)[1].1, rows(&rig, None)[2].1);
        let tag = first(1).expect("a tag");
        assert!(rig.cancel(connections[1], "a", tag));
        assert_eq!(behind(&rig, second), ["b:1", "d:1"], "it gave up");
        assert!(rig.engine.release(rig.now, key.as_ref(), held.token));
        next(&mut rig);
        assert_eq!(behind(&rig, third), ["d:1"], "it has the key");
        let late = rig.client("late");
        rig.queue(late, "a", first(1));
        if apart > 0 {
            next(&mut rig);
            assert_eq!(behind(&rig, third), ["late:1"], "it has had the key");
        }
    }
}

/// Reads a list to its end, a few rows a call.
fn list(rig: &Rig, prefix: Prefix<'_>, after: Option<KeyRef<'_>>, at_most: usize) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut cursor = ListCursor::new(prefix, after);
    loop {
        let before = keys.len();
        let more = rig.engine.list(rig.now, &mut cursor, at_most, |row| {
            keys.push(row.key.to_key())
        });
        assert!(keys.len() - before <= at_most);
        if !more {
            return keys;
        }
    }
}

#[test]
fn a_list_has_every_held_key_once_and_goes_on_behind_any() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let mut expected = BTreeSet::new();
    for number in 0..20_000 {
        let key = named(&format!("{}:{number}", ["job", "order", "Job"][number % 3]));
        let (engine, now, lease) = (&mut rig.engine, rig.now, Millis(SECOND));
        engine.acquire(now, one, key.as_ref(), lease, Wait::No, None);
        expected.insert(key);
    }
    let all = list(&rig, Prefix::ALL, None, 100);
    assert_eq!(all.len(), expected.len());
    assert_eq!(all.iter().cloned().collect::<BTreeSet<_>>(), expected);
    for place in [0, 1, 77, 12_345, 19_999] {
        let rest = list(&rig, Prefix::ALL, Some(all[place].as_ref()), 1000);
        assert_eq!(rest, all[place + 1..]);
    }
    let jobs = list(&rig, Prefix::of_spelling(b"job:"), None, 7);
    let of_all = all.iter().filter(|key| key.spelling().starts_with(b"job:"));
    assert!(jobs.iter().eq(of_all));
    assert_eq!(list(&rig, Prefix::of_spelling(b"none"), None, 7), []);
    let not_held = named("not held");
    let rest = list(&rig, Prefix::ALL, Some(not_held.as_ref()), 1000);
    assert!(all.ends_with(&rest), "behind where it would be");
}

#[test]
fn a_list_that_pauses_keeps_its_place_alone_and_goes_on_there() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    for number in 0..20_000 {
        let key = named(&number.to_string());
        let (engine, now, lease) = (&mut rig.engine, rig.now, Millis(SECOND));
        engine.acquire(now, one, key.as_ref(), lease, Wait::No, None);
    }
    let all = list(&rig, Prefix::ALL, None, 1000);
    let mut paused = Vec::new();
    let mut cursor = ListCursor::new(Prefix::ALL, Some(all[4].as_ref()));
    let mut found = 0;
    while rig
        .engine
        .list(rig.now, &mut cursor, 3, |row| paused.push(row.key.to_key()))
    {
        found += cursor.found();
        cursor.pause();
        assert_eq!(cursor.found(), 0);
    }
    assert!(found > 0, "there was something to forget");
    assert_eq!(paused, all[5..]);
}

#[test]
fn a_list_holds_through_changes_and_shows_only_what_is_held() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let keys: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let mut grants = Vec::new();
    for key in &keys {
        grants.push((key, rig.hold(one, key)));
    }
    let mut seen = Vec::new();
    let mut cursor = ListCursor::new(Prefix::ALL, None);
    let mut released = BTreeSet::new();
    let mut late = 0;
    while rig
        .engine
        .list(rig.now, &mut cursor, 3, |row| seen.push(row.key.to_key()))
    {
        if let Some((key, grant)) = grants.pop().filter(|_| released.len() < 200) {
            assert!(rig.release(key, grant));
            released.insert(named(key));
        }
        late += 1;
        rig.hold(one, &format!("late {late}"));
    }
    let unique: BTreeSet<_> = seen.iter().cloned().collect();
    assert_eq!(unique.len(), seen.len(), "no key twice");
    for key in keys.iter().map(|key| named(key)) {
        assert!(unique.contains(&key) || released.contains(&key));
    }
}

#[test]
fn statistics_count_what_happened() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    assert!(rig.release("a", grant));
    rig.acquire(one, "a", SECOND, Wait::For(Millis(5)), first(1));
    rig.pass(5);
    rig.pass(30 * SECOND);
    rig.hold(one, "b");
    let expected = Stats {
        held: 1,
        keys: 1,
        connections: 2,
        term: 1,
        granted: 3,
        handed_over: 1,
        released: 1,
        expired: 1,
        timed_out: 1,
        ..Stats::default()
    };
    assert_eq!(rig.engine.stats(), expected);
}
