//! What a journal is worth after a start: reads it, and says how far it can be believed. Changes no file.
//!
//! ```text
//! of this node, all records good          the state, as of the last of them
//! a bad one, and no good one behind it    the same: a write was under way when the node ended
//! a bad one in which a whole sector is    the same: a power cut came before what had been written was
//! empty, and good ones behind it          on the disk, and that does not write in order
//! any other bad one, and good ones        refused: something is missing in between
//! behind it
//! another node, a newer version           refused
//! ```

use super::Journal;
use super::files::{NAME, NEW_NAMES};
use super::format::{Next, Problem, Records, Stamp};
use crate::cluster::{Copy, Replay};
use crate::engine::{Engine, Time};
use crate::node::data_dir::DataDir;
use std::io::Read;
use std::path::PathBuf;

/// What a lone node calls itself in its journal.
pub(crate) const ALONE: &str = "a node without peers";

/// What stood in a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Up to where the changes of the cluster were in it. Not complete: what came after it is not there.
    pub copy: Copy,
    /// The number of its last change.
    pub(super) number: u64,
    /// The moment of its last record, by the wall clock.
    pub(super) wall: u64,
    /// How many of its bytes are good.
    pub length: u64,
    /// How many bytes behind them are not.
    pub cut: u64,
}

/// What a start goes on with.
pub(crate) struct Found {
    /// With the state.
    pub(crate) engine: Engine,
    pub(crate) recovered: Recovered,
    /// The file that has it.
    pub(super) name: &'static str,
    pub(crate) path: PathBuf,
}

/// Reads what a node has on its disk and takes the file that goes further, as the [module](super) says;
/// `fresh` makes an engine.
///
/// # Errors
/// A file of another node or of a newer version, or a damaged one and no other, with its path.
pub(crate) fn find(
    dir: &DataDir,
    node: &str,
    present: (Time, u64),
    fresh: impl Fn() -> Engine,
) -> Result<Option<Found>, (PathBuf, Problem)> {
    let look = |name: &'static str| -> Result<Option<Found>, (PathBuf, Problem)> {
        let path = dir.file(name);
        let mut engine = fresh();
        match Journal::open(dir, name).map_err(Problem::Read) {
            Ok(None) => Ok(None),
            Ok(Some(file)) => recover(file, node, present, &mut engine).map(Some),
            Err(problem) => Err(problem),
        }
        .map_err(|problem| (path.clone(), problem))
        .map(|recovered| {
            recovered.map(|recovered| Found {
                engine,
                recovered,
                name,
                path,
            })
        })
    };
    let mut new = Vec::new();
    for name in NEW_NAMES {
        match look(name) {
            // It is not whole yet, or a power cut has taken a part of it.
            Err((_, Problem::NoJournal | Problem::Damaged(..))) => {}
            other => new.extend(other?),
        }
    }
    let old = match look(NAME) {
        Err((path, problem @ (Problem::NoJournal | Problem::Damaged(..)))) if !new.is_empty() => {
            tracing::warn!(
                "journal {}: {problem}; a newer one is whole",
                path.display()
            );
            None
        }
        other => other?,
    };
    let further = |found: &Found| (found.recovered.number, found.name);
    Ok(old.into_iter().chain(new).max_by_key(further))
}

/// Makes the state again that a journal of `node` tells of; `wall` is the present moment by the wall clock,
/// in microseconds, and `now` by the engine's.
///
/// # Errors
/// It cannot be believed. What the engine has is of no use then.
pub fn recover(
    journal: impl Read,
    node: &str,
    (now, wall): (Time, u64),
    engine: &mut Engine,
) -> Result<Recovered, Problem> {
    let (mut records, owner) = Records::new(journal)?;
    if !may_use(&owner, node) {
        return Err(Problem::OtherNode(owner, node.to_owned()));
    }
    let mut replay = Replay::default();
    let mut last = Stamp::default();
    let mut cut = 0;
    loop {
        match records.next()? {
            Next::Record(at, stamp, body) => {
                // Of a clock that has been set back since, moments to come.
                let then = Time((now.0.saturating_add(stamp.wall)).saturating_sub(wall));
                replay
                    .take(then, body, engine)
                    .map_err(|_| Problem::Damaged(at, "does not follow those before it"))?;
                let before = if last.stream == stamp.stream {
                    last.sequence
                } else {
                    0
                };
                last = stamp;
                // What came and went between two beats is taken out of the count of the cluster again.
                last.sequence = last.sequence.max(before);
            }
            Next::End => break,
            Next::Bad => {
                let at = records.at();
                let behind = records.look_behind()?;
                if behind.good && !behind.empty_sector {
                    let what = "is damaged, and good ones stand behind it";
                    return Err(Problem::Damaged(at, what));
                }
                cut = behind.bytes;
                return finish(&replay, last, at, cut);
            }
        }
    }
    let at = records.at();
    finish(&replay, last, at, cut)
}

fn finish(replay: &Replay, last: Stamp, length: u64, cut: u64) -> Result<Recovered, Problem> {
    // No journal has this name before its first copy of the state is on disk.
    if !replay.is_whole() {
        let what = "ends within the first copy of the state";
        return Err(Problem::Damaged(length, what));
    }
    Ok(Recovered {
        copy: Copy {
            stream: last.stream,
            sequence: last.sequence,
            oldest: last.sequence + 1,
            complete: false,
        },
        number: replay.number(),
        wall: last.wall,
        length,
        cut,
    })
}

/// Who was alone before it had peers goes on with what it had.
fn may_use(owner: &str, node: &str) -> bool {
    owner == node || owner == ALONE
}

/// Whether `node` could use this journal, as far as its beginning says.
pub(super) fn is_of(journal: impl Read, node: &str) -> bool {
    Records::new(journal).is_ok_and(|(_, owner)| may_use(&owner, node))
}
