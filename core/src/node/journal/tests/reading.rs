//! Goal: a start takes of a journal what is good, and says what is not. Method: journals of engines that were asked for many
//! things, cut and altered at every place, and read.

use super::*;

#[test]
fn a_journal_that_ends_at_any_byte_leads_to_the_state_of_its_last_whole_record() {
    let (journal, states, now) = history("cut", 150);
    assert!(states.len() > 50 && states.last().is_some_and(|(_, state)| state.len() > 5));
    for length in 0..=journal.len() {
        let found = read(&journal[..length], now);
        let expected = states.iter().rev().find(|(end, _)| *end <= length);
        match (found, expected) {
            (Ok((engine, recovered)), Some((end, expected))) => {
                assert_eq!(state(&engine), *expected, "cut at {length}");
                assert_eq!(recovered.length, *end as u64);
                assert_eq!(recovered.cut, (length - end) as u64);
            }
            (Err(_), None) => {}
            (Ok(_), None) => panic!("cut at {length} within the first copy, and believed"),
            (Err(problem), Some(_)) => panic!("cut at {length}: {problem}"),
        }
    }
}

#[test]
fn a_journal_with_any_bit_flipped_is_refused_or_leads_to_a_state_that_there_was() {
    let (journal, states, now) = history("flip", 60);
    let mut refused = 0;
    for place in 0..journal.len() {
        for bit in 0..8 {
            let mut flipped = journal.clone();
            flipped[place] ^= 1 << bit;
            match read(&flipped, now) {
                Ok((engine, recovered)) => {
                    let end = |(end, _): &&Moment| *end as u64 == recovered.length;
                    let (_, expected) = states.iter().find(end).expect("the end of a record");
                    assert_eq!(state(&engine), *expected, "bit {bit} of byte {place}");
                    let last = states.len() - 2;
                    assert_eq!(
                        recovered.length, states[last].0 as u64,
                        "only the last is cut"
                    );
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > journal.len() * 7);
}

#[test]
fn zeros_behind_a_journal_are_cut_off() {
    let (mut journal, states, now) = history("zeros", 30);
    let length = journal.len();
    journal.extend_from_slice(&[0; 5000]);
    let (engine, recovered) = read(&journal, now).expect("it is good");
    assert_eq!(state(&engine), states.last().expect("some").1);
    assert_eq!((recovered.length, recovered.cut), (length as u64, 5000));
}

/// Goal: what a power cut leaves of a file that was not synced is no reason not to start. Method: every sector of
/// it in turn is empty, as if it had not been written before those behind it.
#[test]
fn a_sector_that_never_came_to_the_disk_ends_the_journal() {
    let (journal, states, now) = history("sector", 200);
    assert!(journal.len() > 20 * 512);
    for place in (0..journal.len()).step_by(512).skip(1) {
        let mut holed = journal.clone();
        let end = (place + 512).min(journal.len());
        holed[place..end].fill(0);
        match (read(&holed, now), place < states[0].0) {
            (Ok((engine, recovered)), false) => {
                let whole = |(end, _): &&Moment| *end as u64 == recovered.length;
                let (length, expected) = states.iter().find(whole).expect("the end of a record");
                assert_eq!(state(&engine), *expected, "at {place}");
                // Zeros that belong there are no loss.
                let next = states.iter().find(|(end, _)| end > length);
                assert!(*length < end && next.is_none_or(|(next, _)| *next > place));
            }
            (Err(_), true) => {}
            (found, _) => panic!("at {place}: {:?}", found.map(|(_, recovered)| recovered)),
        }
    }
}

#[test]
fn a_hole_is_an_error_that_says_where() {
    let (journal, states, now) = history("hole", 40);
    // Within one sector: a whole empty one is what a power cut leaves.
    let pairs = states.windows(2).map(|pair| (pair[0].0, pair[1].0));
    let within = |(begin, end): &(usize, usize)| begin < end && begin / 512 == end / 512;
    let (begin, end) = pairs.skip(5).find(within).expect("most are short");
    let mut without = journal.clone();
    without.drain(begin..end);
    let mut zeroed = journal.clone();
    zeroed[begin..end].fill(0);
    let mut twice = journal.clone();
    twice.splice(begin..begin, journal[begin..end].to_vec());
    for (what, bytes, at) in [
        ("gone", without, begin),
        ("zeroed", zeroed, begin),
        ("twice", twice, end),
    ] {
        let problem = read(&bytes, now).map(|_| ()).expect_err(what).to_string();
        assert!(
            problem.contains(&format!("at byte {at} ")),
            "{what}: {problem}"
        );
    }
}

#[test]
fn what_is_no_journal_of_this_node_and_version_is_refused_and_named() {
    let now = Time(1_000_000);
    let problem = |bytes: &[u8]| {
        read(bytes, now)
            .map(|_| ())
            .expect_err("refused")
            .to_string()
    };
    assert!(problem(b"").contains("does not begin as a journal"));
    assert!(problem(b"fairlock term file, version 1\n").contains("does not begin as a journal"));
    let newer = b"fairlock journal, version 2\nsomething else\n";
    assert!(problem(newer).contains("version 2"), "{}", problem(newer));
    let other = format::header("10.0.0.2:7420");
    let problem = problem(&other);
    assert!(
        problem.contains("10.0.0.2:7420") && problem.contains(NODE),
        "{problem}"
    );
}

#[test]
fn who_was_alone_goes_on_as_one_of_several_and_not_the_reverse() {
    let now = Time(1_000_000);
    let mut journal = format::header(ALONE);
    format::append(&mut journal, &Stamp::default(), |out| {
        cluster::spell_begin(0, out)
    });
    format::append(&mut journal, &Stamp::default(), cluster::spell_whole);
    read(&journal, now).expect("it was alone");
    let mut engine = Engine::new(EngineSettings::default(), 2);
    let journal = format::header(NODE);
    recover(&journal[..], ALONE, (now, 0), &mut engine).expect_err("it had peers");
}

#[test]
fn the_position_is_the_furthest_that_was_written() {
    let folder = Folder::new("position");
    let mut life = Life::new(&folder);
    for sequence in [5, 9, 8] {
        life.step();
        life.sequence = sequence - 1;
        life.step();
        life.write();
    }
    let (_, recovered) = read(&folder.journal(), life.now).expect("it is good");
    let copy = recovered.copy;
    assert_eq!(
        (copy.stream.term, copy.sequence, copy.complete),
        (7, 9, false)
    );
}

#[test]
fn moments_are_those_of_the_wall_clock_and_leases_are_for_the_engine_to_renew() {
    let folder = Folder::new("moments");
    let mut life = Life::new(&folder);
    let (one, two) = (life.clients[1], life.clients[2]);
    let key = Key::encode(b"k").expect("a key");
    let tag = |number| Some(Tag { number, attempt: 1 });
    let wait = Wait::For(Millis(60_000));
    life.engine
        .acquire(life.now, one, key.as_ref(), Millis(30_000), wait, tag(1));
    life.engine
        .acquire(life.now, two, key.as_ref(), Millis(30_000), wait, tag(1));
    life.write();
    let mut engine = Engine::new(EngineSettings::default(), 2);
    // Ten seconds later, on a machine that has just been started.
    let (now, later) = (Time(40_000_000), life.now.0 + AHEAD + 10_000_000);
    recover(&folder.journal()[..], NODE, (now, later), &mut engine).expect("it is good");
    let ends = engine.snapshot().find_map(|change| match change {
        Change::Enqueued { ends, .. } => Some(ends),
        _ => None,
    });
    let left = ends.expect("it waits").0 - now.0;
    assert_eq!(left, 50_000_000);
    engine.resume(now, Millis(5000), false);
    let held = engine.snapshot().find_map(|change| match change {
        Change::Granted { ends, .. } => Some(ends),
        _ => None,
    });
    assert_eq!(held, Some(now.after(Millis(30_000))));
}
