//! Tokens and terms over the whole history.

use fairlock::protocol::{ClientId, Token};
use std::collections::BTreeMap;

/// A time in which a node was active.
#[derive(Clone, Copy, Debug)]
struct Period {
    opened: u64,
    closed: Option<u64>,
    highest: u64,
    /// Nothing could have told it of the tokens before.
    blind: bool,
}

/// What became of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GrantOf {
    pub(crate) key: u8,
    pub(crate) client: ClientId,
    pub(crate) tag: u64,
    /// When it was granted first.
    pub(crate) at: u64,
}

/// Every token that was ever granted.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    periods: Vec<Period>,
    /// By node.
    current: BTreeMap<usize, usize>,
    pub(crate) grants: BTreeMap<u64, GrantOf>,
    highest: u64,
}

impl Tokens {
    /// The highest term that any token has.
    pub(crate) fn highest_term(&self) -> u32 {
        (self.highest >> 32) as u32
    }

    /// A node opens a term. `blind`: every belt is cut, so that it may be too low.
    pub(crate) fn open(
        &mut self,
        now: u64,
        node: usize,
        term: u32,
        blind: bool,
    ) -> Result<(), String> {
        let period = *self.current.entry(node).or_insert_with(|| {
            self.periods.push(Period {
                opened: now,
                closed: None,
                highest: 0,
                blind: false,
            });
            self.periods.len() - 1
        });
        if u64::from(term) << 32 > self.highest {
            self.periods[period].blind = false;
            return Ok(());
        }
        self.periods[period].blind = true;
        if blind {
            return Ok(());
        }
        Err(format!(
            "node {node} opens term {term}, and there is a token {}:{:x} already",
            self.highest >> 32,
            self.highest & 0xFFFF_FFFF
        ))
    }

    /// A node has been told of a term: what it grants from now on has to be above.
    pub(crate) fn told(&mut self, node: usize, term: u32) {
        if term >= self.highest_term()
            && let Some(period) = self.current.get(&node)
        {
            self.periods[*period].blind = false;
        }
    }

    /// A node is active no longer.
    pub(crate) fn close(&mut self, now: u64, node: usize) {
        if let Some(period) = self.current.remove(&node) {
            self.periods[period].closed = Some(now);
        }
    }

    /// A node answers with a token. `Ok(true)` if the token is new.
    pub(crate) fn granted(
        &mut self,
        node: usize,
        token: Token,
        grant: GrantOf,
    ) -> Result<bool, String> {
        if let Some(known) = self.grants.get(&token.get()) {
            let same = GrantOf {
                at: known.at,
                ..grant
            } == *known;
            let own = self.current.get(&node);
            let blind = own.is_some_and(|own| self.periods[*own].blind);
            if !same && blind {
                return Ok(true);
            }
            return if same {
                Ok(false)
            } else {
                Err(format!(
                    "node {node} gives {token}: {grant:?}, it was {known:?}"
                ))
            };
        }
        self.grants.insert(token.get(), grant);
        Ok(true)
    }

    /// Whether the request of this token has been granted a higher one.
    pub(crate) fn is_superseded(&self, token: Token) -> bool {
        let Some(grant) = self.grants.get(&token.get()) else {
            return false;
        };
        let mut later = self.grants.range(token.get() + 1..);
        later.any(|(_, other)| (other.client, other.tag) == (grant.client, grant.tag))
    }

    /// A new token has to be above the others, as far as one node at a time was active.
    pub(crate) fn check_rise(&mut self, node: usize, token: Token) -> Result<(), String> {
        let token = token.get();
        self.highest = self.highest.max(token);
        let Some(own) = self.current.get(&node).copied() else {
            return Err(format!("node {node} grants {token} and is not active"));
        };
        let mine = self.periods[own];
        self.periods[own].highest = mine.highest.max(token);
        if token <= mine.highest {
            return Err(format!("node {node} grants {token} after {}", mine.highest));
        }
        let before = self.periods.iter().enumerate().find(|(number, other)| {
            let together = other.closed.is_none_or(|closed| closed >= mine.opened)
                && mine.closed.is_none_or(|closed| closed >= other.opened);
            *number != own && other.highest > token && !together && !mine.blind
        });
        match before {
            Some((_, other)) => Err(format!(
                "node {node} grants {token} after {} of a period before",
                other.highest
            )),
            None => Ok(()),
        }
    }
}
