//! The steps that requests, broken connections and the time have in common: a claim comes, gets its
//! turn, or goes.

use super::lock::{Claim, GrantClock, Place, Stage};
use super::output::{Change, ClaimId, Effect, Grant, Refusal};
use super::requests::Acquire;
use super::time::Time;
use super::token::Milestones;
use super::wheel::Timed;
use super::{Answer, Engine, NIL};
use crate::mutation::Mutation;
use crate::protocol::{ClientId, Millis, Token, Wait};

/// What is left to do of a grant that has been taken out of storage.
pub(super) struct EndedGrant {
    place: Place,
    owner: u32,
    /// The request and its last attempt, if it can be recognised when it is sent again.
    last: Option<((ClientId, u64), u32)>,
}

impl Engine {
    /// The claim of a request that gets a key which nobody holds or waits for.
    pub(super) fn add_first_holder(
        &mut self,
        request: &Acquire<'_>,
        lock: u32,
        token: Token,
    ) -> u32 {
        let owner = self.connections[request.connection].owner;
        self.owners[owner].uses += 1;
        let stage = Stage::Held {
            token,
            clock: GrantClock::since(request.now),
            owner,
        };
        let ends = request.now.after(self.lease_that_counts(request.lease));
        let claim = Claim::new(lock, request.tag, request.lease, ends, stage);
        let claim = self.claims.insert(claim);
        self.locks[lock].holders = claim;
        self.held += 1;
        self.wheel.insert(&mut self.claims, claim);
        self.counts.granted += 1;
        self.record_new(claim, token);
        claim
    }

    fn lease_that_counts(&self, lease: Millis) -> Millis {
        if self.settings.mutation.is(Mutation::EndLeasesEarly) {
            return Millis(lease.0.div_ceil(2));
        }
        lease
    }

    /// The claim of a request that has to wait.
    pub(super) fn add_waiter(&mut self, request: &Acquire<'_>, lock: u32) {
        let ends = match request.wait {
            Wait::For(_) if self.settings.mutation.is(Mutation::NeverTimeOut) => Time::NEVER,
            Wait::For(length) => request.now.after(length),
            Wait::Forever | Wait::No => Time::NEVER,
        };
        let stage = Stage::Attached {
            since: request.now,
            connection: request.connection,
            previous: NIL,
            next: NIL,
        };
        let claim = Claim::new(lock, request.tag, request.lease, ends, stage);
        let claim = self.claims.insert(claim);
        self.attach(claim, request.connection, request.now);
        self.link_waiter(claim);
        self.wheel.insert(&mut self.claims, claim);
        self.record(|engine| engine.enqueued(claim));
    }

    /// The lock was free for `claim` if that is the first in the queue: serves it, and answers instead
    /// of telling.
    pub(super) fn answer_if_next(&mut self, now: Time, lock: u32, claim: u32) -> Answer {
        let Some(head) = self.queued(lock).next().filter(|head| *head == claim) else {
            return Answer::Queued;
        };
        match self.take_token() {
            Some(token) => {
                self.promote(now, head, token);
                self.check_lock(lock);
                Answer::Granted(Grant {
                    claim: ClaimId(head),
                    token,
                })
            }
            None => {
                self.leave(now, head);
                Answer::Refused(Refusal::TokensUsedUp)
            }
        }
    }

    /// Ends a grant at its holder's wish; `hash` is that of the key, where the caller knows it.
    pub(super) fn give_back(&mut self, now: Time, claim: u32, hash: Option<u64>) {
        self.counts.released += 1;
        self.end_grant(now, claim, hash, |claim, token| Change::Released {
            claim,
            token,
        });
    }

    /// Takes a grant back from its holder.
    pub(super) fn expire_grant(&mut self, now: Time, claim: u32) {
        self.end_grant(now, claim, None, |claim, token| Change::Expired {
            claim,
            token,
        });
    }

    #[inline]
    fn end_grant(
        &mut self,
        now: Time,
        claim: u32,
        hash: Option<u64>,
        change: impl FnOnce(ClaimId, Token) -> Change,
    ) {
        let ended = self.take_out_grant(now, claim, change);
        self.unlink_holder(ended.place);
        self.part_with_grant(now, &ended);
        self.serve(now, ended.place.lock, hash);
    }

