//! The border itself: how a call leaves the GIL, looks at signals, and never lets a panic out.

use crate::error;
use pyo3::prelude::*;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a blocking call asks Python whether a signal has come.
const LOOK_AT_SIGNALS: Duration = Duration::from_millis(100);

/// Runs `call`; a panic becomes a `fairlock.InternalError` instead of a `BaseException` that nobody expects.
pub(crate) fn guard<T>(py: Python<'_>, call: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    panic::catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("a panic without a text");
        Err(error::internal(py, text))
    })
}

/// Runs a blocking call without the GIL. `call` is given how often to ask, and what to ask, whether it may go on.
///
/// When a signal handler raises, the call is told to stop, what it brought after all is dropped (a lock is thereby
/// released), and the handler's exception goes to the caller.
pub(crate) fn blocking<T: Send>(
    py: Python<'_>,
    call: impl FnOnce(Duration, &mut (dyn FnMut() -> bool + Send)) -> Result<T, fairlock::Error> + Send,
) -> PyResult<T> {
    guard(py, || {
        let mut interrupt = None;
        let result = py.detach(|| {
            call(LOOK_AT_SIGNALS, &mut || {
                // Where the interpreter is ending there are no more handlers: the call goes on, and the process goes.
                let looked = Python::try_attach(|py| py.check_signals()).unwrap_or(Ok(()));
                interrupt = looked.err();
                interrupt.is_none()
            })
        });
        match interrupt {
            Some(interrupt) => Err(interrupt),
            None => result.map_err(|error| error::to_python(py, &error)),
        }
    })
}

/// Locks; a panic under the lock has been reported where it happened, and the state is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For the tests: what a panic becomes.
#[cfg(debug_assertions)]
#[pyfunction]
pub(crate) fn _panic(py: Python<'_>, while_blocking: bool) -> PyResult<()> {
    if while_blocking {
        blocking(py, |_, _| panic!("on purpose"))
    } else {
        guard(py, || panic!("on purpose"))
    }
}
