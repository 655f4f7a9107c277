//! Acquiring: one request over all its attempts, until there is a lock or an error, and nothing
//! left behind on the server.

use super::choice::Choice;
use super::hash::HashedKey;
use super::lock::HeldLock;
use super::operation::{Age, Kind, Operation, Place, Sent};
use super::repeat::CancelCopy;
use super::slab::OperationId;
use super::tries::Tries;
use super::{FaceId, MILLISECOND, Micros, Outcome, SECOND, Session};
use crate::error::{Error, ErrorKind};
use crate::mutation::Mutation;
use crate::protocol::{Key, Millis, Request, Tag, Token, Wait};

/// After the budget the server has this long to say so itself.
const GRACE: Micros = SECOND;

pub(super) struct Acquire {
    pub(super) key: HashedKey,
    pub(super) lease: Millis,
    pub(super) wait: Wait,
    pub(super) keep_alive: bool,
    pub(super) max_hold: Option<Millis>,
    pub(super) tag: u64,
    /// The number of the next copy.
    pub(super) attempt: u32,
    /// The end of the budget.
    deadline: Option<Micros>,
    /// The number of the latest copy.
    sent: Option<u32>,
    /// What is there only where not everything goes well.
    pub(super) trouble: Option<Box<Trouble>>,
}

#[derive(Default)]
pub(super) struct Trouble {
    /// Tokens of given-up attempts that have been released: none of them is the lock.
    given_back: Vec<Token>,
    /// Granted, but too long ago to be handed out before the lease is confirmed.
    confirming: Option<Confirming>,
    pub(super) tries: Tries,
}

#[derive(Clone, Copy)]
struct Confirming {
    token: Token,
    since: Micros,
    keep: OperationId,
}

impl Acquire {
    /// A number greater than that of every copy.
    pub(super) fn next_attempt(&self) -> u32 {
        let after = self.sent.map_or(0, |sent| sent.saturating_add(1));
        self.attempt.max(after)
    }

    pub(super) fn trouble_mut(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    fn confirming(&self) -> Option<Confirming> {
        self.trouble.as_ref()?.confirming
    }

    pub(super) fn due(&self, place: &Place) -> Option<Micros> {
        let confirmed = self
            .confirming()
            .map(|confirming| confirming.since + self.lease.micros());
        let answered = self.deadline.map(|deadline| match place {
            Place::Sent => deadline + GRACE,
            Place::Waiting | Place::Toward(_) | Place::Paused(_) => deadline,
        });
        [confirmed, answered].into_iter().flatten().min()
    }
}

impl Session {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn acquire(
        &mut self,
        key: Key,
        lease: Millis,
        wait: Wait,
        keep_alive: bool,
        max_hold: Option<Millis>,
        face: FaceId,
        now: Micros,
    ) -> OperationId {
        let tag = self.new_tag();
        let deadline = match wait {
            Wait::For(time) => Some(now + time.micros()),
            Wait::Forever | Wait::No => None,
        };
        let key = self.keys.hashed(key);
        let acquire = |key, sent| Acquire {
            key,
            lease,
            wait,
            keep_alive,
            max_hold,
            tag,
            attempt: 0,
            deadline,
            sent,
            trouble: None,
        };
        let Choice::Now(index) = self.choose_for(&key) else {
            let kind = Kind::Acquire(acquire(key, None));
            let id = self.insert_operation(Operation::new(kind, Some(face)));
            self.route(id, now);
            return id;
        };
        // Nearly always it goes at once, with the whole wait.
        let tag = Tag::first(tag);
        let request = Request::Acquire {
            key: key.as_ref(),
            lease,
            wait,
            tag: Some(tag),
        };
        let connection = &mut self.connections[index];
        request.encode(&mut connection.outgoing);
        let urgent = wait == Wait::No;
        let sent = connection.add_copy(index, tag, urgent, now);
        let id = self.operations.insert_with(|| {
            let kind = Kind::Acquire(acquire(key, Some(tag.attempt)));
            Operation::sent(kind, Some(face), sent)
        });
        self.tags.insert(tag.number, id);
        if let Some(deadline) = deadline {
            let due = Some(deadline + GRACE);
            self.operation_deadlines.set(id.0.index, due);
        }
        if urgent {
            self.hasten_connection(index, now);
        }
        self.note_write(index);
        id
    }

    /// Sends the next copy with the wait that is left.
    pub(super) fn send_acquire(&mut self, id: OperationId, index: usize, now: Micros) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let Kind::Acquire(acquire) = &mut operation.kind else {
            return;
        };
        let wait = match acquire.deadline {
            None => acquire.wait,
            Some(deadline) => {
                if now >= deadline {
                    return self.end_by_budget(id, now);
                }
                let left = deadline - now;
                if left < MILLISECOND {
                    // Too little to be asked for, and the time-out must not come before its time.
                    operation.place = Place::Paused(deadline);
                    return self.schedule_operation(id, now);
                }
                Wait::For(Millis(left.div_ceil(MILLISECOND)))
            }
        };
        let tag = Tag {
            number: acquire.tag,
            attempt: acquire.attempt,
        };
        acquire.sent = Some(tag.attempt);
        let request = Request::Acquire {
            key: acquire.key.as_ref(),
            lease: acquire.lease,
            wait,
            tag: Some(tag),
        };
        request.encode(&mut self.connections[index].outgoing);
        self.note_sent(id, tag, index, now);
    }

