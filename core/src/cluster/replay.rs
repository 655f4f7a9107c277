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
    BATCH_BYTES, Frame, FrameError, NewsWriter, SURELY_FIT, begin_changes, change_bytes,
    encode_part, split_changes,
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

/// Changes of an active node as they came, to be written down as they are.
#[derive(Clone, Copy, Debug)]
pub struct Spelled<'a> {
    /// Whose they are.
    pub stream: Stream,
    /// The number of the last one.
    pub last: u64,
    /// How many they are.
    pub count: u32,
    changes: &'a [u8],
}

impl<'a> Spelled<'a> {
    /// Of the body of a frame with changes, which has been read before.
    #[must_use]
    pub fn of(body: &'a [u8]) -> Option<Spelled<'a>> {
        let ((stream, first), count, changes) = split_changes(body)?;
        Some(Spelled {
            stream,
            last: first + u64::from(count) - 1,
            count,
            changes,
        })
    }

    /// Appends the body of a frame with the same changes, numbered from `first`.
    pub fn spell(&self, first: u64, out: &mut Vec<u8>) {
        begin_changes((OWN, first), self.count, out);
        out.extend_from_slice(self.changes);
    }
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
                self.copier.changes(at, engine, (OWN, first), changes, &[])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Answer, EngineSettings, News, Recording};
    use crate::protocol::{Key, Millis, Wait};

    /// Goal: what a standby writes down as it came says the same as what it would have written itself.
    #[test]
    fn changes_that_are_written_down_as_they_came_lead_to_the_same_state() {
        let (now, theirs) = (Time(86_400_000_000), Stream { term: 7, slot: 2 });
        let mut engine = Engine::new(EngineSettings::default(), 1);
        engine.record_changes(Recording::WhatLasts);
        engine.open_term(1, 0, 0).expect("the first term");
        let client = engine.connect("one:1");
        let mut replay = Replay::default();
        let mut copy = Engine::new(EngineSettings::default(), 2);
        let mut spelled = Vec::new();
        spell_begin(40, &mut spelled);
        replay.take(now, &spelled, &mut copy).expect("a beginning");
        spelled.clear();
        spell_whole(&mut spelled);
        replay
            .take(now, &spelled, &mut copy)
            .expect("all of nothing");
        let mut last = 1000;
        for round in 0..3 {
            let mut tokens = Vec::new();
            for number in 0..20 {
                let key = Key::encode(format!("{round} {number}").as_bytes()).expect("a key");
                let lease = Millis(1000 + number / 7);
                let answer = engine.acquire(now, client, key.as_ref(), lease, Wait::No, None);
                let Answer::Granted(grant) = answer else {
                    panic!("it is free");
                };
                tokens.push((key, grant.token));
            }
            let mut body = Vec::new();
            let mut news = NewsWriter::begin(now, (theirs, last + 1), &mut body);
            engine.tell_standbys(usize::MAX, |told: News<'_>| news.news(told));
            let count = news.end();
            let came = Spelled::of(&body).expect("changes");
            last += u64::from(count);
            assert_eq!((came.stream, came.last, came.count), (theirs, last, count));
            let mut own = Vec::new();
            came.spell(replay.number() + 1, &mut own);
            replay.take(now, &own, &mut copy).expect("what follows");
            for (key, token) in &tokens[..10] {
                assert!(engine.release(now, key.as_ref(), *token));
            }
        }
        assert_eq!(replay.number(), 40 + last - 1000);
        let keys = |engine: &Engine| {
            let mut grants: Vec<_> = engine.grants().map(|grant| format!("{grant:?}")).collect();
            grants.sort();
            grants
        };
        for change in engine.take_changes() {
            copy.apply(now, &change)
                .expect("the ends of the last round");
        }
        assert_eq!(keys(&copy), keys(&engine));
        assert!(Spelled::of(b"").is_none(), "nothing has come");
    }
}
