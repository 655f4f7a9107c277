//! How often this process stands behind a `fork`.
//!
//! Comparing process ids would need a system call at each entry (0.3 µs where it was measured, as much as all the rest
//! of a pipelined request), so a handler counts instead.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

/// A number that is another one in each child of a fork, from the first client on. Cheap, unlike the id of the process: for
/// bindings that keep state of their own beside a client.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// From now on forks are counted. Called before anything is made that must not be used in a child.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        // SAFETY: the handler runs in the child between `fork` and its return, where only what is
        // safe in signal handlers is allowed; adding to an atomic number is. It has no
        // arguments and cannot unwind. It stays valid for the life of the process unless the
        // library it is in is unloaded, and glibc drops the handlers of an unloaded library.
        #[allow(unsafe_code)]
        let failed = unsafe { libc::pthread_atfork(None, None, Some(count)) };
        // It fails only without memory, and then a child is simply not told apart.
        debug_assert_eq!(failed, 0);
    });
}

extern "C" fn count() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
