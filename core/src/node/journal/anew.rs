//! A journal is begun anew: beside the file that is followed another one is written, in parts or as the state comes, until it
//! is whole and takes the name. Whatever fails on the way, the file that is not whole or has missed a change is taken away and
//! never believed; the work of renaming is handed out, not done here.

use super::files::{self, CalledOff, Done, Log, NAME, NEW_NAMES, Renaming, Work};
use super::{Journal, Position, format};
use crate::cluster::{self, Stream};
use crate::engine::{DumpCursor, Engine, Time};
use crate::node::clock;
use crate::node::log::now_and_then;
use crate::node::terms::SLOT;
use std::io;

/// How many changes a part of a new one has at least.
const PART_CHANGES: usize = 1024;
/// A list of changes that has grown beyond this is given back.
const KEPT_CHANGES: usize = 16 << 10;

/// A new file that does not have the name yet. It has every change from its first record on.
pub(super) struct Begun {
    pub(super) log: Log,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    /// It was begun with nothing, as the state was; it is whole when that is.
    FromNothing,
    /// The state is written in parts.
    InParts(DumpCursor),
    /// It is whole, and is made lasting and renamed as soon as the worker is free.
    Whole,
    /// That is under way.
    Installing(Renaming),
}

/// See [`Journal::leaving`].
pub(super) struct Leaving {
    pub(super) renaming: Renaming,
    pub(super) name: &'static str,
    /// Whether it has missed a change, so that nobody may believe it. Otherwise it is what was.
    pub(super) broken: bool,
}

/// What becomes of the name `journal` when a new file is given up.
enum Given {
    /// It stays with the file that has it.
    Kept,
    /// The new one has it, or gets it just now.
    Taken,
}

