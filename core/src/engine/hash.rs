//! The hash of keys and requests: multiplications of 64 × 64 bits folded together, mixed with secret
//! words, so that nobody who does not know the seed can choose inputs that collide.

use crate::protocol::ClientId;

/// A hash function of its own for each seed.
pub(super) struct SecretHash {
    words: [u64; 4],
}

impl SecretHash {
    pub(super) fn new(seed: u64) -> SecretHash {
        let mut state = seed;
        SecretHash {
            words: std::array::from_fn(|_| split_mix(&mut state)),
        }
    }

    pub(super) fn key(&self, spelling: &[u8]) -> u64 {
        let [first, second, third, fourth] = self.words;
        let mut state = first;
        let mut rest = spelling;
        while rest.len() > 16 {
            state = fold(word(rest, 0) ^ second, word(rest, 8) ^ state);
            rest = &rest[16..];
        }
        let (low, high) = match rest.len() {
            8.. => (word(rest, 0), word(rest, rest.len() - 8)),
            4.. => (half(rest, 0), half(rest, rest.len() - 4)),
            length @ 1.. => (
                u64::from(rest[0]) << 8 | u64::from(rest[length / 2]),
                u64::from(rest[length - 1]),
            ),
            0 => (0, 0),
        };
        let folded = fold(low ^ third, high ^ state);
        fold(folded ^ fourth, spelling.len() as u64 ^ second)
    }

    pub(super) fn request(&self, client: ClientId, number: u64) -> u64 {
        let [first, second, third, fourth] = self.words;
        let folded = fold(word(&client.0, 0) ^ first, word(&client.0, 8) ^ second);
        fold(folded ^ third, number ^ fourth)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..at + 8].try_into();
    u64::from_le_bytes(bytes.expect("the slice has eight bytes"))
}

fn half(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..at + 4].try_into();
    u64::from(u32::from_le_bytes(bytes.expect("the slice has four bytes")))
}

fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::SecretHash;
    use std::collections::BTreeSet;

    #[test]
    fn keys_that_are_much_alike_spread_over_all_bits() {
        let hash = SecretHash::new(7);
        let mut seen = BTreeSet::new();
        let mut low = vec![0_u32; 256];
        let mut high = vec![0_u32; 256];
        let mut keys = 0_u32;
        for length in 1..40 {
            for number in 0..2000_u32 {
                let mut key = format!("{number:0length$}").into_bytes();
                if key.len() != length {
                    continue;
                }
                key[length / 2] ^= 1;
                let hashed = hash.key(&key);
                keys += u32::from(seen.insert(hashed));
                low[hashed as usize % 256] += 1;
                high[(hashed >> 56) as usize] += 1;
            }
        }
        assert!(keys > 70_000);
        let fair = keys / 256;
        for count in low.into_iter().chain(high) {
            assert!(count.abs_diff(fair) < fair / 3, "{count} of {fair}");
        }
    }

    #[test]
    fn another_seed_is_another_hash() {
        let (one, other) = (SecretHash::new(1), SecretHash::new(2));
        assert_ne!(one.key(b"order:42"), other.key(b"order:42"));
    }
}
