//! What a node needs that stops, or that learns late that somebody may not wait any more or that a reply was never delivered.

use super::Engine;
use super::connections::ConnectionId;
use super::lock::Stage;
use super::output::{ClaimId, Effect, Grant, Refusal};
use super::slab::NIL;
use super::time::Time;
use crate::protocol::{KeyRef, Token};

impl Engine {
    /// Ends requests that wait on a connection, at most `at_most`, with a refusal each. Returns whether
    /// there are more. In a journal those that leave because the node stops keep their places.
    pub fn refuse_waiting(
        &mut self,
        now: Time,
        connection: ConnectionId,
        refusal: Refusal,
        at_most: usize,
    ) -> bool {
        for _ in 0..at_most {
            let Some(speaker) = self.speaker(connection) else {
                return false;
            };
            let claim = speaker.waiting;
            if claim == NIL {
                return false;
            }
            self.refuse_one(now, connection, claim, refusal);
        }
        self.speaker(connection)
            .is_some_and(|speaker| speaker.waiting != NIL)
    }

    /// Ends the requests that wait on a connection for keys that are not `allowed`, with a refusal each. Returns how many
    /// requests it has looked at: at least all that wait on the connection, of which it has only so many.
    pub fn refuse_waiting_for(
        &mut self,
        now: Time,
        connection: ConnectionId,
        refusal: Refusal,
        allowed: impl Fn(KeyRef<'_>) -> bool,
    ) -> usize {
        let mut looked_at = 0;
        let mut next = self
            .speaker(connection)
            .map_or(NIL, |speaker| speaker.waiting);
        while let Some(Stage::Attached { next: behind, .. }) = self.stage_mut(next).copied() {
            let claim = std::mem::replace(&mut next, behind);
            looked_at += 1;
            let lock = self.claims[claim].lock;
            if allowed(self.locks[lock].key.as_ref()) {
                continue;
            }
            self.refuse_one(now, connection, claim, refusal);
            // Whoever goes may be followed by others of its queue. Where the next one here was among them, there is no way on
            // from it.
            if next != NIL && !self.waits_on(connection, next) {
                next = self
                    .speaker(connection)
                    .map_or(NIL, |speaker| speaker.waiting);
            }
        }
        looked_at
    }

    fn waits_on(&mut self, speaker: ConnectionId, claim: u32) -> bool {
        matches!(self.stage_mut(claim), Some(Stage::Attached { connection, .. }) if *connection == speaker.index)
    }

    /// Ends one request that waits on a connection.
    fn refuse_one(&mut self, now: Time, connection: ConnectionId, claim: u32, refusal: Refusal) {
        let waiting = &self.claims[claim];
        let effect = Effect::Refused {
            connection,
            key: self.locks[waiting.lock].key.clone(),
            tag: waiting.tag(),
            refusal,
        };
        self.effects.push_back(effect);
        if self.keep_place(claim, refusal) {
            let lock = self.claims[claim].lock;
            self.without_journal(|engine| engine.remove_waiter(now, claim));
            self.serve(now, lock, None);
        } else {
            self.leave(now, claim);
        }
    }

    /// The grant with this token, if it holds the key.
    #[must_use]
    pub fn grant_of(&self, key: KeyRef<'_>, token: Token) -> Option<Grant> {
        let claim = ClaimId(self.find_grant(self.hashes.key(key.spelling()), key, token)?);
        Some(Grant { claim, token })
    }

    /// Replies to a connection from `address` that is gone already could not be delivered after all.
    /// Their grants are taken back after the grace, unless another connection has asked for them since.
    pub fn undelivered(&mut self, now: Time, address: &str, grants: &[Grant]) {
        let until = now.after(self.settings.reattach_grace);
        for grant in grants {
            let stage = self.stage_mut(grant.claim.0).map(|stage| *stage);
            if let Some(Stage::Held { owner, .. }) = stage
                && self.owners[owner].owner.address() == address
            {
                self.take_back_later(*grant, owner, until);
            }
        }
    }
}
