//! The memory of attempts: which copies of a request that is over are late and must not be granted.

use super::hash::SecretHash;
use super::slab::{NIL, Slab};
use super::table::Table;
use super::time::Time;
use crate::protocol::{ClientId, Millis};
use std::num::NonZeroU32;

/// The highest attempt seen of requests that are over, oldest first, bounded in number and time.
pub(super) struct Attempts {
    memories: Slab<Memory>,
    index: Table,
    oldest: u32,
    newest: u32,
    limit: u32,
    length: Millis,
    forgotten: u64,
}

struct Memory {
    client: ClientId,
    number: u64,
    attempt: NonZeroU32,
    at: Time,
    next: u32,
    previous: u32,
}

/// One memory, for a copy of the state.
#[derive(Clone, Copy)]
pub(super) struct Remembered {
    pub(super) client: ClientId,
    pub(super) number: u64,
    pub(super) attempt: u32,
    pub(super) at: Time,
}

impl Attempts {
    pub(super) fn new(limit: u32, length: Millis) -> Attempts {
        Attempts {
            memories: Slab::new(),
            index: Table::new(256),
            oldest: NIL,
            newest: NIL,
            limit,
            length,
            forgotten: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.memories.len()
    }

    /// How many were forgotten because there were too many.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The highest attempt remembered, 0 for none. `hash` is that of client and number.
    pub(super) fn highest(&self, hash: u64, client: ClientId, number: u64) -> u32 {
        if self.memories.len() == 0 {
            return 0;
        }
        let found = self.find(hash, client, number);
        found.map_or(0, |memory| self.memories[memory].attempt.get())
    }

    /// Remembers an attempt from now on, unless it is the first, which drops nothing. Returns what is
    /// remembered.
    pub(super) fn remember(
        &mut self,
        hashes: &SecretHash,
        client: ClientId,
        number: u64,
        attempt: u32,
        at: Time,
    ) -> Option<Remembered> {
        let hash = hashes.request(client, number);
        let found = self.find(hash, client, number);
        let known = found.map_or(0, |memory| self.memories[memory].attempt.get());
        let attempt = NonZeroU32::new(attempt.max(known)).filter(|_| self.limit > 0)?;
        if let Some(memory) = found {
            self.forget(hashes, memory);
        } else if self.memories.len() >= self.limit as usize {
            self.forgotten += 1;
            self.forget(hashes, self.oldest);
        }
        let memory = self.memories.insert(Memory {
            client,
            number,
            attempt,
            at,
            next: NIL,
            previous: self.newest,
        });
        match self.newest {
            NIL => self.oldest = memory,
            newest => self.memories[newest].next = memory,
        }
        self.newest = memory;
        let memories = &self.memories;
        let hash_of = |memory| hash_of(hashes, &memories[memory]);
        self.index.insert(hash, memory, hash_of);
        Some(Remembered {
            client,
            number,
            attempt: attempt.get(),
            at,
        })
    }

    /// When the next one may be forgotten.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let oldest = self.memories.get(self.oldest)?;
        Some(oldest.at.after(self.length))
    }

    /// Forgets what is old enough, at most `budget` of it.
    pub(super) fn expire(&mut self, hashes: &SecretHash, now: Time, budget: &mut usize) {
        while *budget > 0 && self.next_deadline().is_some_and(|deadline| deadline <= now) {
            *budget -= 1;
            self.forget(hashes, self.oldest);
        }
    }

    /// Oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Remembered> {
        let next = |memory: &&Memory| self.memories.get(memory.next);
        std::iter::successors(self.memories.get(self.oldest), next).map(|memory| Remembered {
            client: memory.client,
            number: memory.number,
            attempt: memory.attempt.get(),
            at: memory.at,
        })
    }

    /// Panics if list, index and limit do not agree.
    pub(super) fn check(&self, hashes: &SecretHash) {
        assert!(self.len() <= self.limit as usize);
        assert_eq!(self.index.len(), self.len());
        let mut listed = 0;
        let mut previous = Time(0);
        for memory in self.iter() {
            assert!(memory.at >= previous, "the oldest is forgotten first");
            previous = memory.at;
            let hash = hashes.request(memory.client, memory.number);
            let highest = self.highest(hash, memory.client, memory.number);
            assert_eq!(highest, memory.attempt);
            listed += 1;
        }
        assert_eq!(listed, self.len());
    }

    fn find(&self, hash: u64, client: ClientId, number: u64) -> Option<u32> {
        self.index.find(hash, |memory| {
            let memory = &self.memories[memory];
            memory.number == number && memory.client == client
        })
    }

    fn forget(&mut self, hashes: &SecretHash, number: u32) {
        let hash = hash_of(hashes, &self.memories[number]);
        let memories = &self.memories;
        self.index
            .remove(hash, number, |memory| hash_of(hashes, &memories[memory]));
        let memory = self.memories.remove(number);
        match memory.previous {
            NIL => self.oldest = memory.next,
            previous => self.memories[previous].next = memory.next,
        }
        match memory.next {
            NIL => self.newest = memory.previous,
            next => self.memories[next].previous = memory.previous,
        }
    }
}

fn hash_of(hashes: &SecretHash, memory: &Memory) -> u64 {
    hashes.request(memory.client, memory.number)
}
