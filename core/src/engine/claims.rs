//! The steps that requests, broken connections and the time have in common: a claim comes, gets its
//! turn, or goes.

use super::connections::Owner;
use super::lock::{Claim, Lock, Queue, Stage};
use super::output::{Change, ClaimId, Effect, Grant, Refusal};
use super::requests::Acquire;
use super::time::Time;
use super::token::Milestones;
use super::{Answer, ConnectionId, Engine, NIL};
use crate::protocol::{ClientId, Key, KeyRef, Millis, Token, Wait};
use std::sync::Arc;

impl Engine {
    pub(super) fn find_lock(&self, hash: u64, key: KeyRef<'_>) -> Option<u32> {
        let spelling = key.spelling();
        self.keys
            .find(hash, |lock| self.locks[lock].key.spelling() == spelling)
    }

    /// The claim that holds `key` with `token`.
    pub(super) fn find_grant(&self, key: KeyRef<'_>, token: Token) -> Option<u32> {
        let lock = self.find_lock(self.hashes.key(key.spelling()), key)?;
        self.holders(lock)
            .find(|claim| self.claims[*claim].token() == Some(token))
    }

    /// The claim on `lock` that a client's acquire with this number made.
    pub(super) fn find_claim(
        &self,
        lock: Option<u32>,
        client: ClientId,
        number: u64,
    ) -> Option<u32> {
        let lock = lock?;
        let is_it = |claim: u32| {
            let found = &self.claims[claim];
            found.number() == Some(number)
                && found.lock == lock
                && self.owner_of(claim).client == Some(client)
        };
        self.holders(lock).find(|claim| is_it(*claim)).or_else(|| {
            if self.locks[lock].queue == NIL {
                return None;
            }
            self.requests
                .find(self.hashes.request(client, number), is_it)
        })
    }

    pub(super) fn holders(&self, lock: u32) -> impl Iterator<Item = u32> {
        self.follow(self.locks[lock].holders)
    }

    pub(super) fn queued(&self, lock: u32) -> impl Iterator<Item = u32> {
        let queue = self.queues.get(self.locks[lock].queue);
        self.follow(queue.map_or(NIL, |queue| queue.head))
    }

    pub(super) fn add_lock(&mut self, key: Key, hash: u64) -> u32 {
        let lock = self.locks.insert(Lock {
            key,
            holders: NIL,
            queue: NIL,
        });
        let (locks, hashes) = (&self.locks, &self.hashes);
        self.keys
            .insert(hash, lock, |lock| hashes.key(locks[lock].key.spelling()));
        lock
    }

    /// The claim of a request that gets the key at once.
    pub(super) fn add_holder(&mut self, request: &Acquire<'_>, lock: u32, token: Token) -> u32 {
        let owner = self.connections[request.connection].owner;
        self.owners[owner].uses += 1;
        let stage = Stage::Held {
            token,
            take_back: Time::NEVER,
            owner,
        };
        let ends = request.now.after(request.lease);
        let claim = Claim::new(lock, request.tag, request.lease, ends, stage);
        let claim = self.claims.insert(claim);
        self.link_holder(claim);
        self.wheel.insert(&mut self.claims, claim);
        self.counts.granted += 1;
        self.record_grant(claim, token);
        claim
    }

