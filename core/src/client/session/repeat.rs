//! What is said again and again until somebody answers: releases, cancels and renewals. Which copy is
//! answered does not matter; each says the same.

use super::busy_keys::NOBODY;
use super::choice::Choice;
use super::hash::HashedKey;
use super::keep::{Keep, Owner};
use super::operation::{Kind, Operation, Place};
use super::slab::{LockId, OperationId};
use super::{FaceId, MILLISECOND, Micros, Outcome, SECOND, Session};
use crate::error::{Error, ErrorKind};
use crate::protocol::{Key, Request, Tag, Token};

/// A release or cancel is sent again this often …
pub(super) const AGAIN_EVERY: Micros = 200 * MILLISECOND;
/// … for this long.
pub(super) const AGAIN_FOR: Micros = 5 * SECOND;

/// When copies are sent, whatever they say.
pub(super) struct Repeat {
    pub(super) key: HashedKey,
    every: Micros,
    next: Micros,
    until: Micros,
    /// How many have been sent.
    pub(super) copies: u32,
    /// How often since its last turn it was sent to a node that is out of reach.
    pub(super) asked_later: u32,
    pub(super) last: Option<usize>,
    /// The next in a chain of [`BusyKeys`](super::busy_keys::BusyKeys).
    pub(super) next_busy: u32,
}

#[derive(Clone, Copy)]
pub(super) struct Release {
    pub(super) token: Token,
    /// The lock object whose release this is.
    pub(super) lock: Option<LockId>,
    /// Said once more after it had been confirmed.
    pub(super) once_more: bool,
    /// The request that the lock had been granted to a moment before, above all of its attempts.
    pub(super) fresh: Option<Tag>,
}

pub(super) struct Cancel {
    pub(super) tag: u64,
    /// The number for the next copy, and for all after it.
    attempt: u32,
    later: u32,
    pub(super) once_more: bool,
}

/// The first copy of a cancel that follows its acquire on the same connection.
#[derive(Clone, Copy)]
pub(super) struct CancelCopy {
    pub(super) attempt: u32,
    pub(super) connection: usize,
}

impl Repeat {
    #[inline(always)]
    pub(super) fn new(key: HashedKey, every: Micros, until: Micros, now: Micros) -> Repeat {
        Repeat {
            key,
            every,
            next: now + every,
            until,
            copies: 0,
            asked_later: 0,
            last: None,
            next_busy: NOBODY,
        }
    }

    pub(super) fn due(&self) -> Micros {
        self.next.min(self.until)
    }

    /// When it began, if it is said for `AGAIN_FOR`.
    pub(super) fn begun(&self) -> Micros {
        self.until.saturating_sub(AGAIN_FOR)
    }
}

impl Session {
    /// Rule 4.6: releases by token.
    pub(super) fn release_token(
        &mut self,
        key: Key,
        token: Token,
        face: Option<FaceId>,
        now: Micros,
    ) -> OperationId {
        self.release_hashed(self.keys.hashed(key), token, face, now)
    }

    pub(super) fn release_hashed(
        &mut self,
        key: HashedKey,
        token: Token,
        face: Option<FaceId>,
        now: Micros,
    ) -> OperationId {
        let release = Release {
            token,
            lock: None,
            once_more: false,
            fresh: None,
        };
        self.start_release(key, release, face, now)
    }

