//! The copying side of replication: the whole state first, then every change, without a gap.

use super::frame::Frame;
use super::members::Slot;
use super::message::{Copy, Stream};
use crate::engine::{Change, DumpReader, Engine, Time};
use crate::protocol::Millis;
use std::collections::VecDeque;

/// How much of the latest changes is kept for a candidate that has fewer of them.
const KEPT_BYTES: usize = 4 << 20;

/// What a node has of another one's state.
#[derive(Debug, Default)]
pub(super) struct Copier {
    /// Whom it copies; nobody once the node is on its own.
    active: Option<Slot>,
    copy: Copy,
    /// Between the parts of the whole state.
    reader: DumpReader,
    /// The frames of the latest changes, each with the number of its last one.
    kept: VecDeque<(u64, Vec<u8>)>,
    kept_bytes: usize,
    /// When the whole state was asked for, while nothing has come of it.
    asked: Option<Time>,
    /// Something was applied that the active node has not been told of.
    unconfirmed: bool,
    /// From when on that is confirmed.
    confirm_at: Time,
}

/// What a frame was to the copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// It fitted, or was of no interest.
    Fine,
    /// Something is missing: the whole state is needed.
    Gap,
}

impl Copier {
    /// Copies another node from now on. What was copied before stays until the first part comes.
    pub(super) fn follow(&mut self, active: Slot) {
        self.active = Some(active);
        self.asked = None;
    }

    /// Copies nobody any more, and has nothing to give.
    pub(super) fn end(&mut self) {
        *self = Copier::default();
    }

    pub(super) fn active(&self) -> Option<Slot> {
        self.active
    }

    pub(super) fn copy(&self) -> Copy {
        self.copy
    }

    pub(super) fn asked(&mut self, now: Time) {
        self.asked = Some(now);
    }

    /// Since when the whole state has been asked for in vain.
    pub(super) fn asking_since(&self) -> Option<Time> {
        self.asked
    }

    /// The whole state begins.
    pub(super) fn begin(&mut self, engine: &mut Engine, stream: Stream, sequence: u64) {
        engine.clear();
        self.copy = Copy {
            stream,
            sequence,
            oldest: sequence + 1,
            complete: false,
        };
        self.reader = DumpReader::default();
        self.kept.clear();
        self.kept_bytes = 0;
        self.asked = None;
    }

    /// A part of the whole state.
    pub(super) fn part(&mut self, now: Time, engine: &mut Engine, changes: &[Change]) -> Taken {
        if self.copy.complete || self.asked.is_some() {
            return Taken::Fine;
        }
        for change in changes {
            if engine.apply_dumped(now, &mut self.reader, change).is_err() {
                return Taken::Gap;
            }
        }
        Taken::Fine
    }

    /// That was the last part.
    pub(super) fn whole(&mut self) {
        if self.asked.is_none() {
            self.copy.complete = true;
            self.unconfirmed = true;
            self.confirm_at = Time(0);
        }
    }

    /// Changes, numbered from `first`; `body` is the frame they came in, empty where nobody will ask for it.
    pub(super) fn changes(
        &mut self,
        now: Time,
        engine: &mut Engine,
        (stream, first): (Stream, u64),
        changes: &[Change],
        body: &[u8],
    ) -> Taken {
        if stream != self.copy.stream || self.asked.is_some() {
            return Taken::Fine;
        }
        if first > self.copy.sequence + 1 {
            return Taken::Gap;
        }
        let known = (self.copy.sequence + 1 - first) as usize;
        for change in changes.iter().skip(known) {
            let applied = if self.copy.complete {
                engine.apply(now, change)
            } else {
                engine.apply_between(now, &mut self.reader, change)
            };
            if applied.is_err() {
                return Taken::Gap;
            }
            self.copy.sequence += 1;
        }
        if known < changes.len() {
            self.unconfirmed = true;
            self.keep(first, body);
        }
        Taken::Fine
    }

