//! The core's errors as the classes of `fairlock._errors`.

use crate::outward;
use fairlock::{ErrorKind, ServerError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyModule, PyTuple};

/// The Python exception of an error of the core: the class stands in the core's own table.
pub(crate) fn to_python(py: Python<'_>, error: &fairlock::Error) -> PyErr {
    let text = match error.time_out_of_limits() {
        Some(wrong) => wrong.sentence(wrong.option, format_args!("{} s", wrong.time.as_secs_f64())),
        None => error.to_string(),
    };
    match error.kind() {
        ErrorKind::InvalidArgument => PyValueError::new_err(text),
        ErrorKind::Refused { code } => raise(py, "Refused", (text, code.as_ref())),
        ErrorKind::LockLost { reason } => raise(py, "LockLost", (text, reason.as_str())),
        // Only who gave up hears it, and has an exception of its own by then.
        ErrorKind::Cancelled => raise(py, "Error", (text,)),
        kind => raise(py, kind.row().python, (text,)),
    }
}

/// A bug of ours.
pub(crate) fn internal(py: Python<'_>, text: &str) -> PyErr {
    raise(py, "InternalError", (text,))
}

/// Why the embedded server could not be started, or stopped.
pub(crate) fn server(py: Python<'_>, error: &ServerError) -> PyErr {
    let text = error.to_string();
    match error {
        ServerError::Setting(_) => PyValueError::new_err(text),
        ServerError::Forked => raise(py, "ForkedClient", (text,)),
        _ => raise(py, "ServerFailed", (text,)),
    }
}

fn raise<'py, A>(py: Python<'py>, class: &str, arguments: A) -> PyErr
where
    A: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
{
    static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let made = ERRORS
        .get_or_try_init(py, || py.import("fairlock._errors").map(Bound::unbind))
        .and_then(|errors| errors.bind(py).getattr(class))
        .and_then(|class| outward::call(&class, arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Writes down in the error of a scope's body what failed when the scope was left.
pub(crate) fn note(error: &Bound<'_, PyAny>, failed: &PyErr) {
    // Python 3.10 knows no notes; the error itself is what matters.
    let _ = error.call_method1("add_note", (format!("and then: {failed}"),));
}
