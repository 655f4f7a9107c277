//! Callbacks into C: which thread they run on is known, what they may not do is refused, and each
//! comes exactly once, in the process that asked for it.

use crate::lock::fairlock_lock;
use crate::report::{Failure, Outcome};
use crate::status::{fairlock_lost_reason, fairlock_status, fairlock_status::*};
use fairlock::fork_generation;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Told that a lock is lost; see fairlock_lock_on_lost().
pub type fairlock_lost_callback =
    Option<unsafe extern "C" fn(data: *mut c_void, reason: fairlock_lost_reason)>;

/// Told how an acquire ended; see fairlock_acquire_async(). With FAIRLOCK_OK the lock belongs to the
/// callback, which must see to it that it is released; it is NULL after a try of a held key, and with
/// every other status.
pub type fairlock_acquired_callback = Option<
    unsafe extern "C" fn(data: *mut c_void, status: fairlock_status, lock: *mut fairlock_lock),
>;

/// Told how a release or a keep ended.
pub type fairlock_done_callback =
    Option<unsafe extern "C" fn(data: *mut c_void, status: fairlock_status)>;

/// What C gave to be handed to a callback. It is only carried.
#[derive(Clone, Copy)]
pub(crate) struct Data(pub(crate) *mut c_void);

// SAFETY: this crate never looks behind the pointer; the header says that callbacks come from other
// threads, so what it points to is the caller's to share.
unsafe impl Send for Data {}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A number that no other living thread has. Rust's own handle of a thread would stay in use when the
/// main thread ends the process.
fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| ptr::from_ref(mark).addr())
}

/// Whether this thread is inside a callback.
pub(crate) fn inside() -> bool {
    DEPTH.try_with(|depth| depth.get() > 0).unwrap_or(false)
}

/// Refuses what would wait for the very thread that it runs on.
pub(crate) fn may_block() -> Outcome<()> {
    if inside() {
        return Err(Failure::new(
            FAIRLOCK_WOULD_DEADLOCK,
            "a callback must not wait for the network; use the call with a callback of its own",
        ));
    }
    Ok(())
}

/// Runs a callback, so that [`inside`] holds for what it calls.
fn run(callback: impl FnOnce()) {
    let _ = DEPTH.try_with(|depth| depth.set(depth.get() + 1));
    callback();
    let _ = DEPTH.try_with(|depth| depth.set(depth.get() - 1));
}

/// The callbacks of a client that have not returned yet, so that closing it can wait for them.
#[derive(Default)]
pub(crate) struct Calls {
    /// The generation of the process in the upper half, their number in the lower one: what a fork left
    /// behind in the child never comes back, so the child counts anew.
    state: AtomicU64,
    awaited: AtomicBool,
    mutex: Mutex<()>,
    none: Condvar,
}

impl Calls {
    fn begin(&self, generation: u32) {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let next = if of(state) == generation {
                state + 1
            } else {
                (u64::from(generation) << 32) + 1
            };
            match self.state.compare_exchange_weak(
                state,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }

    fn end(&self) {
        let before = self.state.fetch_sub(1, Ordering::SeqCst);
        if before as u32 == 1 && self.awaited.load(Ordering::SeqCst) {
            let _guard = guard(&self.mutex);
            self.none.notify_all();
        }
    }

    /// Waits until every callback has returned.
    pub(crate) fn wait(&self) {
        let generation = fork_generation();
        self.awaited.store(true, Ordering::SeqCst);
        let mut lock = guard(&self.mutex);
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if of(state) != generation || state as u32 == 0 {
                return;
            }
            lock = self.none.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The generation in a [`Calls::state`].
fn of(state: u64) -> u32 {
    (state >> 32) as u32
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A callback that is owed. It comes exactly once: when [`Owed::pay`] says how the call ended, or, if
/// nobody ever does, when this is dropped.
pub(crate) struct Owed {
    callback: Answer,
    data: Data,
    generation: u32,
    calls: Arc<Calls>,
}

/// The two shapes of a callback.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Acquired(unsafe extern "C" fn(*mut c_void, fairlock_status, *mut fairlock_lock)),
    Done(unsafe extern "C" fn(*mut c_void, fairlock_status)),
    Paid,
}

impl Owed {
    pub(crate) fn new(callback: Answer, data: *mut c_void, calls: &Arc<Calls>) -> Owed {
        let generation = fork_generation();
        calls.begin(generation);
        Owed {
            callback,
            data: Data(data),
            generation,
            calls: calls.clone(),
        }
    }

    /// Calls back. A lock that comes with a callback of the other shape, or in a forked child, is
    /// dropped, which releases it where that is right.
    pub(crate) fn pay(mut self, outcome: Outcome<Option<Box<fairlock_lock>>>) {
        self.answer(outcome);
    }

    fn answer(&mut self, outcome: Outcome<Option<Box<fairlock_lock>>>) {
        let callback = std::mem::replace(&mut self.callback, Answer::Paid);
        if matches!(callback, Answer::Paid) || self.generation != fork_generation() {
            return;
        }
        run(|| {
            let (status, lock) = match outcome {
                Ok(lock) => (FAIRLOCK_OK, lock),
                Err(failure) => (failure.report(), None),
            };
            match callback {
                // SAFETY: C gave this function for this call, with this data.
                Answer::Acquired(callback) => unsafe {
                    callback(
                        self.data.0,
                        status,
                        lock.map_or(ptr::null_mut(), Box::into_raw),
                    );
                },
                // SAFETY: as above.
                Answer::Done(callback) => unsafe { callback(self.data.0, status) },
                Answer::Paid => {}
            }
        });
        self.calls.end();
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.answer(Err(Failure::new(
            FAIRLOCK_CLOSED,
            "the client was closed before the call ended",
        )));
    }
}

/// Who is told that a lock is lost. Once [`Listener::replace`] has returned, the callback that was
/// there before is not running and never will be, except where it is itself the caller.
pub(crate) struct Listener {
    state: Mutex<Listening>,
    returned: Condvar,
    generation: u32,
}

#[derive(Default)]
struct Listening {
    told: Option<(
        unsafe extern "C" fn(*mut c_void, fairlock_lost_reason),
        Data,
    )>,
    lost: Option<fairlock_lost_reason>,
    running: Option<usize>,
}

impl Listener {
    pub(crate) fn new() -> Arc<Listener> {
        Arc::new(Listener {
            state: Mutex::default(),
            returned: Condvar::new(),
            generation: fork_generation(),
        })
    }

    /// Puts a callback in the place of the one before. If the lock has been lost already it is told
    /// on this thread, before this returns.
    pub(crate) fn replace(&self, callback: fairlock_lost_callback, data: *mut c_void) {
        if self.generation != fork_generation() {
            return;
        }
        let this = this_thread();
        let mut state = guard(&self.state);
        while state.running.is_some_and(|running| running != this) {
            state = self
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.told = callback.map(|callback| (callback, Data(data)));
        self.tell(state);
    }

    /// The lock is lost.
    pub(crate) fn lost(&self, reason: fairlock_lost_reason) {
        if self.generation != fork_generation() {
            return;
        }
        let mut state = guard(&self.state);
        state.lost = Some(reason);
        self.tell(state);
    }

    fn tell(&self, mut state: MutexGuard<'_, Listening>) {
        let Some(reason) = state.lost else { return };
        let Some((callback, data)) = state.told.take() else {
            return;
        };
        let outer = state.running.replace(this_thread());
        drop(state);
        // SAFETY: C gave this function for this lock, with this data.
        run(|| unsafe { callback(data.0, reason) });
        guard(&self.state).running = outer;
        self.returned.notify_all();
    }
}