    /// Something is missing: what is here is a part of the state only.
    pub(super) fn broken(&mut self) {
        self.copy.complete = false;
    }

    /// When there is something to tell the active node. What was there when the whole state was asked for is about to be
    /// thrown away, so nobody may count on it.
    pub(super) fn confirms_at(&self) -> Option<Time> {
        let lasts = self.copy.complete && self.asked.is_none();
        (self.unconfirmed && lasts).then_some(self.confirm_at)
    }

    /// What to tell the active node, if there is something new; what comes within `pause` is told together.
    pub(super) fn confirmation(&mut self, now: Time, pause: Millis) -> Option<(Slot, Frame)> {
        if self.confirms_at()? > now {
            return None;
        }
        self.unconfirmed = false;
        self.confirm_at = now.after(pause);
        let Copy {
            stream, sequence, ..
        } = self.copy;
        Some((self.active?, Frame::Applied { stream, sequence }))
    }

    /// The frames with changes behind `sequence`, without their lengths.
    pub(super) fn frames_after(&self, sequence: u64) -> impl Iterator<Item = &[u8]> {
        self.kept
            .iter()
            .filter(move |(last, _)| *last > sequence)
            .map(|(_, body)| &body[..])
    }

    fn keep(&mut self, first: u64, body: &[u8]) {
        if body.is_empty() {
            // Nobody will ask.
            return;
        }
        if self.kept.is_empty() {
            self.copy.oldest = first;
        }
        self.kept.push_back((self.copy.sequence, body.to_vec()));
        self.kept_bytes += body.len();
        while self.kept_bytes > KEPT_BYTES {
            let Some((last, body)) = self.kept.pop_front() else {
                break;
            };
            self.kept_bytes -= body.len();
            self.copy.oldest = last + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineSettings;

    #[test]
    fn what_is_applied_within_a_pause_is_confirmed_together_and_what_is_to_be_replaced_never() {
        let (stream, pause) = (Stream { term: 1, slot: 0 }, Millis(5));
        let mut engine = Engine::new(EngineSettings::default(), 1);
        let mut copier = Copier::default();
        copier.follow(Slot(0));
        copier.begin(&mut engine, stream, 0);
        let apply = |copier: &mut Copier, number| {
            let change = [Change::TermOpened { term: 1 }];
            let numbered = (stream, number);
            let taken = copier.changes(
                Time(0),
                &mut Engine::new(EngineSettings::default(), 1),
                numbered,
                &change,
                &[],
            );
            assert_eq!(taken, Taken::Fine);
        };
        let confirmed = |sequence| Some((Slot(0), Frame::Applied { stream, sequence }));
        apply(&mut copier, 1);
        assert_eq!(
            copier.confirmation(Time(0), pause),
            None,
            "a part is no copy"
        );
        assert_eq!(copier.confirms_at(), None);
        copier.whole();
        assert_eq!(copier.confirmation(Time(1000), pause), confirmed(1));
        assert_eq!(copier.confirms_at(), None);
        apply(&mut copier, 2);
        apply(&mut copier, 3);
        assert_eq!(copier.confirmation(Time(5999), pause), None);
        assert_eq!(copier.confirms_at(), Some(Time(6000)));
        assert_eq!(copier.confirmation(Time(6000), pause), confirmed(3));
        // After a pause nothing is held up.
        apply(&mut copier, 4);
        assert_eq!(copier.confirmation(Time(20_000), pause), confirmed(4));
        // What it asks for anew will take the place of this.
        apply(&mut copier, 5);
        copier.asked(Time(25_000));
        assert_eq!(copier.confirmation(Time(30_000), pause), None);
        // A standby counts from the moment on at which it has everything.
        copier.begin(&mut engine, stream, 7);
        copier.whole();
        assert_eq!(copier.confirmation(Time(30_001), pause), confirmed(7));
    }
}
