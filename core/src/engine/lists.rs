//! Where claims are found: the lock of a key, its holders and its queue, and the index of those who
//! wait.

use super::connections::Connection;
use super::hash::SecretHash;
use super::lock::{Claim, Lock, Place, Queue, Stage};
use super::slab::Slab;
use super::{Engine, NIL, SharedOwner};
use crate::protocol::{ClientId, KeyRef, Token};

impl Engine {
    #[inline]
    pub(super) fn find_lock(&self, hash: u64, key: KeyRef<'_>) -> Option<u32> {
        let spelling = key.spelling();
        self.keys
            .find(hash, |lock| self.locks[lock].key.spelling() == spelling)
    }

    /// The claim that holds `key`, which has this hash, with `token`.
    #[inline]
    pub(super) fn find_grant(&self, hash: u64, key: KeyRef<'_>, token: Token) -> Option<u32> {
        let lock = self.find_lock(hash, key)?;
        self.holder(lock, token)
    }

    /// The claim that holds `lock` with `token`.
    #[inline]
    pub(super) fn holder(&self, lock: u32, token: Token) -> Option<u32> {
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
            let claim = &self.claims[claim];
            claim.number() == Some(number)
                && claim.lock == lock
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

    /// The client whose claim this is, and its number, if it can be recognised when it is sent again.
    pub(super) fn recognise(&self, claim: &Claim) -> Option<(ClientId, u64)> {
        let number = claim.number()?;
        Some((self.owner_of(claim).client?, number))
    }

    /// The hash under which a waiting claim is found, if it can be recognised.
    pub(super) fn request_hash(&self, claim: &Claim) -> Option<u64> {
        let (client, number) = self.recognise(claim)?;
        Some(self.hashes.request(client, number))
    }

    pub(super) fn holders(&self, lock: u32) -> impl Iterator<Item = u32> {
        self.follow(self.locks[lock].holders)
    }

    pub(super) fn queued(&self, lock: u32) -> impl Iterator<Item = u32> {
        let queue = self.queues.get(self.locks[lock].queue);
        self.follow(queue.map_or(NIL, |queue| queue.head))
    }

    pub(super) fn add_lock(&mut self, key: KeyRef<'_>, hash: u64) -> u32 {
        let lock = self.locks.insert(Lock {
            key: key.to_key(),
            holders: NIL,
            queue: NIL,
        });
        let (locks, hashes) = (&self.locks, &self.hashes);
        self.keys
            .insert(hash, lock, |lock| hashes.key(locks[lock].key.spelling()));
        lock
    }

    /// `hash` is that of the key, where the caller knows it.
    pub(super) fn remove_lock(&mut self, lock: u32, hash: Option<u64>) {
        let (locks, hashes) = (&self.locks, &self.hashes);
        let hash_of = |lock: u32| hashes.key(locks[lock].key.spelling());
        let hash = hash.unwrap_or_else(|| hash_of(lock));
        self.keys.remove(hash, lock, hash_of);
        self.locks.discard(lock);
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

    /// Takes a claim that holds out of its place. The lock may be without a holder then.
    pub(super) fn unlink_holder(&mut self, place: Place) {
        self.unlink(place);
        let lock = &mut self.locks[place.lock];
        if place.previous == NIL {
            lock.holders = place.next;
        }
        if lock.holders == NIL {
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
        if let Some(hash) = self.request_hash(&self.claims[claim]) {
            let index = Index::of(&self.claims, &self.connections, &self.owners, &self.hashes);
            self.requests.insert(hash, claim, |claim| index.hash(claim));
        }
    }

    /// Takes a waiting claim out of its place in the queue, and out of the index if it is there under
    /// `hash`.
    pub(super) fn unlink_waiter(&mut self, claim: u32, place: Place, hash: Option<u64>) {
        if let Some(hash) = hash {
            let index = Index::of(&self.claims, &self.connections, &self.owners, &self.hashes);
            self.requests.remove(hash, claim, |claim| index.hash(claim));
        }
        self.unlink(place);
        self.waiting -= 1;
        let number = self.locks[place.lock].queue;
        let queue = &mut self.queues[number];
        queue.length -= 1;
        if place.previous == NIL {
            queue.head = place.next;
        }
        if place.next == NIL {
            queue.tail = place.previous;
        }
        if queue.length == 0 {
            self.queues.remove(number);
            self.locks[place.lock].queue = NIL;
        }
    }

    /// Ties the neighbours of a place together.
    fn unlink(&mut self, place: Place) {
        if place.previous != NIL {
            self.claims[place.previous].next = place.next;
        }
        if place.next != NIL {
            self.claims[place.next].previous = place.previous;
        }
    }

    /// A claim and all behind it.
    pub(super) fn follow(&self, first: u32) -> impl Iterator<Item = u32> {
        let some = |claim: u32| (claim != NIL).then_some(claim);
        std::iter::successors(some(first), move |claim| some(self.claims[*claim].next))
    }
}

/// What tells the hash of a claim in the index of those who wait, while that index is changed.
struct Index<'a> {
    claims: &'a Slab<Claim>,
    connections: &'a Slab<Connection>,
    owners: &'a Slab<SharedOwner>,
    hashes: &'a SecretHash,
}

impl<'a> Index<'a> {
    fn of(
        claims: &'a Slab<Claim>,
        connections: &'a Slab<Connection>,
        owners: &'a Slab<SharedOwner>,
        hashes: &'a SecretHash,
    ) -> Index<'a> {
        Index {
            claims,
            connections,
            owners,
            hashes,
        }
    }

    fn hash(&self, claim: u32) -> u64 {
        let claim = &self.claims[claim];
        let owner = match claim.stage {
            Stage::Attached { connection, .. } => self.connections[connection].owner,
            Stage::Detached { owner, .. } | Stage::Held { owner, .. } => owner,
        };
        let client = self.owners[owner].owner.client.zip(claim.number());
        let (client, number) = client.expect("only claims that can be recognised are in the index");
        self.hashes.request(client, number)
    }
}
