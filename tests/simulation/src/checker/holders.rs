//! One holder a key: what clients believe, and which faults may have cost a lock.

use crate::plan::{MS, SECOND};

/// A lock in the hand of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hold {
    pub(crate) client: usize,
    pub(crate) token: u64,
    /// When the node granted it.
    pub(crate) granted: u64,
}

/// What was granted this long before its node died may not have been copied.
const COPY_WINDOW: u64 = 400 * MS;

/// Two nodes that met take this long to tell each other of their grants.
const MERGE_WINDOW: u64 = SECOND;

/// Which faults may have cost locks.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// Everything granted before was perhaps lost.
    lost_before: u64,
    /// When nodes died whose last grants were perhaps not copied.
    deaths: Vec<u64>,
    /// Two nodes served at this time, at last.
    together: Option<u64>,
    pub(crate) excused: u64,
    /// So much goes wrong that any lock may have been lost.
    pub(crate) lenient: bool,
}

impl Holders {
    /// A fault has cost the state, or may have.
    pub(crate) fn lose_all(&mut self, now: u64) {
        self.lost_before = self.lost_before.max(now);
    }

    /// An active node has died, and a complete standby is there.
    pub(crate) fn lose_latest(&mut self, now: u64) {
        self.deaths.push(now);
    }

    /// Two nodes serve.
    pub(crate) fn together(&mut self, now: u64) {
        self.together = Some(now);
    }

    /// Whether two nodes have served, or state was lost, after something was granted.
    pub(crate) fn is_split_since(&self, granted: u64) -> bool {
        self.together.is_some_and(|together| together >= granted) || self.lost_before >= granted
    }

    /// A lock comes into a client's hand while others believe that they hold it.
    pub(crate) fn check(&mut self, new: Hold, others: &[Hold]) -> Result<(), String> {
        for old in others {
            let (first, second) = if old.granted <= new.granted {
                (old, &new)
            } else {
                (&new, old)
            };
            let latest =
                |death: &u64| first.granted <= *death && *death <= first.granted + COPY_WINDOW;
            let excused = self.lenient
                || first.granted <= self.lost_before
                || self.deaths.iter().any(latest)
                || self
                    .together
                    .is_some_and(|together| second.granted <= together + MERGE_WINDOW);
            if !excused {
                return Err(format!(
                    "client {} holds with {:x} of {:.3} s, and client {} still holds with {:x} of {:.3} s",
                    new.client,
                    new.token,
                    new.granted as f64 / 1e6,
                    old.client,
                    old.token,
                    old.granted as f64 / 1e6,
                ));
            }
            self.excused += 1;
        }
        Ok(())
    }
}
