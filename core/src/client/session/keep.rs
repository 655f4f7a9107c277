//! Renewals: for a caller, for a lock that is kept alive, and for a grant that has to be confirmed
//! before it is handed out.

use super::acquire::Confirmed;
use super::hash::HashedKey;
use super::operation::{Kind, Sent};
use super::repeat::{AGAIN_EVERY, AGAIN_FOR};
use super::slab::{LockId, OperationId};
use super::{FaceId, Micros, Outcome, Session};
use crate::protocol::{Key, Millis, Token};

pub(super) struct Keep {
    pub(super) token: Token,
    pub(super) lease: Millis,
    pub(super) owner: Owner,
}

/// For whom a renewal is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// The keep-alive of a lock.
    Renewal(LockId),
    /// A caller who keeps a lock.
    Caller(LockId),
    /// An acquire that does not hand out its lock before.
    Acquire(OperationId),
    /// A caller who has no lock object.
    Operator,
}

impl Keep {
    /// Whether a refusal does not end it.
    pub(super) fn goes_on(&self) -> bool {
        match self.owner {
            Owner::Renewal(_) | Owner::Acquire(_) => true,
            Owner::Caller(_) | Owner::Operator => false,
        }
    }
}

impl Session {
    /// Renewals of a lock are sent again this often.
    fn keep_every(lease: Millis) -> Micros {
        (lease.micros() / 12).max(1)
    }

    pub(super) fn keep_token(
        &mut self,
        key: Key,
        token: Token,
        lease: Millis,
        face: FaceId,
        now: Micros,
    ) -> OperationId {
        let keep = Keep {
            token,
            lease,
            owner: Owner::Operator,
        };
        let key = self.keys.hashed(key);
        self.start_keep(key, keep, AGAIN_EVERY, now + AGAIN_FOR, Some(face), now)
    }

    /// Rule 4.8: a grant that has been on its way too long is confirmed first.
    pub(super) fn confirm_grant(
        &mut self,
        acquire: OperationId,
        key: HashedKey,
        token: Token,
        lease: Millis,
        now: Micros,
    ) -> OperationId {
        let keep = Keep {
            token,
            lease,
            owner: Owner::Acquire(acquire),
        };
        // The acquire's own deadlines end it.
        let every = Session::keep_every(lease);
        self.start_keep(key, keep, every, Micros::MAX, None, now)
    }

    /// A renewal of a lock, ended by the lock's own deadline.
    pub(super) fn renew(
        &mut self,
        lock: LockId,
        lease: Option<Millis>,
        face: Option<FaceId>,
        now: Micros,
    ) -> Option<OperationId> {
        let held = self.locks.get(lock)?;
        let lease = lease.unwrap_or(held.lease);
        // A longer lease does not make the present one last longer.
        let every = Session::keep_every(lease.min(held.lease));
        let keep = Keep {
            token: held.token,
            lease,
            owner: match face {
                Some(_) => Owner::Caller(lock),
                None => Owner::Renewal(lock),
            },
        };
        let key = held.key.clone();
        let id = self.start_keep(key, keep, every, Micros::MAX, face, now);
        self.locks.get_mut(lock)?.keeps.push(id);
        Some(id)
    }

    /// `K … ok` or `K … stale`.
    pub(super) fn handle_kept(&mut self, id: OperationId, sent: Sent, ok: bool, now: Micros) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        let Kind::Keep(_, keep) = &operation.kind else {
            return;
        };
        let (owner, lease) = (keep.owner, keep.lease);
        match owner {
            Owner::Operator => self.end_keep(id, Outcome::Confirmed(ok)),
            Owner::Acquire(acquire) => match self.handle_confirmed(acquire, ok, sent.at, now) {
                Confirmed::Over => {
                    self.remove_operation(id);
                }
                Confirmed::TooLate => self.send_repeat(id, now),
            },
            Owner::Renewal(lock) | Owner::Caller(lock) => {
                self.forget_keep(lock, id);
                if ok {
                    self.end_keep(id, Outcome::Done);
                    self.handle_renewed(lock, lease, sent.at, now);
                } else {
                    self.handle_taken(lock, id);
                }
            }
        }
    }

    fn end_keep(&mut self, id: OperationId, outcome: Outcome) {
        if let Some(operation) = self.remove_operation(id)
            && let Some(face) = operation.face
        {
            self.complete(face, Ok(outcome));
        }
    }

    /// This renewal is over, however it ended: keep-alive has its turn again.
    pub(super) fn forget_keep(&mut self, lock: LockId, id: OperationId) {
        if let Some(held) = self.locks.get_mut(lock) {
            held.keeps.retain(|keep| *keep != id);
            self.schedule_lock(lock);
        }
    }
}
