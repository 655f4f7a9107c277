//! Grants whose replies wait until enough standbys have them (`sync_standbys`).
//!
//! They leave in the order in which they were granted: when they are confirmed, or when the time is
//! over that a standby may take.

use crate::engine::{ConnectionId, Time};
use crate::protocol::{Key, Millis, Tag, Token};
use std::collections::VecDeque;

/// A grant that its client has not been told of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldGrant {
    /// To whom the reply goes.
    pub connection: ConnectionId,
    /// What is locked.
    pub key: Key,
    /// Of the grant.
    pub token: Token,
    /// Of the request.
    pub tag: Option<Tag>,
}

/// Grants whose replies wait until enough standbys have them.
#[derive(Debug)]
pub struct HeldBack {
    timeout: Millis,
    queue: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// The number of the change that a standby has to have.
    sequence: u64,
    until: Time,
    grant: HeldGrant,
}

impl HeldBack {
    /// Holds each reply for at most `timeout`.
    #[must_use]
    pub fn new(timeout: Millis) -> HeldBack {
        HeldBack {
            timeout,
            queue: VecDeque::new(),
        }
    }

    /// Keeps a grant until the change with this number is confirmed.
    pub fn hold(&mut self, now: Time, sequence: u64, grant: HeldGrant) {
        let until = now.after(self.timeout);
        self.queue.push_back(Entry {
            sequence,
            until,
            grant,
        });
    }

    /// The next grant that is confirmed, if changes up to this number are.
    pub fn pop_confirmed(&mut self, confirmed: u64) -> Option<HeldGrant> {
        self.pop_if(|entry| entry.sequence <= confirmed)
    }

    /// The next grant that was held for too long, and the number that nobody has confirmed in time.
    pub fn pop_overdue(&mut self, now: Time) -> Option<(u64, HeldGrant)> {
        let sequence = self.queue.front()?.sequence;
        Some((sequence, self.pop_if(|entry| entry.until <= now)?))
    }

    /// The next grant, whatever becomes of it.
    pub fn pop(&mut self) -> Option<HeldGrant> {
        self.pop_if(|_| true)
    }

    /// A connection is gone: the grants it was to be told of.
    pub fn disconnect(&mut self, connection: ConnectionId) -> Vec<HeldGrant> {
        let mut gone = Vec::new();
        self.queue.retain(|entry| {
            let stays = entry.grant.connection != connection;
            if !stays {
                gone.push(entry.grant.clone());
            }
            stays
        });
        gone
    }

    /// When the next one has been held for too long.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.queue.front().map(|entry| entry.until)
    }

    fn pop_if(&mut self, leaves: impl FnOnce(&Entry) -> bool) -> Option<HeldGrant> {
        self.queue.front().filter(|entry| leaves(entry))?;
        self.queue.pop_front().map(|entry| entry.grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Time = Time(1_000_000);

    fn grant(number: u64) -> HeldGrant {
        HeldGrant {
            connection: ConnectionId {
                index: number as u32,
                generation: 1,
            },
            key: Key::encode(b"key").expect("a key"),
            token: Token::new(number).expect("a token"),
            tag: None,
        }
    }

    fn held() -> HeldBack {
        let mut held = HeldBack::new(Millis(1000));
        for number in 1..=3 {
            held.hold(AT.after(Millis(number)), 10 * number, grant(number));
        }
        held
    }

    #[test]
    fn what_is_confirmed_leaves_in_order() {
        let mut held = held();
        assert_eq!(held.pop_confirmed(9), None);
        assert_eq!(held.pop_confirmed(20), Some(grant(1)));
        assert_eq!(held.pop_confirmed(20), Some(grant(2)));
        assert_eq!(held.pop_confirmed(20), None);
    }

    #[test]
    fn what_nobody_confirms_leaves_when_its_time_is_over() {
        let mut held = held();
        assert_eq!(held.next_deadline(), Some(AT.after(Millis(1001))));
        assert_eq!(held.pop_overdue(AT.after(Millis(1000))), None);
        assert_eq!(
            held.pop_overdue(AT.after(Millis(1001))),
            Some((10, grant(1)))
        );
        assert_eq!(held.pop_overdue(AT.after(Millis(1001))), None);
    }

    #[test]
    fn a_connection_takes_its_grants_with_it() {
        let mut held = held();
        assert_eq!(held.disconnect(grant(2).connection), [grant(2)]);
        assert_eq!((held.pop(), held.pop()), (Some(grant(1)), Some(grant(3))));
        assert_eq!((held.pop(), held.next_deadline()), (None, None));
    }
}