    #[inline]
    pub(super) fn start_release(
        &mut self,
        key: HashedKey,
        release: Release,
        face: Option<FaceId>,
        now: Micros,
    ) -> OperationId {
        let Choice::Now(index) = self.choose_for(&key) else {
            let repeat = Repeat::new(key, AGAIN_EVERY, now + AGAIN_FOR, now);
            return self.start_repeat(Kind::Release(repeat, release), face, None, now);
        };
        // Nearly always it goes at once.
        let tag = Tag::first(self.new_tag());
        let request = Request::Release {
            key: key.as_ref(),
            token: release.token,
            tag: Some(tag),
        };
        let connection = &mut self.connections[index];
        request.encode(&mut connection.outgoing);
        let sent = connection.add_copy(index, tag, true, now);
        let id = self.operations.insert_with(|| {
            let mut repeat = Repeat::new(key, AGAIN_EVERY, now + AGAIN_FOR, now);
            repeat.copies = 1;
            repeat.last = Some(index);
            Operation::sent(Kind::Release(repeat, release), face, sent)
        });
        self.busy_keys.enter(id, &mut self.operations);
        self.tags.insert(tag.number, id);
        let due = Some(now + AGAIN_EVERY);
        self.operation_deadlines.set(id.0.index, due);
        self.hasten_connection(index, now);
        self.note_write(index);
        id
    }

    /// Ends all attempts of an acquire that has no caller any more.
    pub(super) fn cancel_tag(
        &mut self,
        key: HashedKey,
        tag: u64,
        next_attempt: u32,
        first: Option<CancelCopy>,
        now: Micros,
    ) {
        let cancel = Cancel {
            tag,
            attempt: first.map_or(next_attempt, |first| first.attempt),
            later: next_attempt,
            once_more: false,
        };
        self.start_cancel(key, cancel, first.map(|first| first.connection), now);
    }

    fn start_cancel(&mut self, key: HashedKey, cancel: Cancel, on: Option<usize>, now: Micros) {
        let tag = cancel.tag;
        let repeat = Repeat::new(key, AGAIN_EVERY, now + AGAIN_FOR, now);
        let id = self.start_repeat(Kind::Cancel(repeat, cancel), None, on, now);
        // Also while no copy is on its way: a grant of an older attempt is known by this tag.
        self.tags.insert(tag, id);
    }

    /// Said once more to a node that may not have the copy.
    pub(super) fn cancel_once_more(&mut self, key: HashedKey, tag: Tag, now: Micros) {
        if self.tags.get(tag.number).is_some() {
            return;
        }
        let cancel = Cancel {
            tag: tag.number,
            attempt: tag.attempt,
            later: tag.attempt,
            once_more: true,
        };
        self.start_cancel(key, cancel, None, now);
    }

    /// Begins to say something, on the connection `on` if that is given.
    pub(super) fn start_repeat(
        &mut self,
        kind: Kind,
        face: Option<FaceId>,
        on: Option<usize>,
        now: Micros,
    ) -> OperationId {
        let operation = Operation::new(kind, face);
        let on = match (on, operation.hashed_key()) {
            (None, Some(key)) => match self.choose_for(key) {
                Choice::Now(index) => Some(index),
                Choice::Toward(_) | Choice::Nowhere => None,
            },
            (on, _) => on,
        };
        let id = self.insert_operation(operation);
        match on {
            Some(index) => self.send_copy(id, index, now),
            None => self.send_repeat(id, now),
        }
        self.schedule_operation(id, now);
        id
    }

