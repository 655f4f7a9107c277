//! The active side of replication: every standby is sent the whole state in parts, and every change.
//!
//! Changes are spelled once for all of them and appended for each. A standby that does not take what is sent
//! loses its feed and begins anew; the active node never waits for it and never keeps more than
//! [`FEED_BYTES`] for it.

use super::frame::{BATCH_BYTES, Frame, NewsWriter, SURELY_FIT, change_bytes};
use super::members::Slot;
use super::message::Stream;
use super::outgoing::Outgoing;
use crate::engine::{Change, DumpCursor, Engine, News, Recording, Time};

/// More than this unsent, and a standby begins anew.
pub const FEED_BYTES: usize = 64 << 20;

/// A part of the whole state is made when no more than this is unsent.
const DUMP_BELOW: usize = 256 << 10;

/// A buffer that has grown beyond this is given back.
const KEPT_BYTES: usize = 64 << 10;

/// How many changes a part has at least.
const PART_CHANGES: usize = 1024;

/// What the standbys of this node are sent.
#[derive(Debug, Default)]
pub(super) struct Feeds {
    stream: Stream,
    /// The number of the last change.
    sequence: u64,
    feeds: Vec<Feed>,
    /// The body of a frame while it is made.
    spelled: Vec<u8>,
}

#[derive(Debug)]
struct Feed {
    to: Slot,
    /// How far the dump is, until it is done.
    dump: Option<DumpCursor>,
    applied: u64,
    /// Told everything and confirmed it at least once.
    confirmed: bool,
    /// It was too slow, and does not count until it has confirmed this number.
    behind: Option<u64>,
}

impl Feeds {
    /// The node is active no longer.
    pub(super) fn end(&mut self, engine: &mut Engine) {
        *self = Feeds::default();
        engine.record_changes(Recording::Nothing);
    }

    /// A new period of being active begins. Changes count from now on, whether anybody follows or not:
    /// another node that was active meanwhile has to be told of some.
    pub(super) fn begin(&mut self, engine: &mut Engine, stream: Stream) {
        *self = Feeds {
            stream,
            ..Feeds::default()
        };
        engine.record_changes(Recording::Nothing);
        engine.record_changes(Recording::WhatLasts);
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) fn stream(&self) -> Stream {
        self.stream
    }

    /// A standby asks for the whole state. What has changed has to be [told](Feeds::tell) before.
    pub(super) fn join(&mut self, now: Time, engine: &Engine, out: &mut Outgoing, to: Slot) {
        self.feeds.retain(|feed| feed.to != to);
        self.feeds.push(Feed {
            to,
            dump: Some(DumpCursor::default()),
            applied: 0,
            confirmed: false,
            behind: None,
        });
        let begin = Frame::Begin {
            stream: self.stream,
            sequence: self.sequence,
        };
        out.frame(now, to, &begin);
        self.pump(now, engine, out);
    }

    /// The connection to a standby is gone, and with it what was under way.
    pub(super) fn lose(&mut self, to: Slot) {
        self.feeds.retain(|feed| feed.to != to);
    }

    pub(super) fn applied(&mut self, from: Slot, stream: Stream, sequence: u64) {
        if stream == self.stream
            && let Some(feed) = self.feeds.iter_mut().find(|feed| feed.to == from)
            && feed.dump.is_none()
        {
            feed.applied = feed.applied.max(sequence.min(self.sequence));
            feed.confirmed = true;
            feed.behind = feed.behind.filter(|until| feed.applied < *until);
        }
    }

    /// The standbys that have the whole state and are not too slow.
    pub(super) fn counting(&self) -> impl Iterator<Item = u64> {
        let counts = |feed: &&Feed| feed.confirmed && feed.behind.is_none();
        self.feeds.iter().filter(counts).map(|feed| feed.applied)
    }

    /// Who has not confirmed this number by now is too slow.
    pub(super) fn lag(&mut self, number: u64) {
        for feed in &mut self.feeds {
            if feed.applied < number {
                feed.behind = Some(self.sequence);
            }
        }
    }

