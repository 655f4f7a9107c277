//! The copying side of replication: the whole state first, then every change, without a gap.

use super::frame::Frame;
use super::fresh::Fresh;
use super::members::Slot;
use super::message::{Copy, Stream};
use crate::engine::{Change, Diverged, DumpReader, Engine, Time};
use crate::protocol::Millis;
use std::collections::VecDeque;

/// How much of the latest changes is kept for a candidate that has fewer of them.
const KEPT_BYTES: usize = 4 << 20;

/// The engine of a copy is so far behind at most, for whoever looks at it. What matters does not wait for that.
const SETTLE_AFTER: Millis = Millis(10);

/// What a node has of another one's state.
#[derive(Debug, Default)]
pub(super) struct Copier {
    /// Whom it copies; nobody once the node is on its own.
    active: Option<Slot>,
    copy: Copy,
    /// Between the parts of the whole state.
    reader: DumpReader,
    /// Grants that the engine does not have yet, and when it is to have them.
    fresh: Fresh,
    settle_at: Time,
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
        self.fresh = Fresh::default();
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
        changes: Vec<Change>,
        body: &[u8],
    ) -> Taken {
        if stream != self.copy.stream || self.asked.is_some() {
            return Taken::Fine;
        }
        if first > self.copy.sequence + 1 {
            return Taken::Gap;
        }
        let known = (self.copy.sequence + 1 - first) as usize;
        let count = changes.len();
        // Who keeps a journal writes down what came as it came, where that is all that there is to be written.
        let as_they_came = known == 0 && count > 0 && engine.journal_takes_spelled();
        let heard_of = as_they_came || !engine.has_journal();
        let lazily = self.copy.complete && heard_of && !body.is_empty();
        for change in changes.into_iter().skip(known) {
            let applied = match lazily {
                true => self.apply_lazily(now, engine, change),
                false => self.apply_at_once(now, engine, &change),
            };
            if applied.is_err() {
                return Taken::Gap;
            }
            self.copy.sequence += 1;
        }
        if lazily && as_they_came {
            engine.spelled_for_journal(body);
        }
        if known < count {
            self.unconfirmed = true;
            self.keep(first, body);
        }
        Taken::Fine
    }

    /// Makes a change in the engine, before anything else is looked at.
    fn apply_at_once(
        &mut self,
        now: Time,
        engine: &mut Engine,
        change: &Change,
    ) -> Result<(), Diverged> {
        self.settle(now, engine)?;
        if self.copy.complete {
            engine.apply(now, change)
        } else {
            engine.apply_between(now, &mut self.reader, change)
        }
    }

    /// Makes a change that the journal hears of in another way, if there is one. Whether a grant is in the engine or still
    /// waits to be, its end may go before all other grants that wait: they have other keys, or share one as they do
    /// once two nodes were active, where it does not matter who goes first.
    fn apply_lazily(
        &mut self,
        now: Time,
        engine: &mut Engine,
        change: Change,
    ) -> Result<(), Diverged> {
        match change {
            // One that waited for its key is in the engine already.
            Change::Granted { claim, token, .. }
                if !engine.knows(claim) && !self.fresh.has(claim) =>
            {
                engine.saw_token(token);
                if self.fresh.is_empty() {
                    self.settle_at = now.after(SETTLE_AFTER);
                }
                match self.fresh.put(claim, token, change) {
                    Some(before) => engine.apply_past_journal(now, &before),
                    None => Ok(()),
                }
            }
            Change::Released { claim, token } | Change::Expired { claim, token } => {
                match self.fresh.end(claim, token) {
                    true => Ok(()),
                    false => engine.apply_past_journal(now, &change),
                }
            }
            Change::Granted { .. }
            | Change::Kept { .. }
            | Change::Enqueued { .. }
            | Change::Left { .. }
            | Change::Resent { .. }
            | Change::AttemptRemembered { .. }
            | Change::TermOpened { .. } => {
                self.settle(now, engine)?;
                engine.apply_past_journal(now, &change)
            }
        }
    }

    /// Lets the engine have all that has come.
    pub(super) fn settle(&mut self, now: Time, engine: &mut Engine) -> Result<(), Diverged> {
        let mut outcome = Ok(());
        while let Some(granted) = self.fresh.pop() {
            outcome = outcome.and(engine.apply_past_journal(now, &granted));
        }
        outcome
    }

    /// When the engine is to have all that has come.
    pub(super) fn settles_at(&self) -> Option<Time> {
        (!self.fresh.is_empty()).then_some(self.settle_at)
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
    use crate::engine::{Answer, ClaimId, Effect, EngineSettings, Owner, Recording};
    use crate::protocol::{ClientId, Key, NameRef, Tag, Token, Wait};

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
                change.into(),
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

    /// The state of an engine in an order that does not depend on where things lie.
    fn state(engine: &Engine) -> Vec<String> {
        let mut state: Vec<_> = engine
            .snapshot()
            .map(|change| format!("{change:?}"))
            .collect();
        state.sort();
        state
    }

    /// Goal: a copy whose engine gets grants late, or never, is the same copy. Method: requests at random on few keys, told as to a
    /// standby that somebody waits for or in batches, to a copy that may be late and to one that is not; both have to be the
    /// same whenever all has been asked for, and what was given back at once must not have got into the engine.
    #[test]
    fn a_copy_that_is_told_late_is_the_same_copy() {
        let mut spared = 0;
        for seed in 1..60_u64 {
            let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut below = |end: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % end
            };
            let stream = Stream { term: 1, slot: 0 };
            let mut now = Time(86_400_000_000);
            let mut original = Engine::new(EngineSettings::default(), 1);
            let recording = match seed % 2 {
                0 => Recording::Everything,
                _ => Recording::WhatLasts,
            };
            original.record_changes(recording);
            original.open_term(1, 0, 0).expect("the first term");
            let clients = [1_u8, 2, 3].map(|number| {
                let connection = original.connect("one:1");
                original.hello(connection, Some(ClientId([number; 16])), NameRef::NONE);
                connection
            });
            let copy = || (Copier::default(), Engine::new(EngineSettings::default(), 2));
            let mut copies = [copy(), copy()];
            for (copier, engine) in &mut copies {
                copier.follow(Slot(0));
                copier.begin(engine, stream, 0);
                copier.whole();
            }
            let mut held: Vec<(Key, Token)> = Vec::new();
            let (mut sequence, mut tag) = (0, 0);
            for _ in 0..600 {
                now = Time(now.0 + below(2000));
                original.expire(now, usize::MAX);
                let client = clients[below(3) as usize];
                let key =
                    Key::encode(format!("k{}", below(1500 / seed)).as_bytes()).expect("a key");
                match below(12) {
                    0..5 => {
                        tag += 1;
                        let wait = [Wait::No, Wait::For(Millis(20)), Wait::Forever];
                        let wait = wait[below(3) as usize];
                        let tag = Tag {
                            number: tag,
                            attempt: below(2) as u32,
                        };
                        let (key_ref, lease) = (key.as_ref(), Millis(1 + below(3000)));
                        let answer = original.acquire(now, client, key_ref, lease, wait, Some(tag));
                        if let Answer::Granted(grant) = answer {
                            held.push((key, grant.token));
                        }
                    }
                    5..10 if !held.is_empty() => {
                        let (key, token) = held.swap_remove(below(held.len() as u64) as usize);
                        original.release(now, key.as_ref(), token);
                    }
                    10 if !held.is_empty() => {
                        let (key, token) = &held[below(held.len() as u64) as usize];
                        original.keep(now, key.as_ref(), *token, Millis(5000));
                    }
                    _ => {
                        let number = 1 + below(tag + 1);
                        original.cancel(now, client, key.as_ref(), Tag { number, attempt: 1 });
                    }
                }
                while let Some(effect) = original.poll_effect() {
                    if let Effect::Granted { key, grant, .. } = effect {
                        held.push((key, grant.token));
                    }
                }
                if below(3) == 0 {
                    let changes = original.take_changes();
                    for ((copier, engine), body) in copies.iter_mut().zip([&b"late"[..], &[]]) {
                        let first = (stream, sequence + 1);
                        let taken = copier.changes(now, engine, first, changes.clone(), body);
                        assert_eq!(taken, Taken::Fine, "seed {seed}");
                    }
                    sequence += changes.len() as u64;
                    let [(late, behind), (_, exact)] = &mut copies;
                    assert_eq!(behind.highest_token(), exact.highest_token());
                    spared += exact.stats().held - behind.stats().held;
                    assert_eq!(
                        late.copy(),
                        Copy {
                            oldest: late.copy.oldest,
                            ..copies[1].0.copy
                        }
                    );
                }
                if below(20) == 0 {
                    let [(late, behind), (_, exact)] = &mut copies;
                    late.settle(now, behind).expect("it fits");
                    assert_eq!(late.settles_at(), None);
                    assert_eq!(state(behind), state(exact), "seed {seed}");
                    behind.check_invariants();
                }
            }
        }
        assert!(spared > 1000, "{spared}");
    }

    /// Goal: what is no copy any more is noticed as it was.
    #[test]
    fn an_end_that_fits_no_grant_is_a_gap_whether_the_grant_is_in_the_engine_or_not() {
        let stream = Stream { term: 1, slot: 0 };
        for settles in [false, true] {
            let mut engine = Engine::new(EngineSettings::default(), 1);
            let mut copier = Copier::default();
            copier.follow(Slot(0));
            copier.begin(&mut engine, stream, 0);
            copier.whole();
            let claim = ClaimId::from_number(7).expect("a number");
            let token = |number| Token::new(number).expect("a token");
            let granted = Change::Granted {
                claim,
                key: Key::encode(b"k").expect("a key"),
                token: token(5),
                owner: Owner::new(None, NameRef::NONE, "one:1").into(),
                tag: None,
                lease: Millis(1000),
                ends: Time(1_000_000),
            };
            let mut tell = |number, change| {
                let taken = copier.changes(
                    Time(0),
                    &mut engine,
                    (stream, number),
                    vec![change],
                    b"body",
                );
                if settles {
                    copier.settle(Time(0), &mut engine).expect("it fits");
                }
                taken
            };
            assert_eq!(tell(1, granted.clone()), Taken::Fine);
            assert_eq!(tell(2, granted), Taken::Gap, "its number is taken");
            let ended = |token| Change::Released { claim, token };
            assert_eq!(tell(2, ended(token(6))), Taken::Gap, "of another grant");
            assert_eq!(tell(2, ended(token(5))), Taken::Fine);
            assert_eq!(tell(3, ended(token(5))), Taken::Gap, "it is over");
        }
    }
}
