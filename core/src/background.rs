//! Threads of this library's own. No signal of the program comes to them: a program that waits for its signals on a thread of its own, with
//! `sigwait` for example, would miss one that comes here, or be ended by it, and a handler would run where nobody expects it.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::thread::{Builder, JoinHandle};

/// What a fault of this very thread raises: it cannot be held back.
const FAULTS: [libc::c_int; 7] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGTRAP,
];

thread_local! {
    /// On a thread of this library, what its maker held back.
    static MAKERS: Cell<Option<Signals>> = const { Cell::new(None) };
}

/// The signals that a thread holds back.
#[derive(Clone, Copy)]
pub struct Signals(libc::sigset_t);

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signals")
    }
}

impl Signals {
    /// What a thread for code of the program is to hold back that is made here: what the program's own thread did that has, over
    /// others, led to this one.
    #[must_use]
    pub fn of_program() -> Signals {
        MAKERS.get().unwrap_or_else(|| change(None))
    }

    /// From now on this thread holds these back, and no others.
    pub fn hold_back(self) {
        change(Some(self));
    }

    #[allow(unsafe_code)]
    fn all_but_faults() -> Signals {
        let mut all = MaybeUninit::uninit();
        // SAFETY: `sigfillset` makes a whole set of it, and the numbers are those of signals.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in FAULTS {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            Signals(all.assume_init())
        }
    }
}

/// Changes what this thread holds back, or leaves it, and says what it was.
#[allow(unsafe_code)]
fn change(to: Option<Signals>) -> Signals {
    let mut before = MaybeUninit::uninit();
    let to = to
        .as_ref()
        .map_or(ptr::null(), |signals| &raw const signals.0);
    // SAFETY: `to` is a whole set or NULL, and `before` gets one: that fails only for a wrong first argument.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, to, before.as_mut_ptr());
        Signals(before.assume_init())
    }
}

/// Starts a thread.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let makers = Signals::of_program();
    // A new thread has what its maker has in this moment.
    let before = change(Some(Signals::all_but_faults()));
    let thread = Builder::new().name(name.to_owned()).spawn(move || {
        MAKERS.set(Some(makers));
        body()
    });
    change(Some(before));
    thread
}