    /// How far the standbys are: the number that at least `count` of them have confirmed.
    pub(super) fn confirmed_by(&self, count: usize) -> Option<u64> {
        let mut applied: Vec<u64> = self.counting().collect();
        applied.sort_unstable_by(|a, b| b.cmp(a));
        applied.get(count.checked_sub(1)?).copied()
    }

    /// Whether nobody is told of changes.
    pub(super) fn is_empty(&self) -> bool {
        self.feeds.is_empty()
    }

    /// Whether this standby is told of changes.
    pub(super) fn tells(&self, to: Slot) -> bool {
        self.feeds.iter().any(|feed| feed.to == to)
    }

    /// The number that all standbys have confirmed, where there are any.
    pub(super) fn confirmed_by_all(&self) -> Option<u64> {
        self.feeds.iter().map(|feed| feed.applied).min()
    }

    /// How many standbys have the whole state.
    pub(super) fn complete(&self) -> usize {
        self.feeds.iter().filter(|feed| feed.confirmed).count()
    }

    /// Each standby, how many changes it lacks, and whether it has the whole state.
    pub(super) fn lags(&self) -> impl Iterator<Item = (Slot, u64, bool)> + '_ {
        self.feeds.iter().map(|feed| {
            let lag = self.sequence - feed.applied.min(self.sequence);
            (feed.to, lag, feed.confirmed)
        })
    }

    /// Sends what has changed, and has each change noted with its number.
    pub(super) fn tell(
        &mut self,
        now: Time,
        engine: &mut Engine,
        out: &mut Outgoing,
        mut note: impl FnMut(u64, &News<'_>),
    ) {
        let mut more = engine.changes_waiting() > 0;
        while more {
            self.spelled.clear();
            let first = self.sequence + 1;
            let mut news = NewsWriter::begin(now, (self.stream, first), &mut self.spelled);
            more = engine.tell_standbys(SURELY_FIT, |told| {
                self.sequence += 1;
                note(self.sequence, &told);
                if !self.feeds.is_empty() {
                    news.news(told);
                }
            });
            if news.end() > 0 {
                out.body_to_all(self.feeds.iter().map(|feed| feed.to), &self.spelled);
            }
        }
        if self.spelled.capacity() > KEPT_BYTES {
            self.spelled = Vec::new();
        }
        self.drop_laggards(now, engine, out);
    }

    /// Makes the next parts for those that have taken the ones before. A part says how things are now, so what was
    /// before has to be [told](Feeds::tell) before.
    pub(super) fn pump(&mut self, now: Time, engine: &Engine, out: &mut Outgoing) {
        debug_assert_eq!(engine.changes_waiting(), 0);
        for feed in &mut self.feeds {
            while let Some(cursor) = &mut feed.dump
                && out.unsent(feed.to) <= DUMP_BELOW
            {
                let mut part = Vec::new();
                let more = engine.dump(cursor, PART_CHANGES, &mut part);
                send_part(now, out, feed.to, part);
                if !more {
                    feed.dump = None;
                    out.frame(now, feed.to, &Frame::Whole);
                }
            }
        }
    }

    /// Whether somebody waits for parts of the state.
    pub(super) fn is_dumping(&self) -> bool {
        self.feeds.iter().any(|feed| feed.dump.is_some())
    }

    fn drop_laggards(&mut self, now: Time, engine: &Engine, out: &mut Outgoing) {
        let slow = |feeds: &[Feed], out: &Outgoing| {
            let mut slots = feeds.iter().map(|feed| feed.to);
            slots.find(|to| out.unsent(*to) > FEED_BYTES)
        };
        while let Some(to) = slow(&self.feeds, out) {
            out.drop_unsent(to);
            self.join(now, engine, out, to);
        }
    }
}

/// A part of the state in frames that are short enough.
fn send_part(now: Time, out: &mut Outgoing, to: Slot, part: Vec<Change>) {
    let mut changes = Vec::new();
    let mut bytes = 0;
    for change in part {
        let size = change_bytes(&change);
        if bytes + size > BATCH_BYTES {
            let changes = std::mem::take(&mut changes);
            out.frame(now, to, &Frame::Dump { changes });
            bytes = 0;
        }
        bytes += size;
        changes.push(change);
    }
    if !changes.is_empty() {
        out.frame(now, to, &Frame::Dump { changes });
    }
}