    /// Takes a grant out of storage. Its list still has to hear of that.
    #[inline]
    pub(super) fn take_out_grant(
        &mut self,
        now: Time,
        claim: u32,
        change: impl FnOnce(ClaimId, Token) -> Change,
    ) -> EndedGrant {
        let grant = &self.claims[claim];
        let Stage::Held {
            token,
            clock,
            owner,
        } = grant.stage
        else {
            unreachable!("only a claim that holds has a grant to end");
        };
        let (timer, attempt) = (grant.timer(), grant.attempt);
        let ended = EndedGrant {
            place: grant.place(),
            owner,
            last: match attempt {
                0 => None,
                _ => self.recognise(grant).map(|request| (request, attempt)),
            },
        };
        self.claims.discard(claim);
        self.wheel.unlink(&mut self.claims, timer);
        if let Some(since) = clock.held_since() {
            self.counts.held.add(now.0.saturating_sub(since.0));
        }
        self.record(|_| change(ClaimId(claim), token));
        ended
    }

    /// A waiting claim gives up its place, without a word.
    pub(super) fn leave(&mut self, now: Time, claim: u32) {
        let lock = self.claims[claim].lock;
        self.remove_waiter(now, claim);
        self.serve(now, lock, None);
    }

    pub(super) fn remove_waiter(&mut self, now: Time, claim: u32) {
        let waiter = self.take_out(claim);
        self.record(|_| Change::Left {
            claim: ClaimId(claim),
        });
        let hash = self.request_hash(&waiter);
        self.unlink_waiter(claim, waiter.place(), hash);
        self.part_with(now, &waiter);
    }

    /// Makes a grant's lease end `lease` from now, or later if it would have anyway; whoever asks for
    /// that knows of the grant.
    pub(super) fn renew(&mut self, now: Time, claim: u32, lease: Millis) {
        let ends = now.after(lease);
        self.wheel.remove(&mut self.claims, claim);
        let grant = &mut self.claims[claim];
        if ends >= grant.deadline {
            grant.deadline = ends;
            grant.set_lease(lease);
        }
        if let Stage::Held { clock, .. } = &mut grant.stage
            && clock.held_since().is_none()
        {
            *clock = GrantClock::since(now);
        }
        self.wheel.insert(&mut self.claims, claim);
    }

    /// The reply of a grant did not leave the node; unless another connection has asked since.
    pub(super) fn take_back_later(&mut self, grant: Grant, connection_owner: u32, at: Time) {
        let claim = grant.claim.0;
        let Some(Stage::Held {
            token,
            clock,
            owner,
        }) = self.stage_mut(claim)
        else {
            return;
        };
        if *token == grant.token && *owner == connection_owner {
            *clock = GrantClock::take_back_at(at);
            self.wheel.remove(&mut self.claims, claim);
            self.wheel.insert(&mut self.claims, claim);
        }
    }

    /// A grant belongs to another connection of its client from now on.
    pub(super) fn change_owner(&mut self, claim: u32, connection: u32) {
        let new = self.connections[connection].owner;
        self.owners[new].uses += 1;
        if let Some(Stage::Held { owner, .. }) = self.stage_mut(claim) {
            let old = std::mem::replace(owner, new);
            self.release_owner(old);
        }
    }

    /// Hands a lock that nobody holds to the first who waits, in this very step. It stays free for a
    /// detached one to come back, and is forgotten if nobody waits. `hash` is that of the key, where
    /// the caller knows it.
    #[inline]
    pub(super) fn serve(&mut self, now: Time, lock: u32, hash: Option<u64>) {
        let free = &self.locks[lock];
        if free.holders == NIL && free.queue == NIL {
            if self.settings.mutation.is(Mutation::KeepIdleKeys) {
                return;
            }
            self.remove_lock(lock, hash);
        } else {
            self.serve_next(now, lock);
        }
    }

    #[inline(never)]
    fn serve_next(&mut self, now: Time, lock: u32) {
        let mut refused = 0;
        while self.locks[lock].holders == NIL {
            let queue = self.locks[lock].queue;
            if queue == NIL {
                self.remove_lock(lock, None);
                return;
            }
            let head = if self.settings.mutation.is(Mutation::LastComeFirstServed) {
                self.queues[queue].tail
            } else {
                self.queues[queue].head
            };
            let Stage::Attached { connection, .. } = self.claims[head].stage else {
                if self.settings.mutation.is(Mutation::GrantToDead)
                    && let Some(token) = self.take_token()
                {
                    self.promote(now, head, token);
                    continue;
                }
                break;
            };
            let Some(connection) = self.listener(connection) else {
                // Its turn to leave comes, and then the next one is served.
                break;
            };
            let key = self.locks[lock].key.clone();
            let tag = self.claims[head].tag();
            match self.take_token() {
                Some(token) => {
                    self.promote(now, head, token);
                    self.effects.push_back(Effect::Granted {
                        connection,
                        key,
                        grant: Grant {
                            claim: ClaimId(head),
                            token,
                        },
                        tag,
                    });
                }
                None if refused == self.settings.parted_at_once => {
                    if !self.unserved.contains(&key) {
                        self.unserved.push_back(key);
                    }
                    break;
                }
                None => {
                    refused += 1;
                    self.effects.push_back(Effect::Refused {
                        connection,
                        key,
                        tag,
                        refusal: Refusal::TokensUsedUp,
                    });
                    self.remove_waiter(now, head);
                }
            }
        }
        self.check_lock(lock);
    }

