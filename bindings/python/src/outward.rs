//! Calls of Python code. It may give up the GIL at any step, and in a process that ends meanwhile it does not get the GIL back: CPython
//! before 3.14 then ends the thread where it stands, by unwinding it. What lies above on the stack belongs to somebody who holds the GIL,
//! or must not be unwound at all, so the thread stays here instead, until the process has gone.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::ptr;

#[allow(
    unsafe_code,
    reason = "pyo3 declares them as functions that never unwind"
)]
unsafe extern "C-unwind" {
    fn PyObject_Call(
        callable: *mut ffi::PyObject,
        arguments: *mut ffi::PyObject,
        keywords: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
    fn PyObject_CallMethodObjArgs(
        object: *mut ffi::PyObject,
        name: *mut ffi::PyObject,
        ...
    ) -> *mut ffi::PyObject;
    fn PyErr_WriteUnraisable(object: *mut ffi::PyObject);
}

/// Never goes away by being unwound.
struct Stay;

impl Drop for Stay {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// `callable(*arguments)`
pub(crate) fn call<'py, A>(
    callable: &Bound<'py, PyAny>,
    arguments: A,
) -> PyResult<Bound<'py, PyAny>>
where
    A: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
{
    let py = callable.py();
    let arguments = arguments.into_pyobject(py)?;
    // SAFETY: both are objects that live until this returns, no keywords are allowed to be given, and the result is a new reference, or NULL with an error set.
    #[allow(unsafe_code, reason = "see above")]
    unsafe {
        let stay = Stay;
        let result = PyObject_Call(callable.as_ptr(), arguments.as_ptr(), ptr::null_mut());
        std::mem::forget(stay);
        Bound::from_owned_ptr_or_err(py, result)
    }
}

/// `object.name(argument)`, or without an argument.
pub(crate) fn call_method<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    argument: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let end = ptr::null_mut::<ffi::PyObject>();
    let argument = argument.map_or(end, |argument| argument.as_ptr());
    // SAFETY: all are objects that live until this returns, behind the last one is NULL, and the result is a new reference, or NULL with an error set.
    #[allow(unsafe_code, reason = "see above")]
    unsafe {
        let stay = Stay;
        let result = PyObject_CallMethodObjArgs(object.as_ptr(), name.as_ptr(), argument, end);
        std::mem::forget(stay);
        Bound::from_owned_ptr_or_err(object.py(), result)
    }
}

/// Shows an error that nobody can catch.
pub(crate) fn show(error: PyErr, of: &Bound<'_, PyAny>) {
    error.restore(of.py());
    // SAFETY: the object lives until this returns, and an error is set, which this takes.
    #[allow(unsafe_code, reason = "see above")]
    unsafe {
        let stay = Stay;
        PyErr_WriteUnraisable(of.as_ptr());
        std::mem::forget(stay);
    }
}
