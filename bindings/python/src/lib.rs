//! fairlock for Python. Everything that is decided about locks, retries and time is decided in the core; here
//! arguments are converted, one call is made, and its result is converted.
//!
//! ```text
//! caller ──▶ Client, Lock ─────────────▶ border::blocking ──▶ core          the thread waits, without the GIL
//! caller ──▶ AsyncClient (_asyncio.py) ─▶ start::start_*  ──▶ core ──▶ bridge ──▶ future
//! ```

mod arguments;
mod border;
mod bridge;
mod client;
mod error;
mod fence;
mod lock;
mod options;
mod outward;
mod scope;
mod server;
mod start;
mod teller;
mod view;

/// The native half of the package `fairlock`, which is what users import.
#[pyo3::pymodule]
mod _fairlock {
    #[cfg(debug_assertions)]
    #[pymodule_export]
    use crate::border::_panic;
    #[pymodule_export]
    use crate::{
        bridge::Bridge,
        client::{Client, client_of_loop},
        fence::Fence,
        lock::Lock,
        scope::LockScope,
        server::Server,
        start::{
            Operation, abandon, start_acquire, start_close, start_connect, start_inspect,
            start_keep, start_keep_token, start_locks, start_lost, start_release,
            start_release_token, start_status, start_try_acquire, start_waiters,
        },
    };
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
