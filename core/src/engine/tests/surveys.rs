//! How long things took, and what is longest and oldest.

use super::{Rig, SECOND, first, named};
use crate::engine::{Answer, Engine, Survey};
use crate::protocol::{Millis, Wait};

fn counted(rig: &Rig) -> ((u64, f64), (u64, f64)) {
    let (waits, holds) = (rig.engine.waits(), rig.engine.holds());
    ((waits.count(), waits.sum()), (holds.count(), holds.sum()))
}

#[test]
fn holds_and_waits_are_counted_for_as_long_as_they_were() {
    let mut rig = Rig::new();
    let (one, two) = (rig.client("one"), rig.client("two"));
    let grant = rig.hold(one, "a");
    rig.queue(two, "a", first(1));
    rig.pass(10 * SECOND);
    // A keep is no new beginning.
    assert!(rig.keep("a", grant, 30 * SECOND));
    rig.pass(5 * SECOND);
    assert!(rig.release("a", grant));
    assert_eq!(counted(&rig), ((1, 15.0), (1, 15.0)));
    rig.told();
    // The lease of the other one ends by itself.
    rig.pass(30 * SECOND);
    assert_eq!(counted(&rig), ((1, 15.0), (2, 45.0)));
}

#[test]
fn who_was_never_told_has_not_held() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let grant = rig.hold(one, "a");
    rig.disconnect(one, &[grant]);
    rig.pass(30 * SECOND);
    assert_eq!(rig.engine.stats().undelivered, 1);
    assert_eq!(counted(&rig).1, (0, 0.0));
    // One that comes back in time holds from then on.
    let one = rig.client("one");
    let grant = match rig.acquire(one, "a", 30 * SECOND, Wait::Forever, first(1)) {
        Answer::Granted(grant) => grant,
        other => panic!("{other:?}"),
    };
    rig.disconnect(one, &[grant]);
    rig.pass(100);
    assert!(rig.keep("a", grant, 30 * SECOND));
    rig.pass(SECOND);
    assert!(rig.release("a", grant));
    assert_eq!(counted(&rig).1, (1, 1.0));
}

/// Everything that a survey names, after it has looked at all.
fn found(engine: &Engine, rig: &Rig, survey: &mut Survey, most: usize) -> Found {
    let before = survey.rounds();
    while survey.rounds() == before {
        engine.survey(survey);
    }
    let queues = engine.longest_queues(survey, most).into_iter();
    let mut found = Found {
        queues: queues
            .map(|(key, length)| (String::from_utf8_lossy(key.spelling()).into_owned(), length))
            .collect(),
        oldest: Vec::new(),
    };
    engine.oldest_grants(rig.now, survey, most, |row| {
        let key = String::from_utf8_lossy(row.key.spelling()).into_owned();
        found.oldest.push((key, row.held_for));
    });
    found
}

#[derive(Debug, PartialEq, Eq)]
struct Found {
    queues: Vec<(String, u64)>,
    oldest: Vec<(String, Millis)>,
}

/// Goal: nothing is missed where there is more than one call looks at, and nothing is named that is over.
#[test]
fn the_longest_queues_and_the_oldest_grants_are_found_among_many() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    let mut grants = Vec::new();
    for number in 0..10_000 {
        grants.push(rig.hold(one, &format!("k{number}")));
        if number % 1000 == 0 {
            rig.now = rig.now.after(Millis(1000));
        }
    }
    let (two, mut number) = (rig.client("two"), 0);
    for (key, length) in [("k9999", 3), ("k5000", 2), ("k7", 4), ("k8", 1)] {
        for _ in 0..length {
            number += 1;
            rig.queue(two, key, first(number));
        }
    }
    let mut survey = Survey::default();
    assert_eq!(survey.rounds(), 0);
    let seen = found(&rig.engine, &rig, &mut survey, 3);
    let named_so = |rows: &[(&str, u64)]| -> Vec<(String, u64)> {
        rows.iter()
            .map(|(key, length)| ((*key).to_owned(), *length))
            .collect()
    };
    assert_eq!(
        seen.queues,
        named_so(&[("k7", 4), ("k9999", 3), ("k5000", 2)])
    );
    let oldest = |rows: &[(&str, u64)]| -> Vec<(String, Millis)> {
        rows.iter()
            .map(|(key, time)| ((*key).to_owned(), Millis(*time)))
            .collect()
    };
    assert_eq!(
        seen.oldest,
        oldest(&[("k0", 10_000), ("k1", 9000), ("k2", 9000)])
    );

    // What is over is left out at once, and what stays is as it is now.
    assert!(rig.release("k0", grants[0]));
    assert!(rig.release("k7", grants[7]));
    rig.told();
    rig.now = rig.now.after(Millis(500));
    let queues = rig.engine.longest_queues(&survey, 2);
    let queues: Vec<u64> = queues.iter().map(|(_, length)| *length).collect();
    assert_eq!(queues, [3, 3]);
    let seen = found(&rig.engine, &rig, &mut survey, 2);
    assert_eq!(seen.oldest, oldest(&[("k1", 9500), ("k2", 9500)]));
    assert_eq!(rig.engine.queue_length(named("k7").as_ref()), 3);
}

#[test]
fn one_call_looks_at_a_bounded_part() {
    let mut rig = Rig::new();
    let one = rig.client("one");
    for number in 0..20_000 {
        rig.hold(one, &format!("k{number}"));
    }
    let mut survey = Survey::default();
    for _ in 0..4 {
        rig.engine.survey(&mut survey);
    }
    assert_eq!(survey.rounds(), 0, "four times 4,096 are not all");
    rig.engine.survey(&mut survey);
    assert_eq!(survey.rounds(), 1);
}
