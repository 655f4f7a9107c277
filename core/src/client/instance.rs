//! A client in this process: its core behind one lock, the callers on one side and the driver's
//! thread on the other.

use super::acquire::OnLost;
pub(crate) use super::core::Face;
use super::core::{After, Core, Discarded};
use super::driver::{Command, Driver, clock, fork};
use super::event_loop::EventLoop;
use super::options::{FollowMoves, Options, default_name};
use super::session::{
    Ask, FaceId, LockId, MILLISECOND, Micros, OperationId, Outcome, SECOND, SeenLock, Session,
    Settings,
};
use super::wave::Turn;
use crate::error::{Error, LostReason};
use crate::protocol::{ClientId, NameRef, SecretRef, Wait};
use crate::tls::Connector;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// What all clones of a client, its locks and its calls share. With it the client ends.
pub(crate) struct Handle {
    options: Arc<Options>,
    first: Arc<Instance>,
}

impl Handle {
    pub(crate) fn new(options: Options) -> Result<Arc<Handle>, Error> {
        let options = Arc::new(options);
        let first = Instance::start_client(&options)?;
        Ok(Arc::new(Handle { options, first }))
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The client in this process: a forked child gets an identity and connections of its own.
    #[inline]
    pub(crate) fn here(self: Arc<Handle>) -> Result<Here, Error> {
        let successor = match self.first.is_of_this_process() {
            true => None,
            false => Some(self.successor()?),
        };
        Ok(Here {
            handle: self,
            successor,
        })
    }

    fn successor(&self) -> Result<Arc<Instance>, Error> {
        let mut instance = &self.first;
        while !instance.is_of_this_process() {
            if instance.successor.get().is_none() {
                let successor = Instance::start_client(&self.options)?;
                if let Err(second) = instance.successor.set(successor) {
                    // Another thread was faster.
                    second.retire();
                }
            }
            instance = instance
                .successor
                .get()
                .expect("it was there or has just been set");
        }
        Ok(instance.clone())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut instance = Some(&self.first);
        while let Some(this) = instance {
            if this.is_of_this_process() {
                this.retire();
            } else {
                // A parent's client, perhaps copied while its lock was held: nothing of it is
                // touched, its sockets stay as they are.
                std::mem::forget(this.clone());
            }
            instance = this.successor.get();
        }
    }
}

/// A client in the process in which a call or a lock began. It keeps the client alive.
#[derive(Clone)]
pub(crate) struct Here {
    handle: Arc<Handle>,
    /// Only in a forked child: elsewhere it is the handle's first one, which needs no count of its own.
    successor: Option<Arc<Instance>>,
}

impl Here {
    pub(crate) fn instance(&self) -> &Arc<Instance> {
        self.successor.as_ref().unwrap_or(&self.handle.first)
    }
}

/// An operation that a caller has started.
#[derive(Clone, Copy)]
pub(crate) struct Started {
    pub(super) face: FaceId,
    pub(crate) operation: Option<OperationId>,
    /// The result is there already.
    pub(crate) known: bool,
}

/// What the lock object shows.
pub(crate) struct LockView {
    pub(crate) lease: Duration,
    pub(crate) remaining: Duration,
    pub(crate) held: bool,
    pub(crate) lost: Option<LostReason>,
}

/// A client's identity and connections in one process.
pub(crate) struct Instance {
    generation: u32,
    number: usize,
    connect_timeout: Micros,
    connector: Option<Connector>,
    pub(super) driver: Arc<Driver>,
    core: Mutex<Core>,
    /// The event loop that reads too, if there is one.
    pub(super) event_loop: Option<Arc<EventLoop>>,
    /// When the driver has to look at this client, at the latest.
    deadline: AtomicU64,
    /// The driver is asked to write.
    attention: AtomicBool,
    /// The same client in a forked child.
    successor: OnceLock<Arc<Instance>>,
    /// For the tests: other than zero, it panics whenever the driver looks at it, and counts that.
    #[cfg(test)]
    pub(super) broken: AtomicU64,
}

/// Who writes what an operation has to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Writer {
    /// This thread, at once.
    Caller,
    /// This thread if little is under way. Else the last of those who were woken together, or the driver; both write for many at
    /// once.
    Either,
    /// The same, but during a turn of the event loop its end.
    EndOfTurn,
}

/// With more requests than this under way on a connection, one writes for many.
const FEW: u32 = 4;

