//! Held locks: how much time is left, when they are renewed, and when they are lost.

use super::acquire::Acquire;
use super::hash::HashedKey;
use super::recent::REMEMBERED_FOR;
use super::repeat::Release;
use super::slab::{LockId, OperationId};
use super::{Effect, FaceId, MILLISECOND, Micros, Outcome, Session};
use crate::error::{Error, LostReason};
use crate::protocol::{Millis, Tag, Token};

pub(super) struct HeldLock {
    pub(super) key: HashedKey,
    pub(super) token: Token,
    /// The request that it was granted to, with an attempt above all of its copies, and when that was.
    request: Tag,
    granted_at: Micros,
    /// The lease by which the lock ends when it ends.
    pub(super) lease: Millis,
    /// When the lease ends, by this client's count: never later than by the server's.
    ends: Micros,
    state: State,
    keep_alive: bool,
    /// When keep-alive begins the next renewal.
    renew_at: Micros,
    /// When keep-alive stops.
    hold_until: Option<Micros>,
    /// Renewals under way.
    pub(super) keeps: Vec<OperationId>,
    /// Releases of it that were sent and not answered.
    copies_before: u32,
    /// The lock object is there.
    owned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Held,
    Releasing,
    /// The release found it gone: it had been lost before.
    Released {
        held: bool,
    },
    /// Nobody confirmed the release.
    Unreleased,
    /// The rest of its lease may still be given back.
    Lost {
        reason: LostReason,
        to_release: bool,
    },
}

/// What a lock object shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockView {
    pub(crate) lease: Micros,
    pub(crate) remaining: Micros,
    pub(crate) held: bool,
    pub(crate) lost: Option<LostReason>,
}

impl Millis {
    pub(super) fn micros(self) -> Micros {
        self.0 * MILLISECOND
    }
}

impl HeldLock {
    /// What an acquire has brought. With `late` its loss is told too late, for tests of the tests.
    #[inline(always)]
    pub(super) fn granted(
        acquire: &Acquire,
        token: Token,
        counted_from: Micros,
        now: Micros,
        late: bool,
    ) -> HeldLock {
        let lease = acquire.lease.micros();
        HeldLock {
            request: Tag {
                number: acquire.tag,
                attempt: acquire.next_attempt(),
            },
            granted_at: now,
            key: acquire.key.clone(),
            token,
            lease: acquire.lease,
            ends: counted_from + if late { 2 * lease } else { lease },
            state: State::Held,
            keep_alive: acquire.keep_alive,
            renew_at: counted_from + lease / 3,
            hold_until: acquire.max_hold.map(|time| now + time.micros()),
            keeps: Vec::new(),
            copies_before: 0,
            owned: true,
        }
    }

    /// An eighth of the lease before its end the lock counts as lost.
    fn lost_at(&self) -> Micros {
        self.ends - self.lease.micros() / 8
    }

    fn due(&self) -> Option<Micros> {
        if self.state != State::Held {
            return None;
        }
        let renews = self.keep_alive
            && self.keeps.is_empty()
            && self.hold_until.is_none_or(|until| self.renew_at < until);
        let lost_at = self.lost_at();
        Some(if renews {
            lost_at.min(self.renew_at)
        } else {
            lost_at
        })
    }
}

impl Session {
    /// Notes a lock that has just been inserted.
    pub(super) fn enter_lock(&mut self, lock: LockId, token: Token) {
        self.in_hand.add(token);
        self.schedule_lock(lock);
    }

