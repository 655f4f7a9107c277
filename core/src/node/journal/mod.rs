//! The state of a node on its disk: a standby made of a file. It is told each change before anybody else
//! hears of it, and read again at the next start. It never decides anything about locks, and what it cannot
//! write it does not pretend to have: a journal that has missed a change is not believed again.
//!
//! ```text
//!            the state is whole                  written and synced, renamed
//!  Behind ───────────────────────▶ a new file ──────────────────────────────▶ Following ──┐
//!    ▲      (in parts, while       is begun                                       ▲       │ grown:
//!    │      changes go on)                                                        └───────┘ a new file
//!    ├── the state was replaced: this node copies another one; the old file stands for     is begun
//!    │   what it was, with its old position                                                beside
//!    └── a write failed: the old file is removed
//! ```
//!
//! A change goes to the file that is followed and to the one that has been begun, so whichever a start finds
//! under the name `journal` goes up to the last change, or says how far it goes.

mod files;
mod format;
mod node;
mod recovery;
#[cfg(test)]
mod tests;

use files::{Done, Work};
pub use format::Problem;
pub(crate) use node::work;
pub(crate) use recovery::ALONE;
pub use recovery::{Recovered, recover};

use super::clock;
use super::data_dir::DataDir;
use super::terms::SLOT;
use crate::cluster::{self, HeldBack, HeldGrant, Stream};
use crate::engine::{Change, ConnectionId, DumpCursor, Engine, Time};
use crate::protocol::Millis;
use files::{Log, NAME};
use format::Stamp;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// A journal that is shorter is never begun anew.
const GROWN_BYTES: u64 = 64 << 20;
/// How many changes a part of a new one has at least.
const PART_CHANGES: usize = 1024;
/// How long after a failure it is tried again.
const TRY_AGAIN: Millis = Millis(5000);
/// How often the log says that nothing can be written.
const COMPLAIN_EVERY: Millis = Millis(60_000);
/// A buffer that has grown beyond this is given back.
const KEPT_BYTES: usize = 4 << 20;
const KEPT_CHANGES: usize = 16 << 10;

/// Where the cluster's changes are that the engine has.
pub(crate) type Position = (cluster::Stream, u64);

/// See the [module](self).
pub(crate) struct Journal {
    dir: Arc<DataDir>,
    header: Vec<u8>,
    /// How far the wall clock was ahead of the engine's at the start, in microseconds. It may be set
    /// meanwhile, and moments must not change their order by that.
    ahead: u64,
    /// The file that is called `journal`, if it has every change.
    followed: Option<Log>,
    /// How long it was when it had the state as it was then.
    whole: u64,
    begun: Option<Begun>,
    /// The number of the last change that has been written.
    number: u64,
    /// The file called `journal` could not be removed although it must not be believed.
    stale: bool,
    again: Time,
    complained: Option<Time>,
    /// Counts what could not be written.
    failures: u64,
    /// Whether grants wait for the disk.
    syncs: bool,
    held: HeldBack,
    /// How often something has been written.
    writes: u64,
    /// Up to which of these times everything outlasts a power cut.
    lasting: u64,
    /// What is to be done away from the node's thread.
    work: Option<Work>,
    /// Told when there is such work.
    news: Arc<Notify>,
    /// Whether such work is under way.
    busy: bool,
    grown: u64,
    part: Vec<Change>,
    bytes: Vec<u8>,
}

/// A new file that does not have the name yet.
struct Begun {
    log: Log,
    cursor: DumpCursor,
    stage: Stage,
    fate: Fate,
}

/// What a new file is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It has every change.
    Sound,
    /// The state has become another one since; it tells of the one before.
    Replaced,
    /// It has missed a change.
    Broken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The state is written in parts.
    Copying,
    /// The state is there, and is made lasting and renamed as soon as the worker is free.
    Written,
    /// That is under way.
    Installing,
}

impl Journal {
    /// The path of the journal in a data dir.
    pub(crate) fn path(dir: &DataDir) -> PathBuf {
        dir.file(NAME)
    }

