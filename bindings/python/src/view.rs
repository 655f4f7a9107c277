//! What the node tells operators, as the named tuples of `fairlock._views`.

use crate::arguments::key_to_python;
use crate::outward;
use fairlock::{HeldLock, KeyState, LockPage, Status, Waiter, Waiters};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyModule, PyTuple};

/// How many rows a list has at most where the caller does not say. The signatures for people state it as a number.
pub(crate) const ROWS: u32 = fairlock::DEFAULT_ROWS;
const _: () = assert!(ROWS == 1000, "text signatures and _asyncio.py say 1000");

fn make<'py, A>(py: Python<'py>, class: &str, fields: A) -> PyResult<Bound<'py, PyAny>>
where
    A: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
{
    static VIEWS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let views = VIEWS.get_or_try_init(py, || py.import("fairlock._views").map(Bound::unbind))?;
    outward::call(&views.bind(py).getattr(class)?, fields)
}

fn name(name: Option<Vec<u8>>) -> Option<String> {
    name.map(|name| String::from_utf8_lossy(&name).into_owned())
}

pub(crate) fn key_state(py: Python<'_>, state: KeyState) -> PyResult<Bound<'_, PyAny>> {
    match state {
        KeyState::Free { waiters } => make(
            py,
            "KeyState",
            (false, waiters, py.None(), py.None(), py.None(), py.None()),
        ),
        KeyState::Held(held) => {
            let remaining = held.remaining.as_secs_f64();
            let token = held.token.get();
            let fields = (
                true,
                held.waiters,
                token,
                remaining,
                name(held.name),
                held.address,
            );
            make(py, "KeyState", fields)
        }
    }
}

pub(crate) fn waiters(py: Python<'_>, waiters: Waiters) -> PyResult<Bound<'_, PyAny>> {
    let first = PyList::empty(py);
    for Waiter {
        position,
        waited,
        name,
        address,
    } in waiters.first
    {
        let fields = (position, waited.as_secs_f64(), self::name(name), address);
        first.append(make(py, "Waiter", fields)?)?;
    }
    make(py, "Waiters", (waiters.count, first))
}

pub(crate) fn lock_page(py: Python<'_>, page: LockPage) -> PyResult<Bound<'_, PyAny>> {
    let locks = PyList::empty(py);
    for HeldLock {
        key,
        token,
        remaining,
        waiters,
        name,
        address,
    } in page.locks
    {
        let key = key_to_python(py, &key);
        let remaining = remaining.as_secs_f64();
        let fields = (
            key,
            token.get(),
            remaining,
            waiters,
            self::name(name),
            address,
        );
        locks.append(make(py, "HeldLock", fields)?)?;
    }
    let next = page.next.map(|key| key_to_python(py, &key));
    make(py, "LockPage", (locks, next))
}

pub(crate) fn status(py: Python<'_>, status: Status) -> PyResult<Bound<'_, PyAny>> {
    let fields = (
        status.role.as_str(),
        status.node,
        status.active,
        status.term,
        status.held,
        status.waiting,
        status.connections,
        status.standbys,
        status.peers,
    );
    make(py, "Status", fields)
}
