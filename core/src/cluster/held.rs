//! Grants whose replies wait until enough standbys have them (`sync_standbys`).
//!
//! They leave in the order in which they were granted: when they are confirmed, or when the time is
//! over that a standby may take. Many are told, and confirmed, together: what has to be known of all of
//! them is kept once.

use crate::engine::{ConnectionId, Grant, Time};
use crate::protocol::{Key, Millis, Tag};
use std::collections::VecDeque;

/// A grant that its client has not been told of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldGrant {
    /// To whom the reply goes.
    pub connection: ConnectionId,
    /// What is locked.
    pub key: Key,
    /// Where the engine finds it, and its token.
    pub grant: Grant,
    /// Of the request.
    pub tag: Option<Tag>,
}

/// Grants whose replies wait until enough standbys have them.
#[derive(Debug)]
pub struct HeldBack {
    timeout: Millis,
    queue: VecDeque<HeldGrant>,
    /// How the queue is divided.
    groups: VecDeque<Group>,
}

/// Grants one behind the other that are confirmed together.
#[derive(Debug)]
struct Group {
    /// The number of the change that a standby has to have, once that is known.
    sequence: Option<u64>,
    /// When the first of them has been held for too long.
    until: Time,
    count: usize,
}

impl HeldBack {
    /// Holds each reply for at most `timeout`.
    #[must_use]
    pub fn new(timeout: Millis) -> HeldBack {
        HeldBack {
            timeout,
            queue: VecDeque::new(),
            groups: VecDeque::new(),
        }
    }

    /// Keeps a grant until a change is confirmed whose number [comes](HeldBack::told) later.
    pub fn hold(&mut self, now: Time, grant: HeldGrant) {
        self.queue.push_back(grant);
        match self.groups.back_mut() {
            Some(group) if group.sequence.is_none() => group.count += 1,
            _ => self.groups.push_back(Group {
                sequence: None,
                until: now.after(self.timeout),
                count: 1,
            }),
        }
    }

    /// The changes that made the grants held so far have been told; this is the number of the last one.
    pub fn told(&mut self, sequence: u64) {
        let Some(group) = self.groups.back_mut() else {
            return;
        };
        group.sequence.get_or_insert(sequence);
        let (number, count) = (group.sequence, group.count);
        // Where nothing has been told in between they are one group.
        if let Some(before) = self.groups.len().checked_sub(2)
            && self.groups[before].sequence == number
        {
            self.groups.pop_back();
            self.groups[before].count += count;
        }
    }

    /// The next grant that is confirmed, if changes up to this number are.
    pub fn pop_confirmed(&mut self, confirmed: u64) -> Option<HeldGrant> {
        self.pop_if(|group| group.sequence.is_some_and(|sequence| sequence <= confirmed))
    }

    /// The next grant that was held for too long, and the number that nobody has confirmed in time, if it has one.
    pub fn pop_overdue(&mut self, now: Time) -> Option<(Option<u64>, HeldGrant)> {
        let sequence = self.groups.front()?.sequence;
        Some((sequence, self.pop_if(|group| group.until <= now)?))
    }

    /// The next grant, whatever becomes of it.
    pub fn pop(&mut self) -> Option<HeldGrant> {
        self.pop_if(|_| true)
    }

    /// A connection is gone: the grants it was to be told of.
    pub fn disconnect(&mut self, connection: ConnectionId) -> Vec<HeldGrant> {
        let mut gone = Vec::new();
        let mut held = std::mem::take(&mut self.queue).into_iter();
        for group in &mut self.groups {
            for grant in held.by_ref().take(group.count) {
                if grant.connection == connection {
                    group.count -= 1;
                    gone.push(grant);
                } else {
                    self.queue.push_back(grant);
                }
            }
        }
        self.groups.retain(|group| group.count > 0);
        gone
    }

    /// When the next one has been held for too long.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.groups.front().map(|group| group.until)
    }

    fn pop_if(&mut self, leaves: impl FnOnce(&Group) -> bool) -> Option<HeldGrant> {
        let group = self.groups.front_mut().filter(|group| leaves(group))?;
        group.count -= 1;
        if group.count == 0 {
            self.groups.pop_front();
        }
        self.queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Token;

    const AT: Time = Time(1_000_000);

    fn grant(number: u64) -> HeldGrant {
        HeldGrant {
            connection: ConnectionId {
                index: number as u32,
                generation: 1,
            },
            key: Key::encode(b"key").expect("a key"),
            grant: Grant {
                claim: Default::default(),
                token: Token::new(number).expect("a token"),
            },
            tag: None,
        }
    }

    /// One that was told as number 10, two that were told as 20, and one that was not told.
    fn held() -> HeldBack {
        let mut held = HeldBack::new(Millis(1000));
        held.hold(AT.after(Millis(1)), grant(1));
        held.told(10);
        held.hold(AT.after(Millis(2)), grant(2));
        held.hold(AT.after(Millis(3)), grant(3));
        held.told(20);
        // Nothing has come that could have this number.
        held.told(30);
        held.hold(AT.after(Millis(4)), grant(4));
        held
    }

    #[test]
    fn what_is_confirmed_leaves_in_order() {
        let mut held = held();
        assert_eq!(held.pop_confirmed(9), None);
        assert_eq!(held.pop_confirmed(19), Some(grant(1)));
        assert_eq!(held.pop_confirmed(19), None);
        assert_eq!(held.pop_confirmed(20), Some(grant(2)));
        assert_eq!(held.pop_confirmed(20), Some(grant(3)));
        assert_eq!(held.pop_confirmed(u64::MAX), None, "nobody can have it");
        held.told(40);
        assert_eq!(held.pop_confirmed(39), None);
        assert_eq!(held.pop_confirmed(40), Some(grant(4)));
    }

    #[test]
    fn what_nobody_confirms_leaves_when_its_time_is_over() {
        let mut held = held();
        assert_eq!(held.next_deadline(), Some(AT.after(Millis(1001))));
        assert_eq!(held.pop_overdue(AT.after(Millis(1000))), None);
        let second = AT.after(Millis(1002));
        assert_eq!(held.pop_overdue(second), Some((Some(10), grant(1))));
        assert_eq!(held.pop_overdue(second), Some((Some(20), grant(2))));
        assert_eq!(held.pop_overdue(second), Some((Some(20), grant(3))));
        assert_eq!(held.pop_overdue(second), None);
        let last = AT.after(Millis(1004));
        assert_eq!(held.pop_overdue(last), Some((None, grant(4))));
    }

    #[test]
    fn a_connection_takes_its_grants_with_it() {
        for gone in 1..=4 {
            let mut held = held();
            assert_eq!(held.disconnect(grant(gone).connection), [grant(gone)]);
            held.told(40);
            let mut left = Vec::new();
            for confirmed in [9, 10, 19, 20, 39, 40] {
                while let Some(grant) = held.pop_confirmed(confirmed) {
                    left.push((confirmed, grant));
                }
            }
            let sequences = [(10, 1), (20, 2), (20, 3), (40, 4)].into_iter();
            let others = sequences.filter(|(_, number)| *number != gone);
            let others: Vec<_> = others.map(|(at, number)| (at, grant(number))).collect();
            assert_eq!(left, others);
            assert_eq!((held.pop(), held.next_deadline()), (None, None));
        }
    }
}
