//! Knows the behaviour and looks at everything that happens: tokens, holders, queues, replies, waits.
//!
//! It sees more than any node: which node serves at which moment, what every client believes, and
//! which fault may have cost what. Where a fault excuses something, the excuse is as narrow as the
//! behaviour's own words.

mod holders;
mod order;
mod replies;
mod tokens;

pub(crate) use holders::{Hold, Holders};
pub(crate) use order::Order;
pub(crate) use replies::Replies;
pub(crate) use tokens::{GrantOf, Tokens};

use std::fmt;

/// What has to hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// No token is given twice.
    TokensUnique,
    /// Tokens rise in real time wherever one node at a time was active.
    TokensRise,
    /// A term that is opened later is above every token of the past.
    TermsRise,
    /// The protected register never takes an older token after a newer one.
    Fence,
    /// One holder a key.
    OneHolder,
    /// First come, first served, among those who stayed.
    Order,
    /// Exactly one reply a request.
    OneReply,
    /// Bounded waits end in time, and not before.
    WaitsEnd,
    /// A lost lock is told before its lease can end.
    ToldInTime,
    /// No call fails where nothing but orderly stops happens.
    NoErrors,
    /// Nothing is granted to a request whose connection is known to be gone.
    GrantedToSomebody,
    /// One node serves where neither a cut nor a delay can hide another.
    OneServes,
    /// What the engine and the code itself say is always so.
    Invariants,
    /// In the end the right node is active, and no other.
    OneActive,
    /// In the end nothing is left, and all copies say so.
    Drains,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 15] = [
        Rule::TokensUnique,
        Rule::TokensRise,
        Rule::TermsRise,
        Rule::Fence,
        Rule::OneHolder,
        Rule::Order,
        Rule::OneReply,
        Rule::WaitsEnd,
        Rule::ToldInTime,
        Rule::NoErrors,
        Rule::GrantedToSomebody,
        Rule::OneServes,
        Rule::Invariants,
        Rule::OneActive,
        Rule::Drains,
    ];
}

/// A rule that did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// When, in microseconds of the world.
    pub at: u64,
    /// What was seen.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { rule, at, text } = self;
        write!(f, "{rule:?} at {:.3} s: {text}", *at as f64 / 1e6)
    }
}

/// Everything that is looked at. The first violation is kept.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    pub(crate) violation: Option<Violation>,
    pub(crate) tokens: Tokens,
    pub(crate) holders: Holders,
    pub(crate) order: Order,
}

impl Checker {
    pub(crate) fn fail(&mut self, rule: Rule, at: u64, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let text = text();
            self.violation = Some(Violation { rule, at, text });
        }
    }

    pub(crate) fn take(&mut self, at: u64, rule: Rule, result: Result<(), String>) {
        if let Err(text) = result {
            self.fail(rule, at, || text);
        }
    }
}
