//! Goal: the journal is told all that lasts, and a client only what is on disk where that is asked for. Method: an engine with
//! its journal, step by step.

use super::*;

#[test]
fn a_grant_is_held_back_until_a_sync_that_came_after_it() {
    let folder = Folder::new("sync");
    let mut life = Life::new(&folder);
    life.journal.syncs = true;
    let held = |life: &mut Life, number: u64| {
        let client = life.clients[0];
        let key = Key::encode(format!("sync {number}").as_bytes()).expect("a key");
        let lease = Millis(1000);
        let answer = life
            .engine
            .acquire(life.now, client, key.as_ref(), lease, Wait::No, None);
        let Answer::Granted(grant) = answer else {
            panic!("it is free");
        };
        let grant = HeldGrant {
            connection: client,
            key,
            grant,
            tag: None,
        };
        life.journal.hold(life.now, &life.engine, grant.clone());
        grant
    };
    let one = held(&mut life, 1);
    life.write();
    let work = life.journal.take_work().expect("a sync");
    let two = held(&mut life, 2);
    life.write();
    assert_eq!(life.journal.pop_lasting(), None);
    life.journal.done(life.now, work.run());
    assert_eq!(life.journal.pop_lasting(), Some(one));
    assert_eq!(life.journal.pop_lasting(), None, "it came during the sync");
    assert!(life.work(), "one more");
    assert_eq!(life.journal.pop_lasting(), Some(two));
    let three = held(&mut life, 3);
    life.journal
        .stop_following(life.now, &io::Error::other("a full disk"));
    assert_eq!(
        life.journal.pop_lasting(),
        Some(three),
        "nothing is left to wait for"
    );
}

#[test]
fn who_waits_when_the_node_stops_keeps_the_place_and_its_number_can_be_used_again() {
    let folder = Folder::new("places");
    let mut life = Life::new(&folder);
    let (one, two) = (life.clients[1], life.clients[2]);
    let key = Key::encode(b"k").expect("a key");
    let ask = |life: &mut Life, client, key: KeyRef<'_>, number| {
        let tag = Some(Tag { number, attempt: 0 });
        let now = life.now;
        life.engine
            .acquire(now, client, key, Millis(30_000), Wait::Forever, tag)
    };
    assert!(matches!(
        ask(&mut life, one, key.as_ref(), 1),
        Answer::Granted(_)
    ));
    assert_eq!(ask(&mut life, two, key.as_ref(), 1), Answer::Queued);
    life.write();
    let before = state(&life.engine);
    let now = life.now;
    life.engine.refuse_waiting(now, two, Refusal::Leaving, 10);
    life.write();
    assert_eq!(life.engine.stats().waiting, 0);
    let (engine, _) = read(&folder.journal(), now).expect("it is good");
    assert_eq!(state(&engine), before);
    let other = Key::encode(b"other").expect("a key");
    assert!(matches!(
        ask(&mut life, one, other.as_ref(), 2),
        Answer::Granted(_)
    ));
    life.write();
    let (engine, _) = read(&folder.journal(), now).expect("it is good");
    assert_eq!(state(&engine), state(&life.engine));
}

#[test]
fn standbys_and_journal_are_both_told_everything_that_lasts() {
    let folder = Folder::new("both");
    let mut life = Life::new(&folder);
    life.engine.record_changes(Recording::WhatLasts);
    let mut copy = Engine::new(EngineSettings::default(), 3);
    for round in 0..500 {
        life.step();
        life.write();
        if round % 10 == 0 {
            for change in life.engine.take_changes() {
                copy.apply(life.now, &change).expect("it fits");
            }
            assert_eq!(state(&copy), state(&life.engine));
        }
    }
    let (engine, _) = read(&folder.journal(), life.now).expect("it is good");
    assert_eq!(state(&engine), state(&life.engine));
}
