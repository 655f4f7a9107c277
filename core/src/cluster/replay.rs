//! A copy that is kept on disk is a standby that never answers: it is told the same frames, and reading
//! them again is copying.
//!
//! ```text
//! state, changes ──▶ bodies of frames ──▶ … ──▶ Replay ──▶ the same state
//! ```
//!
//! Its changes have numbers of their own, from the first one of a process on: where the copy stands among
//! those of the cluster is for whoever keeps it to note beside.

use super::copier::{Copier, Taken};
use super::frame::{
    BATCH_BYTES, Frame, FrameError, NewsWriter, SURELY_FIT, change_bytes, encode_part,
};
use super::message::Stream;
use crate::engine::{Change, Engine, Time};

/// The stream that a copy on disk consists of.
const OWN: Stream = Stream { term: 0, slot: 0 };

/// Appends the body of the first frame: what follows is the whole state behind the change with this number.
pub fn spell_begin(number: u64, out: &mut Vec<u8>) {
    Frame::Begin {
        stream: OWN,
        sequence: number,
    }
    .encode_body(Time(0), out);
}

/// Appends the body of a frame with a part of the whole state. [Cut](batches) it before.
pub fn spell_part(now: Time, part: &[Change], out: &mut Vec<u8>) {
    encode_part(now, part, out);
}

/// Appends the body of the frame behind the last part.
pub fn spell_whole(out: &mut Vec<u8>) {
    Frame::Whole.encode_body(Time(0), out);
}

/// Appends the body of a frame with the next changes that an engine has for its journal, numbered from
/// `first`. Returns how many there are, and whether there are more for another frame.
pub fn spell_news(now: Time, first: u64, engine: &mut Engine, out: &mut Vec<u8>) -> (u32, bool) {
    let mut news = NewsWriter::begin(now, (OWN, first), out);
    let more = engine.tell_journal(SURELY_FIT, |told| news.news(told));
    (news.end(), more)
}

/// Cuts changes into pieces that are short enough for a frame.
pub fn batches(mut changes: &[Change]) -> impl Iterator<Item = &[Change]> {
    std::iter::from_fn(move || {
        let count = if changes.len() <= SURELY_FIT {
            changes.len()
        } else {
            how_many_fit(changes)
        };
        let (batch, rest) = changes.split_at(count);
        changes = rest;
        (!batch.is_empty()).then_some(batch)
    })
}

fn how_many_fit(changes: &[Change]) -> usize {
    let mut bytes = 0;
    let fits = |change: &&Change| {
        bytes += change_bytes(change);
        bytes <= BATCH_BYTES
    };
    changes.iter().take_while(fits).count().max(1)
}

/// Why a frame cannot be a part of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    /// It is none.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It does not go on where the one before ended.
    #[error("it does not follow what stands before it")]
    DoesNotFollow,
}

/// Makes the state again.
#[derive(Debug, Default)]
pub struct Replay {
    copier: Copier,
    begun: bool,
}

impl Replay {
    /// Takes the body of the next frame, which was spelled at the moment that `at` is now.
    ///
    /// # Errors
    /// It is none, or another one should have come. What the engine has is of no use then.
    pub fn take(&mut self, at: Time, body: &[u8], engine: &mut Engine) -> Result<(), ReplayError> {
        let frame = Frame::decode(body, at)?;
        let whole = self.is_whole();
        let taken = match frame {
            Frame::Begin {
                stream: OWN,
                sequence,
            } if !self.begun => {
                self.begun = true;
                self.copier.begin(engine, OWN, sequence);
                Taken::Fine
            }
            Frame::Dump { changes } if self.begun && !whole => {
                self.copier.part(at, engine, &changes)
            }
            Frame::Whole if self.begun && !whole => {
                self.copier.whole();
                Taken::Fine
            }
            Frame::Changes {
                stream: OWN,
                first,
                changes,
            } if self.begun && first == self.number() + 1 => {
                self.copier.changes(at, engine, (OWN, first), &changes, &[])
            }
            _ => Taken::Gap,
        };
        match taken {
            Taken::Fine => Ok(()),
            Taken::Gap => Err(ReplayError::DoesNotFollow),
        }
    }

    /// Whether the state is there, and not only a part of it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.copier.copy().complete
    }

    /// The number of the last change.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.copier.copy().sequence
    }
}
