//! What clients ask for: acquire, release, keep, cancel.

use super::connections::ConnectionId;
use super::lock::Stage;
use super::output::{Answer, Change, ClaimId, Grant, Refusal};
use super::table::Found;
use super::time::Time;
use super::wheel::Wheel;
use super::{Engine, NIL};
use crate::mutation::Mutation;
use crate::protocol::{ClientId, KeyRef, Millis, Tag, Token, Wait};
use std::sync::Arc;

/// An acquire on its way through the engine.
pub(super) struct Acquire<'a> {
    pub(super) now: Time,
    pub(super) connection: u32,
    pub(super) key: KeyRef<'a>,
    pub(super) hash: u64,
    pub(super) lease: Millis,
    pub(super) wait: Wait,
    pub(super) tag: Option<Tag>,
}

impl Engine {
    /// Handles `A`.
    pub fn acquire(
        &mut self,
        now: Time,
        connection: ConnectionId,
        key: KeyRef<'_>,
        lease: Millis,
        wait: Wait,
        tag: Option<Tag>,
    ) -> Answer {
        let Some(speaker) = self.speaker(connection) else {
            // A lock is never granted to a connection that is known to be gone.
            return Answer::Dropped;
        };
        speaker.spoke = true;
        let client = speaker.client;
        self.wheel.catch_up(now);
        let hash = self.hashes.key(key.spelling());
        let request = Acquire {
            now,
            connection: connection.index,
            key,
            hash,
            lease,
            wait,
            tag,
        };
        let lock = self.find_lock(hash, key);
        if let (Some(client), Some(tag)) = (client, tag) {
            let seen = self.find_claim(lock, client, tag.number);
            let attempt = seen.map_or(0, |claim| self.claims[claim].attempt);
            let remembered = self.remembered(client, tag.number);
            if tag.attempt < attempt.max(remembered) {
                self.counts.dropped += 1;
                return Answer::Dropped;
            }
            if let Some(claim) = seen {
                return self.acquire_again(&request, claim, tag.attempt);
            }
        }
        match lock {
            None => self.acquire_free(&request),
            Some(lock) => self.acquire_taken(&request, lock, client),
        }
    }

    /// Handles `R`: whether the token held the key. Anybody who knows the token may release.
    pub fn release(&mut self, now: Time, key: KeyRef<'_>, token: Token) -> bool {
        let hash = self.hashes.key(key.spelling());
        // Most locks are held by one and wanted by nobody else: those go in one step, with their only look-up.
        match self.take_lock_if_alone(hash, key, token) {
            None => false,
            Some(Found::Taken(lock)) => {
                self.end_alone(now, lock);
                true
            }
            Some(Found::Left(lock)) => {
                let Some(claim) = self.holder(lock, token) else {
                    return false;
                };
                self.give_back(now, claim, Some(hash));
                true
            }
        }
    }

    /// Looks a key up, and takes it out if all there is to it is one grant with this token.
    #[inline]
    fn take_lock_if_alone(&mut self, hash: u64, key: KeyRef<'_>, token: Token) -> Option<Found> {
        let (locks, claims) = (&self.locks, &self.claims);
        let forgets = !self.settings.mutation.is(Mutation::KeepIdleKeys);
        let is_it = |lock: u32| locks[lock].key.spelling() == key.spelling();
        let is_alone = |lock: u32| {
            let lock = &locks[lock];
            let holder = claims.get(lock.holders);
            let holds =
                holder.is_some_and(|claim| claim.next == NIL && claim.token() == Some(token));
            holds && lock.queue == NIL && forgets
        };
        let hash_of = |lock: u32| self.hashes.key(locks[lock].key.spelling());
        self.keys.take_if(hash, is_it, is_alone, hash_of)
    }

    /// What [`Engine::give_back`] would do step by step, for a key that is looked up no more.
    #[inline]
    fn end_alone(&mut self, now: Time, lock: u32) {
        let claim = self.locks[lock].holders;
        self.locks.discard(lock);
        let ended =
            self.take_out_grant(now, claim, |claim, token| Change::Released { claim, token });
        self.held -= 1;
        self.counts.released += 1;
        self.part_with_grant(now, &ended);
    }

    /// Handles `K`: whether the token holds the key. Its lease ends `lease` from now, or when it would
    /// have ended anyway if that is later.
    pub fn keep(&mut self, now: Time, key: KeyRef<'_>, token: Token, lease: Millis) -> bool {
        let hash = self.hashes.key(key.spelling());
        let Some(claim) = self.find_grant(hash, key, token) else {
            return false;
        };
        self.keep_grant(now, claim, lease);
        true
    }

    /// Its holder is told only now of a grant, so its lease begins only now. Whether it still holds the key.
    ///
    /// Whoever takes over renews all leases, so that nobody has to hear of this but who goes on with the exact
    /// ends: those [are told](Engine::tell_begun_leases) before.
    pub fn begin_lease(&mut self, now: Time, grant: Grant) -> bool {
        let claim = grant.claim.0;
        let held = self.claims.get_mut(claim);
        let Some(held) = held.filter(|held| held.token() == Some(grant.token)) else {
            return false;
        };
        let lease = held.lease();
        let ends = now.after(lease);
        // Most have been held back for less than the millisecond that they are filed under.
        let stays = Wheel::tick(ends) == Wheel::tick(held.deadline);
        let is_taken_back =
            !matches!(held.stage, Stage::Held { clock, .. } if clock.held_since().is_some());
        if stays && !is_taken_back {
            held.deadline = ends.max(held.deadline);
        } else {
            self.wheel.catch_up(now);
            self.renew(now, claim, lease);
        }
        self.note_begun_lease(grant);
        self.check_lock_of(claim);
        true
    }

