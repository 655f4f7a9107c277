//! What `fairlock._asyncio` calls: each function starts one operation of the core and returns at once; the future
//! that it is given is settled by the bridge. Nothing here waits.

use crate::arguments::{self, Key, Lease, Limit, MaxHold, TokenNumber, Wait};
use crate::border::guard;
use crate::bridge::{Bridge, Reply, Settling, Wish};
use crate::client::Client;
use crate::error;
use crate::lock::{Lock, OnLost};
use crate::options::Options;
use crate::view;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

/// An operation under way.
#[pyclass(frozen, module = "fairlock._fairlock")]
pub(crate) struct Operation(fairlock::Pending);

#[pymethods]
impl Operation {
    /// Gives up: nothing is left on the server. A release goes on all the same.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        guard(py, || {
            self.0.cancel();
            Ok(())
        })
    }
}

/// Sends a result of the core to its future.
fn answer<T: Send + 'static>(
    reply: Reply,
    convert: impl FnOnce(Settling<'_, '_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> impl FnOnce(Result<T, fairlock::Error>) + Send + 'static {
    move |result| {
        reply.send(move |settling| {
            let py = settling.py;
            match result {
                Ok(value) => guard(py, || convert(settling, value)),
                Err(error) => Err(error::to_python(py, &error)),
            }
        });
    }
}

/// Submits a call whose result needs nothing but a conversion.
fn submit<T: Send + 'static>(
    py: Python<'_>,
    bridge: &Bridge,
    future: Py<PyAny>,
    call: fairlock::Call<T>,
    convert: impl FnOnce(Python<'_>, T) -> PyResult<Bound<'_, PyAny>> + Send + 'static,
) -> PyResult<Operation> {
    guard(py, || {
        let reply = bridge.expect(future, None);
        let done = answer(reply, |settling, value| {
            convert(settling.py, value).map(Bound::unbind)
        });
        Ok(Operation(call.submit(done)))
    })
}

