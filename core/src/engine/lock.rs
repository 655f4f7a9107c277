//! What is kept of a key and of a request.

use super::slab::NIL;
use super::time::Time;
use super::wheel::{Timed, TimerLinks};
use crate::protocol::{Key, Millis, Tag, Token};

/// A key that somebody holds or waits for.
pub(super) struct Lock {
    pub(super) key: Key,
    /// The first claim that holds the key; the others follow by `next`.
    pub(super) holders: u32,
    /// The queue, while anybody waits.
    pub(super) queue: u32,
}

/// The claims that wait for one key, the next one first.
pub(super) struct Queue {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) length: u32,
}

/// A request for a key, from its receipt until it neither waits nor holds any more.
pub(super) struct Claim {
    number: u64,
    /// When its wait ends, or its lease.
    pub(super) deadline: Time,
    pub(super) stage: Stage,
    pub(super) attempt: u32,
    pub(super) lock: u32,
    /// Its neighbours among the waiters, or among the holders.
    pub(super) next: u32,
    pub(super) previous: u32,
    timer: TimerLinks,
    lease_low: u32,
    lease_high: u16,
    tagged: bool,
}

// These two and the table make a held key 120 bytes at most.
const _: () = assert!(size_of::<Option<Claim>>() == 72);
const _: () = assert!(size_of::<Option<Lock>>() == 32);

/// Where a claim stands in the list of holders, or of waiters, of its lock.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) lock: u32,
    pub(super) previous: u32,
    pub(super) next: u32,
}

/// How far a claim has come.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// It waits, and its connection lives.
    Attached {
        since: Time,
        connection: u32,
        /// Its neighbours among the waiting claims of the connection.
        previous: u32,
        next: u32,
    },
    /// It waits for its turn and for its client to come back.
    Detached {
        since: Time,
        /// When it stops waiting for its client.
        until: Time,
        owner: u32,
    },
    /// It has the key.
    Held {
        token: Token,
        clock: GrantClock,
        owner: u32,
    },
}

/// Two moments in the room of one, because a grant hardly ever has the second: since when it is held, or when it is
/// taken back because its reply was not delivered. Who was never told of it has not really held it so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GrantClock(u64);

impl GrantClock {
    /// No moment is so late that it needs this bit.
    const TAKE_BACK: u64 = 1 << 63;

    #[inline]
    pub(super) fn since(now: Time) -> GrantClock {
        debug_assert!(now.0 & Self::TAKE_BACK == 0, "no clock has come that far");
        GrantClock(now.0)
    }

    /// Of a grant that was made elsewhere: there its lease began, for the first time or again.
    pub(super) fn of_copy(lease: Millis, ends: Time) -> GrantClock {
        let began = ends.0.saturating_sub(lease.0.saturating_mul(1000));
        GrantClock(began & !Self::TAKE_BACK)
    }

    pub(super) fn take_back_at(at: Time) -> GrantClock {
        GrantClock(at.0 | Self::TAKE_BACK)
    }

    /// Since when it is held; the holder of one that may be taken back has not been told.
    #[inline]
    pub(super) fn held_since(self) -> Option<Time> {
        (self.0 & Self::TAKE_BACK == 0).then_some(Time(self.0))
    }

    /// When it is taken back.
    #[inline]
    pub(super) fn take_back(self) -> Time {
        if self.0 & Self::TAKE_BACK == 0 {
            Time::NEVER
        } else {
            Time(self.0 & !Self::TAKE_BACK)
        }
    }
}

impl Claim {
    pub(super) fn new(
        lock: u32,
        tag: Option<Tag>,
        lease: Millis,
        deadline: Time,
        stage: Stage,
    ) -> Claim {
        let mut claim = Claim {
            number: tag.map_or(0, |tag| tag.number),
            deadline,
            stage,
            attempt: tag.map_or(0, |tag| tag.attempt),
            lock,
            next: NIL,
            previous: NIL,
            timer: TimerLinks::OFF,
            lease_low: 0,
            lease_high: 0,
            tagged: tag.is_some(),
        };
        claim.set_lease(lease);
        claim
    }

    pub(super) fn tag(&self) -> Option<Tag> {
        self.tagged.then_some(Tag {
            number: self.number,
            attempt: self.attempt,
        })
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.tagged.then_some(self.number)
    }

    /// How long the lease is, or will be.
    pub(super) fn lease(&self) -> Millis {
        Millis(u64::from(self.lease_high) << 32 | u64::from(self.lease_low))
    }

    /// The wire knows no lease that does not fit.
    pub(super) fn set_lease(&mut self, lease: Millis) {
        let fits = lease.0.min((1 << 48) - 1);
        self.lease_low = fits as u32;
        self.lease_high = (fits >> 32) as u16;
    }

    pub(super) fn place(&self) -> Place {
        Place {
            lock: self.lock,
            previous: self.previous,
            next: self.next,
        }
    }

    /// Since when it has waited.
    pub(super) fn since(&self) -> Time {
        match self.stage {
            Stage::Attached { since, .. } | Stage::Detached { since, .. } => since,
            Stage::Held { .. } => Time::NEVER,
        }
    }

    pub(super) fn token(&self) -> Option<Token> {
        match self.stage {
            Stage::Held { token, .. } => Some(token),
            Stage::Attached { .. } | Stage::Detached { .. } => None,
        }
    }
}

impl Timed for Claim {
    fn due(&self) -> Time {
        match self.stage {
            Stage::Attached { .. } => self.deadline,
            Stage::Detached { until, .. } => self.deadline.min(until),
            Stage::Held { clock, .. } => self.deadline.min(clock.take_back()),
        }
    }

    fn timer(&self) -> TimerLinks {
        self.timer
    }

    fn timer_mut(&mut self) -> &mut TimerLinks {
        &mut self.timer
    }
}
