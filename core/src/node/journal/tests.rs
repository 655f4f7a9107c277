//! Goal: whatever a crash, a disk or a bit does to a journal, a start finds a state that there was, or says
//! that it cannot. Method: engines that are asked for many things, and their journals in real files, cut,
//! altered and made to fail at every place.

mod crashes;

use super::format::{self, Stamp};
use super::*;
use crate::engine::{Answer, EngineSettings, Recording, Refusal};
use crate::protocol::{ClientId, Key, KeyRef, NameRef, Tag, Token, Wait};
use std::fs;
use std::path::PathBuf;

const NODE: &str = "10.0.0.1:7420";
/// How far the wall clock is ahead of the engine's.
const AHEAD: u64 = 1 << 50;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("fairlock-journal-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    fn journal(&self) -> Vec<u8> {
        fs::read(self.0.join(NAME)).expect("there is one")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An engine with clients, and its journal.
struct Life {
    engine: Engine,
    journal: Journal,
    now: Time,
    clients: Vec<ConnectionId>,
    tags: u64,
    held: Vec<(Key, Token)>,
    random: u64,
    sequence: u64,
    /// Whether the engine has the whole state.
    whole: bool,
}

impl Life {
    fn new(folder: &Folder) -> Life {
        let dir = Arc::new(DataDir::open(&folder.0).expect("it is ours"));
        let mut engine = Engine::new(EngineSettings::default(), 1);
        engine.open_term(7, 0, 0).expect("the first term");
        let mut journal = Journal::new(dir, NODE, None, false).expect("a new one");
        journal.install_first(&mut engine, 7).expect("it is empty");
        journal.ahead = AHEAD;
        let mut life = Life {
            engine,
            journal,
            now: Time(1_000_000_000),
            clients: Vec::new(),
            tags: 0,
            held: Vec::new(),
            random: 0x9E37_79B9_7F4A_7C15,
            sequence: 0,
            whole: true,
        };
        (0..4).for_each(|_| life.connect());
        life
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % limit
    }

    fn connect(&mut self) {
        let id = self.engine.connect("127.0.0.1:4711");
        let number = self.clients.len() as u8;
        let client = (!number.is_multiple_of(3)).then_some(ClientId([number; 16]));
        let name = NameRef::parse(b"worker").expect("a name");
        self.engine.hello(id, client, name);
        self.clients.push(id);
    }

    /// Something happens.
    fn step(&mut self) {
        self.now = self.now.after(Millis(1 + self.below(20) as u64));
        let count = self.clients.len();
        let which = self.below(count);
        let client = self.clients[which];
        let key = Key::encode(format!("key {}", self.below(6)).as_bytes()).expect("a key");
        match self.below(12) {
            0..=5 => {
                self.tags += 1;
                let number = if self.below(4) == 0 {
                    self.tags / 2 + 1
                } else {
                    self.tags
                };
                let attempt = self.below(3) as u32;
                let wait = [Wait::No, Wait::Forever, Wait::For(Millis(200))][self.below(3)];
                let (lease, tag) = (Millis(300), Some(Tag { number, attempt }));
                let answer = self
                    .engine
                    .acquire(self.now, client, key.as_ref(), lease, wait, tag);
                if let Answer::Granted(grant) = answer {
                    self.held.push((key, grant.token));
                }
            }
            6..=8 if !self.held.is_empty() => {
                let which = self.below(self.held.len());
                let (key, token) = self.held.swap_remove(which);
                self.engine.release(self.now, key.as_ref(), token);
            }
            9 if !self.held.is_empty() => {
                let which = self.below(self.held.len());
                let (key, token) = self.held[which].clone();
                self.engine.keep(self.now, key.as_ref(), token, Millis(700));
            }
            10 => {
                let (number, attempt) = (1 + self.below(20) as u64, 3);
                let tag = Tag { number, attempt };
                self.engine.cancel(self.now, client, key.as_ref(), tag);
            }
            _ if self.below(4) == 0 => {
                let which = self.below(count);
                let id = self.clients.swap_remove(which);
                self.engine.disconnect(self.now, id, &[]);
                self.connect();
            }
            _ => {
                self.engine.expire(self.now, 100);
            }
        }
        while let Some(effect) = self.engine.poll_effect() {
            if let crate::engine::Effect::Granted { key, grant, .. } = effect {
                self.held.push((key, grant.token));
            }
        }
    }

    fn position(&mut self) -> Position {
        self.sequence += 1;
        (Stream { term: 7, slot: 0 }, self.sequence)
    }

    fn write(&mut self) {
        let position = self.position();
        self.journal
            .write(self.now, &mut self.engine, position, self.whole);
    }

    /// Does what the worker would do. Returns whether there was anything.
    fn work(&mut self) -> bool {
        let Some(work) = self.journal.take_work() else {
            return false;
        };
        let done = work.run();
        self.journal.done(self.now, done);
        true
    }
}

/// What of a state does not depend on clocks, in an order that does not depend on where things lie.
fn state(engine: &Engine) -> Vec<String> {
    let mut state: Vec<String> = engine
        .snapshot()
        .filter_map(|change| match change {
            Change::Granted {
                key,
                token,
                owner,
                tag,
                lease,
                claim,
                ..
            } => Some(format!(
                "{key:?} held {token:?} {owner:?} {tag:?} {lease:?} {claim:?}"
            )),
            Change::Enqueued {
                key,
                owner,
                tag,
                lease,
                claim,
                ..
            } => Some(format!(
                "{key:?} queue {owner:?} {tag:?} {lease:?} {claim:?}"
            )),
            Change::AttemptRemembered {
                client,
                number,
                attempt,
                ..
            } => Some(format!("attempt {client:?} {number} {attempt}")),
            _ => None,
        })
        .collect();
    // Waiters of one key have to stay in order; each line begins with its key, and this keeps the rest.
    state.sort_by(|one, other| {
        let key = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        key(one).cmp(&key(other))
    });
    state
}

fn read(bytes: &[u8], now: Time) -> Result<(Engine, Recovered), Problem> {
    let mut engine = Engine::new(EngineSettings::default(), 2);
    let recovered = recover(bytes, NODE, (now, now.0 + AHEAD), &mut engine)?;
    engine.check_invariants();
    Ok((engine, recovered))
}

/// A length of a journal, and the state that it leads to.
type Moment = (usize, Vec<String>);

/// A history: the journal, and after which byte of it which state is there.
fn history(name: &str, steps: usize) -> (Vec<u8>, Vec<Moment>, Time) {
    let folder = Folder::new(name);
    let mut life = Life::new(&folder);
    let mut states = vec![(folder.journal().len(), state(&life.engine))];
    for _ in 0..steps {
        life.step();
        if life.below(3) != 0 {
            life.write();
            states.push((folder.journal().len(), state(&life.engine)));
        }
    }
    (folder.journal(), states, life.now)
}

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
            token: grant.token,
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
