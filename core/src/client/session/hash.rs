//! How the maps of a session find their places: quickly, without chance and the same in every run with the same seed.
//! None of them is ever gone through in the order of its places.

use crate::protocol::Key;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Deref;

/// For maps of tags, which this client has given out itself in a row: nobody can choose them to collide.
pub(super) type Quick = BuildHasherDefault<QuickHasher>;

#[derive(Default)]
pub(super) struct QuickHasher(u64);

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517C_C1B7_2722_0A95);
    }

    fn finish(&self) -> u64 {
        // The map takes its places from the upper and the lower bits.
        self.0 ^ (self.0 >> 32)
    }
}

/// A key and where it stands in tables of keys: worked out once for an acquire and all that follows from it.
#[derive(Clone)]
pub(super) struct HashedKey {
    pub(super) key: Key,
    pub(super) hash: u32,
}

impl Deref for HashedKey {
    type Target = Key;

    fn deref(&self) -> &Key {
        &self.key
    }
}

/// For tables of keys, which may be texts of people who want them to collide: where they go depends on the client's seed,
/// which nobody else knows.
#[derive(Clone, Copy)]
pub(super) struct Seeded {
    start: u64,
    factor: u64,
}

impl Seeded {
    pub(super) fn new(seed: u64) -> Seeded {
        let start = folded(seed ^ 0x2437_53E2_83F8_6E9D, 0x9E37_79B9_7F4A_7C15);
        let factor = folded(seed ^ 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB);
        // No factor may forget what it is multiplied with.
        Seeded {
            start,
            factor: factor | 1 << 63 | 1,
        }
    }
}

impl Seeded {
    pub(super) fn hashed(self, key: Key) -> HashedKey {
        let hash = self.hash(key.spelling());
        HashedKey { key, hash }
    }

    pub(super) fn hash(self, spelling: &[u8]) -> u32 {
        let add = |state, word| folded(state ^ word, self.factor);
        let (words, rest) = spelling.as_chunks();
        let state = words.iter().fold(self.start, |state, word| {
            add(state, u64::from_le_bytes(*word))
        });
        // The last eight bytes overlap those before; the length is added besides.
        let last = match spelling.last_chunk() {
            Some(last) => u64::from_le_bytes(*last),
            None => rest
                .iter()
                .fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        add(add(state, last), spelling.len() as u64) as u32
    }
}

/// Both halves of the product, so that every bit of a word reaches both ends: from the lower half alone the upper bits of two words
/// could be chosen to collide whatever the factor is.
fn folded(word: u64, factor: u64) -> u64 {
    let product = u128::from(word) * u128::from(factor);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn hashes(seed: u64, keys: &[Vec<u8>]) -> BTreeSet<u32> {
        let seeded = Seeded::new(seed);
        keys.iter().map(|key| seeded.hash(key)).collect()
    }

    /// Goal: who chooses keys cannot choose them to collide. Method: the keys of all choices of one of two parts, of which
    /// the second undoes what the first has changed in the upper bit of a product, whatever it is multiplied with.
    #[test]
    fn keys_that_are_chosen_to_collide_do_not() {
        let pairs = [b"AAAAAAAAAAAAAAAA", b"AAAAAAA\xC1QAAAAAAA"];
        let keys: Vec<Vec<u8>> = (0_u32..1 << 12)
            .map(|choice| {
                let parts = (0..12).map(|bit| *pairs[(choice >> bit & 1) as usize]);
                parts.flatten().collect()
            })
            .collect();
        for seed in [0, 1, u64::MAX, 0xDEAD_BEEF] {
            // Of 32 bits a few may be the same by chance.
            let different = hashes(seed, &keys).len();
            assert!(different + 8 >= keys.len(), "seed {seed}: {different}");
        }
        let (first, second) = (hashes(1, &keys), hashes(2, &keys));
        assert!(first.intersection(&second).count() < 8);
        assert_eq!(hashes(1, &keys), hashes(1, &keys), "the same in every run");
    }
}
