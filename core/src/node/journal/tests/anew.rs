//! Goal: while a journal is begun anew, because it has grown, could not be written, or the state is another one, a start finds a
//! state that there was. Method: the files are read between the steps, while changes go on and disks fail.

use super::*;

/// Goal: at every moment of a rotation the file that a start would find has the present state. Method: the
/// file is read after every step of it, while changes go on.
#[test]
fn a_journal_that_is_begun_anew_has_the_present_state_at_every_moment() {
    let folder = Folder::new("anew");
    let mut life = Life::new(&folder);
    life.journal.grown = 4096;
    let mut shrunk = 0;
    let mut length = 0;
    for round in 0..2000 {
        life.step();
        life.write();
        if round % 3 == 0 {
            let position = life.position();
            let now = life.now;
            life.journal.step(now, &mut life.engine, position, true);
        }
        if round % 7 == 0 {
            life.work();
        }
        let journal = folder.journal();
        shrunk += usize::from(journal.len() < length);
        length = journal.len();
        if round % 5 == 0 {
            let (engine, _) = read(&journal, life.now).expect("it is good");
            assert_eq!(state(&engine), state(&life.engine), "round {round}");
        }
    }
    assert!(shrunk > 5, "begun anew {shrunk} times");
}

#[test]
fn a_large_state_is_written_in_parts_that_change_in_between() {
    let folder = Folder::new("parts");
    let mut life = Life::new(&folder);
    let (client, count) = (life.clients[0], 30_000);
    let key = |number: usize| Key::encode(format!("large {number}").as_bytes()).expect("a key");
    let mut tokens = Vec::new();
    for number in 0..count {
        let answer = life.engine.acquire(
            life.now,
            client,
            key(number).as_ref(),
            Millis(900_000),
            Wait::No,
            None,
        );
        let Answer::Granted(grant) = answer else {
            panic!("it is free");
        };
        tokens.push(grant.token);
    }
    life.write();
    life.journal.grown = 0;
    let mut parts = 0;
    let (now, mut number) = (life.now, 0);
    loop {
        let position = life.position();
        let more = life.journal.step(now, &mut life.engine, position, true);
        parts += 1;
        if !more {
            break;
        }
        for _ in 0..50 {
            life.engine
                .release(now, key(number).as_ref(), tokens[number]);
            number += 7;
        }
        life.write();
    }
    assert!(parts > 10, "{parts} parts");
    assert!(life.work());
    life.step();
    life.write();
    let (engine, _) = read(&folder.journal(), now).expect("it is good");
    assert_eq!(state(&engine), state(&life.engine));
}

#[test]
fn a_journal_that_cannot_be_written_is_not_believed_and_is_written_anew_later() {
    let folder = Folder::new("full");
    let mut life = Life::new(&folder);
    (0..20).for_each(|_| life.step());
    life.write();
    // A file that cannot be written any more, as on a full disk.
    let unwritable = File::open(folder.0.join(NAME)).expect("there is one");
    life.journal.followed.as_mut().expect("it is followed").file = Arc::new(unwritable);
    while !life.engine.has_news_for_journal() {
        life.step();
    }
    life.write();
    assert_eq!(life.journal.failures(), 1);
    assert!(!folder.0.join(NAME).exists(), "nobody finds it");
    (0..20).for_each(|_| life.step());
    life.write();
    let position = life.position();
    assert!(
        !life
            .journal
            .step(life.now, &mut life.engine, position, true),
        "too early"
    );
    life.now = life.now.after(TRY_AGAIN);
    while life
        .journal
        .step(life.now, &mut life.engine, position, true)
    {
        life.step();
        life.write();
    }
    while life.work() {}
    (0..20).for_each(|_| life.step());
    life.write();
    let (engine, _) = read(&folder.journal(), life.now).expect("it is good");
    assert_eq!(state(&engine), state(&life.engine));
}

#[test]
fn a_new_journal_that_cannot_be_written_leaves_the_old_one() {
    let folder = Folder::new("new-full");
    let mut life = Life::new(&folder);
    (0..50).for_each(|_| life.step());
    life.write();
    life.journal.grown = 0;
    let position = life.position();
    life.journal
        .step(life.now, &mut life.engine, position, true);
    let unwritable = File::open(folder.0.join(NAME)).expect("there is one");
    life.journal.begun.as_mut().expect("begun").log.file = Arc::new(unwritable);
    for _ in 0..20 {
        life.step();
        life.write();
        life.journal
            .step(life.now, &mut life.engine, position, true);
    }
    assert_eq!(life.journal.failures(), 1);
    assert!(life.journal.begun.is_none() && !folder.0.join("journal.new").exists());
    let (engine, _) = read(&folder.journal(), life.now).expect("it is good");
    assert_eq!(state(&engine), state(&life.engine));
}

#[test]
fn a_state_that_is_replaced_stands_as_it_was_until_the_new_one_is_whole() {
    let folder = Folder::new("replaced");
    let mut life = Life::new(&folder);
    (0..50).for_each(|_| life.step());
    life.write();
    let before = state(&life.engine);
    life.engine.clear();
    life.held.clear();
    life.whole = false;
    for _ in 0..50 {
        life.step();
        life.write();
        assert!(!life.work(), "there is nothing to be renamed");
    }
    let (engine, _) = read(&folder.journal(), life.now).expect("it is good");
    assert_eq!(state(&engine), before);
    let new = || fs::read(folder.0.join(NEW_NAMES[0])).expect("it is begun");
    assert!(read(&new(), life.now).is_err(), "it is not whole");
    life.whole = true;
    life.write();
    let (engine, _) = read(&new(), life.now).expect("it is whole");
    assert_eq!(state(&engine), state(&life.engine));
    assert!(life.work());
    life.step();
    life.write();
    let (engine, _) = read(&folder.journal(), life.now).expect("it is good");
    assert_eq!(state(&engine), state(&life.engine));
}

#[test]
fn a_state_that_is_replaced_while_a_new_journal_is_renamed_stands_too() {
    // The worker is about to rename it, is doing so, or has just done so.
    for when in ["before", "meanwhile", "after"] {
        let folder = Folder::new(&format!("replaced-{when}"));
        let mut life = Life::new(&folder);
        (0..50).for_each(|_| life.step());
        life.write();
        life.journal.grown = 0;
        let position = life.position();
        while life
            .journal
            .step(life.now, &mut life.engine, position, true)
        {}
        let mut work = life.journal.take_work();
        let mut done = None;
        if when == "after" {
            done = work.take().map(Work::run);
        }
        let mut under_way = None;
        if when == "meanwhile" {
            let Some(Work::Install { name, renaming, .. }) = work.take() else {
                panic!("it is to be renamed");
            };
            assert!(renaming.begin());
            under_way = Some((name, renaming));
        }
        let before = state(&life.engine);
        life.engine.clear();
        life.held.clear();
        life.whole = false;
        life.step();
        life.write();
        if let Some((name, renaming)) = under_way {
            fs::rename(folder.0.join(name), folder.0.join(NAME)).expect("it is there");
            renaming.end();
            let (write, result) = (0, Ok(()));
            done = Some(Done::Installed {
                renaming,
                write,
                result,
            });
        }
        let done = done.or_else(|| work.map(Work::run));
        life.journal.done(life.now, done.expect("one of the three"));
        let (engine, _) = read(&folder.journal(), life.now).expect("it is good");
        assert_eq!(state(&engine), before);
        life.whole = true;
        life.write();
        while life.work() {}
        let (engine, _) = read(&folder.journal(), life.now).expect("it is good");
        assert_eq!(state(&engine), state(&life.engine));
    }
}
