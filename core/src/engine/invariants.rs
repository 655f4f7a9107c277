//! Everything that is true of an engine between two calls. A failure is a bug and panics.

use super::Engine;
use super::lock::Stage;
use super::slab::NIL;
use super::time::Time;
use super::wheel::Timed;
use std::collections::BTreeMap;

impl Engine {
    /// Checks all of it; the cost grows with the state. For tests.
    pub fn check_invariants(&self) {
        let mut holding = 0;
        let mut waiting = 0;
        let mut held = 0;
        for (lock, _) in self.locks.iter() {
            self.check_shape(lock);
            let holders = self.holders(lock).count();
            holding += holders;
            held += usize::from(holders > 0);
            waiting += self.check_queue(lock);
        }
        assert_eq!(
            self.keys.len(),
            self.locks.len(),
            "the table knows each lock"
        );
        assert_eq!((self.held, self.waiting), (held, waiting));
        assert_eq!(
            self.claims.len(),
            holding + waiting,
            "each claim holds or waits"
        );
        self.check_claims();
        self.check_connections();
        self.attempts.check(&self.hashes);
        assert!(self.locks.len() <= self.settings.max_keys as usize);
        assert!(self.waiting <= self.settings.max_waiters as usize);
    }

    /// Checks what can be seen of one lock at little cost. Called after every step of a debug build.
    pub(super) fn check_lock(&self, lock: u32) {
        if cfg!(debug_assertions) {
            self.check_shape(lock);
        }
    }

    pub(super) fn check_lock_of(&self, claim: u32) {
        self.check_lock(self.claims[claim].lock);
    }

    fn check_shape(&self, number: u32) {
        let lock = &self.locks[number];
        let hash = self.hashes.key(lock.key.spelling());
        assert_eq!(self.find_lock(hash, lock.key.as_ref()), Some(number));
        let holders = self.holders(number).count();
        assert!(
            holders <= 1 || self.merged,
            "one holder a key, and several only after a merge"
        );
        for claim in self.holders(number) {
            let token = self.claims[claim].token().expect("a holder has a token");
            assert!(Some(token) <= self.tokens.highest(), "tokens only rise");
            assert_eq!(self.claims[claim].lock, number);
        }
        if lock.queue == NIL {
            assert!(holders > 0, "nothing is kept for an idle key");
            return;
        }
        let queue = &self.queues[lock.queue];
        assert!(queue.length > 0, "an empty queue is gone");
        assert!(queue.length <= self.settings.max_waiters_per_key);
        assert_eq!(self.claims[queue.head].previous, NIL);
        assert_eq!(self.claims[queue.tail].next, NIL);
        assert_eq!(queue.head == queue.tail, queue.length == 1);
        let waits_for_nobody = match self.claims[queue.head].stage {
            Stage::Detached { .. } => true,
            Stage::Attached { connection, .. } => {
                self.listener(connection).is_none() || self.unserved.contains(&lock.key)
            }
            Stage::Held { .. } => false,
        };
        assert!(
            holders > 0 || waits_for_nobody,
            "a free lock waits only for a client that is to come back, or for the rest of a step"
        );
    }

    /// Walks the queue of a lock. Returns its length.
    fn check_queue(&self, lock: u32) -> usize {
        let mut previous = NIL;
        let mut since = Time(0);
        let mut length = 0;
        for claim in self.queued(lock) {
            let waiter = &self.claims[claim];
            assert_eq!((waiter.lock, waiter.previous), (lock, previous));
            assert_eq!(waiter.token(), None, "who waits holds nothing");
            assert!(waiter.since() >= since, "first come, first served");
            since = waiter.since();
            previous = claim;
            length += 1;
        }
        let queue = self.queues.get(self.locks[lock].queue);
        let expected = queue.map_or((NIL, 0), |queue| (queue.tail, queue.length as usize));
        assert_eq!((previous, length), expected);
        length
    }

    fn check_claims(&self) {
        let mut uses = BTreeMap::new();
        let mut timers = 0;
        let mut detached = 0;
        let mut indexed = 0;
        for (number, claim) in self.claims.iter() {
            let has_end = claim.due() != Time::NEVER;
            assert_eq!(claim.timer().is_on(), has_end, "what can end has a timer");
            timers += usize::from(has_end);
            let recognised = self.recognise(claim);
            match claim.stage {
                Stage::Attached { connection, .. } => {
                    assert!(self.connections.get(connection).is_some());
                }
                Stage::Detached { owner, .. } => {
                    *uses.entry(owner).or_insert(0) += 1;
                    detached += 1;
                }
                Stage::Held { owner, .. } => *uses.entry(owner).or_insert(0) += 1,
            }
            if let (None, Some((client, asked))) = (claim.token(), recognised) {
                let found = self.find_claim(Some(claim.lock), client, asked);
                assert_eq!(found, Some(number), "index and queue agree");
                indexed += 1;
            }
        }
        for (number, connection) in self.connections.iter() {
            assert_eq!(
                connection.gone.is_some(),
                self.parting.contains(&number),
                "what is gone is being seen to"
            );
            *uses.entry(connection.owner).or_insert(0) += 1;
        }
        assert_eq!(self.wheel.len(), timers);
        assert_eq!(self.detached, detached);
        assert_eq!(self.requests.len(), indexed);
        assert_eq!(self.owners.len(), uses.len(), "no owner without use");
        for (owner, uses) in uses {
            assert_eq!(self.owners[owner].uses, uses);
        }
    }

    fn check_connections(&self) {
        let mut attached = 0;
        for (number, connection) in self.connections.iter() {
            assert_eq!(
                self.owners[connection.owner].owner.client,
                connection.client
            );
            let mut before = NIL;
            let mut claim = connection.waiting;
            let mut count = 0;
            while claim != NIL {
                let Stage::Attached {
                    connection,
                    previous,
                    next,
                    ..
                } = self.claims[claim].stage
                else {
                    panic!("a connection lists only claims that are attached to it");
                };
                assert_eq!((connection, previous), (number, before));
                before = claim;
                claim = next;
                count += 1;
            }
            assert_eq!(connection.waiting_count, count);
            assert!(count <= self.settings.max_waiting_per_connection);
            attached += count as usize;
        }
        assert_eq!(attached + self.detached, self.waiting);
    }
}