    /// The claim of a request that has to wait.
    pub(super) fn add_waiter(&mut self, request: &Acquire<'_>, lock: u32) {
        let ends = match request.wait {
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

    /// Ends a grant at its holder's wish.
    pub(super) fn give_back(&mut self, now: Time, claim: u32) {
        self.counts.released += 1;
        self.end_grant(now, claim, |claim, token| Change::Released { claim, token });
    }

    /// Takes a grant back from its holder.
    pub(super) fn expire_grant(&mut self, now: Time, claim: u32) {
        self.end_grant(now, claim, |claim, token| Change::Expired { claim, token });
    }

    fn end_grant(&mut self, now: Time, claim: u32, change: fn(ClaimId, Token) -> Change) {
        let token = self.claims[claim].token().expect("the claim holds");
        let lock = self.claims[claim].lock;
        self.record(|_| change(ClaimId(claim), token));
        self.unlink_holder(claim);
        self.remove_claim(now, claim);
        self.serve(now, lock);
    }

    /// A waiting claim gives up its place, without a word.
    pub(super) fn leave(&mut self, now: Time, claim: u32) {
        let lock = self.claims[claim].lock;
        self.record(|_| Change::Left {
            claim: ClaimId(claim),
        });
        self.unlink_waiter(claim);
        self.remove_claim(now, claim);
        self.serve(now, lock);
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
        if let Stage::Held { take_back, .. } = &mut grant.stage {
            *take_back = Time::NEVER;
        }
        self.wheel.insert(&mut self.claims, claim);
    }

    /// The reply of a grant did not leave the node; unless another connection has asked since.
    pub(super) fn take_back_later(&mut self, grant: Grant, connection_owner: u32, at: Time) {
        let claim = grant.claim.0;
        let Some(Stage::Held {
            token,
            take_back,
            owner,
        }) = self.stage_mut(claim)
        else {
            return;
        };
        if *token == grant.token && *owner == connection_owner {
            *take_back = at;
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
    /// detached one to come back, and is forgotten if nobody waits.
    pub(super) fn serve(&mut self, now: Time, lock: u32) {
        self.wheel.catch_up(now);
        while self.locks[lock].holders == NIL {
            let Some(head) = self.queued(lock).next() else {
                self.remove_lock(lock);
                return;
            };
            let Stage::Attached { connection, .. } = self.claims[head].stage else {
                break;
            };
            let connection = ConnectionId {
                index: connection,
                generation: self.connections[connection].generation,
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
                None => {
                    self.effects.push_back(Effect::Refused {
                        connection,
                        key,
                        tag,
                        refusal: Refusal::TokensUsedUp,
                    });
                    self.record(|_| Change::Left {
                        claim: ClaimId(head),
                    });
                    self.unlink_waiter(head);
                    self.remove_claim(now, head);
                }
            }
        }
        self.check_lock(lock);
    }

    /// Makes the holder of a waiting claim. Its lease begins now.
    pub(super) fn promote(&mut self, now: Time, claim: u32, token: Token) {
        let owner = match self.claims[claim].stage {
            Stage::Attached { connection, .. } => self.connections[connection].owner,
            Stage::Detached { owner, .. } | Stage::Held { owner, .. } => owner,
        };
        self.owners[owner].uses += 1;
        self.wheel.remove(&mut self.claims, claim);
        self.unlink_waiter(claim);
        self.untie(claim);
        let grant = &mut self.claims[claim];
        grant.deadline = now.after(grant.lease());
        grant.stage = Stage::Held {
            token,
            take_back: Time::NEVER,
            owner,
        };
        self.link_holder(claim);
        self.wheel.insert(&mut self.claims, claim);
        self.counts.granted += 1;
        self.counts.handed_over += 1;
        self.record_grant(claim, token);
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

    /// Forgets a claim that is in no list of its lock any more.
    pub(super) fn remove_claim(&mut self, now: Time, claim: u32) {
        self.wheel.remove(&mut self.claims, claim);
        let attempt = self.claims[claim].attempt;
        if attempt != 0
            && let Some(client) = self.client_of(claim)
            && let Some(number) = self.claims[claim].number()
        {
            self.remember(now, client, number, attempt);
        }
        self.untie(claim);
        self.claims.remove(claim);
    }

    pub(super) fn link_holder(&mut self, claim: u32) {
        let lock = self.claims[claim].lock;
        let first = std::mem::replace(&mut self.locks[lock].holders, claim);
        self.claims[claim].previous = NIL;
        self.claims[claim].next = first;
        if first == NIL {
            self.held += 1;
        } else {
            self.claims[first].previous = claim;
        }
    }

    pub(super) fn unlink_holder(&mut self, claim: u32) {
        let (lock, previous, next) = self.unlink(claim);
        if previous == NIL {
            self.locks[lock].holders = next;
        }
        if self.locks[lock].holders == NIL {
            self.held -= 1;
        }
    }

    /// Puts a claim behind all others that wait for its lock.
    pub(super) fn link_waiter(&mut self, claim: u32) {
        let lock = self.claims[claim].lock;
        let queue = match self.locks[lock].queue {
            NIL => {
                let queue = self.queues.insert(Queue {
                    head: NIL,
                    tail: NIL,
                    length: 0,
                });
                self.locks[lock].queue = queue;
                queue
            }
            queue => queue,
        };
        let queue = &mut self.queues[queue];
        queue.length += 1;
        let last = std::mem::replace(&mut queue.tail, claim);
        if last == NIL {
            queue.head = claim;
        } else {
            self.claims[last].next = claim;
        }
        self.claims[claim].previous = last;
        self.claims[claim].next = NIL;
        self.waiting += 1;
        if let Some(hash) = self.request_hash(claim) {
            let mut requests = std::mem::take(&mut self.requests);
            requests.insert(hash, claim, |claim| self.hash_of_request(claim));
            self.requests = requests;
        }
    }

    pub(super) fn unlink_waiter(&mut self, claim: u32) {
        if let Some(hash) = self.request_hash(claim) {
            let mut requests = std::mem::take(&mut self.requests);
            requests.remove(hash, claim, |claim| self.hash_of_request(claim));
            self.requests = requests;
        }
        let (lock, previous, next) = self.unlink(claim);
        self.waiting -= 1;
        let number = self.locks[lock].queue;
        let queue = &mut self.queues[number];
        queue.length -= 1;
        if previous == NIL {
            queue.head = next;
        }
        if next == NIL {
            queue.tail = previous;
        }
        if queue.length == 0 {
            self.queues.remove(number);
            self.locks[lock].queue = NIL;
        }
    }

    /// Ties the neighbours of a claim together. Returns its lock and them.
    fn unlink(&mut self, claim: u32) -> (u32, u32, u32) {
        let unlinked = &mut self.claims[claim];
        let lock = unlinked.lock;
        let previous = std::mem::replace(&mut unlinked.previous, NIL);
        let next = std::mem::replace(&mut unlinked.next, NIL);
        if previous != NIL {
            self.claims[previous].next = next;
        }
        if next != NIL {
            self.claims[next].previous = previous;
        }
        (lock, previous, next)
    }

    pub(super) fn remove_lock(&mut self, lock: u32) {
        let (locks, hashes) = (&self.locks, &self.hashes);
        let hash_of = |lock: u32| hashes.key(locks[lock].key.spelling());
        self.keys.remove(hash_of(lock), lock, hash_of);
        self.locks.remove(lock);
    }

    fn follow(&self, first: u32) -> impl Iterator<Item = u32> {
        let some = |claim: u32| (claim != NIL).then_some(claim);
        std::iter::successors(some(first), move |claim| some(self.claims[*claim].next))
    }

    pub(super) fn stage_mut(&mut self, claim: u32) -> Option<&mut Stage> {
        self.claims.get_mut(claim).map(|claim| &mut claim.stage)
    }

    /// The hash under which a waiting claim is found, if it can be recognised.
    fn request_hash(&self, claim: u32) -> Option<u64> {
        let client = self.client_of(claim)?;
        let number = self.claims[claim].number()?;
        Some(self.hashes.request(client, number))
    }

    fn hash_of_request(&self, claim: u32) -> u64 {
        self.request_hash(claim)
            .expect("only claims that can be recognised are in the index")
    }

    fn record_grant(&mut self, claim: u32, token: Token) {
        self.record(|engine| engine.granted(claim, token));
    }

    pub(super) fn granted(&self, claim: u32, token: Token) -> Change {
        let granted = &self.claims[claim];
        Change::Granted {
            claim: ClaimId(claim),
            key: self.locks[granted.lock].key.clone(),
            token,
            owner: Arc::clone(self.owner_of(claim)),
            tag: granted.tag(),
            lease: granted.lease(),
            ends: granted.deadline,
        }
    }

    pub(super) fn enqueued(&self, claim: u32) -> Change {
        let waiter = &self.claims[claim];
        Change::Enqueued {
            claim: ClaimId(claim),
            key: self.locks[waiter.lock].key.clone(),
            owner: Arc::<Owner>::clone(self.owner_of(claim)),
            tag: waiter.tag(),
            lease: waiter.lease(),
            since: self.waiting_since(claim),
            ends: waiter.deadline,
        }
    }

    pub(super) fn waiting_since(&self, claim: u32) -> Time {
        match self.claims[claim].stage {
            Stage::Attached { since, .. } | Stage::Detached { since, .. } => since,
            Stage::Held { .. } => Time::NEVER,
        }
    }

    /// Notes a change if anybody wants to know; otherwise it is not even made.
    #[inline]
    pub(super) fn record(&mut self, change: impl FnOnce(&Engine) -> Change) {
        if self.settings.record_changes {
            let change = change(self);
            self.changes.push_back(change);
        }
    }
}