    pub(super) fn handle_acquire_due(&mut self, id: OperationId, now: Micros) {
        let Some(Operation {
            kind: Kind::Acquire(acquire),
            place,
            ..
        }) = self.operations.get(id)
        else {
            return;
        };
        let budget = acquire.deadline;
        if let Some(confirming) = acquire.confirming() {
            let lease_over = now >= confirming.since + acquire.lease.micros();
            if lease_over || budget.is_some_and(|deadline| now >= deadline + GRACE) {
                self.give_up_confirming(id, now);
            }
            return;
        }
        let grace = if *place == Place::Sent { GRACE } else { 0 };
        if budget.is_some_and(|deadline| now >= deadline + grace) {
            self.end_by_budget(id, now);
        } else {
            self.handle_try_due(id, now);
        }
    }

    /// The budget is over: time-out, or nobody was ever asked, or the server that was is away.
    fn end_by_budget(&mut self, id: OperationId, now: Micros) {
        let Some(Operation {
            kind: Kind::Acquire(acquire),
            place,
            ..
        }) = self.operations.get(id)
        else {
            return;
        };
        let tries = acquire.trouble.as_ref().map(|trouble| &trouble.tries);
        let lacks_server = tries.is_some_and(|tries| tries.lacks_server(*place));
        let error = if acquire.sent.is_some() && !lacks_server {
            wait_timeout(&acquire.key)
        } else {
            self.connection_failed(id)
        };
        self.end_acquire(id, Err(error), now);
    }

    /// `T`.
    pub(super) fn handle_timed_out(&mut self, id: OperationId, now: Micros) {
        let Some(Operation {
            kind: Kind::Acquire(acquire),
            ..
        }) = self.operations.get(id)
        else {
            return;
        };
        let result = match acquire.wait {
            Wait::No => Ok(Outcome::NotHad),
            Wait::For(_) | Wait::Forever => Err(wait_timeout(&acquire.key)),
        };
        self.end_acquire(id, result, now);
    }

    /// Ends an acquire without a lock. If the fate of any copy is unknown it is cancelled in the background.
    pub(super) fn end_acquire(
        &mut self,
        id: OperationId,
        result: Result<Outcome, Error>,
        now: Micros,
    ) {
        let Some(operation) = self.remove_operation(id) else {
            return;
        };
        self.clean_up_acquire(&operation, None, now);
        if let Some(face) = operation.face {
            self.complete(face, result);
        }
    }

    /// Rule 4.7: the caller gives up.
    pub(super) fn cancel_acquire(&mut self, id: OperationId, error: Error, now: Micros) {
        let Some(operation) = self.remove_operation(id) else {
            return;
        };
        // On the connection that carries the only copy the cancel follows right behind it.
        let alone = operation.older.is_empty();
        let behind = operation.current.filter(|_| alone).and_then(|sent| {
            let index = sent.connection?;
            self.connections[index].is_up().then_some((sent, index))
        });
        self.clean_up_acquire(&operation, behind, now);
        if let Some(face) = operation.face {
            self.complete(face, Err(error));
        }
    }

    /// Leaves nothing of an acquire that has ended without a lock behind.
    fn clean_up_acquire(
        &mut self,
        operation: &Operation,
        behind: Option<(Sent, usize)>,
        now: Micros,
    ) {
        let Kind::Acquire(acquire) = &operation.kind else {
            return;
        };
        if let Some(confirming) = acquire.confirming() {
            self.remove_operation(confirming.keep);
            self.release_hashed(acquire.key.clone(), confirming.token, None, now);
        }
        if operation.current.is_none() && operation.older.is_empty() {
            // The fate of every copy is known.
            return;
        }
        let next = acquire.next_attempt();
        let first = behind.map(|(sent, index)| CancelCopy {
            attempt: sent.tag.attempt,
            connection: index,
        });
        self.cancel_tag(acquire.key.clone(), acquire.tag, next, first, now);
    }

