//! The longest queues and the oldest grants, found without an index that every request would have to
//! keep up: all that there is, is looked at, a bounded part of it in each call.
//!
//! So a result is as old as the round that found it. What has ended since is left out when it is
//! asked for; a queue that has grown long since is found in the next round. A grant is never missed for
//! long: those made since the round began are the youngest of all.

use super::Engine;
use super::lock::Stage;
use super::time::Time;
use super::view::LockRow;
use crate::protocol::{Key, Token};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How many are remembered; some of them may have ended when they are asked for.
const REMEMBERED: usize = 64;

/// How many storage chunks (of 1,024 places each) are looked at in one call.
const CHUNKS_A_CALL: usize = 4;

/// How far the search has come, and what it has found.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    queues: Round<(Reverse<u32>, Key)>,
    grants: Round<(Time, Token, Key)>,
}

/// A walk through one storage that keeps the smallest.
#[derive(Clone, Debug)]
struct Round<T: Ord> {
    chunk: usize,
    best: BinaryHeap<T>,
    /// Of the round before.
    found: Vec<T>,
    rounds: u64,
}

impl<T: Ord> Default for Round<T> {
    fn default() -> Self {
        Round {
            chunk: 0,
            best: BinaryHeap::new(),
            found: Vec::new(),
            rounds: 0,
        }
    }
}

impl<T: Ord> Round<T> {
    /// Remembers one if it is among the best. It is made only then.
    fn offer(&mut self, is_better: impl FnOnce(&T) -> bool, make: impl FnOnce() -> T) {
        if self.best.len() == REMEMBERED {
            if !self.best.peek().is_some_and(is_better) {
                return;
            }
            self.best.pop();
        }
        self.best.push(make());
    }

    /// Goes on behind the chunks that were looked at, or begins anew where there are no more.
    fn advance(&mut self, chunks: usize) {
        self.chunk += CHUNKS_A_CALL;
        if self.chunk >= chunks {
            self.chunk = 0;
            self.rounds += 1;
            self.found = std::mem::take(&mut self.best).into_sorted_vec();
        }
    }

    /// The best of the last round and of this one, in order. They may name one thing twice.
    fn candidates(&self) -> impl Iterator<Item = &T> {
        let mut all: Vec<&T> = self.found.iter().chain(&self.best).collect();
        all.sort_unstable();
        all.into_iter()
    }
}

impl Survey {
    /// How often everything has been looked at.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.queues.rounds.min(self.grants.rounds)
    }
}

impl Engine {
    /// Looks at the next part of what there is: 4,096 places at most for requests, and as many for queues.
    pub fn survey(&self, survey: &mut Survey) {
        let queues = &mut survey.queues;
        for chunk in queues.chunk..queues.chunk + CHUNKS_A_CALL {
            for (_, queue) in self.queues.chunk(chunk) {
                let length = Reverse(queue.length);
                queues.offer(
                    |worst| length < worst.0,
                    || (length, self.locks[self.claims[queue.head].lock].key.clone()),
                );
            }
        }
        queues.advance(self.queues.chunk_count());
        let grants = &mut survey.grants;
        for chunk in grants.chunk..grants.chunk + CHUNKS_A_CALL {
            for (_, claim) in self.claims.chunk(chunk) {
                let Stage::Held { token, clock, .. } = claim.stage else {
                    continue;
                };
                let Some(since) = clock.held_since() else {
                    continue;
                };
                grants.offer(
                    |worst| (since, token) < (worst.0, worst.1),
                    || (since, token, self.locks[claim.lock].key.clone()),
                );
            }
        }
        grants.advance(self.claims.chunk_count());
    }

    /// The longest queues that the survey has found, as long as they are now, the longest first.
    #[must_use]
    pub fn longest_queues(&self, survey: &Survey, at_most: usize) -> Vec<(Key, u64)> {
        let mut keys: Vec<&Key> = survey.queues.candidates().map(|(_, key)| key).collect();
        keys.sort_unstable();
        keys.dedup();
        let lengths = keys.into_iter().map(|key| {
            let length = self.queue_length(key.as_ref());
            (Reverse(length), key)
        });
        let mut rows: Vec<_> = lengths.filter(|(length, _)| length.0 > 0).collect();
        rows.sort_unstable();
        rows.truncate(at_most);
        rows.into_iter()
            .map(|(length, key)| (key.clone(), length.0))
            .collect()
    }

    /// The oldest grants that the survey has found and that are still held, the oldest first.
    pub fn oldest_grants(
        &self,
        now: Time,
        survey: &Survey,
        at_most: usize,
        mut row: impl FnMut(LockRow<'_>),
    ) {
        let mut shown: Vec<Token> = Vec::new();
        for (_, token, key) in survey.grants.candidates() {
            // This round may have found what the one before had.
            if shown.len() == at_most || shown.contains(token) {
                continue;
            }
            let hash = self.hashes.key(key.spelling());
            if let Some(claim) = self.find_grant(hash, key.as_ref(), *token) {
                row(self.row_of(now, claim, *token));
                shown.push(*token);
            }
        }
    }
}
