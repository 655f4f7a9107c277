//! A set of small numbers that finds its lowest member at or above a number in a few steps, however
//! many numbers lie between: words of bits, words that tell which of those have any, and so on.

/// A set of `usize`, dense from 0.
#[derive(Default)]
pub(super) struct BitSet {
    /// `levels[0]` has a bit for each number, each further level a bit for each word below it. The
    /// last one is a single word.
    levels: Vec<Vec<u64>>,
}

const BITS: usize = 6;
const WORD: usize = 1 << BITS;

impl BitSet {
    pub(super) fn new() -> BitSet {
        BitSet::default()
    }

    pub(super) fn insert(&mut self, member: usize) {
        if self
            .levels
            .first()
            .is_none_or(|words| member >> BITS >= words.len())
        {
            self.grow(member);
        }
        let mut index = member;
        for words in &mut self.levels {
            let word = &mut words[index >> BITS];
            let was_empty = *word == 0;
            *word |= 1 << (index % WORD);
            if !was_empty {
                return;
            }
            index >>= BITS;
        }
    }

    pub(super) fn remove(&mut self, member: usize) {
        let mut index = member;
        for words in &mut self.levels {
            let Some(word) = words.get_mut(index >> BITS) else {
                return;
            };
            *word &= !(1 << (index % WORD));
            if *word != 0 {
                return;
            }
            index >>= BITS;
        }
    }

    /// The lowest member.
    pub(super) fn first(&self) -> Option<usize> {
        let top = self.levels.last()?;
        (top[0] != 0).then(|| self.descend(self.levels.len(), 0))
    }

    /// The lowest member that is not below `from`.
    pub(super) fn first_from(&self, from: usize) -> Option<usize> {
        let mut index = from;
        for (level, words) in self.levels.iter().enumerate() {
            let word = *words.get(index >> BITS)? & (u64::MAX << (index % WORD));
            if word != 0 {
                let found = (index & !(WORD - 1)) + word.trailing_zeros() as usize;
                return Some(self.descend(level, found));
            }
            index = (index >> BITS) + 1;
        }
        None
    }

    /// The lowest member under bit `index` of `level`, which is set.
    fn descend(&self, level: usize, mut index: usize) -> usize {
        for words in self.levels[..level].iter().rev() {
            index = (index << BITS) + words[index].trailing_zeros() as usize;
        }
        index
    }

    fn grow(&mut self, member: usize) {
        let mut needed = (member >> BITS) + 1;
        let mut level = 0;
        loop {
            if level == self.levels.len() {
                // A new top has to know of what is already below it.
                let below = level.checked_sub(1).map(|below| &self.levels[below]);
                let known = below.is_some_and(|words| words[0] != 0);
                self.levels.push(vec![u64::from(known)]);
            }
            let words = &mut self.levels[level];
            if words.len() < needed {
                words.resize(needed, 0);
            }
            if words.len() == 1 {
                return;
            }
            needed = words.len().div_ceil(WORD);
            level += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BitSet;
    use std::collections::BTreeSet;

    #[test]
    fn finds_what_a_sorted_set_finds() {
        for spread in [3_usize, 70, 5000, 300_000] {
            let mut bits = BitSet::new();
            let mut sorted = BTreeSet::new();
            let mut random = 1_u64;
            for _ in 0..4000 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let member = (random >> 33) as usize % spread;
                if random >> 60 & 1 == 0 {
                    bits.insert(member);
                    sorted.insert(member);
                } else {
                    bits.remove(member);
                    sorted.remove(&member);
                }
                assert_eq!(bits.first(), sorted.first().copied());
                let from = (random >> 20) as usize % (spread + 2);
                assert_eq!(bits.first_from(from), sorted.range(from..).next().copied());
            }
        }
    }
}
