//! Releases that another active node would have to know, and those that came before their grant.

use crate::engine::Time;
use crate::protocol::{Millis, Token};
use std::collections::{BTreeSet, VecDeque};

/// How long a release of an unknown token is remembered, and how many at most.
const REMEMBERED_FOR: Millis = Millis(600_000);
const MOST_REMEMBERED: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Releases {
    /// Of grants from before this node was active, since it is. There were never more of them than
    /// grants that it took over.
    since_active: Vec<Token>,
    /// Of tokens that this node does not know, the oldest first.
    unknown: VecDeque<(Time, Token)>,
}

impl Releases {
    /// The node becomes active.
    pub(super) fn begin(&mut self) {
        self.since_active = Vec::new();
    }

    /// A grant from before was released here.
    pub(super) fn note(&mut self, token: Token) {
        self.since_active.push(token);
    }

    pub(super) fn since_active(&self) -> &[Token] {
        &self.since_active
    }

    /// A token was released that is not known here.
    pub(super) fn remember(&mut self, now: Time, token: Token) {
        self.forget_old(now);
        if self.unknown.len() == MOST_REMEMBERED {
            self.unknown.pop_front();
        }
        self.unknown.push_back((now, token));
    }

    pub(super) fn remembered(&mut self, now: Time) -> BTreeSet<Token> {
        self.forget_old(now);
        self.unknown.iter().map(|(_, token)| *token).collect()
    }

    fn forget_old(&mut self, now: Time) {
        while self
            .unknown
            .front()
            .is_some_and(|(at, _)| at.after(REMEMBERED_FOR) <= now)
        {
            self.unknown.pop_front();
        }
    }
}