    /// The key of a lock.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn key_of(&self, lock: LockId) -> Option<&crate::protocol::Key> {
        Some(&self.locks.get(lock)?.key)
    }

    pub(super) fn schedule_lock(&mut self, lock: LockId) {
        let due = self.locks.get(lock).and_then(HeldLock::due);
        self.lock_deadlines.set(lock.0.index, due);
    }

    /// What the lock object shows. If that is that it is no longer held, its loss is decided and will be told.
    pub(crate) fn view_lock(&mut self, lock: LockId, now: Micros) -> Option<LockView> {
        self.lose_overdue(lock, now);
        let held = self.locks.get(lock)?;
        let is_held = held.state == State::Held;
        Some(LockView {
            lease: held.lease.micros(),
            remaining: if is_held {
                held.ends.saturating_sub(now)
            } else {
                0
            },
            held: is_held,
            lost: match held.state {
                State::Lost { reason, .. } => Some(reason),
                State::Held | State::Releasing | State::Released { .. } | State::Unreleased => None,
            },
        })
    }

    /// The same for who is not there: nothing is decided.
    #[cfg(feature = "simulation")]
    pub(super) fn would_say_held(&self, lock: LockId, now: Micros) -> bool {
        let held = self.locks.get(lock);
        held.is_some_and(|held| held.state == State::Held && now < held.lost_at())
    }

    pub(super) fn handle_lock_due(&mut self, lock: LockId, now: Micros) {
        let Some(held) = self.locks.get(lock) else {
            return;
        };
        if held.state != State::Held {
            return;
        }
        if now >= held.lost_at() {
            return self.lose_overdue(lock, now);
        }
        if held.keep_alive && held.keeps.is_empty() && now >= held.renew_at {
            self.renew(lock, None, None, now);
        }
        self.schedule_lock(lock);
    }

    /// Nobody waits for the timer to say what the clock says already: whoever looks at a lock calls this first, so
    /// that none is seen lost and then held again by a renewal that is confirmed late.
    fn lose_overdue(&mut self, lock: LockId, now: Micros) {
        let Some(held) = self.locks.get(lock) else {
            return;
        };
        if held.state == State::Held && now >= held.lost_at() {
            let reason = if held.keeps.is_empty() {
                LostReason::Expired
            } else {
                LostReason::Unconfirmed
            };
            self.lose_lock(lock, reason);
        }
    }

    /// A renewal that had been sent at `kept_at` is confirmed.
    pub(super) fn handle_renewed(
        &mut self,
        lock: LockId,
        lease: Millis,
        kept_at: Micros,
        now: Micros,
    ) {
        let Some(held) = self.locks.get_mut(lock) else {
            return;
        };
        let ends = kept_at + lease.micros();
        if ends > held.ends {
            held.ends = ends;
            held.lease = lease;
        }
        // A keep that did not move the end does not put the next renewal off either.
        let lease = held.lease.micros();
        held.renew_at = held.ends - (lease - lease / 3);
        self.schedule_lock(lock);
        // It may have come when hardly anything of it was left.
        if self
            .locks
            .get(lock)
            .is_some_and(|held| held.state == State::Held && now >= held.lost_at())
        {
            self.handle_lock_due(lock, now);
        }
    }

    /// The server says that this token does not hold the key.
    pub(super) fn handle_taken(&mut self, lock: LockId, by: OperationId) {
        self.fail_operation(by, Error::lost(LostReason::Taken));
        if self
            .locks
            .get(lock)
            .is_some_and(|held| held.state == State::Held)
        {
            self.lose_lock(lock, LostReason::Taken);
        }
    }

    /// Says once that a lock is lost.
    pub(super) fn lose_lock(&mut self, lock: LockId, reason: LostReason) {
        let Some(held) = self.locks.get_mut(lock) else {
            return;
        };
        held.state = State::Lost {
            reason,
            to_release: reason != LostReason::Taken,
        };
        let keeps = std::mem::take(&mut held.keeps);
        self.schedule_lock(lock);
        for keep in keeps {
            self.fail_operation(keep, Error::lost(reason));
        }
        self.effects.push_back(Effect::Lost { lock, reason });
    }

    pub(super) fn keep_lock(
        &mut self,
        lock: LockId,
        lease: Option<Millis>,
        face: FaceId,
        now: Micros,
    ) -> Option<OperationId> {
        self.lose_overdue(lock, now);
        let state = self.locks.get(lock).map(|held| held.state);
        let error = match state {
            Some(State::Held) => {
                let id = self.renew(lock, lease, Some(face), now);
                self.schedule_lock(lock);
                return id;
            }
            Some(State::Lost { reason, .. }) => Error::lost(reason),
            Some(State::Released { held: false }) => Error::lost(LostReason::Taken),
            Some(State::Released { held: true } | State::Releasing | State::Unreleased) | None => {
                Error::argument("the lock has been released; it cannot be kept any more")
            }
        };
        self.complete(face, Err(error));
        None
    }

    /// Rule 4.6 for a lock object.
    pub(super) fn release_lock(
        &mut self,
        lock: LockId,
        face: FaceId,
        now: Micros,
    ) -> Option<OperationId> {
        self.lose_overdue(lock, now);
        let state = self.locks.get(lock).map(|held| held.state);
        let held_until_now = match state {
            Some(State::Held | State::Releasing | State::Unreleased) => {
                return self.begin_release(lock, Some(face), now);
            }
            Some(State::Released { held }) => held,
            Some(State::Lost { .. }) => {
                self.release_lost(lock, now);
                false
            }
            None => false,
        };
        self.complete(face, Ok(Outcome::Confirmed(held_until_now)));
        None
    }

    fn begin_release(
        &mut self,
        lock: LockId,
        face: Option<FaceId>,
        now: Micros,
    ) -> Option<OperationId> {
        let held = self.locks.get_mut(lock)?;
        held.state = State::Releasing;
        let keeps = std::mem::take(&mut held.keeps);
        let key = held.key.clone();
        let release = Release {
            token: held.token,
            lock: Some(lock),
            once_more: false,
            fresh: (now.saturating_sub(held.granted_at) < REMEMBERED_FOR).then_some(held.request),
        };
        self.lock_deadlines.clear(lock.0.index);
        for keep in keeps {
            let error = Error::argument("the lock was released while it was being kept");
            self.fail_operation(keep, error);
        }
        Some(self.start_release(key, release, face, now))
    }

    /// Whether a release of this lock needs no server.
    pub(super) fn is_lost_or_released(&self, lock: LockId) -> bool {
        self.locks
            .get(lock)
            .is_none_or(|held| matches!(held.state, State::Lost { .. } | State::Released { .. }))
    }

    /// What is left of a lost lock's lease need not block the others.
    pub(super) fn release_lost(&mut self, lock: LockId, now: Micros) {
        let Some(held) = self.locks.get_mut(lock) else {
            return;
        };
        if let State::Lost { to_release, .. } = &mut held.state
            && std::mem::take(to_release)
            && !self.life.is_over()
        {
            let (key, token) = (held.key.clone(), held.token);
            self.release_hashed(key, token, None, now);
        }
    }

    /// The answer to a release; true if the lock was held until then.
    pub(super) fn handle_lock_released(&mut self, lock: LockId, ok: bool, copies: u32) -> bool {
        let Some(held) = self.locks.get_mut(lock) else {
            return ok || copies > 1;
        };
        // `stale` may be the answer to a copy that came second.
        let held_until_now = match held.state {
            State::Released { held } => held,
            _ => ok || copies + held.copies_before > 1,
        };
        held.state = State::Released {
            held: held_until_now,
        };
        self.forget_lock_without_object(lock);
        held_until_now
    }

    /// Nobody has confirmed a release: it may be tried again.
    pub(super) fn handle_release_failed(&mut self, lock: LockId) {
        if let Some(held) = self.locks.get_mut(lock) {
            held.state = State::Unreleased;
            held.copies_before = held.copies_before.saturating_add(1);
        }
        self.forget_lock_without_object(lock);
    }

    fn forget_lock_without_object(&mut self, lock: LockId) {
        if self.locks.get(lock).is_some_and(|held| !held.owned) {
            self.remove_lock(lock);
        }
    }

    /// The lock object is gone: what is held is released in the background.
    pub(crate) fn drop_lock(&mut self, lock: LockId, now: Micros) {
        let Some(held) = self.locks.get_mut(lock) else {
            return;
        };
        held.owned = false;
        match held.state {
            State::Held => {
                self.begin_release(lock, None, now);
            }
            State::Releasing => {}
            State::Lost { .. } => {
                self.release_lost(lock, now);
                self.remove_lock(lock);
            }
            State::Released { .. } | State::Unreleased => {
                self.remove_lock(lock);
            }
        }
    }

    /// The lock object is gone, and so is the lock. False if there is more to it than that.
    pub(crate) fn forget_released(&mut self, lock: LockId) -> bool {
        let held = self.locks.get(lock);
        let released = held.is_some_and(|held| matches!(held.state, State::Released { .. }));
        if released && self.in_hand.is_kept() {
            self.remove_lock(lock);
        } else if released {
            self.locks.discard(lock);
        }
        released
    }

    /// The lock object is given up, the lock is not.
    pub(crate) fn leave_held(&mut self, lock: LockId) {
        let Some(held) = self.remove_lock(lock) else {
            return;
        };
        self.lock_deadlines.clear(lock.0.index);
        for keep in held.keeps {
            self.fail_operation(keep, Error::cancelled());
        }
    }

    /// Whether some lock object has this token.
    pub(super) fn is_in_hand(&mut self, token: Token) -> bool {
        self.in_hand.has(token, &self.locks)
    }

    fn remove_lock(&mut self, lock: LockId) -> Option<HeldLock> {
        let held = self.locks.remove(lock)?;
        self.in_hand.remove(held.token);
        Some(held)
    }
}