    fn keep_grant(&mut self, now: Time, claim: u32, lease: Millis) {
        self.wheel.catch_up(now);
        self.renew(now, claim, lease);
        self.record(|engine| Change::Kept {
            claim: ClaimId(claim),
            lease: engine.claims[claim].lease(),
            ends: engine.claims[claim].deadline,
        });
        self.check_lock_of(claim);
    }

    /// Handles `C`: whether there was a request of this client with that tag, up to its attempt, that
    /// waited or held.
    pub fn cancel(
        &mut self,
        now: Time,
        connection: ConnectionId,
        key: KeyRef<'_>,
        tag: Tag,
    ) -> bool {
        // Without an id there is no way to recognise a request, so there is none.
        let Some(client) = self.speaker(connection).and_then(|speaker| {
            speaker.spoke = true;
            speaker.client
        }) else {
            return false;
        };
        let hash = self.hashes.key(key.spelling());
        let lock = self.find_lock(hash, key);
        let Some(claim) = self.find_claim(lock, client, tag.number) else {
            self.remember(now, client, tag.number, tag.attempt);
            return false;
        };
        let newest = &mut self.claims[claim].attempt;
        if tag.attempt < *newest {
            return false;
        }
        *newest = tag.attempt;
        match self.claims[claim].stage {
            Stage::Held { .. } => self.give_back(now, claim, Some(hash)),
            Stage::Attached { .. } | Stage::Detached { .. } => self.leave(now, claim),
        }
        true
    }

    fn acquire_free(&mut self, request: &Acquire<'_>) -> Answer {
        if self.locks.len() >= self.settings.max_keys as usize {
            return Answer::Refused(Refusal::Keys);
        }
        let Some(token) = self.take_token() else {
            return Answer::Refused(Refusal::TokensUsedUp);
        };
        let lock = self.add_lock(request.key, request.hash);
        let claim = self.add_first_holder(request, lock, token);
        self.check_lock(lock);
        Answer::Granted(Grant {
            claim: ClaimId(claim),
            token,
        })
    }

    fn acquire_taken(
        &mut self,
        request: &Acquire<'_>,
        lock: u32,
        client: Option<ClientId>,
    ) -> Answer {
        if request.wait == Wait::No {
            if let (Some(client), Some(tag)) = (client, request.tag) {
                self.remember(request.now, client, tag.number, tag.attempt);
            }
            return Answer::NotHad;
        }
        let queue = self.locks[lock].queue;
        let length = self.queues.get(queue).map_or(0, |queue| queue.length);
        if length >= self.settings.max_waiters_per_key {
            return Answer::Refused(Refusal::WaitersOfKey);
        }
        if self.waiting >= self.settings.max_waiters as usize {
            return Answer::Refused(Refusal::Waiters);
        }
        if self.waits_too_much(request.connection) {
            return Answer::Refused(Refusal::WaitingOfConnection);
        }
        self.add_waiter(request, lock);
        self.check_lock(lock);
        Answer::Queued
    }

    /// An acquire that waits or holds already was sent again.
    fn acquire_again(&mut self, request: &Acquire<'_>, claim: u32, attempt: u32) -> Answer {
        let answer = match self.claims[claim].stage {
            Stage::Held { token, .. } => {
                self.change_owner(claim, request.connection);
                self.renew(request.now, claim, request.lease);
                Answer::Granted(Grant {
                    claim: ClaimId(claim),
                    token,
                })
            }
            Stage::Attached { connection, .. } if connection == request.connection => {
                self.claims[claim].set_lease(request.lease);
                Answer::Queued
            }
            Stage::Attached { since, .. } | Stage::Detached { since, .. } => {
                if self.waits_too_much(request.connection) {
                    return Answer::Refused(Refusal::WaitingOfConnection);
                }
                self.wheel.remove(&mut self.claims, claim);
                let stage = self.claims[claim].stage;
                self.untie(stage);
                self.attach(claim, request.connection, since);
                self.wheel.insert(&mut self.claims, claim);
                self.claims[claim].set_lease(request.lease);
                Answer::Queued
            }
        };
        self.claims[claim].attempt = attempt;
        self.record(|engine| Change::Resent {
            claim: ClaimId(claim),
            owner: Arc::clone(engine.owner_of(&engine.claims[claim])),
            attempt,
            lease: engine.claims[claim].lease(),
            ends: engine.claims[claim].deadline,
        });
        let lock = self.claims[claim].lock;
        if answer != Answer::Queued || self.locks[lock].holders != NIL {
            self.check_lock(lock);
            return answer;
        }
        // The lock may have waited for just this client.
        self.answer_if_next(request.now, lock, claim)
    }

    fn waits_too_much(&self, connection: u32) -> bool {
        let waiting = self.connections[connection].waiting_count;
        waiting >= self.settings.max_waiting_per_connection
    }
}
