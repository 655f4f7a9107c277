//! How long things took, counted in fixed steps: each twice as wide as the one before.

/// Counts of times by their length. Counting one is a handful of instructions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    /// By the number of the smallest power of two, in microseconds, that is not shorter.
    counts: [u64; Histogram::STEPS],
    micros: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: [0; Histogram::STEPS],
            micros: 0,
        }
    }
}

impl Histogram {
    /// How many steps there are. The last but one ends after twelve days.
    pub const STEPS: usize = 42;

    /// Counts a time.
    #[inline]
    pub(crate) fn add(&mut self, micros: u64) {
        self.add_some(micros, 1);
    }

    /// Counts a time as often as several things took just as long.
    #[inline]
    pub(crate) fn add_some(&mut self, micros: u64, count: u64) {
        let step = (u64::BITS - micros.saturating_sub(1).leading_zeros()) as usize;
        self.counts[step.min(Self::STEPS - 1)] += count;
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

    /// The longest time that each step counts, in microseconds (`None`: without end), and how many it has counted.
    pub fn steps(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let ends = (0..Self::STEPS).map(|step| (step + 1 < Self::STEPS).then(|| 1 << step));
        ends.zip(self.counts.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_first_step_that_is_not_shorter() {
        for (micros, end) in [
            (0, Some(1)),
            (1, Some(1)),
            (2, Some(2)),
            (3, Some(4)),
            (1 << 20, Some(1 << 20)),
            ((1 << 20) + 1, Some(1 << 21)),
            (1 << 40, Some(1 << 40)),
            ((1 << 40) + 1, None),
            (u64::MAX, None),
        ] {
            let mut histogram = Histogram::default();
            histogram.add(micros);
            let counted: Vec<_> = histogram.steps().filter(|(_, count)| *count > 0).collect();
            assert_eq!(counted, [(end, 1)], "{micros}");
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
