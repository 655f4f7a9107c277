//! Copies of the state: snapshots, changes, and a copy that takes over.

use super::{Answer, Rig, SECOND, again, first, granted, named};
use crate::engine::{
    Change, Diverged, Engine, EngineSettings, Inspection, News, Recording, Refusal,
};
use crate::protocol::{Key, Millis, Tag, Wait};

fn recording() -> Rig {
    Rig::with(EngineSettings {
        recording: Recording::Everything,
        ..EngineSettings::default()
    })
}

/// A rig with something of everything.
pub(super) fn busy() -> Rig {
    let mut rig = recording();
    let (one, two, three) = (rig.client("one"), rig.client("two"), rig.stranger());
    for key in ["a", "b", "c"] {
        rig.hold(one, key);
        rig.queue(two, key, again(1, 1));
        rig.queue(three, key, None);
        rig.queue(one, key, first(5));
    }
    rig.cancel(
        two,
        "z",
        Tag {
            number: 9,
            attempt: 3,
        },
    );
    rig.disconnect(two, &[]);
    rig
}

/// The state of an engine in an order that does not depend on where things lie.
fn state(engine: &Engine) -> Vec<(Option<Key>, Change)> {
    let mut state: Vec<_> = engine
        .snapshot()
        .map(|change| match &change {
            Change::Granted { key, .. } | Change::Enqueued { key, .. } => {
                (Some(key.clone()), change)
            }
            _ => (None, change),
        })
        .filter(|(_, change)| !matches!(change, Change::TermOpened { .. }))
        .collect();
    state.sort_by(|one, other| one.0.cmp(&other.0));
    state
}

#[test]
fn a_snapshot_makes_the_same_state_again() {
    let rig = busy();
    let mut copy = Engine::new(EngineSettings::default(), 2);
    for change in rig.engine.snapshot() {
        copy.apply(rig.now, &change).expect("it fits");
    }
    copy.check_invariants();
    assert_eq!(state(&copy), state(&rig.engine));
    assert_eq!(copy.highest_token(), rig.engine.highest_token());
}

/// Goal: a rate of ends beside a rate of grants means the same on every node.
#[test]
fn a_copy_counts_nothing_that_its_original_did() {
    let mut rig = recording();
    let one = rig.client("one");
    let grant = rig.hold(one, "released");
    rig.hold(one, "expired");
    assert!(rig.release("released", grant));
    rig.pass(31 * SECOND);
    let mut copy = Engine::new(EngineSettings::default(), 2);
    for change in rig.engine.take_changes() {
        copy.apply(rig.now, &change).expect("it fits");
    }
    let counts = |engine: &Engine| {
        let stats = engine.stats();
        (stats.granted, stats.released, stats.expired)
    };
    assert_eq!(counts(&rig.engine), (2, 1, 1));
    assert_eq!(counts(&copy), (0, 0, 0));
}

#[test]
fn nothing_is_recorded_unless_somebody_wants_to_know() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    rig.hold(one, "a");
    assert_eq!(rig.engine.take_changes(), []);
}

#[test]
fn a_copy_that_takes_over_renews_leases_and_keeps_queues_for_those_who_come_back() {
    let mut rig = busy();
    let mut copy = Engine::new(EngineSettings::default(), 2);
    for change in rig.engine.take_changes() {
        copy.apply(rig.now, &change).expect("it fits");
    }
    rig.pass(29 * SECOND);
    rig.engine = copy;
    rig.engine.resume(rig.now, Millis(2 * SECOND), false);
    rig.engine.check_invariants();
    let key = named("a");
    let Inspection::Held(row) = rig.engine.inspect(rig.now, key.as_ref()) else {
        panic!("held locks stay held");
    };
    assert_eq!(row.remaining, Millis(30 * SECOND), "it counts as renewed");
    assert_eq!(row.waiters, 2, "who cannot be recognised is out");
    let token = row.token;

    let two = rig.client("two");
    rig.queue(two, "a", again(1, 2));
    rig.engine.open_term(2, 1, 0).expect("a higher term");
    rig.pass(2 * SECOND);
    assert_eq!(rig.engine.queue_length(key.as_ref()), 1);
    assert!(rig.engine.release(rig.now, key.as_ref(), token));
    let (to, grant) = rig.handed_over();
    assert!(to == two && grant.token > token);
    let late = rig.acquire(two, "z", SECOND, Wait::No, again(9, 2));
    assert_eq!(late, Answer::Dropped, "attempts are copied too");
}

