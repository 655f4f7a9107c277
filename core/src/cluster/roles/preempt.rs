//! How long a better node has to wait for the active place.

use crate::cluster::members::Slot;
use crate::cluster::message::Timing;
use crate::engine::Time;
use crate::protocol::Millis;

/// How long a better node has to wait for the active place: longer after each time it went wrong.
#[derive(Clone, Debug)]
pub(super) struct Preempt {
    pub(super) timing: Timing,
    /// By slot: the delay, and when it last went wrong.
    delays: Vec<(Slot, Millis, Time)>,
}

impl Preempt {
    pub(super) fn new(timing: Timing) -> Preempt {
        Preempt {
            timing,
            delays: Vec::new(),
        }
    }

    pub(super) fn trouble(&mut self, slot: Slot, now: Time) {
        let doubled = Millis(self.delay(slot, now).0 * 2).min(self.timing.preempt_delay_max);
        self.delays.retain(|(known, ..)| *known != slot);
        self.delays.push((slot, doubled, now));
    }

    pub(super) fn delay(&self, slot: Slot, now: Time) -> Millis {
        self.delays
            .iter()
            .find(|(known, _, last)| *known == slot && now < last.after(self.timing.calm))
            .map_or(self.timing.preempt_delay, |(_, delay, _)| *delay)
    }

    /// The delay without a look at the time: when to look again at the latest.
    pub(super) fn longest(&self, slot: Slot) -> Millis {
        self.delays
            .iter()
            .find(|(known, ..)| *known == slot)
            .map_or(self.timing.preempt_delay, |(_, delay, _)| *delay)
    }

    /// See [`super::Roles::fingerprint`].
    #[cfg(test)]
    pub(super) fn fingerprint(&self, now: Time, into: &mut impl std::hash::Hasher) {
        use super::age;
        use std::hash::Hash;
        let mut delays: Vec<(Slot, u64, u64)> = self
            .delays
            .iter()
            .map(|(slot, delay, last)| (*slot, delay.0, age(now, *last, self.timing.calm.0)))
            .collect();
        delays.sort_unstable();
        delays.hash(into);
    }
}
