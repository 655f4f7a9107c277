//! Goal: whenever the process ends, between any two things that are done to the disk and within each write, a
//! start finds what clients were told; and whenever the power fails, what they were told is lasting. Method:
//! before each step of the disk the files are as a crash would leave them, and are read by a start.

use super::super::fake_disk::{Step, unwatch, watch};
use super::*;
use crate::engine::{DumpCursor, DumpReader};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

const NEW_NAME: &str = NEW_NAMES[0];

/// A folder in which a start is tried.
struct Scratch {
    _folder: Folder,
    dir: DataDir,
}

impl Scratch {
    fn new(name: &str) -> Scratch {
        let folder = Folder::new(name);
        let dir = DataDir::open(&folder.0).expect("it is ours");
        Scratch {
            _folder: folder,
            dir,
        }
    }

    /// The state that a start finds in these files, and the number of its last change.
    fn found(&self, old: Option<&[u8]>, new: Option<&[u8]>, now: Time) -> Option<Vec<String>> {
        for (name, bytes) in [(NAME, old), (NEW_NAME, new)] {
            let path = self.dir.file(name);
            match bytes {
                Some(bytes) => fs::write(path, bytes).expect("it is ours"),
                None => drop(fs::remove_file(path)),
            }
        }
        let fresh = || Engine::new(EngineSettings::default(), 2);
        let found = find(&self.dir, NODE, (now, now.0 + AHEAD), fresh);
        let found = found.expect("whatever a crash leaves, a start goes on");
        found.map(|found| {
            found.engine.check_invariants();
            state(&found.engine)
        })
    }
}

/// What a crash may lead to just now.
#[derive(Default)]
struct Allowed {
    states: Vec<Option<Vec<String>>>,
    now: Time,
    crashes: usize,
    by_new_file: usize,
}

impl Life {
    /// Becomes what another one is, as a standby does, in parts with changes in between. Calls `write` after
    /// each step.
    fn copy(&mut self, source: &mut Life, mut write: impl FnMut(&mut Life, bool)) {
        source.engine.record_changes(Recording::Everything);
        source.engine.take_changes();
        self.engine.clear();
        let (mut cursor, mut reader) = (DumpCursor::default(), DumpReader::default());
        let mut more = true;
        while more {
            if self.below(3) == 0 {
                write(self, false);
            }
            let mut part = Vec::new();
            more = source
                .engine
                .dump(&mut cursor, 1 + self.below(3), &mut part);
            for change in &part {
                let taken = self.engine.apply_dumped(self.now, &mut reader, change);
                taken.expect("it is of one piece");
            }
            if more && self.below(40) == 0 {
                source.now = self.now;
                source.step();
                self.now = source.now;
                for change in source.engine.take_changes() {
                    let taken = self.engine.apply_between(self.now, &mut reader, &change);
                    taken.expect("it is of one piece");
                }
            }
        }
        self.held.clone_from(&source.held);
        source.engine.record_changes(Recording::Nothing);
        write(self, true);
        assert_eq!(state(&self.engine), state(&source.engine));
    }

    fn lead(&mut self) {
        let term = self
            .engine
            .highest_token()
            .map_or(8, |token| (token.get() >> 32) as u32 + 1);
        self.engine.open_term(term, 1, 0).expect("it is higher");
        self.engine.resume(self.now, Millis(100), false);
    }
}

/// Looks at the folder as a start would after a crash at each step, and within each write.
fn look_on(folder: &Folder, scratch: Scratch, allowed: &Rc<RefCell<Allowed>>) {
    let (path, allowed) = (folder.0.clone(), allowed.clone());
    watch(move |step| {
        let read = |name| fs::read(path.join(name)).ok();
        let inode = |name| fs::metadata(path.join(name)).ok().map(|found| found.ino());
        let mut moments = vec![(read(NAME), read(NEW_NAME))];
        if let Step::Append(number, bytes) = step {
            let (mut old, mut new) = moments[0].clone();
            let half = &bytes[..bytes.len() / 2];
            match (&mut old, &mut new) {
                (Some(old), _) if inode(NAME) == Some(number) => old.extend_from_slice(half),
                (_, Some(new)) if inode(NEW_NAME) == Some(number) => new.extend_from_slice(half),
                _ => {}
            }
            moments.push((old, new));
        }
        let mut allowed = allowed.borrow_mut();
        for (old, new) in moments {
            let found = scratch.found(old.as_deref(), new.as_deref(), allowed.now);
            allowed.crashes += 1;
            // Reading all of them once more would only take longer.
            if allowed.crashes.is_multiple_of(3)
                && found != scratch.found(old.as_deref(), None, allowed.now)
            {
                allowed.by_new_file += 1;
            }
            assert!(
                allowed.states.contains(&found),
                "before {step:?}: {found:#?}\nallowed: {:#?}",
                allowed.states
            );
        }
        Ok(())
    });
}