#[test]
fn a_copy_opens_no_term_that_its_original_has_used() {
    let rig = busy();
    let mut copy = Engine::new(EngineSettings::default(), 2);
    for change in rig.engine.snapshot() {
        copy.apply(rig.now, &change).expect("it fits");
    }
    assert!(copy.open_term(1, 0, 0).is_err());
    let mut rig = Rig {
        engine: copy,
        ..rig
    };
    let one = rig.client("one");
    let answer = rig.acquire(one, "new", SECOND, Wait::No, None);
    assert_eq!(answer, Answer::Refused(Refusal::TokensUsedUp));
    rig.engine.open_term(2, 0, 0).expect("a higher term");
    granted(rig.acquire(one, "new", SECOND, Wait::No, None));
}

#[test]
fn a_change_that_does_not_fit_is_an_error() {
    let mut rig = recording();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    let state: Vec<Change> = rig.engine.snapshot().collect();
    let other = rig.hold(one, "b");
    let (claim, token) = (grant.claim, grant.token);
    let (lease, ends) = (Millis(1), rig.now);
    let unfit = [
        Change::Released {
            claim,
            token: other.token,
        },
        Change::Expired {
            claim: other.claim,
            token,
        },
        Change::Left { claim },
        Change::Left { claim: other.claim },
        Change::Kept {
            claim: other.claim,
            lease,
            ends,
        },
        state[1].clone(),
        state[2].clone(),
    ];
    for change in unfit {
        let mut copy = Engine::new(EngineSettings::default(), 2);
        for change in &state {
            copy.apply(rig.now, change).expect("it fits");
        }
        assert_eq!(copy.apply(rig.now, &change), Err(Diverged), "{change:?}");
        copy.check_invariants();
    }
}

/// Method: what comes and goes before anybody asks, beside what lasts, and a copy that has to be equal.
#[test]
fn what_is_undone_before_it_is_told_is_not_told_at_all() {
    let mut rig = Rig::with(EngineSettings {
        recording: Recording::WhatLasts,
        ..EngineSettings::default()
    });
    let (one, two) = (rig.client("one"), rig.client("two"));
    rig.engine.take_changes();
    for _ in 0..100 {
        let gone = rig.hold(one, "gone");
        assert!(rig.release("gone", gone));
    }
    assert_eq!(rig.engine.changes_waiting(), 0);
    let kept = rig.hold(one, "kept");
    assert!(rig.keep("kept", kept, 60));
    let lasting = rig.hold(one, "lasting");
    let waited = rig.hold(one, "waited");
    rig.queue(two, "waited", None);
    assert!(rig.release("kept", kept));
    assert!(rig.release("waited", waited));
    let mut copy = Engine::new(EngineSettings::default(), 7);
    let mut follow = |rig: &mut Rig| {
        for change in rig.engine.take_changes() {
            copy.apply(rig.now, &change).expect("it fits");
        }
        assert_eq!(state(&copy), state(&rig.engine));
    };
    follow(&mut rig);
    // What was told has to be told of again when it goes.
    assert!(rig.release("lasting", lasting));
    assert_eq!(rig.engine.changes_waiting(), 1);
    follow(&mut rig);
}

