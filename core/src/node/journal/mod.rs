//! The state of a node on its disk: a standby made of files. It is told each change before anybody else
//! hears of it, and read again at the next start. It never decides anything about locks, and what it cannot
//! write it does not pretend to have: a journal that has missed a change is not believed again.
//!
//! Two files can be there. `journal` is whole: it leads to the state of its last record. `journal.new` is
//! being begun, and is whole from the record on that says so. A start takes of those that are whole the one
//! that goes further, and it does not matter to it whether the new one has got the name yet. So no answer
//! waits for that, and what it was told is on file at every moment:
//!
//! ```text
//!                        journal                        journal.new
//!  following             has every change               is not there
//!  it has grown          has every change               the state in parts, changes in between; then
//!                                                       "whole", and every change
//!  the state is          stands for what the node had   begun at once: every change from nothing on;
//!  replaced by a copy    before, at its old position    "whole" when the copy is, before the node tells
//!  (or is the first)                                    anybody so or serves; then every change
//!  a write failed        is taken away                  is taken away
//! ```
//!
//! From "whole" on the new file is made lasting away from the node's thread, and then renamed: between the
//! two a power cut, but not the end of the process, can bring the old file back. Where grants wait for the
//! disk they wait for this too.

mod anew;
#[cfg(test)]
mod fake_disk;
mod files;
mod format;
mod node;
mod recovery;
#[cfg(test)]
mod tests;

use files::{Done, Renaming, Work};
pub use format::Problem;
pub(crate) use node::work;
pub(crate) use recovery::{ALONE, Found, find};
pub use recovery::{Recovered, recover};

use super::clock;
use super::data_dir::DataDir;
use crate::cluster::{self, HeldBack, HeldGrant, Spelled};
use crate::engine::{Change, ConnectionId, Engine, Time};
use crate::protocol::Millis;
use anew::{Begun, Leaving, Stage};
use files::{Log, NAME, NEW_NAMES};
use format::Stamp;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// A journal that is shorter is never begun anew.
const GROWN_BYTES: u64 = 64 << 20;
/// How long after a failure it is tried again.
const TRY_AGAIN: Millis = Millis(5000);
/// How often the log says that nothing can be written.
const COMPLAIN_EVERY: Millis = Millis(60_000);
/// A buffer that has grown beyond this is given back.
const KEPT_BYTES: usize = 4 << 20;

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
    /// A new file that was given up while it was being renamed.
    leaving: Option<Leaving>,
    /// The number of the last change that has been written.
    number: u64,
    /// The file called `journal` could not be taken away although it must not be believed.
    stale: bool,
    /// A name has been taken away, and a power cut could bring it back.
    unsynced_names: bool,
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

impl Journal {
    /// The path of the journal in a data dir.
    pub(crate) fn path(dir: &DataDir) -> PathBuf {
        dir.file(NAME)
    }

    /// Whoever keeps no state must not leave behind what will be outdated. What is not the journal of
    /// `node` stays.
    pub(crate) fn forget(dir: &DataDir, node: &str) -> io::Result<()> {
        if let Some(file) = Journal::open(dir, NAME)?
            && recovery::is_of(file, node)
        {
            tracing::warn!("keep_state is off: the journal of the last start is removed");
            files::remove(dir, NAME)?;
        }
        for name in NEW_NAMES {
            if let Some(file) = Journal::open(dir, name)?
                && recovery::is_of(file, node)
            {
                files::remove(dir, name)?;
            }
        }
        files::sync_names(dir)
    }

