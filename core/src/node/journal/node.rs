//! Where the journal stands in the life of a node: written before anything leaves, made anew when nobody
//! asks, and waited for where grants have to outlast a power cut.

use super::{Done, Journal, Position};
use crate::cluster::Stream;
use crate::engine::Time;
use crate::node::state::{Node, Shared, now};
use crate::node::terms::SLOT;

impl Node {
    /// Nothing leaves the node before the journal has it.
    #[inline]
    pub(crate) fn write_journal(&mut self, now: Time) {
        if self.engine.has_news_for_journal() {
            self.write_news(now);
        }
    }

    #[inline(never)]
    fn write_news(&mut self, now: Time) {
        let (position, whole) = self.kept();
        if let Some(journal) = &mut self.journal {
            journal.write(now, &mut self.engine, position, whole);
            self.counters.journal_failures = journal.failures();
            self.timer.wake_before(journal.next_step(whole));
            self.tell_lasting();
        }
    }

    /// The role has changed, or a copy has: what is whole now is noted before anybody hears of it.
    pub(crate) fn note_whole(&mut self, now: Time) {
        let waits = self
            .journal
            .as_ref()
            .is_some_and(Journal::waits_to_be_whole);
        if waits && self.kept().1 {
            self.write_news(now);
        }
    }

    /// Where the changes are that the engine has, and whether it has the whole state.
    fn kept(&self) -> (Position, bool) {
        match &self.cluster {
            None => {
                let term = self.engine.term();
                let number = self.journal.as_ref().map_or(0, |journal| journal.number);
                ((Stream { term, slot: SLOT }, number), true)
            }
            Some(cluster) => {
                let copy = cluster.kept(&self.engine);
                ((copy.stream, copy.sequence), copy.complete)
            }
        }
    }

    /// Begins a journal anew where that is due, a bounded part at a time. Returns whether there is more.
    pub(crate) fn step_journal(&mut self, now: Time) -> bool {
        if self.journal.is_none() {
            return false;
        }
        self.write_journal(now);
        let (position, whole) = self.kept();
        let Some(journal) = &self.journal else {
            return false;
        };
        let is_due = journal.next_step(whole).is_some_and(|at| at <= now);
        if is_due {
            // A part of a new one says how things are now.
            self.settle_copy();
        }
        let Some(journal) = &mut self.journal else {
            return false;
        };
        let more = journal.step(now, &mut self.engine, position, whole);
        self.counters.journal_failures = journal.failures();
        more
    }

    /// When [`Node::step_journal`] has something to do.
    pub(crate) fn next_journal_step(&self) -> Option<Time> {
        let journal = self.journal.as_ref()?;
        journal.next_step(self.kept().1)
    }

    fn journal_done(&mut self, done: Done) {
        let now = now();
        if let Some(journal) = &mut self.journal {
            journal.done(now, done);
            self.counters.journal_failures = journal.failures();
        }
        self.tell_lasting();
        self.flush_others(now);
        self.rearm();
        self.timer.wake_before(self.next_journal_step());
    }

    /// Writes and syncs what is left, when everything else is over.
    pub(crate) fn end_journal(&mut self) {
        self.write_journal(now());
        if let Some(Err(error)) = self.journal.as_mut().map(Journal::end) {
            tracing::error!("cannot make the journal lasting: {error}");
        }
    }
}

/// Does what the journal wants done away from the node's thread, one thing after the other. Never ends on a
/// node that has one.
pub(crate) async fn work(node: Shared) {
    let news = node
        .lock()
        .journal
        .as_ref()
        .map(|journal| journal.news.clone());
    let Some(news) = news else { return };
    loop {
        let work = node.lock().journal.as_mut().and_then(Journal::take_work);
        match work {
            None => news.notified().await,
            Some(work) => match tokio::task::spawn_blocking(move || work.run()).await {
                Ok(done) => node.lock().journal_done(done),
                Err(error) => return node.lock().fail(format!("the journal's thread: {error}")),
            },
        }
    }
}