/// Goal: a word of what became of a new grant before it is told would be one too many, and one less later.
#[test]
fn a_new_grant_is_told_once_as_it_is_by_then() {
    let mut rig = Rig::with(EngineSettings {
        recording: Recording::WhatLasts,
        ..EngineSettings::default()
    });
    let (one, elsewhere) = (rig.client("one"), rig.client("one"));
    rig.engine.take_changes();
    let kept = rig.hold(one, "kept");
    assert!(rig.keep("kept", kept, 60));
    granted(rig.acquire(one, "resent", SECOND, Wait::Forever, first(1)));
    granted(rig.acquire(elsewhere, "resent", 2 * SECOND, Wait::Forever, again(1, 1)));
    assert_eq!(rig.engine.changes_waiting(), 2);
    let mut copy = Engine::new(EngineSettings::default(), 7);
    let mut follow = |rig: &mut Rig, changes: usize| {
        let told = rig.engine.take_changes();
        assert_eq!(told.len(), changes, "{told:?}");
        for change in told {
            copy.apply(rig.now, &change).expect("it fits");
        }
        assert_eq!(state(&copy), state(&rig.engine));
    };
    follow(&mut rig, 2);
    assert!(rig.keep("kept", kept, 90));
    granted(rig.acquire(one, "resent", SECOND, Wait::Forever, again(1, 2)));
    follow(&mut rig, 2);
}

/// Goal: a lease that begins when its holder is told of the grant costs no word for each grant, and whoever goes on
/// with exact ends has it all the same.
#[test]
fn leases_that_have_begun_are_told_when_they_are_asked_for_and_where_there_are_many() {
    let mut rig = Rig::with(EngineSettings {
        recording: Recording::WhatLasts,
        ..EngineSettings::default()
    });
    let one = rig.client("one");
    rig.engine.record_for_journal(true);
    let mut copy = Engine::new(EngineSettings::default(), 7);
    let mut grants: Vec<_> = (0..5000)
        .map(|number| {
            let (key, lease) = (named(&format!("k{number}")), Millis(30 * SECOND));
            let answer = rig
                .engine
                .acquire(rig.now, one, key.as_ref(), lease, Wait::No, None);
            granted(answer)
        })
        .collect();
    let lasting = grants.split_off(4900);
    for change in rig.engine.take_changes() {
        copy.apply(rig.now, &change).expect("it fits");
    }
    rig.engine.tell_journal(usize::MAX, |_| {});
    rig.pass(SECOND);
    for (number, grant) in grants.iter().enumerate() {
        let key = named(&format!("k{number}"));
        assert!(rig.engine.begin_lease(rig.now, *grant));
        assert!(rig.engine.release(rig.now, key.as_ref(), grant.token));
        assert!(!rig.engine.begin_lease(rig.now, *grant), "it is over");
    }
    // Their ends, and the lease that was the last to begin before those that had begun were looked through.
    assert_eq!(rig.engine.changes_waiting(), grants.len() + 1);
    let journal = |rig: &mut Rig| {
        let mut kept = 0;
        rig.engine.tell_journal(usize::MAX, |news| {
            kept += usize::from(matches!(news, News::Change(Change::Kept { .. })));
        });
        kept
    };
    for grant in &lasting {
        assert!(rig.engine.begin_lease(rig.now, *grant));
    }
    assert_eq!(journal(&mut rig), 0, "a restart renews them");
    for change in rig.engine.take_changes() {
        copy.apply(rig.now, &change).expect("it fits");
    }
    assert_ne!(state(&copy), state(&rig.engine));
    rig.engine.tell_begun_leases();
    for change in rig.engine.take_changes() {
        copy.apply(rig.now, &change).expect("it fits");
    }
    assert_eq!(state(&copy), state(&rig.engine));
    // Nobody asks, and still they are not kept without end.
    for _ in 0..100 {
        for grant in &lasting {
            assert!(rig.engine.begin_lease(rig.now, *grant));
        }
    }
    let told = rig.engine.take_changes().len();
    assert!(
        (lasting.len()..100 * lasting.len()).contains(&told),
        "{told}"
    );
}
