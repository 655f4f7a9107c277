//! How long things took, counted in fixed steps: each twice as wide as the one before.

/// Counts of times by their length. Counting one is a handful of instructions: every release counts one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    /// By the number of whole microseconds: the first step has none or one, the next two and three, and so on.
    counts: [u64; STEPS],
    micros: u64,
}

/// As many as a number of microseconds has bits, so that every time has one without being looked at twice.
const STEPS: usize = u64::BITS as usize;

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: [0; STEPS],
            micros: 0,
        }
    }
}

impl Histogram {
    /// Counts a time, of which only whole microseconds are known.
    #[inline]
    pub(crate) fn add(&mut self, micros: u64) {
        self.counts[(micros | 1).ilog2() as usize] += 1;
        self.micros = self.micros.wrapping_add(micros);
    }

    /// Counts a time as often as several things took just as long.
    pub(crate) fn add_some(&mut self, micros: u64, count: u64) {
        self.counts[(micros | 1).ilog2() as usize] += count;
        self.micros = self.micros.wrapping_add(micros.wrapping_mul(count));
    }

    /// How many times there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All times together, in seconds.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.micros as f64 / 1e6
    }

    /// For each step, below how many microseconds its times were, as a power of two, and how many it has counted.
    pub fn steps(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (1..).zip(self.counts.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_first_step_that_ends_behind_it() {
        for (micros, power) in [
            (0, 1),
            (1, 1),
            (2, 2),
            (3, 2),
            (4, 3),
            ((1 << 20) - 1, 20),
            (1 << 20, 21),
            (u64::MAX, 64),
        ] {
            let mut histogram = Histogram::default();
            histogram.add(micros);
            let counted: Vec<_> = histogram.steps().filter(|(_, count)| *count > 0).collect();
            assert_eq!(counted, [(power, 1)], "{micros}");
        }
    }

    #[test]
    fn the_sum_is_that_of_all_times() {
        let mut histogram = Histogram::default();
        histogram.add(500_000);
        histogram.add_some(250_000, 2);
        assert_eq!((histogram.count(), histogram.sum()), (3, 1.0));
    }
}