/// The result of a call that has none.
fn nothing(py: Python<'_>, (): ()) -> PyResult<Bound<'_, PyAny>> {
    Ok(py.None().into_bound(py))
}

/// A yes or no.
fn yes(py: Python<'_>, yes: bool) -> PyResult<Bound<'_, PyAny>> {
    Ok(PyBool::new(py, yes).to_owned().into_any())
}

/// The lock that an acquire brought.
fn lock_of(settling: Settling<'_, '_>, core: fairlock::Lock) -> PyResult<Py<PyAny>> {
    let (py, caller) = (settling.py, settling.bridge.caller());
    let Wish { key, on_lost } = settling.into_wish();
    let lock = Lock::of_loop(core, key, on_lost, caller);
    Ok(Py::new(py, lock)?.into_any())
}

/// As `Client.acquire`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the options of an acquire")]
pub(crate) fn start_acquire(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
    key: Key<'_>,
    lease: Option<Lease>,
    wait: Option<Wait>,
    #[pyo3(from_py_with = arguments::keep_alive)] keep_alive: bool,
    max_hold: Option<MaxHold>,
    on_lost: Option<OnLost>,
) -> PyResult<Operation> {
    let options = Options {
        lease,
        wait,
        keep_alive,
        max_hold,
        on_lost,
    };
    let call = options.acquire(&client.get().core, &key)?;
    let bridge = bridge.get();
    guard(py, || {
        let reply = bridge.expect(
            future,
            Some(Wish {
                key: key.into(),
                on_lost: options.on_lost,
            }),
        );
        Ok(Operation(call.submit(answer(reply, lock_of))))
    })
}

/// As `Client.try_acquire`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the options of an acquire")]
pub(crate) fn start_try_acquire(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
    key: Key<'_>,
    lease: Option<Lease>,
    #[pyo3(from_py_with = arguments::keep_alive)] keep_alive: bool,
    max_hold: Option<MaxHold>,
    on_lost: Option<OnLost>,
) -> PyResult<Operation> {
    let options = Options {
        lease,
        wait: None,
        keep_alive,
        max_hold,
        on_lost,
    };
    let call = options.try_acquire(&client.get().core, &key)?;
    let bridge = bridge.get();
    guard(py, || {
        let reply = bridge.expect(
            future,
            Some(Wish {
                key: key.into(),
                on_lost: options.on_lost,
            }),
        );
        Ok(Operation(call.submit(answer(
            reply,
            |settling, lock| match lock {
                Some(lock) => lock_of(settling, lock),
                None => Ok(settling.py.None()),
            },
        ))))
    })
}

/// As `Lock.keep`.
#[pyfunction]
pub(crate) fn start_keep(
    py: Python<'_>,
    lock: &Bound<'_, Lock>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
    lease: Option<Lease>,
) -> PyResult<Operation> {
    submit(
        py,
        bridge.get(),
        future,
        lock.get().keep_call(lease),
        nothing,
    )
}

/// As `Lock.release`.
#[pyfunction]
pub(crate) fn start_release(
    py: Python<'_>,
    lock: &Bound<'_, Lock>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
) -> PyResult<Operation> {
    submit(py, bridge.get(), future, lock.get().core.release(), yes)
}

/// Has `future` settled with the reason when the lock is lost, and with `None` when it never will be.
#[pyfunction]
pub(crate) fn start_lost(
    py: Python<'_>,
    lock: &Bound<'_, Lock>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
) -> PyResult<()> {
    guard(py, || {
        let reply = bridge.get().expect(future, None).or_none();
        lock.get().core.on_lost(move |reason| {
            reply.send(move |settling| {
                Ok(PyString::new(settling.py, reason.as_str())
                    .into_any()
                    .unbind())
            });
        });
        Ok(())
    })
}

/// Releases a lock whose caller was cancelled just as it came.
#[pyfunction]
pub(crate) fn abandon(py: Python<'_>, lock: &Bound<'_, Lock>) -> PyResult<()> {
    guard(py, || {
        lock.get().core.release().submit(drop);
        Ok(())
    })
}

/// As `Client.connect`.
#[pyfunction]
pub(crate) fn start_connect(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
) -> PyResult<Operation> {
    submit(
        py,
        bridge.get(),
        future,
        client.get().core.connected(),
        nothing,
    )
}

/// As `Client.close`.
#[pyfunction]
pub(crate) fn start_close(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
) -> PyResult<Operation> {
    submit(py, bridge.get(), future, client.get().core.close(), nothing)
}

/// As `Client.release`.
#[pyfunction]
pub(crate) fn start_release_token(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
    key: Key<'_>,
    token: TokenNumber,
) -> PyResult<Operation> {
    let call = client.get().core.release(key.bytes()?, token.0);
    submit(py, bridge.get(), future, call, yes)
}

/// As `Client.keep`.
#[pyfunction]
pub(crate) fn start_keep_token(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
    key: Key<'_>,
    token: TokenNumber,
    lease: Lease,
) -> PyResult<Operation> {
    let call = client.get().core.keep(key.bytes()?, token.0, lease.0);
    submit(py, bridge.get(), future, call, yes)
}

/// As `Client.inspect`.
#[pyfunction]
pub(crate) fn start_inspect(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
    key: Key<'_>,
) -> PyResult<Operation> {
    let call = client.get().core.inspect(key.bytes()?);
    submit(py, bridge.get(), future, call, view::key_state)
}

/// As `Client.waiters`.
#[pyfunction]
pub(crate) fn start_waiters(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
    key: Key<'_>,
    limit: Limit,
) -> PyResult<Operation> {
    let call = client.get().core.waiters(key.bytes()?, limit.0);
    submit(py, bridge.get(), future, call, view::waiters)
}

/// As `Client.locks`.
#[pyfunction]
pub(crate) fn start_locks(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
    prefix: Option<Key<'_>>,
    after: Option<Key<'_>>,
    limit: Limit,
) -> PyResult<Operation> {
    let call = client
        .get()
        .locks_call(prefix.as_ref(), after.as_ref(), limit.0)?;
    submit(py, bridge.get(), future, call, view::lock_page)
}

/// As `Client.status`.
#[pyfunction]
pub(crate) fn start_status(
    py: Python<'_>,
    client: &Bound<'_, Client>,
    bridge: &Bound<'_, Bridge>,
    future: Py<PyAny>,
) -> PyResult<Operation> {
    submit(
        py,
        bridge.get(),
        future,
        client.get().core.status(),
        view::status,
    )
}
