//! Finds the number of something by its hash. Many small tables instead of a large one: growing moves
//! a few thousand entries at most, and a list can go from one to the next.

use hashbrown::HashTable;

/// Numbers by hash; what they number lies elsewhere.
#[derive(Default)]
pub(super) struct Table {
    shards: Box<[HashTable<u32>]>,
    len: usize,
}

/// A number that was looked up.
pub(super) enum Found {
    /// It is in the table no more.
    Taken(u32),
    Left(u32),
}

/// The tables use the lowest bits of a hash and the seven highest; these are others.
const SHARD_SHIFT: u32 = 40;

/// Tables smaller than this are not made smaller.
const SMALL: usize = 7;

impl Table {
    /// `shards` has to be a power of two.
    pub(super) fn new(shards: usize) -> Table {
        assert!(shards.is_power_of_two() && shards <= 1 << 16);
        Table {
            shards: (0..shards).map(|_| HashTable::new()).collect(),
            len: 0,
        }
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let shard = &self.shards[self.shard_of(hash)];
        shard.find(hash, |number| is_it(*number)).copied()
    }

    /// Adds a number that is not there. `hash_of` tells the hash of what a number stands for.
    pub(super) fn insert(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        let shard = self.shard_of(hash);
        self.len += 1;
        self.shards[shard].insert_unique(hash, number, |number| hash_of(*number));
    }

    #[inline]
    pub(super) fn remove(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        let found = self.take_if(hash, |other| other == number, |_| true, hash_of);
        assert!(
            matches!(found, Some(Found::Taken(_))),
            "what is removed was inserted under the same hash"
        );
    }

    /// Finds the number that `is_it`, and takes it out if it `may_go`.
    #[inline]
    pub(super) fn take_if(
        &mut self,
        hash: u64,
        is_it: impl Fn(u32) -> bool,
        may_go: impl FnOnce(u32) -> bool,
        hash_of: impl Fn(u32) -> u64,
    ) -> Option<Found> {
        let shard = self.shard_of(hash);
        let table = &mut self.shards[shard];
        let entry = table.find_entry(hash, |number| is_it(*number)).ok()?;
        let number = *entry.get();
        if !may_go(number) {
            return Some(Found::Left(number));
        }
        entry.remove();
        self.len -= 1;
        if table.capacity() > SMALL && table.len() < table.capacity() / 8 {
            table.shrink_to(table.len() * 2, |number| hash_of(*number));
        }
        Some(Found::Taken(number))
    }

    pub(super) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    #[inline]
    pub(super) fn shard_of(&self, hash: u64) -> usize {
        (hash >> SHARD_SHIFT) as usize & (self.shards.len() - 1)
    }

    /// The numbers of a shard in no particular order.
    pub(super) fn shard(&self, shard: usize) -> impl Iterator<Item = u32> {
        self.shards[shard].iter().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}