impl Instance {
    fn start_client(options: &Options) -> Result<Arc<Instance>, Error> {
        let mut chance = [0; 24];
        rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::empty()).map_err(
            |error| {
                let text = format!("the system gives no random numbers: {error}");
                Error::new(crate::error::ErrorKind::ConnectionFailed, text)
            },
        )?;
        // Nothing fails from here on: the driver waits for this client to be dismissed.
        let driver = Driver::of_this_process()?;
        let number = driver.new_client();
        let (id, seed) = chance.split_at(16);
        let mut name = Vec::new();
        match &options.name {
            Some(given) => NameRef::encode(given, &mut name),
            None => NameRef::encode(&default_name(), &mut name),
        }
        let secret = options.secret.as_ref().map(|secret| {
            let mut spelling = Vec::new();
            SecretRef::encode(secret, &mut spelling);
            spelling
        });
        let connect_timeout = micros(options.connect_timeout);
        let settings = Settings {
            id: ClientId(id.try_into().expect("16 of 24 bytes")),
            name,
            secret,
            servers: options.servers.clone(),
            connect_timeout,
            retry_for: micros(options.retry_for),
            listed_only: options.follow_moves == FollowMoves::Listed,
            seed: u64::from_le_bytes(seed.try_into().expect("8 of 24 bytes")),
            mutation: crate::mutation::Mutation::None,
        };
        let instance = Arc::new(Instance {
            generation: fork::generation(),
            number,
            connect_timeout,
            connector: options.tls.as_ref().map(Connector::for_this_process),
            core: Mutex::new(Core::new(Session::new(settings, clock::now()))),
            event_loop: options
                .event_loop
                .clone()
                .filter(|event_loop| event_loop.is_of_this_process()),
            deadline: AtomicU64::new(Micros::MAX),
            attention: AtomicBool::new(false),
            successor: OnceLock::new(),
            #[cfg(test)]
            broken: AtomicU64::new(0),
            driver: driver.clone(),
        });
        driver.send(Command::Adopt(instance.clone()));
        if let Some(event_loop) = &instance.event_loop {
            event_loop.adopt(&instance);
        }
        let core = instance.lock();
        instance.finish(core, After::default(), Writer::Caller, clock::now());
        Ok(instance)
    }

    pub(crate) fn is_of_this_process(&self) -> bool {
        self.generation == fork::generation()
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    pub(crate) fn connect_timeout(&self) -> Micros {
        self.connect_timeout
    }

    /// What connections are secured with.
    pub(crate) fn connector(&self) -> Option<&Connector> {
        self.connector.as_ref()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        // After a panic the state is as good as it was before it.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the effects, gives the lock back, and does what is left to do.
    pub(super) fn finish<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        mut after: After,
        writer: Writer,
        now: Micros,
    ) {
        core.settle(&mut after, now);
        let mut deferred = false;
        if writer != Writer::Caller && !core.writes.is_empty() {
            if writer == Writer::EndOfTurn && self.end_of_turn_writes() {
                core.writes.clear();
                // The end of the turn may be late.
                core.look_after(now);
            } else if core.defer_busy_lines(FEW) {
                match core.wave.turn(now) {
                    Turn::Held => {}
                    Turn::Now => core.write_all_lines(),
                    Turn::Driver => deferred = true,
                }
            }
        }
        if core.wave.is_complete() {
            core.wave.note_written(now);
            core.write_all_lines();
        }
        // A write that fails makes others, over other connections.
        while let Some(index) = core.writes.pop() {
            core = self.write(core, index, &mut after, now);
        }
        self.publish(&core);
        let discarded = core.discarded.take();
        drop(core);
        discard(discarded);
        if deferred {
            self.ask_driver_to_write();
        }
        if !after.is_empty() {
            self.conclude(after);
        }
    }

    fn ask_driver_to_write(&self) {
        // While it stands the driver has yet to take the lock, and will find what others had put there before.
        if !self.attention.load(Ordering::SeqCst) && !self.attention.swap(true, Ordering::SeqCst) {
            self.driver.wake();
        }
    }

    /// Whether this thread is in a turn of the event loop, at the end of which that writes.
    fn end_of_turn_writes(&self) -> bool {
        let event_loop = self.event_loop.as_ref();
        event_loop.is_some_and(|event_loop| event_loop.defer(self.number))
    }

    /// Lets the driver know when it is needed.
    fn publish(&self, core: &Core) {
        let next = core.session.next_deadline().unwrap_or(Micros::MAX);
        let next = next.min(core.look_at.unwrap_or(Micros::MAX));
        let next = next.min(core.wave.deadline().unwrap_or(Micros::MAX));
        // It changes under the lock only.
        if self.deadline.load(Ordering::SeqCst) != next {
            self.deadline.store(next, Ordering::SeqCst);
            self.driver.wake_by(next);
        }
    }

    /// Does what must not be done under the lock.
    fn conclude(&self, mut after: After) {
        for (line, reset) in std::mem::take(&mut after.ends) {
            // Before the descriptor is closed: a forked child may still have a copy of it, and then
            // the system would go on telling of it.
            self.unwatch(&line.socket);
            line.socket.end(reset);
        }
        for (connection, address) in std::mem::take(&mut after.connects) {
            self.driver.send(Command::Connect {
                client: self.number,
                connection,
                address,
            });
        }
        for waker in after.wakers.drain(..) {
            guarded(|| waker.wake());
        }
        after.call_back();
        if after.finished && self.is_of_this_process() {
            self.driver.send(Command::Dismiss(self.number));
            if let Some(event_loop) = &self.event_loop {
                event_loop.dismiss(self.number);
            }
        }
    }

    /// Begins an operation.
    pub(crate) fn start(&self, ask: Ask, on_lost: Option<OnLost>, face: Face) -> Started {
        let mut core = self.lock();
        // Who has to wait for a connection waits no shorter than is said.
        let now = match bears_a_glance(&ask) && core.session.has_way() {
            true => core.clock.now(),
            false => clock::now(),
        };
        if let Some(event_loop) = &self.event_loop {
            self.lend_lines(&mut core, event_loop, now);
        }
        let face = core.insert_face(face, on_lost);
        let operation = core.session.ask(ask, face, now);
        if !core.session.has_effects() {
            // Somebody is about to write to the connection already.
            if core.session.take_hastened() {
                self.publish(&core);
            }
            return Started {
                face,
                operation,
                known: false,
            };
        }
        let mut after = After::default();
        core.settle(&mut after, now);
        let entry = core.faces.get(face);
        let known = entry.is_none_or(|entry| matches!(entry.face, Face::Done(_)));
        self.finish(core, after, Writer::EndOfTurn, now);
        Started {
            face,
            operation,
            known,
        }
    }

    /// The result of an operation, if it is there; else `waker` is woken when it is.
    pub(crate) fn poll(&self, started: &Started, waker: &Waker) -> Poll<Result<Outcome, Error>> {
        if !self.is_of_this_process() {
            return Poll::Ready(Err(Error::forked()));
        }
        let mut core = self.lock();
        if let Some(result) = core.take_result(started.face) {
            if core.wave.is_complete() {
                self.finish(core, After::default(), Writer::Caller, clock::now());
                return Poll::Ready(result);
            }
            let discarded = core.discarded.take();
            drop(core);
            discard(discarded);
            return Poll::Ready(result);
        }
        let mut before = None;
        if let Some(entry) = core.faces.get_mut(started.face)
            && let Face::Waiting(known) = &mut entry.face
            && !known.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            before = known.replace(waker.clone());
        }
        drop(core);
        // Perhaps the last handle of a task, which owns locks of this client.
        drop(before);
        Poll::Pending
    }

    /// The future of an operation is dropped.
    pub(crate) fn abandon(&self, started: &Started) {
        if !self.is_of_this_process() {
            return;
        }
        let now = clock::now();
        let mut core = self.lock();
        core.abandon(started.face, started.operation, now);
        self.finish(core, After::default(), Writer::EndOfTurn, now);
    }

    pub(crate) fn cancel(&self, operation: OperationId) {
        if !self.is_of_this_process() {
            return;
        }
        let now = clock::now();
        let mut core = self.lock();
        core.session.cancel(operation, now);
        self.finish(core, After::default(), Writer::EndOfTurn, now);
    }

    pub(crate) fn drop_lock(&self, lock: LockId) {
        let mut core = self.lock();
        if core.session.forget_released(lock) {
            // Nothing follows from that.
            core.forget_watch(lock);
            let discarded = core.discarded.take();
            drop(core);
            discard(discarded);
            return;
        }
        let now = clock::now();
        core.drop_lock(lock, now);
        self.finish(core, After::default(), Writer::EndOfTurn, now);
    }

    pub(crate) fn leave_held(&self, lock: LockId) {
        let now = clock::now();
        let mut core = self.lock();
        core.forget_watch(lock);
        core.session.leave_held(lock);
        self.finish(core, After::default(), Writer::EndOfTurn, now);
    }

    pub(crate) fn lock_view(&self, lock: LockId) -> LockView {
        let view = self.look(&mut self.lock(), lock);
        LockView {
            lease: Duration::from_micros(view.map_or(0, |view| view.lease)),
            remaining: Duration::from_micros(view.map_or(0, |view| view.remaining)),
            held: view.is_some_and(|view| view.held),
            lost: view.and_then(|view| view.lost),
        }
    }

    /// If the look finds the lock overdue, the driver tells those who have to hear it: whoever only looks is not called
    /// back, and may hold what a callback waits for.
    fn look(&self, core: &mut Core, lock: LockId) -> Option<SeenLock> {
        let view = core.session.view_lock(lock, clock::now());
        if core.session.has_effects() {
            self.ask_driver_to_write();
        }
        view
    }

    pub(crate) fn on_lost(&self, lock: LockId, told: OnLost) {
        let mut core = self.lock();
        match self.look(&mut core, lock).and_then(|view| view.lost) {
            Some(reason) => {
                drop(core);
                told(reason);
            }
            None => core.watches.entry(lock).or_default().callbacks.push(told),
        }
    }

    /// `watcher` is the number of the future that waits, once it has one.
    pub(crate) fn poll_lost(
        &self,
        lock: LockId,
        watcher: &mut Option<u64>,
        waker: &Waker,
    ) -> Poll<LostReason> {
        let mut guard = self.lock();
        let core = &mut *guard;
        if let Some(reason) = self.look(core, lock).and_then(|view| view.lost) {
            return Poll::Ready(reason);
        }
        let number = *watcher.get_or_insert_with(|| {
            core.last_watcher += 1;
            core.last_watcher
        });
        let wakers = &mut core.watches.entry(lock).or_default().wakers;
        let before = match wakers.iter_mut().find(|(known, _)| *known == number) {
            Some((_, known)) => Some(std::mem::replace(known, waker.clone())),
            None => {
                wakers.push((number, waker.clone()));
                None
            }
        };
        drop(guard);
        drop(before);
        Poll::Pending
    }

    /// This future does not wait any more for the loss of the lock.
    pub(crate) fn forget_watcher(&self, lock: LockId, number: u64) {
        let mut core = self.lock();
        let gone = core.watches.get_mut(&lock).and_then(|watch| {
            let mut wakers = watch.wakers.iter();
            let place = wakers.position(|(known, _)| *known == number)?;
            Some(watch.wakers.swap_remove(place))
        });
        drop(core);
        drop(gone);
    }

    /// The last handle is gone.
    fn retire(&self) {
        let now = clock::now();
        let mut core = self.lock();
        core.session.retire(now);
        self.finish(core, After::default(), Writer::EndOfTurn, now);
    }

    pub(crate) fn deadline(&self) -> Micros {
        self.deadline.load(Ordering::SeqCst)
    }

    pub(crate) fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::SeqCst)
    }

    /// The driver looks at this client: at its deadlines, and at what it is asked to write.
    pub(crate) fn attend(&self, now: Micros) {
        #[cfg(test)]
        if self.broken.load(Ordering::SeqCst) > 0 {
            self.broken.fetch_add(1, Ordering::SeqCst);
            self.deadline.store(0, Ordering::SeqCst);
            panic!("on purpose");
        }
        let asked = self.attention.swap(false, Ordering::SeqCst);
        let due = self.deadline() <= now;
        if !asked && !due {
            return;
        }
        let mut core = self.lock();
        if due {
            core.session.handle_due(now);
            self.take_back_lines(&mut core, now);
            if core.wave.handle_due(now) {
                core.write_all_lines();
            }
        }
        // The end of a turn of the event loop may be late.
        if asked || (due && self.event_loop.is_some()) {
            core.write_all_lines();
        }
        self.finish(core, After::default(), Writer::Caller, now);
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}", self.number)
    }
}

/// Whether an operation may begin a moment earlier than it does: its lease then counts from too early a moment, what it repeats
/// is repeated too early. A wait must not end too early, and of a short lease too much would be gone.
fn bears_a_glance(ask: &Ask) -> bool {
    match ask {
        Ask::Acquire { lease, wait, .. } => {
            !matches!(wait, Wait::For(_)) && lease.0 >= SECOND / MILLISECOND
        }
        Ask::ReleaseLock { .. } => true,
        _ => false,
    }
}

fn micros(time: Duration) -> Micros {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 2)
}

/// What callers have left may run their code when it is dropped.
fn discard(discarded: Option<Discarded>) {
    if discarded.is_some() {
        guarded(|| drop(discarded));
    }
}

/// A panic of a callback must not end the driver's thread.
pub(super) fn guarded(call: impl FnOnce()) {
    // The panic hook has already reported it.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
}