    /// Opens one of the files in a data dir, if it is there.
    fn open(dir: &DataDir, name: &str) -> io::Result<Option<File>> {
        match File::open(dir.file(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Goes on with what was found, or with nothing.
    pub(crate) fn new(
        dir: Arc<DataDir>,
        node: &str,
        found: Option<&Found>,
        syncs: bool,
    ) -> io::Result<Journal> {
        if let Some(found) = found
            && found.name != NAME
            && let Some(file) = Journal::open(&dir, found.name)?
        {
            files::install(&file, &dir, found.name)?;
        }
        for name in NEW_NAMES {
            files::remove(&dir, name)?;
        }
        files::sync_names(&dir)?;
        let recovered = found.map(|found| found.recovered);
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
            leaving: None,
            number: recovered.map_or(0, |recovered| recovered.number),
            stale: false,
            unsynced_names: false,
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
        self.followed.is_some() || self.begun.is_some()
    }

    /// Whether a start would find what this node has, as far as it has a whole state.
    pub(crate) fn keeps(&self) -> bool {
        let in_parts = |begun: &Begun| matches!(begun.stage, Stage::InParts(_));
        self.followed.is_some() || self.begun.as_ref().is_some_and(|begun| !in_parts(begun))
    }

    /// Whether grants are to wait until they are on disk.
    pub(crate) fn holds_back(&self) -> bool {
        self.syncs && self.listens()
    }

    /// How often something could not be written.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Writes what the engine has to tell, before anybody else hears of it; `whole`: the engine has the
    /// whole state.
    pub(crate) fn write(
        &mut self,
        now: Time,
        engine: &mut Engine,
        position: Position,
        whole: bool,
    ) {
        if engine.was_replaced() {
            self.be_replaced();
            self.begin_with_nothing(now, position);
        }
        if self.listens() && engine.has_news_for_journal() {
            self.spell(now, engine, position);
            self.writes += 1;
            self.append(now, true);
        }
        if whole && self.waits_to_be_whole() {
            self.bytes.clear();
            let stamp = self.stamp(now, position);
            format::append(&mut self.bytes, &stamp, cluster::spell_whole);
            self.append(now, false);
            self.set_stage(Stage::Whole);
        }
        if !self.listens() {
            engine.record_for_journal(false);
        }
        self.assign_work();
    }

    fn spell(&mut self, now: Time, engine: &mut Engine, position: Position) {
        let stamp = self.stamp(now, position);
        self.bytes.clear();
        engine.tell_journal_spelled(|piece| self.spell_as_it_came(now, piece));
        let mut more = engine.has_news_for_journal();
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

    /// Each piece has its own position, so that no part of them claims to be more.
    fn spell_as_it_came(&mut self, now: Time, piece: &[u8]) {
        let Some(spelled) = Spelled::of(piece) else {
            return;
        };
        let stamp = self.stamp(now, (spelled.stream, spelled.last));
        let first = self.number + 1;
        format::append(&mut self.bytes, &stamp, |out| spelled.spell(first, out));
        self.number += u64::from(spelled.count);
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
            && let Err(error) = begun.log.append(&self.bytes)
        {
            self.lose_begun();
            self.complain(now, &error);
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

    /// Gives the worker something to do, if it is free and there is something.
    fn assign_work(&mut self) {
        if self.busy || self.work.is_some() {
            return;
        }
        if let Some(begun) = &mut self.begun
            && matches!(begun.stage, Stage::Whole)
        {
            let renaming = Renaming::default();
            begun.stage = Stage::Installing(renaming.clone());
            let install = Work::Install {
                file: begun.log.file.clone(),
                dir: self.dir.clone(),
                name: begun.log.name,
                write: self.writes,
                renaming,
            };
            self.set_work(install);
        } else if let Some(log) = &self.followed
            && self.held.next_deadline().is_some()
        {
            let (file, write) = (log.file.clone(), self.writes);
            self.set_work(Work::Sync { file, write });
        } else if std::mem::take(&mut self.unsynced_names) {
            let dir = self.dir.clone();
            self.set_work(Work::SyncNames { dir });
        }
    }

    /// What is to be done away from the node's thread. [`Journal::done`] has to follow.
    pub(crate) fn take_work(&mut self) -> Option<Work> {
        let work = self.work.take();
        self.busy |= work.is_some();
        work
    }

    /// The worker is done. Grants that need not be held back any more [follow](Journal::pop_lasting).
    pub(crate) fn done(&mut self, now: Time, done: Done) {
        self.busy = false;
        match done {
            Done::Other => {}
            Done::Synced {
                file,
                write,
                result,
            } => {
                let followed = self.followed.as_ref();
                let is_followed = followed.is_some_and(|log| Arc::ptr_eq(&log.file, &file));
                match result {
                    Ok(()) if is_followed => self.lasting = self.lasting.max(write),
                    Err(error) if is_followed => self.stop_following(now, &error),
                    // What is followed by now is made lasting itself.
                    Ok(()) | Err(_) => {}
                }
            }
            Done::Installed {
                renaming,
                write,
                result,
            } => self.installed(now, &renaming, write, result),
        }
        self.assign_work();
    }

    /// The node ends in order: what has been written outlasts a power cut from here on.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.remove_stale();
        let begun = self.begun.as_ref().map(|begun| &begun.log);
        for log in self.followed.iter().chain(begun) {
            log.sync()?;
        }
        Ok(())
    }

    /// Keeps a grant back until what was written with it, or will be, is on disk.
    pub(crate) fn hold(&mut self, now: Time, engine: &Engine, grant: HeldGrant) {
        let write = self.writes + u64::from(engine.has_news_for_journal());
        self.held.hold(now, grant);
        self.held.told(write);
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