impl Journal {
    /// Writes the first journal, and waits until it is on disk.
    pub(crate) fn install_first(&mut self, engine: &mut Engine, term: u32) -> io::Result<()> {
        let now = clock::now();
        let position = (Stream { term, slot: SLOT }, 0);
        engine.record_for_journal(true);
        self.begin_with_nothing(now, position);
        self.write(now, engine, position, true);
        let Some(work) = self.take_work() else {
            return Err(io::Error::other("the journal cannot be begun"));
        };
        let done = work.run();
        if let Done::Installed {
            result: Err(error), ..
        } = done
        {
            return Err(error);
        }
        self.done(now, done);
        Ok(())
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
        match &self.begun {
            Some(begun) => matches!(begun.stage, Stage::InParts(_)).then_some(Time(0)),
            None => (whole && self.wants_new()).then_some(self.again),
        }
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
            if self.followed.is_none() {
                engine.record_for_journal(true);
            }
            return self.begin(now, position, Stage::InParts(DumpCursor::default()));
        }
        let Some(begun) = &mut self.begun else {
            return false;
        };
        let Stage::InParts(cursor) = &mut begun.stage else {
            return false;
        };
        let mut part = std::mem::take(&mut self.part);
        let more = engine.dump(cursor, PART_CHANGES, &mut part);
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
        if !more {
            self.set_stage(Stage::Whole);
        }
        self.assign_work();
        more && self.begun.is_some()
    }

    /// Begins a file for a state that comes change by change, from nothing on.
    pub(crate) fn begin_with_nothing(&mut self, now: Time, position: Position) {
        self.begin(now, position, Stage::FromNothing);
    }

    /// Returns whether a file has been begun.
    fn begin(&mut self, now: Time, position: Position, stage: Stage) -> bool {
        self.remove_stale();
        let leaving = self.leaving.as_ref().map(|leaving| leaving.name);
        let [first, second] = NEW_NAMES;
        let name = if leaving == Some(first) {
            second
        } else {
            first
        };
        let log = match Log::begin(&self.dir, name, &self.header) {
            Ok(log) => log,
            Err(error) => {
                self.complain(now, &error);
                return false;
            }
        };
        self.begun = Some(Begun { log, stage });
        self.bytes.clear();
        let number = self.number;
        let stamp = self.stamp(now, position);
        format::append(&mut self.bytes, &stamp, |out| {
            cluster::spell_begin(number, out);
        });
        self.append(now, false);
        self.begun.is_some()
    }

    /// Whether [`Journal::write`] is to be called as soon as the state is whole, even if there is no change.
    pub(crate) fn waits_to_be_whole(&self) -> bool {
        let begun = self.begun.as_ref();
        begun.is_some_and(|begun| matches!(begun.stage, Stage::FromNothing))
    }

    pub(super) fn set_stage(&mut self, stage: Stage) {
        // It is gone if it could not be written.
        if let Some(begun) = &mut self.begun {
            begun.stage = stage;
        }
    }

    pub(super) fn installed(
        &mut self,
        now: Time,
        of: &Renaming,
        write: u64,
        result: io::Result<()>,
    ) {
        let is_that = |begun: &mut Begun| matches!(&begun.stage, Stage::Installing(renaming) if renaming.is(of));
        let Some(begun) = self.begun.take_if(is_that) else {
            // It was called off.
            let left = self.leaving.take_if(|leaving| leaving.renaming.is(of));
            return left.iter().for_each(|left| self.has_left(left));
        };
        if of.is_done() {
            self.stale = false;
            self.whole = begun.log.length;
            if let Some(old) = self.followed.replace(begun.log) {
                self.set_work(Work::Discard { file: old.file });
            }
            match result {
                Ok(()) => {
                    self.lasting = self.lasting.max(write);
                    if self.complained.take().is_some() {
                        tracing::info!("the journal is written again");
                    }
                }
                // A power cut could bring the old file back, and that would be without what clients were
                // told is lasting.
                Err(error) if self.syncs => self.stop_following(now, &error),
                Err(error) => {
                    now_and_then!(
                        warn,
                        "cannot make the name of a new journal lasting: {error}"
                    );
                }
            }
            return;
        }
        self.begun = Some(begun);
        self.lose_begun();
        if let Err(error) = result {
            self.complain(now, &error);
        }
    }

    /// The new file has missed a change, so nobody may believe it.
    pub(super) fn lose_begun(&mut self) {
        match self.drop_begun(true) {
            Given::Kept => {}
            Given::Taken => {
                self.followed = None;
                self.stale = true;
            }
        }
        self.remove_stale();
    }

    /// The state is another one now: what is in the files is what this node had before.
    pub(super) fn be_replaced(&mut self) {
        // Whatever is whole of the new one goes further than that, even if it is nothing.
        self.number += 1;
        self.followed = None;
        self.drop_begun(false);
        self.remove_stale();
    }

    /// Gives up the new file.
    fn drop_begun(&mut self, broken: bool) -> Given {
        let Some(begun) = self.begun.take() else {
            return Given::Kept;
        };
        let name = begun.log.name;
        if let Stage::Installing(renaming) = begun.stage {
            match renaming.call_off() {
                CalledOff::InTime => {}
                CalledOff::UnderWay => {
                    self.leaving = Some(Leaving {
                        renaming,
                        name,
                        broken,
                    });
                    return Given::Taken;
                }
                CalledOff::TooLate => {
                    self.stale = false;
                    return Given::Taken;
                }
            }
        }
        self.remove_begun(name);
        Given::Kept
    }

    fn remove_begun(&mut self, name: &str) {
        match files::remove(&self.dir, name) {
            Ok(()) => self.unsynced_names = true,
            Err(error) => {
                now_and_then!(warn, "cannot remove a journal that was begun: {error}");
            }
        }
    }

    /// A file that was given up while it was being renamed has its name now, or will never have it.
    fn has_left(&mut self, left: &Leaving) {
        if !left.renaming.is_done() {
            self.remove_begun(left.name);
        } else if !left.broken {
            self.stale = false;
        }
        self.remove_stale();
    }

    pub(super) fn remove_stale(&mut self) {
        // A good new file that is being renamed takes the name.
        let good = matches!(&self.begun, Some(begun) if matches!(begun.stage, Stage::Installing(_)))
            || matches!(&self.leaving, Some(leaving) if !leaving.broken);
        if self.stale && !good && files::remove(&self.dir, NAME).is_ok() {
            // One that is being renamed will be there again.
            self.stale = self.leaving.is_some();
            self.unsynced_names = true;
        }
    }
}
