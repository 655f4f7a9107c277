//! Keeping a copy of the state: a snapshot is told as the changes that lead to it, and a copy is an
//! engine that applies changes instead of handling requests.

use super::attempts::Remembered;
use super::changes::Recording;
use super::connections::Owner;
use super::lock::{Claim, GrantClock, Stage};
use super::output::{Change, ClaimId};
use super::time::Time;
use super::{Engine, NIL, SharedOwner};
use crate::mutation::Mutation;
use crate::protocol::{Key, Millis, Tag, Token};
use std::sync::Arc;

/// A change does not fit the copy: something before it was missed, and the whole state is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a change does not fit the copy of the state")]
pub struct Diverged;

impl From<Remembered> for Change {
    fn from(remembered: Remembered) -> Change {
        let Remembered {
            client,
            number,
            attempt,
            at,
        } = remembered;
        Change::AttemptRemembered {
            client,
            number,
            attempt,
            at,
        }
    }
}

impl Engine {
    /// The whole state as changes to an empty engine.
    pub fn snapshot(&self) -> impl Iterator<Item = Change> {
        let term = self.tokens.term();
        let term = (term != 0).then_some(Change::TermOpened { term });
        let attempts = self.attempts.iter().map(Change::from);
        let claims = self.locks.iter().flat_map(|(lock, _)| {
            let holders = self.holders(lock).map(|claim| {
                let token = self.claims[claim].token();
                self.granted(claim, token.expect("it is among the holders"))
            });
            holders.chain(self.queued(lock).map(|claim| self.enqueued(claim)))
        });
        term.into_iter().chain(attempts).chain(claims)
    }

    /// Makes a change of another engine here too. Waiting requests have no connection here; they keep
    /// their places until [`resume`](Engine::resume). The copy needs the same limits as its original. It counts nothing of this:
    /// what happened is in the counters of the original, and a sum over both would have it twice.
    ///
    /// # Errors
    /// The change does not fit; the copy is of no use any more.
    pub fn apply(&mut self, now: Time, change: &Change) -> Result<(), Diverged> {
        match change {
            Change::Granted {
                claim,
                key,
                token,
                owner,
                tag,
                lease,
                ends,
            } => {
                self.tokens.saw(*token);
                let stage = |owner| Stage::Held {
                    token: *token,
                    clock: GrantClock::of_copy(*lease, *ends),
                    owner,
                };
                self.remove_waiter_to_grant(*claim, key)?;
                let copied = (*claim, key, owner, *tag);
                let claim = self.insert_copy(copied, *lease, *ends, stage)?;
                // The original has merged, and so has its copy.
                self.merged |= self.locks[self.claims[claim].lock].holders != NIL;
                self.link_holder(claim);
                self.record_copy(change);
            }
            Change::Enqueued {
                claim,
                key,
                owner,
                tag,
                lease,
                since,
                ends,
            } => {
                let stage = |owner| Stage::Detached {
                    since: *since,
                    until: Time::NEVER,
                    owner,
                };
                let copied = (*claim, key, owner, *tag);
                let claim = self.insert_copy(copied, *lease, *ends, stage)?;
                self.detached += 1;
                self.link_waiter(claim);
                self.record_copy(change);
            }
            Change::Released { claim, token } | Change::Expired { claim, token } => {
                if self.copied(*claim)?.token() != Some(*token) {
                    return Err(Diverged);
                }
                self.end_copy(claim.0);
                self.record_copy(change);
            }
            Change::Left { claim } => {
                if self.copied(*claim)?.token().is_some() {
                    return Err(Diverged);
                }
                self.end_copy(claim.0);
                self.record_copy(change);
            }
            Change::Kept { claim, lease, ends } => {
                self.copied(*claim)?.token().ok_or(Diverged)?;
                self.change_times(claim.0, *lease, *ends);
                self.record_copy(change);
            }
            Change::Resent {
                claim,
                owner,
                attempt,
                lease,
                ends,
            } => {
                self.copied(*claim)?;
                self.change_times(claim.0, *lease, *ends);
                self.claims[claim.0].attempt = *attempt;
                self.replace_owner(claim.0, owner);
                self.record_copy(change);
            }
            Change::AttemptRemembered {
                client,
                number,
                attempt,
                at,
            } => {
                let mut all = usize::MAX;
                self.attempts.expire(&self.hashes, now, &mut all);
                self.remember(*at, *client, *number, *attempt);
            }
            Change::TermOpened { term } => {
                let before = u64::from(*term) << 32;
                if let Some(token) = Token::new(before) {
                    self.tokens.saw(token);
                }
                self.record_copy(change);
            }
        }
        Ok(())
    }

