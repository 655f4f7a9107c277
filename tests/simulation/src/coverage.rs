//! What has happened in the runs, counted, so that nobody believes a fault was tried that never came.

use std::collections::BTreeMap;

/// Everything that a large enough number of runs must have seen.
pub const KINDS: &[&str] = &[
    "grant",
    "hand-over",
    "wait ended",
    "lease ended",
    "try without luck",
    "cancel",
    "release",
    "stale release",
    "keep",
    "lost lock told",
    "register refused",
    "request moved",
    "active node told",
    "parked",
    "parked request served",
    "parked request moved",
    "parked request timed out",
    "parked request unavailable",
    "detached",
    "place taken up again",
    "request sent again",
    "late copy dropped",
    "grant taken back",
    "silent connection closed",
    "election: start",
    "election: takeover",
    "election: handoff",
    "term raised",
    "term seen by a client",
    "preempt",
    "handoff failed",
    "merge",
    "yield after a sleep",
    "gap",
    "whole state copied",
    "incomplete copy served",
    "term not written",
    "node killed",
    "machine lost",
    "killed while another copies",
    "node started with its disk",
    "node started with an older disk",
    "node started without its disk",
    "node frozen",
    "node woke up",
    "node stopped",
    "stop without a successor",
    "way cut",
    "way cut one way",
    "ways healed",
    "connection reset",
    "connection stalled",
    "way slow",
    "frame lost",
    "frame doubled",
    "link refused by its list",
    "lists differ",
    "disk full",
    "wall clock set",
    "client killed",
    "client frozen",
    "client reads nothing",
    "clocks run apart",
    "two nodes active",
    "every belt cut",
    "one node",
    "two nodes",
    "three nodes",
    "four nodes",
    "five nodes",
    "twelve clients or more",
];

/// How often each kind came.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    pub(crate) fn count(&mut self, kind: &'static str) {
        debug_assert!(KINDS.contains(&kind), "{kind} is not listed");
        *self.0.entry(kind).or_default() += 1;
    }

    /// How often it came.
    #[must_use]
    pub fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Coverage) {
        for (kind, count) in &other.0 {
            *self.0.entry(kind).or_default() += count;
        }
    }

    /// What never came.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        KINDS
            .iter()
            .copied()
            .filter(|kind| self.of(kind) == 0)
            .collect()
    }

    /// A line for each kind.
    #[must_use]
    pub fn table(&self) -> String {
        KINDS
            .iter()
            .map(|kind| format!("{:>12}  {kind}\n", self.of(kind)))
            .collect()
    }
}
