//! The thread that calls `on_lost` for clients without an event loop: one for all losses of the process, from the first
//! of them until none is left to be told. It never runs what cannot wait, such as renewals: callbacks may take their time.

use fairlock::{Signals, fork_generation};
use pyo3::ffi;
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// Calls back. Without the GIL it does nothing but end.
pub(crate) type Told = Box<dyn FnOnce(Python<'_>) + Send>;

/// Has a callback called, soon and on no thread of its giver.
pub(crate) fn tell(told: Told) {
    let teller = Teller::of_this_process();
    let mut state = teller.lock();
    state.to_tell.push_back(told);
    if std::mem::replace(&mut state.runs, true) {
        return;
    }
    drop(state);
    // What a callback starts, such as another program, is to have the signals that the program's own threads have.
    let signals = Signals::of_program();
    let run = move || {
        signals.hold_back();
        teller.run();
    };
    let thread = thread::Builder::new().name("fairlock-on-lost".to_owned());
    if thread.spawn(run).is_err() && !run_on_main_thread() {
        // The next loss tries again, and tells of this one too.
        teller.lock().runs = false;
    }
}

/// Makes what tells in this process, for who holds the GIL: Python does not fork then, so no child finds it half made.
pub(crate) fn prepare(_: Python<'_>) {
    Teller::of_this_process();
}

struct Teller {
    generation: u32,
    state: Mutex<State>,
    /// In a forked child, where the thread is gone and the mutex may be locked for ever.
    successor: OnceLock<Box<Teller>>,
}

#[derive(Default)]
struct State {
    to_tell: VecDeque<Told>,
    /// Somebody tells, and looks here before ending.
    runs: bool,
}

static FIRST: OnceLock<Box<Teller>> = OnceLock::new();

impl Teller {
    fn of_this_process() -> &'static Teller {
        let mut place = &FIRST;
        loop {
            let teller = place.get_or_init(|| {
                Box::new(Teller {
                    generation: fork_generation(),
                    state: Mutex::default(),
                    successor: OnceLock::new(),
                })
            });
            if teller.is_of_this_process() {
                return teller;
            }
            place = &teller.successor;
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.generation == fork_generation()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells until nothing is left. A callback that forks comes back in the child too, where this is not the teller any more.
    fn run(&self) {
        while self.is_of_this_process() {
            let mut state = self.lock();
            let Some(told) = state.to_tell.pop_front() else {
                state.runs = false;
                return;
            };
            drop(state);
            // The panic hook has reported it, and the others have to hear of their losses all the same. A process that is
            // ending is told nothing.
            let _ = catch_unwind(AssertUnwindSafe(|| Python::try_attach(told)));
        }
    }
}

/// Where the system gives no thread Python's main thread tells, between two steps of what it does. False if that cannot be.
#[allow(
    unsafe_code,
    reason = "pyo3 has no safe name for what the main thread does later"
)]
fn run_on_main_thread() -> bool {
    extern "C" fn run(_: *mut c_void) -> c_int {
        Teller::of_this_process().run();
        0
    }
    // SAFETY: both may be called by any thread, with the GIL or without it; what is called later uses no argument, does not
    // unwind, and leaves no Python exception behind.
    unsafe {
        ffi::Py_IsInitialized() != 0 && ffi::Py_AddPendingCall(Some(run), ptr::null_mut()) == 0
    }
}
