//! When two nodes were active at once: the grants of the one that gives up join those of the other.

use super::lock::{Claim, GrantClock, Stage};
use super::output::{Change, ClaimId, Effect, Grant};
use super::time::Time;
use super::{Engine, Owner, SharedOwner};
use crate::protocol::{Key, Millis, Tag, Token};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A grant of another node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignGrant {
    /// What is held.
    pub key: Key,
    /// With which token.
    pub token: Token,
    /// By whom.
    pub owner: Arc<Owner>,
    /// The tag of its request.
    pub tag: Option<Tag>,
    /// How long the lease is.
    pub lease: Millis,
    /// When it ends.
    pub ends: Time,
}

impl Engine {
    /// Takes in a grant that another node has made. A key that is held on both sides has two holders
    /// then, and no new one until both are gone. Two grants of one request are one: the higher token
    /// stays.
    pub fn merge(&mut self, now: Time, foreign: &ForeignGrant) {
        self.tokens.saw(foreign.token);
        self.merged = true;
        let lock = self.lock_for(&foreign.key);
        let request = foreign.owner.client.zip(foreign.tag.map(|tag| tag.number));
        let same_request = |engine: &Engine, claim: u32| {
            request.is_some() && engine.recognise(&engine.claims[claim]) == request
        };
        let known = self.holders(lock).find(|claim| {
            self.claims[*claim].token() == Some(foreign.token) || same_request(self, *claim)
        });
        if let Some(claim) = known {
            if self.claims[claim].token() >= Some(foreign.token) {
                if self.claims[claim].deadline < foreign.ends {
                    self.lengthen(claim, foreign.ends);
                }
                return;
            }
            self.add_foreign(lock, foreign);
            self.expire_grant(now, claim);
            return;
        }
        let waiter = self.queued(lock).find(|claim| same_request(self, *claim));
        self.add_foreign(lock, foreign);
        if let Some(claim) = waiter {
            // Its client asks here for what it has been granted there.
            if let Stage::Attached { connection, .. } = self.claims[claim].stage
                && let Some(connection) = self.listener(connection)
            {
                let holder = self.locks[lock].holders;
                self.effects.push_back(Effect::Granted {
                    connection,
                    key: foreign.key.clone(),
                    grant: Grant {
                        claim: ClaimId(holder),
                        token: foreign.token,
                    },
                    tag: self.claims[claim].tag(),
                });
            }
            self.leave(now, claim);
        }
    }

    /// Ends the grants with these tokens, which were given back elsewhere. Returns those that are not
    /// known here.
    pub fn end_tokens(&mut self, now: Time, tokens: &BTreeSet<Token>) -> Vec<Token> {
        let mut found: Vec<(Token, u32)> = Vec::new();
        for (claim, held) in self.claims.iter() {
            if let Some(token) = held.token().filter(|token| tokens.contains(token)) {
                found.push((token, claim));
            }
        }
        for (_, claim) in &found {
            self.give_back(now, *claim, None);
        }
        let known: BTreeSet<Token> = found.into_iter().map(|(token, _)| token).collect();
        tokens.difference(&known).copied().collect()
    }

    /// Whether this request holds its key with this token.
    #[must_use]
    pub fn still_holds(&self, claim: ClaimId, token: Token) -> bool {
        let held = self.claims.get(claim.0);
        held.is_some_and(|held| held.token() == Some(token))
    }

    /// A grant as it is now, if this request still holds its key with this token.
    #[must_use]
    pub fn grant_by(&self, claim: ClaimId, token: Token) -> Option<Change> {
        self.still_holds(claim, token)
            .then(|| self.granted(claim.0, token))
    }

    /// Every grant.
    pub fn grants(&self) -> impl Iterator<Item = Change> {
        self.claims.iter().filter_map(|(claim, held)| {
            let token = held.token()?;
            Some(self.granted(claim, token))
        })
    }

    /// Tells every request that waits on a connection to ask elsewhere, those included whose grant has
    /// not been told yet, and forgets the whole state.
    pub fn resign(&mut self) {
        let untold = std::mem::take(&mut self.effects);
        let mut moved: Vec<Effect> = untold.into_iter().map(moved_if_granted).collect();
        for (_, waiter) in self.claims.iter() {
            if let Stage::Attached { connection, .. } = waiter.stage
                && let Some(connection) = self.listener(connection)
            {
                moved.push(Effect::Moved {
                    connection,
                    key: self.locks[waiter.lock].key.clone(),
                    tag: waiter.tag(),
                });
            }
        }
        self.clear();
        self.effects.extend(moved);
    }

    fn lock_for(&mut self, key: &Key) -> u32 {
        let hash = self.hashes.key(key.spelling());
        self.find_lock(hash, key.as_ref())
            .unwrap_or_else(|| self.add_lock(key.as_ref(), hash))
    }

    fn add_foreign(&mut self, lock: u32, foreign: &ForeignGrant) {
        let owner = self.owners.insert(SharedOwner {
            owner: Arc::clone(&foreign.owner),
            uses: 1,
        });
        let stage = Stage::Held {
            token: foreign.token,
            clock: GrantClock::of_copy(foreign.lease, foreign.ends),
            owner,
        };
        let claim = Claim::new(lock, foreign.tag, foreign.lease, foreign.ends, stage);
        let claim = self.claims.insert(claim);
        self.link_holder(claim);
        self.wheel.insert(&mut self.claims, claim);
        self.record(|engine| engine.granted(claim, foreign.token));
    }

    fn lengthen(&mut self, claim: u32, ends: Time) {
        self.wheel.remove(&mut self.claims, claim);
        self.claims[claim].deadline = ends;
        self.wheel.insert(&mut self.claims, claim);
        self.record(|engine| Change::Kept {
            claim: ClaimId(claim),
            lease: engine.claims[claim].lease(),
            ends,
        });
    }
}

fn moved_if_granted(effect: Effect) -> Effect {
    match effect {
        Effect::Granted {
            connection,
            key,
            tag,
            ..
        } => Effect::Moved {
            connection,
            key,
            tag,
        },
        other => other,
    }
}
