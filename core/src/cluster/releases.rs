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
    /// The latest that standbys were told of and that not all have confirmed, by the number of the change.
    unconfirmed: VecDeque<(u64, Token)>,
    /// Of tokens that this node does not know, the oldest first.
    unknown: VecDeque<(Time, Token)>,
    /// The same tokens, to be found.
    tokens: BTreeSet<Token>,
}

impl Releases {
    /// The node becomes active.
    pub(super) fn begin(&mut self) {
        self.since_active = Vec::new();
        self.unconfirmed = VecDeque::new();
    }

    /// No other node has a copy that lacks anything but what is not confirmed.
    pub(super) fn all_know(&mut self) {
        if !self.since_active.is_empty() {
            self.since_active = Vec::new();
        }
    }

    /// The standbys are told of a release.
    pub(super) fn tell(&mut self, number: u64, token: Token) {
        if self.unconfirmed.len() == MOST_REMEMBERED {
            self.unconfirmed.pop_front();
        }
        self.unconfirmed.push_back((number, token));
    }

    /// All standbys have confirmed this number.
    pub(super) fn confirm(&mut self, number: u64) {
        let told = |(told, _): &(u64, Token)| *told <= number;
        while self.unconfirmed.front().is_some_and(told) {
            self.unconfirmed.pop_front();
        }
    }

    /// A standby is told of nothing any more, and what it was told last may not have reached it.
    pub(super) fn lose(&mut self) {
        let unconfirmed = self.unconfirmed.iter().map(|(_, token)| *token);
        self.since_active.extend(unconfirmed);
    }

    /// A grant from before was released here.
    pub(super) fn note(&mut self, token: Token) {
        self.since_active.push(token);
    }

    /// What another node that was active may take for held.
    pub(super) fn not_known_elsewhere(&mut self, now: Time) -> BTreeSet<Token> {
        let mut tokens = self.remembered(now).clone();
        tokens.extend(&self.since_active);
        tokens.extend(self.unconfirmed.iter().map(|(_, token)| *token));
        tokens
    }

    /// A token was released that is not known here.
    pub(super) fn remember(&mut self, now: Time, token: Token) {
        self.forget_old(now);
        if !self.tokens.insert(token) {
            return;
        }
        if self.unknown.len() == MOST_REMEMBERED {
            self.forget_oldest();
        }
        self.unknown.push_back((now, token));
    }

    /// The tokens that were released and are not known here.
    pub(super) fn remembered(&mut self, now: Time) -> &BTreeSet<Token> {
        self.forget_old(now);
        &self.tokens
    }

    fn forget_old(&mut self, now: Time) {
        while self
            .unknown
            .front()
            .is_some_and(|(at, _)| at.after(REMEMBERED_FOR) <= now)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, token)) = self.unknown.pop_front() {
            self.tokens.remove(&token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_unknown_tokens_are_remembered_for_ten_minutes_and_up_to_a_number() {
        let token = |number| Token::new(number).expect("a token");
        let mut releases = Releases::default();
        releases.remember(Time(0), token(1));
        releases.remember(Time(1), token(1));
        assert_eq!(releases.remembered(Time(2)).len(), 1);
        for number in 2..=MOST_REMEMBERED as u64 + 1 {
            releases.remember(Time(1000), token(number));
        }
        let known = releases.remembered(Time(1000));
        assert_eq!(
            (known.len(), known.contains(&token(1))),
            (MOST_REMEMBERED, false)
        );
        assert!(
            releases
                .remembered(Time(1000).after(REMEMBERED_FOR))
                .is_empty()
        );
    }
}