    /// `A`: the server has granted a copy of this request.
    #[inline]
    pub(super) fn handle_granted(
        &mut self,
        id: OperationId,
        index: usize,
        sent: Sent,
        age: Age,
        token: Token,
        now: Micros,
    ) {
        let answered_sent_at = self.connections[index].answered_sent_at;
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let Kind::Acquire(acquire) = &mut operation.kind else {
            return;
        };
        if let Some(confirming) = acquire.confirming() {
            if confirming.token != token {
                let key = acquire.key.clone();
                self.release_hashed(key, token, None, now);
            }
            return;
        }
        if age == Age::Older {
            acquire.trouble_mut().given_back.push(token);
            let key = acquire.key.clone();
            self.release_hashed(key, token, None, now);
            return;
        }
        if let Some(trouble) = &acquire.trouble
            && trouble.given_back.contains(&token)
        {
            return self.acquire_anew(id, now);
        }
        // Rule 4.8: the lease cannot have begun before the server had read what it answered last.
        let counted_from = sent.at.max(answered_sent_at);
        let lease = acquire.lease.micros();
        let left = (counted_from + lease).saturating_sub(now);
        if left * 8 >= lease * 7 {
            return self.hand_out(id, token, counted_from, now);
        }
        let (key, lease) = (acquire.key.clone(), acquire.lease);
        let keep = self.confirm_grant(id, key, token, lease, now);
        if let Some(Operation {
            kind: Kind::Acquire(acquire),
            ..
        }) = self.operations.get_mut(id)
        {
            acquire.trouble_mut().confirming = Some(Confirming {
                token,
                since: now,
                keep,
            });
        }
        self.schedule_operation(id, now);
    }

    /// The confirmation of a grant has come: `kept_at` is when it had been asked for.
    pub(super) fn handle_confirmed(
        &mut self,
        id: OperationId,
        ok: bool,
        kept_at: Micros,
        now: Micros,
    ) -> Confirmed {
        let Some(Operation {
            kind: Kind::Acquire(acquire),
            ..
        }) = self.operations.get_mut(id)
        else {
            return Confirmed::Over;
        };
        let Some(confirming) = acquire.confirming() else {
            return Confirmed::Over;
        };
        if !ok {
            acquire.trouble_mut().confirming = None;
            self.acquire_anew(id, now);
            return Confirmed::Over;
        }
        let lease = acquire.lease.micros();
        let left = (kept_at + lease).saturating_sub(now);
        if left * 8 <= lease {
            // So late an answer would be a lock that is lost at once.
            return Confirmed::TooLate;
        }
        self.hand_out(id, confirming.token, kept_at, now);
        Confirmed::Over
    }

    fn give_up_confirming(&mut self, id: OperationId, now: Micros) {
        let Some(Operation {
            kind: Kind::Acquire(acquire),
            ..
        }) = self.operations.get_mut(id)
        else {
            return;
        };
        let trouble = acquire.trouble_mut();
        let Some(confirming) = trouble.confirming.take() else {
            return;
        };
        trouble.given_back.push(confirming.token);
        let key = acquire.key.clone();
        let over = acquire
            .deadline
            .is_some_and(|deadline| now + MILLISECOND > deadline);
        self.remove_operation(confirming.keep);
        self.release_hashed(key, confirming.token, None, now);
        self.renew_tag(id, now);
        if over {
            return self.end_by_budget(id, now);
        }
        self.fail_attempt(id, None, false, now);
    }

    /// The grant is gone: the acquire goes on as a new request with the wait that is left.
    fn acquire_anew(&mut self, id: OperationId, now: Micros) {
        self.renew_tag(id, now);
        self.route(id, now);
    }

    fn renew_tag(&mut self, id: OperationId, now: Micros) {
        let tag = self.new_tag();
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        operation.supersede();
        let older = std::mem::take(&mut operation.older);
        let urgent = operation.is_urgent();
        let Kind::Acquire(acquire) = &mut operation.kind else {
            return;
        };
        let next = acquire.next_attempt();
        let before = std::mem::replace(&mut acquire.tag, tag);
        acquire.attempt = 0;
        let key = acquire.key.clone();
        self.tags.remove(before);
        self.tags.insert(tag, id);
        for sent in &older {
            if let Some(index) = sent.connection {
                self.connections[index].take_under_way(urgent);
            }
        }
        if !older.is_empty() {
            self.cancel_tag(key, before, next, None, now);
        }
    }

    /// The lock goes to the caller.
    fn hand_out(&mut self, id: OperationId, token: Token, counted_from: Micros, now: Micros) {
        let Some(Operation {
            kind: Kind::Acquire(acquire),
            face,
            ..
        }) = self.operations.get(id)
        else {
            return;
        };
        let late = self.settings.mutation.is(Mutation::TellLossesLate);
        let lock = self
            .locks
            .insert_with(|| HeldLock::granted(acquire, token, counted_from, now, late));
        let (face, confirming) = (*face, acquire.confirming());
        self.discard_operation(id);
        if let Some(confirming) = confirming {
            self.remove_operation(confirming.keep);
        }
        self.enter_lock(lock, token);
        match face {
            Some(face) => {
                let grant = super::Grant { lock, token };
                self.complete(face, Ok(Outcome::Locked(grant)));
            }
            None => self.drop_lock(lock, now),
        }
    }
}

/// What becomes of a confirmation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Confirmed {
    Over,
    /// It was answered so late that it has to be asked for again.
    TooLate,
}

fn wait_timeout(key: &Key) -> Error {
    let key = String::from_utf8_lossy(key.spelling());
    Error::new(
        ErrorKind::WaitTimeout,
        format!(
            "the lock {key} was not had within the wait: others hold it or wait for it before this caller"
        ),
    )
}