#[test]
fn a_kill_between_any_two_steps_leaves_what_clients_were_told() {
    let (folder, other) = (Folder::new("kill"), Folder::new("kill-other"));
    let (mut life, mut source) = (Life::new(&folder), Life::new(&other));
    life.journal.grown = 3000;
    let allowed = Rc::new(RefCell::new(Allowed::default()));
    look_on(&folder, Scratch::new("kill-scratch"), &allowed);
    let mut told = state(&life.engine);
    for round in 0..16 {
        for _ in 0..30 + life.below(30) {
            life.step();
            let next = state(&life.engine);
            allowed.borrow_mut().now = life.now;
            allowed.borrow_mut().states = vec![Some(told.clone()), Some(next.clone())];
            life.write();
            told = next;
            allowed.borrow_mut().states = vec![Some(told.clone())];
            if life.below(3) == 0 {
                let (now, position) = (life.now, life.position());
                life.journal.step(now, &mut life.engine, position, true);
            }
            if life.below(12) == 0 {
                life.work();
            }
        }
        if round % 3 == 0 {
            (0..40).for_each(|_| source.step());
            // The worker may be in the middle of something meanwhile.
            let under_way = life.journal.take_work();
            let before = told.clone();
            life.copy(&mut source, |life, whole| {
                let next = state(&life.engine);
                allowed.borrow_mut().now = life.now;
                allowed.borrow_mut().states = vec![Some(before.clone())];
                if whole {
                    allowed.borrow_mut().states.push(Some(next));
                }
                let position = life.position();
                life.journal
                    .write(life.now, &mut life.engine, position, whole);
            });
            told = state(&life.engine);
            allowed.borrow_mut().states = vec![Some(told.clone())];
            if let Some(work) = under_way {
                let done = work.run();
                life.journal.done(life.now, done);
            }
            life.lead();
            let next = state(&life.engine);
            allowed.borrow_mut().states = vec![Some(told), Some(next.clone())];
            life.write();
            told = next;
        }
    }
    unwatch();
    let allowed = allowed.borrow();
    println!(
        "{} crashes, {} of them",
        allowed.crashes, allowed.by_new_file
    );
    assert!(allowed.crashes > 1200, "{}", allowed.crashes);
    assert!(allowed.by_new_file > 5, "{}", allowed.by_new_file);
}

/// Goal: a disk that fails now and then costs the journal and never leads to what is not true. Method: as above,
/// with writes that fail; then a start finds nothing, or what clients were told, or after a copy that could not
/// be written what the node had before it.
#[test]
fn a_kill_after_a_failure_finds_nothing_rather_than_what_is_not_true() {
    let (folder, other) = (Folder::new("failing"), Folder::new("failing-other"));
    let (mut life, mut source) = (Life::new(&folder), Life::new(&other));
    life.journal.grown = 3000;
    let allowed = Rc::new(RefCell::new(Allowed::default()));
    look_on(&folder, Scratch::new("failing-scratch"), &allowed);
    // Each so many writes one fails, having written a part.
    let inner = super::super::fake_disk::take().expect("it was set");
    let mut inner = inner;
    let mut count = 0_u32;
    watch(move |step| {
        inner(step)?;
        let may_fail = matches!(step, Step::Append(..) | Step::Sync(_));
        count += u32::from(may_fail);
        if may_fail && count.is_multiple_of(47) {
            return Err(io::Error::other("a disk that fails"));
        }
        Ok(())
    });
    let mut before = None;
    let mut told = state(&life.engine);
    for round in 0..15 {
        for _ in 0..40 {
            life.step();
            let next = state(&life.engine);
            {
                let mut allowed = allowed.borrow_mut();
                allowed.now = life.now;
                allowed.states = vec![None, Some(told), Some(next.clone())];
                allowed.states.extend(before.clone().map(Some));
            }
            life.write();
            told = next;
            if life.below(3) == 0 {
                let (now, position) = (life.now, life.position());
                life.journal.step(now, &mut life.engine, position, true);
            }
            if life.below(4) == 0 {
                life.work();
            }
            if life.journal.followed.is_some() {
                before = None;
            }
        }
        // It is tried again.
        life.now = life.now.after(TRY_AGAIN);
        if round % 3 == 0 {
            (0..40).for_each(|_| source.step());
            before = Some(told.clone());
            let old = told.clone();
            life.copy(&mut source, |life, whole| {
                let next = state(&life.engine);
                allowed.borrow_mut().now = life.now;
                allowed.borrow_mut().states = vec![None, Some(old.clone())];
                if whole {
                    allowed.borrow_mut().states.push(Some(next));
                }
                let position = life.position();
                life.journal
                    .write(life.now, &mut life.engine, position, whole);
            });
            life.lead();
            let next = state(&life.engine);
            allowed
                .borrow_mut()
                .states
                .extend([Some(told), Some(next.clone())]);
            life.write();
            told = next;
        }
    }
    unwatch();
    assert!(life.journal.failures() > 5, "{}", life.journal.failures());
}

/// What is on a disk whose power fails: of a file what was synced, and of what was written since any part from
/// its beginning on, or all but a sector; of the names those that were synced, or any that there were since.
#[derive(Default)]
struct Platters {
    written: BTreeMap<u64, Vec<u8>>,
    synced: BTreeMap<u64, usize>,
    names: Vec<[Option<u64>; 2]>,
    /// So that no number is used again.
    open: Vec<File>,
}