    /// Sends a copy over any connection, or as soon as there is one.
    pub(super) fn send_repeat(&mut self, id: OperationId, now: Micros) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let Some(repeat) = operation.repeat_mut() else {
            return;
        };
        // A copy that had no answer may have met a dead connection, so the next one takes another.
        let (first, last) = (repeat.copies == 0, repeat.last);
        let busy = match self.operations.get(id).and_then(Operation::hashed_key) {
            Some(key) if first => self.busy_connection(key),
            Some(_) | None => None,
        };
        let choice = match busy {
            Some(index) => Choice::Now(index),
            None => self.choose(last),
        };
        match choice {
            Choice::Now(index) => self.send_copy(id, index, now),
            Choice::Toward(index) => self.enqueue(id, Place::Toward(index)),
            Choice::Nowhere => {
                self.enqueue(id, Place::Waiting);
                self.check_refused(id);
            }
        }
    }

    fn send_copy(&mut self, id: OperationId, index: usize, now: Micros) {
        let fresh = self.last_tag + 1;
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let outgoing = &mut self.connections[index].outgoing;
        let mut tag = Tag::first(fresh);
        match &mut operation.kind {
            Kind::Release(repeat, release) => {
                let request = Request::Release {
                    key: repeat.key.as_ref(),
                    token: release.token,
                    tag: Some(tag),
                };
                request.encode(outgoing);
            }
            Kind::Cancel(repeat, cancel) => {
                tag = Tag {
                    number: cancel.tag,
                    attempt: cancel.attempt,
                };
                cancel.attempt = cancel.later;
                let request = Request::Cancel {
                    key: repeat.key.as_ref(),
                    tag,
                };
                request.encode(outgoing);
            }
            Kind::Keep(repeat, keep) => {
                let request = Request::Keep {
                    key: repeat.key.as_ref(),
                    token: keep.token,
                    lease: keep.lease,
                    tag: Some(tag),
                };
                request.encode(outgoing);
            }
            Kind::Acquire(_) | Kind::Query(_) => return,
        }
        if tag.number == fresh {
            self.last_tag = fresh;
        }
        let is_keep = matches!(operation.kind, Kind::Keep(..));
        let Some(repeat) = operation.repeat_mut() else {
            return;
        };
        let first = repeat.copies == 0;
        repeat.copies = repeat.copies.saturating_add(1);
        repeat.last = Some(index);
        self.note_sent(id, tag, index, now);
        if first && !is_keep {
            self.busy_keys.enter(id, &mut self.operations);
        }
    }

    pub(super) fn handle_repeat_due(&mut self, id: OperationId, now: Micros) {
        let Some(operation) = self.operations.get_mut(id) else {
            return;
        };
        let place = operation.place;
        let Some(repeat) = operation.repeat_mut() else {
            return;
        };
        if now >= repeat.until {
            return self.expire_repeat(id);
        }
        if now >= repeat.next {
            repeat.next = if now < repeat.next + repeat.every {
                repeat.next + repeat.every
            } else {
                now + repeat.every
            };
            repeat.asked_later = 0;
            operation.moves = 0;
            if place != Place::Waiting {
                self.send_repeat(id, now);
            }
        } else if let Place::Paused(until) = place
            && now >= until
        {
            self.send_repeat(id, now);
        }
    }

    /// Nobody has answered in all the time.
    fn expire_repeat(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        match &operation.kind {
            Kind::Release(repeat, release) => {
                let lock = release.lock;
                let error = if lock.is_none() && repeat.copies == 0 {
                    self.connection_failed(id)
                } else {
                    release_unconfirmed(self.complaints(repeat.begun()).as_deref())
                };
                self.fail_operation(id, error);
                if let Some(lock) = lock {
                    self.handle_release_failed(lock);
                }
            }
            Kind::Cancel(..) => {
                self.remove_operation(id);
            }
            Kind::Keep(..) => {
                let error = self.connection_failed(id);
                self.fail_operation(id, error);
            }
            Kind::Acquire(_) | Kind::Query(_) => {}
        }
    }

    /// An operator's request that nobody has been sent, and that nobody takes: all servers refuse this client.
    pub(super) fn check_refused(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        if operation.place != Place::Waiting || operation.face.is_none() {
            return;
        }
        let repeat = match &operation.kind {
            Kind::Release(repeat, release) if release.lock.is_none() => repeat,
            Kind::Keep(repeat, keep) if keep.owner == Owner::Operator => repeat,
            Kind::Release(..)
            | Kind::Keep(..)
            | Kind::Cancel(..)
            | Kind::Acquire(_)
            | Kind::Query(_) => return,
        };
        if repeat.copies == 0
            && self.all_tried(repeat.begun())
            && let Some(error) = self.all_refuse()
        {
            self.fail_operation(id, error);
        }
    }

    /// `R … ok` or `R … stale`.
    pub(super) fn handle_released(&mut self, id: OperationId, index: usize, ok: bool, now: Micros) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        let Kind::Release(repeat, release) = &operation.kind else {
            return;
        };
        let (face, copies, release) = (operation.face, repeat.copies, *release);
        // Only another node has to hear more about the key.
        let key = self.may_have_another_node().then(|| repeat.key.clone());
        self.discard_operation(id);
        if let Some(key) = key {
            let said_again = release.once_more || copies > 1;
            // A node that has not copied the grant may have copied that it waited, and waits for it now.
            let to_cancel = release.fresh.filter(|_| !ok && said_again);
            let to_cancel = to_cancel.map(|request| (key.clone(), request));
            if !release.once_more {
                let node = self.connections[index].node.clone();
                self.recent.note_release(
                    key,
                    release.token,
                    release.fresh,
                    index as u32,
                    node,
                    now,
                );
            }
            if let Some((key, request)) = to_cancel {
                self.cancel_once_more(key, request, now);
            }
        }
        let confirmed = match release.lock {
            Some(lock) => self.handle_lock_released(lock, ok, copies),
            None => ok || copies > 1,
        };
        if let Some(face) = face {
            self.complete(face, Ok(Outcome::Confirmed(confirmed)));
        }
    }

    /// `C … ok` or `C … none`.
    pub(super) fn handle_cancelled(
        &mut self,
        id: OperationId,
        index: usize,
        tag: Tag,
        now: Micros,
    ) {
        let Some(operation) = self.remove_operation(id) else {
            return;
        };
        let Kind::Cancel(repeat, cancel) = operation.kind else {
            return;
        };
        if !cancel.once_more && self.may_have_another_node() {
            let node = self.connections[index].node.clone();
            self.recent
                .note_cancel(repeat.key, tag, index as u32, node, now);
        }
    }

    /// `E`, other than `unavailable`.
    pub(super) fn refuse_repeat(&mut self, id: OperationId, error: Error) {
        let Some(operation) = self.operations.get(id) else {
            return;
        };
        match &operation.kind {
            Kind::Keep(_, keep) if keep.goes_on() => {
                // Refused once is not lost: the next one may be confirmed.
            }
            Kind::Release(_, Release { lock, .. }) => {
                let lock = *lock;
                self.fail_operation(id, error);
                if let Some(lock) = lock {
                    self.handle_release_failed(lock);
                }
            }
            Kind::Keep(_, keep) => {
                let owner = keep.owner;
                self.fail_operation(id, error);
                if let Owner::Caller(lock) = owner {
                    self.forget_keep(lock, id);
                }
            }
            Kind::Cancel(..) => self.fail_operation(id, error),
            Kind::Acquire(_) | Kind::Query(_) => {}
        }
    }

    /// Whether this client may ever speak to another node than the one it speaks to.
    fn may_have_another_node(&self) -> bool {
        self.settings.servers.len() > 1 || self.peers.len() > 1
    }

    /// A renewal, for `keep`.
    pub(super) fn start_keep(
        &mut self,
        key: HashedKey,
        keep: Keep,
        every: Micros,
        until: Micros,
        face: Option<FaceId>,
        now: Micros,
    ) -> OperationId {
        let repeat = Repeat::new(key, every, until, now);
        self.start_repeat(Kind::Keep(repeat, keep), face, None, now)
    }
}

/// `complaints`: what went wrong with the servers.
fn release_unconfirmed(complaints: Option<&str>) -> Error {
    let why = complaints.map_or(String::new(), |complaints| format!(" ({complaints})"));
    Error::new(
        ErrorKind::ReleaseUnconfirmed,
        format!(
            "no server confirmed the release within {} s{why}: the lock stays held until its lease ends, unless it is released again",
            AGAIN_FOR / SECOND
        ),
    )
}