    /// Goes on with a queue that could not be granted anything, and had too many in it to be refused in one step.
    pub(super) fn serve_more(&mut self, now: Time) {
        let Some(key) = self.unserved.pop_front() else {
            return;
        };
        let hash = self.hashes.key(key.spelling());
        if let Some(lock) = self.find_lock(hash, key.as_ref()) {
            self.serve_next(now, lock);
        }
    }

    /// Makes the holder of a waiting claim. Its lease begins now.
    pub(super) fn promote(&mut self, now: Time, claim: u32, token: Token) {
        self.wheel.catch_up(now);
        self.wheel.remove(&mut self.claims, claim);
        let waiter = &self.claims[claim];
        let (place, stage) = (waiter.place(), waiter.stage);
        let waited = now.0.saturating_sub(waiter.since().0);
        let hash = self.request_hash(waiter);
        let owner = self.owner_number(stage);
        self.owners[owner].uses += 1;
        self.unlink_waiter(claim, place, hash);
        self.untie(stage);
        let grant = &mut self.claims[claim];
        let lease = grant.lease();
        let ends = now.after(self.lease_that_counts(lease));
        let grant = &mut self.claims[claim];
        grant.deadline = ends;
        grant.stage = Stage::Held {
            token,
            clock: GrantClock::since(now),
            owner,
        };
        self.link_holder(claim);
        self.wheel.insert(&mut self.claims, claim);
        self.counts.granted += 1;
        self.counts.handed_over += 1;
        self.counts.waited.add(waited);
        self.record(|engine| engine.granted(claim, token));
    }

    pub(super) fn take_token(&mut self) -> Option<Token> {
        let mut milestones = Milestones::default();
        let token = self.tokens.take(&mut milestones);
        if let Some(term) = milestones.opened {
            self.record(|_| Change::TermOpened { term });
            self.effects.push_back(Effect::TermOpened { term });
        }
        if let Some(term) = milestones.half_used {
            self.effects.push_back(Effect::TermHalfUsed { term });
        }
        token
    }

    pub(super) fn remembered(&self, client: ClientId, number: u64) -> u32 {
        if self.attempts.len() == 0 {
            return 0;
        }
        let hash = self.hashes.request(client, number);
        self.attempts.highest(hash, client, number)
    }

    pub(super) fn remember(&mut self, now: Time, client: ClientId, number: u64, attempt: u32) {
        if attempt == 0 {
            return;
        }
        let remembered = self
            .attempts
            .remember(&self.hashes, client, number, attempt, now);
        if let Some(remembered) = remembered {
            self.record(|_| remembered.into());
        }
    }

    /// Takes a claim out of storage, and its timer. Its lists still have to hear of that.
    pub(super) fn take_out(&mut self, claim: u32) -> Claim {
        let claim = self.claims.remove(claim);
        self.wheel.unlink(&mut self.claims, claim.timer());
        claim
    }

    /// The last step of a claim's life: its attempts are remembered, its owner is let go.
    #[inline]
    pub(super) fn part_with(&mut self, now: Time, claim: &Claim) {
        if claim.attempt != 0
            && let Some((client, number)) = self.recognise(claim)
        {
            self.remember(now, client, number, claim.attempt);
        }
        self.untie(claim.stage);
    }

    /// As [`part_with`](Engine::part_with).
    #[inline]
    pub(super) fn part_with_grant(&mut self, now: Time, ended: &EndedGrant) {
        if let Some(((client, number), attempt)) = ended.last {
            self.remember(now, client, number, attempt);
        }
        self.release_owner(ended.owner);
    }

    pub(super) fn stage_mut(&mut self, claim: u32) -> Option<&mut Stage> {
        self.claims.get_mut(claim).map(|claim| &mut claim.stage)
    }
}
