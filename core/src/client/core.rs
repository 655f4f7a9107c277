//! What stands behind a client's one lock: the session, who waits for what, and the sockets. What may take
//! time or call back is not done here but collected in [`After`] and done without the lock.

use super::acquire::OnLost;
use super::address::Address;
use super::driver::clock::Glance;
use super::driver::look::Look;
use super::driver::socket::Socket;
use super::session::{
    ConnectionId, Effect, FaceId, LockId, Micros, OperationId, Outcome, Session, Slab,
};
use super::wave::Wave;
use crate::error::{Error, LostReason};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;

pub(crate) type Done = Box<dyn FnOnce(Result<Outcome, Error>) + Send>;

/// Who is told the result of an operation.
pub(crate) enum Face {
    /// A future, or a thread that waits.
    Waiting(Option<Waker>),
    Callback(Done),
    /// The result, until the future or thread takes it.
    Done(Result<Outcome, Error>),
}

pub(super) struct FaceEntry {
    pub(super) face: Face,
    on_lost: Option<OnLost>,
    /// With whom it was woken, once it is.
    wave: u32,
}

/// Who is told that a lock is lost.
#[derive(Default)]
pub(super) struct Watch {
    pub(super) callbacks: Vec<OnLost>,
    /// Each with the number of its future.
    pub(super) wakers: Vec<(u64, Waker)>,
}

/// What came from callers and is not needed any more. Dropping it may run their code, which may call this
/// client, so that is done without the lock.
#[derive(Default)]
pub(super) struct Discarded {
    callbacks: Vec<OnLost>,
    wakers: Vec<Waker>,
}

impl Discarded {
    /// All of it, if there is any.
    pub(super) fn take(&mut self) -> Option<Discarded> {
        let any = !self.callbacks.is_empty() || !self.wakers.is_empty();
        any.then(|| std::mem::take(self))
    }
}

/// Who reads a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reader {
    /// The driver, which watches it.
    Driver,
    /// The driver is at it at this moment.
    DriverNow,
    /// A blocking call; the driver does not watch it.
    Caller,
    /// The event loop of the host, which always watches it; the driver does not watch it for as long as that loop turns.
    Loop,
    /// The event loop is at it at this moment.
    LoopNow,
    /// Nobody since then: blocking calls follow each other closely, and the next one is expected.
    Nobody(Micros),
}

/// A connection's socket.
pub(super) struct Line {
    pub(super) socket: Arc<Socket>,
    pub(super) epoch: u32,
    pub(super) reader: Reader,
    /// Whether blocking calls look for their answers before they sleep.
    pub(super) look: Look,
    /// What the driver hears of.
    pub(super) watched: Option<mio::Interest>,
    /// Some thread is writing, and will look for more before it ends.
    pub(super) writing: bool,
    /// The kernel takes no more; the driver waits until it does.
    pub(super) blocked: bool,
    /// What the kernel did not take.
    pub(super) unsent: Vec<u8>,
    /// A buffer to be used again.
    pub(super) spare: Vec<u8>,
}

pub(super) struct Core {
    pub(super) session: Session,
    pub(super) faces: Slab<FaceId, FaceEntry>,
    pub(super) watches: HashMap<LockId, Watch>,
    /// The number of the latest future that waits for the loss of a lock.
    pub(super) last_watcher: u64,
    pub(super) discarded: Discarded,
    pub(super) lines: Vec<Option<Line>>,
    /// Connections that have something to say, of which nobody has been told yet.
    pub(super) writes: Vec<u32>,
    pub(super) clock: Glance,
    /// For whom what is to be written may be held.
    pub(super) wave: Wave,
    /// When the driver looks for sockets that nobody reads any more.
    pub(super) look_at: Option<Micros>,
    /// When the event loop was last lent sockets, and which turn of it had shown that it turns.
    pub(super) lent_at: Micros,
    pub(super) lent_for: u64,
    pub(super) finished: bool,
}

/// What is left to be done without the lock.
#[derive(Default)]
pub(super) struct After {
    pub(super) connects: Vec<(ConnectionId, Address)>,
    pub(super) ends: Vec<(Line, bool)>,
    pub(super) wakers: Vec<Waker>,
    pub(super) done: Vec<(Done, Result<Outcome, Error>)>,
    pub(super) lost: Vec<(OnLost, LostReason)>,
    pub(super) finished: bool,
}

impl After {
    /// Whether there is nothing to be done.
    pub(super) fn is_empty(&self) -> bool {
        self.connects.is_empty()
            && self.ends.is_empty()
            && self.wakers.is_empty()
            && !self.calls_back()
            && !self.finished
    }

    /// Whether code of users is to be run.
    pub(super) fn calls_back(&self) -> bool {
        !self.done.is_empty() || !self.lost.is_empty()
    }
}

impl Core {
    pub(super) fn new(session: Session) -> Core {
        Core {
            session,
            faces: Slab::new(),
            watches: HashMap::new(),
            last_watcher: 0,
            discarded: Discarded::default(),
            lines: Vec::new(),
            writes: Vec::new(),
            clock: Glance::default(),
            wave: Wave::new(),
            look_at: None,
            lent_at: 0,
            lent_for: 0,
            finished: false,
        }
    }

    pub(super) fn insert_face(&mut self, face: Face, on_lost: Option<OnLost>) -> FaceId {
        self.faces.insert(FaceEntry {
            face,
            on_lost,
            wave: Wave::NONE,
        })
    }