#[test]
fn what_was_answered_with_journal_sync_outlasts_a_power_cut_at_any_step() {
    let (folder, other) = (Folder::new("power"), Folder::new("power-other"));
    let platters = Rc::new(RefCell::new(Platters::default()));
    let answered = Rc::new(RefCell::new(Vec::<(Key, Token)>::new()));
    let moment = Rc::new(RefCell::new(Time(1_000_000_000)));
    let cuts = Rc::new(RefCell::new(0));
    {
        let (platters, answered, moment) = (platters.clone(), answered.clone(), moment.clone());
        let (path, scratch, cuts) = (
            folder.0.clone(),
            Scratch::new("power-scratch"),
            cuts.clone(),
        );
        watch(move |step| {
            let inode = |name| fs::metadata(path.join(name)).ok().map(|found| found.ino());
            let present = [inode(NAME), inode(NEW_NAME)];
            let mut disk = platters.borrow_mut();
            if disk.names.last() != Some(&present) {
                disk.names.push(present);
            }
            for names in &disk.names {
                // Of what is not synced all, nothing, or a part.
                for part in 0..4 {
                    let content = |number: &u64| {
                        let mut bytes = disk.written.get(number)?.clone();
                        let synced = *disk.synced.get(number).unwrap_or(&0);
                        if part < 3 {
                            bytes.truncate(synced + (bytes.len() - synced) * part / 2);
                        } else if let Some(sector) = bytes.chunks_mut(512).nth(synced.div_ceil(512))
                        {
                            sector.fill(0);
                        }
                        Some(bytes)
                    };
                    let [old, new] = names.each_ref().map(|number| content(number.as_ref()?));
                    let (old, new) = (old.as_deref(), new.as_deref());
                    let fresh = scratch
                        .found(old, new, *moment.borrow())
                        .unwrap_or_default();
                    *cuts.borrow_mut() += 1;
                    for (key, token) in answered.borrow().iter() {
                        let held = format!("{key:?} held {token:?} ");
                        assert!(
                            fresh.iter().any(|line| line.starts_with(&held)),
                            "before {step:?} with names {names:?} and part {part}: {held}is not in {fresh:#?}"
                        );
                    }
                }
            }
            match step {
                Step::Append(number, bytes) => {
                    if !disk.written.contains_key(&number) {
                        let file = File::open(path.join(NEW_NAME)).expect("it has just been made");
                        disk.open.push(file);
                    }
                    let written = disk.written.entry(number).or_default();
                    written.extend_from_slice(bytes);
                }
                Step::Sync(number) => {
                    let length = disk.written.get(&number).map_or(0, Vec::len);
                    disk.synced.insert(number, length);
                }
                Step::Names => {}
                Step::SyncNames => disk.names = vec![present],
            }
            Ok(())
        });
    }
    let mut life = Life::new(&folder);
    let mut source = {
        let watcher = super::super::fake_disk::take();
        let source = Life::new(&other);
        watcher.into_iter().for_each(watch);
        source
    };
    life.journal.grown = 3000;
    life.journal.syncs = true;
    let hear = |life: &mut Life| {
        while let Some(grant) = life.journal.pop_lasting() {
            let answer = (grant.key, grant.grant.token);
            if life.held.contains(&answer) {
                answered.borrow_mut().push(answer);
            }
        }
    };
    let mut most = 0;
    for round in 0..10 {
        for _ in 0..40 {
            let before = life.held.clone();
            life.step();
            *moment.borrow_mut() = life.now;
            // What ends is no longer asked for before its end is on disk.
            let engine = &life.engine;
            let holds =
                |(key, token): &(Key, Token)| engine.grant_of(key.as_ref(), *token).is_some();
            life.held.retain(holds);
            answered.borrow_mut().retain(holds);
            for (key, token) in life.held.clone() {
                let grant = life.engine.grant_of(key.as_ref(), token);
                if let Some(grant) = grant
                    && !before.contains(&(key.clone(), token))
                {
                    let grant = HeldGrant {
                        connection: life.clients[0],
                        key,
                        grant,
                        tag: None,
                    };
                    life.journal.hold(life.now, &life.engine, grant);
                }
            }
            life.write();
            hear(&mut life);
            if life.below(3) == 0 {
                let (now, position) = (life.now, life.position());
                life.journal.step(now, &mut life.engine, position, true);
            }
            if life.below(3) == 0 {
                life.work();
                hear(&mut life);
            }
            most = most.max(answered.borrow().len());
        }
        if round % 3 == 2 {
            // It copies another one from here on, and answers for nothing before that is whole.
            answered.borrow_mut().clear();
            while life.journal.pop_held().is_some() {}
            (0..40).for_each(|_| source.step());
            life.copy(&mut source, |life, whole| {
                *moment.borrow_mut() = life.now;
                let position = life.position();
                life.journal
                    .write(life.now, &mut life.engine, position, whole);
            });
            life.lead();
            life.write();
        }
    }
    unwatch();
    assert!(
        most > 2 && *cuts.borrow() > 2000,
        "{most} {}",
        cuts.borrow()
    );
}