    /// As [`apply`](Engine::apply), of a change that the journal hears of in another way.
    ///
    /// # Errors
    /// As there.
    pub fn apply_past_journal(&mut self, now: Time, change: &Change) -> Result<(), Diverged> {
        let on = std::mem::take(&mut self.changes.journal_mut().on);
        let applied = self.apply(now, change);
        self.changes.journal_mut().on = on;
        applied
    }

    /// Whether a request with this number waits or holds here.
    #[must_use]
    pub fn knows(&self, claim: ClaimId) -> bool {
        self.claims.get(claim.0).is_some()
    }

    /// A token was granted elsewhere, whatever has become of the grant.
    pub fn saw_token(&mut self, token: Token) {
        self.tokens.saw(token);
    }

    /// Makes a copy the original: each lease counts as renewed, or where `exact` ends when it would
    /// have; each waiting request keeps its place for `grace` until it is sent again, or leaves if it
    /// cannot be recognised. A term has to be opened before the next grant.
    pub fn resume(&mut self, now: Time, grace: Millis, exact: bool) {
        let claims: Vec<u32> = self.claims.iter().map(|(claim, _)| claim).collect();
        for claim in claims {
            let Some(copied) = self.claims.get(claim) else {
                continue;
            };
            let (lease, recognisable) = (copied.lease(), self.recognise(copied).is_some());
            match copied.stage {
                Stage::Held { .. } if exact => {}
                Stage::Held { .. } => {
                    self.renew(now, claim, lease);
                    // Leases count as renewed for whoever reads the journal, too.
                    self.without_journal(|engine| {
                        engine.record(|engine| Change::Kept {
                            claim: ClaimId(claim),
                            lease,
                            ends: engine.claims[claim].deadline,
                        });
                    });
                }
                Stage::Detached { .. } if !recognisable => self.leave(now, claim),
                Stage::Detached { .. } => {
                    self.wheel.remove(&mut self.claims, claim);
                    if let Some(Stage::Detached { until, .. }) = self.stage_mut(claim) {
                        *until = now.after(grace);
                    }
                    self.wheel.insert(&mut self.claims, claim);
                }
                Stage::Attached { .. } => {}
            }
        }
    }

    /// What a copy has to know of a claim that holds.
    pub(super) fn granted(&self, claim: u32, token: Token) -> Change {
        self.holding(ClaimId(claim), &self.claims[claim], token)
            .to_change()
    }

    /// What a copy has to know of a claim that waits.
    pub(super) fn enqueued(&self, claim: u32) -> Change {
        let waiter = &self.claims[claim];
        Change::Enqueued {
            claim: ClaimId(claim),
            key: self.locks[waiter.lock].key.clone(),
            owner: Arc::clone(self.owner_of(waiter)),
            tag: waiter.tag(),
            lease: waiter.lease(),
            since: waiter.since(),
            ends: waiter.deadline,
        }
    }

    /// Notes a change if anybody wants to know; otherwise it is not even made.
    #[inline]
    pub(super) fn record(&mut self, change: impl FnOnce(&Engine) -> Change) {
        if self.changes.is_recording() {
            let change = change(self);
            if self.is_kept_secret(&change) {
                return;
            }
            self.changes.push(change);
        }
    }

    /// Whether a mutation keeps the standbys from learning this.
    fn is_kept_secret(&self, change: &Change) -> bool {
        let mutation = self.settings.mutation;
        match change {
            Change::Released { .. } => mutation.is(Mutation::ForgetReleases),
            Change::Enqueued { .. } => mutation.is(Mutation::ForgetQueues),
            Change::Granted { .. }
            | Change::Expired { .. }
            | Change::Kept { .. }
            | Change::Left { .. }
            | Change::Resent { .. }
            | Change::AttemptRemembered { .. }
            | Change::TermOpened { .. } => false,
        }
    }