    /// Takes the result of an operation, if it is there.
    pub(super) fn take_result(&mut self, id: FaceId) -> Option<Result<Outcome, Error>> {
        let entry = self.faces.get_mut(id)?;
        if !matches!(entry.face, Face::Done(_)) {
            return None;
        }
        match self.remove_face(id)? {
            Face::Done(result) => Some(result),
            Face::Waiting(_) | Face::Callback(_) => None,
        }
    }

    fn remove_face(&mut self, id: FaceId) -> Option<Face> {
        let entry = self.faces.get_mut(id)?;
        self.wave.note_came(entry.wave);
        if let Some(told) = entry.on_lost.take() {
            self.discarded.callbacks.push(told);
        }
        Some(self.faces.remove(id)?.face)
    }

    /// Nobody waits for this result any more.
    pub(super) fn abandon(&mut self, id: FaceId, operation: Option<OperationId>, now: Micros) {
        match self.remove_face(id) {
            // Granted just now: nobody will have it.
            Some(Face::Done(Ok(Outcome::Locked(grant)))) => self.drop_lock(grant.lock, now),
            Some(Face::Done(_) | Face::Callback(_)) | None => {}
            Some(Face::Waiting(waker)) => {
                self.discarded.wakers.extend(waker);
                if let Some(operation) = operation {
                    self.session.cancel(operation, now);
                }
            }
        }
    }

    pub(super) fn drop_lock(&mut self, lock: LockId, now: Micros) {
        self.forget_watch(lock);
        self.session.drop_lock(lock, now);
    }

    /// Nobody is told any more that this lock is lost.
    pub(super) fn forget_watch(&mut self, lock: LockId) {
        // Few locks are watched at all.
        if self.watches.is_empty() {
            return;
        }
        if let Some(watch) = self.watches.remove(&lock) {
            self.discarded.callbacks.extend(watch.callbacks);
            let wakers = watch.wakers.into_iter().map(|(_, waker)| waker);
            self.discarded.wakers.extend(wakers);
        }
    }

    pub(super) fn line(&mut self, id: ConnectionId) -> Option<&mut Line> {
        let line = self.lines.get_mut(id.index as usize)?.as_mut()?;
        (line.epoch == id.epoch).then_some(line)
    }

    /// Takes the effects out of the session.
    pub(super) fn settle(&mut self, after: &mut After, now: Micros) {
        while let Some(effect) = self.session.poll_effect() {
            match effect {
                Effect::Connect {
                    connection,
                    address,
                } => after.connects.push((connection, address)),
                Effect::Write { connection } => {
                    if !self.writes.contains(&connection.index) {
                        self.writes.push(connection.index);
                    }
                }
                Effect::Close { connection, reset } => {
                    if self.line(connection).is_some()
                        && let Some(line) = self.lines[connection.index as usize].take()
                    {
                        after.ends.push((line, reset));
                    }
                }
                Effect::Complete { face, result } => self.complete(face, result, after, now),
                Effect::Lost { lock, reason } => {
                    if let Some(watch) = self.watches.remove(&lock) {
                        let wakers = watch.wakers.into_iter().map(|(_, waker)| waker);
                        after.wakers.extend(wakers);
                        let told = watch.callbacks.into_iter().map(|told| (told, reason));
                        after.lost.extend(told);
                    }
                }
                Effect::Finished => {
                    self.finished = true;
                    after.finished = true;
                }
            }
        }
    }

    #[inline(always)]
    fn complete(
        &mut self,
        id: FaceId,
        result: Result<Outcome, Error>,
        after: &mut After,
        now: Micros,
    ) {
        let Some(entry) = self.faces.get_mut(id) else {
            if let Ok(Outcome::Locked(grant)) = result {
                self.drop_lock(grant.lock, now);
            }
            return;
        };
        if let Some(told) = entry.on_lost.take() {
            match &result {
                Ok(Outcome::Locked(grant)) => {
                    let watch = self.watches.entry(grant.lock).or_default();
                    watch.callbacks.push(told);
                }
                Ok(_) | Err(_) => self.discarded.callbacks.push(told),
            }
        }
        match &mut entry.face {
            Face::Waiting(waker) => {
                if let Some(waker) = waker.take() {
                    after.wakers.push(waker);
                    entry.wave = self.wave.note_woken(now);
                }
                entry.face = Face::Done(result);
            }
            Face::Callback(_) => {
                // Nobody has woken it, and what it had on the lock's loss is taken out already.
                if let Some(entry) = self.faces.remove(id)
                    && let Face::Callback(done) = entry.face
                {
                    after.done.push((done, result));
                }
            }
            Face::Done(_) => {}
        }
    }

    /// The lines that have something to say and on which much is under way are taken off the list. True if there are any.
    pub(super) fn defer_busy_lines(&mut self, few: u32) -> bool {
        let all = self.writes.len();
        let (session, lines) = (&self.session, &self.lines);
        // Who was woken and has not come yet is about to ask for something as well.
        let expected = self.wave.missing();
        self.writes.retain(|index| {
            let line = lines.get(*index as usize).and_then(Option::as_ref);
            line.is_none_or(|line| {
                let id = ConnectionId {
                    index: *index,
                    epoch: line.epoch,
                };
                session.under_way(id) + expected <= few
            })
        });
        self.writes.len() < all
    }
}