    /// Whoever keeps no state must not leave behind what will be outdated. What is not the journal of
    /// `node` stays.
    pub(crate) fn forget(dir: &DataDir, node: &str) -> io::Result<()> {
        let Some(file) = Journal::open(dir)? else {
            return Ok(());
        };
        if recovery::is_of(file, node) {
            tracing::warn!("keep_state is off: the journal of the last start is removed");
            files::remove_journal(dir)?;
        }
        Ok(())
    }

    /// Opens the journal of a data dir, if there is one.
    pub(crate) fn open(dir: &DataDir) -> io::Result<Option<File>> {
        match File::open(dir.file(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Goes on with what was recovered, or with nothing.
    pub(crate) fn new(
        dir: Arc<DataDir>,
        node: &str,
        recovered: Option<&Recovered>,
        syncs: bool,
    ) -> io::Result<Journal> {
        files::remove_new(&dir)?;
        let followed = recovered
            .map(|recovered| Log::resume(&dir, recovered.length))
            .transpose()?;
        let last = recovered.map_or(0, |recovered| recovered.wall);
        Ok(Journal {
            ahead: wall().max(last).saturating_sub(clock::now().0),
            dir,
            header: format::header(node),
            followed,
            whole: 0,
            begun: None,
            number: recovered.map_or(0, |recovered| recovered.number),
            stale: false,
            again: Time(0),
            complained: None,
            failures: 0,
            syncs,
            // No grant is held for so long; the disk answers or fails.
            held: HeldBack::new(Millis(u64::MAX >> 20)),
            writes: 0,
            lasting: 0,
            work: None,
            news: Arc::new(Notify::new()),
            busy: false,
            grown: GROWN_BYTES,
            part: Vec::new(),
            bytes: Vec::new(),
        })
    }

    /// Whether it tells of the present state, so that it has to hear of every change.
    fn listens(&self) -> bool {
        let begun = self.begun.as_ref();
        self.followed.is_some() || begun.is_some_and(|begun| begun.fate == Fate::Sound)
    }

    /// Whether grants are to wait until they are on disk.
    pub(crate) fn holds_back(&self) -> bool {
        self.syncs && self.followed.is_some()
    }

    /// How often something could not be written.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Writes what the engine has to tell, before anybody else hears of it.
    pub(crate) fn write(&mut self, now: Time, engine: &mut Engine, position: Position) {
        if engine.was_replaced() {
            self.be_replaced();
        }
        if self.listens() {
            self.spell(now, engine, position);
            self.writes += 1;
            self.append(now, true);
        }
        if !self.listens() {
            engine.record_for_journal(false);
        }
        self.assign_work();
    }

    fn spell(&mut self, now: Time, engine: &mut Engine, position: Position) {
        let stamp = self.stamp(now, position);
        self.bytes.clear();
        let mut more = true;
        while more {
            let (begin, first, mut count) = (self.bytes.len(), self.number + 1, 0);
            format::append(&mut self.bytes, &stamp, |out| {
                (count, more) = cluster::spell_news(now, first, engine, out);
            });
            self.number += u64::from(count);
            if count == 0 {
                // All of it came to nothing.
                self.bytes.truncate(begin);
            }
        }
    }

    /// Appends what has been spelled to the file that has been begun, and where it is a change to the one
    /// that is followed too.
    fn append(&mut self, now: Time, is_change: bool) {
        if is_change
            && let Some(log) = &mut self.followed
            && let Err(error) = log.append(&self.bytes)
        {
            self.stop_following(now, &error);
        }
        if let Some(begun) = &mut self.begun
            && begun.fate == Fate::Sound
            && let Err(error) = begun.log.append(&self.bytes)
        {
            begun.fate = Fate::Broken;
            self.complain(now, &error);
            self.drop_useless();
        }
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// The journal has missed a change, so nobody may believe it.
    fn stop_following(&mut self, now: Time, error: &io::Error) {
        self.followed = None;
        self.stale = true;
        self.complain(now, error);
        self.remove_stale();
    }

    fn remove_stale(&mut self) {
        // A new file that is being renamed takes the name in any case, and is looked at afterwards.
        let installing = self.is_at(Stage::Installing);
        if self.stale && !installing && files::remove_journal(&self.dir).is_ok() {
            self.stale = false;
        }
    }

    /// The state is another one now: what is in the file is what this node had before.
    fn be_replaced(&mut self) {
        self.followed = None;
        if let Some(begun) = &mut self.begun
            && begun.fate == Fate::Sound
        {
            begun.fate = Fate::Replaced;
        }
        self.drop_useless();
    }

    /// Gives up a new file that is of no use any more, unless it is being renamed.
    fn drop_useless(&mut self) {
        let useless = |begun: &Begun| begun.fate != Fate::Sound && begun.stage != Stage::Installing;
        if self.begun.as_ref().is_some_and(useless) {
            self.begun = None;
            if let Err(error) = files::remove_new(&self.dir) {
                tracing::warn!("cannot remove a journal that was begun: {error}");
            }
        }
    }

    fn complain(&mut self, now: Time, error: &io::Error) {
        self.failures += 1;
        self.again = now.after(TRY_AGAIN);
        if self
            .complained
            .is_some_and(|last| now < last.after(COMPLAIN_EVERY))
        {
            return;
        }
        self.complained = Some(now);
        let path = self.dir.file(NAME);
        let path = path.display();
        if self.followed.is_some() {
            tracing::error!("cannot begin journal {path} anew: {error}; the old one grows on");
        } else {
            tracing::error!(
                "cannot write journal {path}: {error}; the node goes on without it, and its restart frees every lock until it can be written again"
            );
        }
    }

    fn is_at(&self, stage: Stage) -> bool {
        self.begun
            .as_ref()
            .is_some_and(|begun| begun.stage == stage)
    }

    /// Whether a new file is due: there is none that is followed, or it has grown.
    fn wants_new(&self) -> bool {
        self.begun.is_none()
            && self
                .followed
                .as_ref()
                .is_none_or(|log| log.length > self.grown && log.length > 2 * self.whole)
    }

    /// When [`Journal::step`] has something to do; `whole`: the engine has the whole state.
    pub(crate) fn next_step(&self, whole: bool) -> Option<Time> {
        if self.is_at(Stage::Copying) {
            return Some(Time(0));
        }
        (whole && self.wants_new()).then_some(self.again)
    }

    /// Does a bounded part of what a new file needs. Returns whether there is more. [Write](Journal::write)
    /// before: a part says how things are now.
    pub(crate) fn step(
        &mut self,
        now: Time,
        engine: &mut Engine,
        position: Position,
        whole: bool,
    ) -> bool {
        if self.next_step(whole).is_none_or(|at| at > now) {
            return false;
        }
        if self.begun.is_none() {
            return self.begin(now, engine, position);
        }
        let Some(begun) = &mut self.begun else {
            return false;
        };
        let mut part = std::mem::take(&mut self.part);
        let more = engine.dump(&mut begun.cursor, PART_CHANGES, &mut part);
        if !more {
            begun.stage = Stage::Written;
        }
        self.bytes.clear();
        let stamp = self.stamp(now, position);
        for batch in cluster::batches(&part) {
            format::append(&mut self.bytes, &stamp, |out| {
                cluster::spell_part(now, batch, out);
            });
        }
        if !more {
            format::append(&mut self.bytes, &stamp, cluster::spell_whole);
        }
        part.clear();
        if part.capacity() <= KEPT_CHANGES {
            self.part = part;
        }
        self.append(now, false);
        self.assign_work();
        more && self.begun.is_some()
    }

    fn begin(&mut self, now: Time, engine: &mut Engine, position: Position) -> bool {
        let log = match Log::begin(&self.dir, &self.header) {
            Ok(log) => log,
            Err(error) => {
                self.complain(now, &error);
                self.remove_stale();
                return false;
            }
        };
        self.begun = Some(Begun {
            log,
            cursor: DumpCursor::default(),
            stage: Stage::Copying,
            fate: Fate::Sound,
        });
        if self.followed.is_none() {
            engine.record_for_journal(true);
        }
        self.bytes.clear();
        let number = self.number;
        let stamp = self.stamp(now, position);
        format::append(&mut self.bytes, &stamp, |out| {
            cluster::spell_begin(number, out);
        });
        self.append(now, false);
        self.begun.is_some()
    }

    /// Gives the worker something to do, if it is free and there is something.
    fn assign_work(&mut self) {
        if self.busy || self.work.is_some() {
            return;
        }
        if let Some(begun) = &mut self.begun
            && begun.stage == Stage::Written
        {
            begun.stage = Stage::Installing;
            let (file, dir) = (begun.log.file.clone(), self.dir.clone());
            self.set_work(Work::Install { file, dir });
        } else if let Some(log) = &self.followed
            && self.held.next_deadline().is_some()
        {
            let (file, write) = (log.file.clone(), self.writes);
            self.set_work(Work::Sync { file, write });
        }
    }

    /// What is to be done away from the node's thread. [`Journal::done`] has to follow.
    pub(crate) fn take_work(&mut self) -> Option<Work> {
        let work = self.work.take();
        self.busy |= work.is_some();
        work
    }

    /// The worker is done. What is over after that is in `discarded`.
    pub(crate) fn done(&mut self, now: Time, done: Done) {
        self.busy = false;
        match done {
            Done::Discarded => {}
            Done::Synced { write, result } => match result {
                Ok(()) => self.lasting = self.lasting.max(write),
                Err(error) if self.followed.is_some() => self.stop_following(now, &error),
                Err(_) => {}
            },
            Done::Installed(result) => self.installed(now, result),
        }
        self.assign_work();
    }

    fn installed(&mut self, now: Time, result: io::Result<()>) {
        let Some(begun) = self.begun.take() else {
            return;
        };
        match (result, begun.fate) {
            (Ok(()), Fate::Sound) => {
                self.stale = false;
                self.whole = begun.log.length;
                if self.complained.take().is_some() {
                    tracing::info!("the journal is written again");
                }
                if let Some(old) = self.followed.replace(begun.log) {
                    self.set_work(Work::Discard { file: old.file });
                }
            }
            // It has the name now, and whatever was followed has none any more.
            (Ok(()), Fate::Replaced) => self.stale = false,
            (Ok(()), Fate::Broken) => {
                self.followed = None;
                self.stale = true;
                self.remove_stale();
            }
            (Err(error), _) => {
                self.complain(now, &error);
                self.remove_stale();
                if let Err(error) = files::remove_new(&self.dir) {
                    tracing::warn!("cannot remove a journal that was begun: {error}");
                }
            }
        }
    }

    /// Writes the first journal, and waits until it is on disk.
    pub(crate) fn install_first(&mut self, engine: &mut Engine, term: u32) -> io::Result<()> {
        let now = clock::now();
        let position = (Stream { term, slot: SLOT }, 0);
        while self.step(now, engine, position, true) {}
        let Some(Work::Install { file, dir }) = self.work.take() else {
            return Err(io::Error::other("the journal cannot be begun"));
        };
        files::install(&file, &dir)?;
        self.installed(now, Ok(()));
        Ok(())
    }

    /// The node ends in order: what has been written outlasts a power cut from here on.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.remove_stale();
        if let Some(log) = &self.followed {
            log.file.sync_data()?;
        }
        Ok(())
    }

    /// Keeps a grant back until what was written with it, or will be, is on disk.
    pub(crate) fn hold(&mut self, now: Time, engine: &Engine, grant: HeldGrant) {
        let write = self.writes + u64::from(engine.has_news_for_journal());
        self.held.hold(now, write, grant);
    }

    /// The next grant that need not be held back any more.
    pub(crate) fn pop_lasting(&mut self) -> Option<HeldGrant> {
        if self.holds_back() {
            self.held.pop_confirmed(self.lasting)
        } else {
            self.held.pop()
        }
    }

    /// The next grant that is held back, whatever becomes of it.
    pub(crate) fn pop_held(&mut self) -> Option<HeldGrant> {
        self.held.pop()
    }

    /// A connection is gone: the grants it was to be told of.
    pub(crate) fn disconnect(&mut self, connection: ConnectionId) -> Vec<HeldGrant> {
        self.held.disconnect(connection)
    }

    fn stamp(&self, now: Time, (stream, sequence): Position) -> Stamp {
        Stamp {
            wall: now.0.saturating_add(self.ahead),
            stream,
            sequence,
        }
    }

    fn set_work(&mut self, work: Work) {
        self.work = Some(work);
        self.news.notify_one();
    }
}

/// The wall clock in microseconds; 0 before 1970.
pub(crate) fn wall() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_micros() as u64)
}