    /// As [`record`](Engine::record), of a claim that got its key at once.
    #[inline]
    pub(super) fn record_new(&mut self, claim: u32, token: Token) {
        if self.changes.journal().on {
            self.changes.journal_mut().push_new(ClaimId(claim), token);
        }
        if self.changes.tells_standbys() {
            if self.changes.tells_everything() {
                let change = self.granted(claim, token);
                self.changes.push_spelled(change);
            } else {
                self.changes.push_new(ClaimId(claim), token);
            }
        }
    }

    /// Tells these changes from now on; see [`EngineSettings::recording`](super::EngineSettings::recording).
    pub fn record_changes(&mut self, recording: Recording) {
        self.changes.record(recording);
    }

    /// How many changes the standbys have not been told of.
    #[must_use]
    pub fn changes_waiting(&self) -> usize {
        self.changes.waiting()
    }

    fn copied(&self, claim: ClaimId) -> Result<&Claim, Diverged> {
        self.claims.get(claim.0).ok_or(Diverged)
    }

    /// A claim that waited and is now granted begins anew under the same number.
    fn remove_waiter_to_grant(&mut self, claim: ClaimId, key: &Key) -> Result<(), Diverged> {
        let Some(waiter) = self.claims.get(claim.0) else {
            return Ok(());
        };
        if waiter.token().is_some() || self.locks[waiter.lock].key != *key {
            return Err(Diverged);
        }
        self.end_copy_of_waiter(claim.0);
        Ok(())
    }

    fn insert_copy(
        &mut self,
        (claim, key, owner, tag): (ClaimId, &Key, &Arc<Owner>, Option<Tag>),
        lease: Millis,
        ends: Time,
        stage: impl FnOnce(u32) -> Stage,
    ) -> Result<u32, Diverged> {
        if self.claims.get(claim.0).is_some() || claim.0 == NIL {
            return Err(Diverged);
        }
        let hash = self.hashes.key(key.spelling());
        let lock = match self.find_lock(hash, key.as_ref()) {
            Some(lock) => lock,
            None => self.add_lock(key.as_ref(), hash),
        };
        let owner = self.owners.insert(SharedOwner {
            owner: Arc::clone(owner),
            uses: 1,
        });
        let copy = Claim::new(lock, tag, lease, ends, stage(owner));
        self.claims.insert_at(claim.0, copy).map_err(|_| Diverged)?;
        self.wheel.insert(&mut self.claims, claim.0);
        Ok(claim.0)
    }

    /// Ends a claim without serving the next one: that comes as a change of its own.
    pub(super) fn end_copy(&mut self, claim: u32) {
        let lock = self.claims[claim].lock;
        if self.claims[claim].token().is_some() {
            let ended = self.take_out(claim);
            self.unlink_holder(ended.place());
            self.untie(ended.stage);
        } else {
            self.end_copy_of_waiter(claim);
        }
        if self.locks[lock].holders == NIL && self.locks[lock].queue == NIL {
            self.remove_lock(lock, None);
        }
    }

    /// What is to be remembered of the claim comes as a change of its own.
    fn end_copy_of_waiter(&mut self, claim: u32) {
        let ended = self.take_out(claim);
        let hash = self.request_hash(&ended);
        self.unlink_waiter(claim, ended.place(), hash);
        self.untie(ended.stage);
    }

    fn change_times(&mut self, claim: u32, lease: Millis, ends: Time) {
        self.wheel.remove(&mut self.claims, claim);
        self.claims[claim].set_lease(lease);
        self.claims[claim].deadline = ends;
        self.wheel.insert(&mut self.claims, claim);
    }

    fn replace_owner(&mut self, claim: u32, new: &Arc<Owner>) {
        if let Stage::Detached { owner, .. } | Stage::Held { owner, .. } = self.claims[claim].stage
        {
            // In a copy each claim has an owner entry of its own.
            self.owners[owner].owner = Arc::clone(new);
        }
    }

    fn record_copy(&mut self, change: &Change) {
        self.record(|_| change.clone());
    }
}
