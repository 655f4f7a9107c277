//! A held lock, and who is told when it is lost.

use crate::arguments::{KeyObject, Lease};
use crate::border::blocking;
use crate::bridge::Caller;
use crate::outward;
use crate::teller::{self, Told};
use fairlock::LostReason;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::sync::{Arc, Weak};

/// A held lock. Who has this object holds the lock, whatever thread that is.
#[pyclass(frozen, weakref, module = "fairlock")]
pub(crate) struct Lock {
    pub(crate) core: fairlock::Lock,
    key: KeyObject,
    on_lost: Option<Arc<OnLost>>,
}

impl Lock {
    /// A lock that calls `on_lost` on the thread for that.
    pub(crate) fn new(
        py: Python<'_>,
        core: fairlock::Lock,
        key: KeyObject,
        on_lost: Option<OnLost>,
    ) -> Lock {
        if on_lost.is_some() {
            teller::prepare(py);
        }
        Lock::telling(core, key, on_lost, teller::tell)
    }

    /// A lock that calls `on_lost` on the thread of the event loop.
    pub(crate) fn of_loop(
        core: fairlock::Lock,
        key: KeyObject,
        on_lost: Option<OnLost>,
        caller: Caller,
    ) -> Lock {
        Lock::telling(core, key, on_lost, move |told| caller.call(told))
    }

    fn telling(
        core: fairlock::Lock,
        key: KeyObject,
        on_lost: Option<OnLost>,
        tell: impl FnOnce(Told) + Send + 'static,
    ) -> Lock {
        let on_lost = on_lost.map(Arc::new);
        if let Some(on_lost) = &on_lost {
            let callback = Arc::downgrade(on_lost);
            core.on_lost(move |reason| tell(told(callback, reason)));
        }
        Lock { core, key, on_lost }
    }
}

/// The call of `on_lost`. It holds the callback weakly, so that no Python object is ever dropped without the GIL:
/// who has dropped the lock by then has released it, and is not told.
fn told(callback: Weak<OnLost>, reason: LostReason) -> Told {
    Box::new(move |py| {
        let Some(callback) = callback.upgrade() else {
            return;
        };
        let callback = callback.0.bind(py);
        if let Err(error) = outward::call(callback, (reason.as_str(),)) {
            outward::show(error, callback);
        }
    })
}

#[pymethods]
impl Lock {
    /// What is locked, as it was given.
    #[getter]
    fn key(&self, py: Python<'_>) -> Py<PyAny> {
        self.key.0.clone_ref(py)
    }

    /// The fencing token: greater than that of every grant before.
    #[getter]
    fn token(&self) -> u64 {
        self.core.token().get()
    }

    /// The lease by which the lock ends, in seconds: that of the acquire, or of the latest `keep` that has put its end off.
    #[getter]
    fn lease(&self) -> f64 {
        self.core.lease().as_secs_f64()
    }

    /// For how many seconds the lock is held at least; 0 if it is lost or released.
    #[getter]
    fn remaining(&self) -> f64 {
        self.core.remaining().as_secs_f64()
    }

    /// Whether the lock is held as far as this client knows.
    #[getter]
    fn held(&self) -> bool {
        self.core.is_held()
    }

    /// How the lock was lost; `None` if it was not.
    fn lost(&self) -> Option<&'static str> {
        self.core.lost_reason().map(LostReason::as_str)
    }

    /// Renews the lock: the lease ends no earlier than its length from now.
    #[pyo3(signature = (lease=None))]
    fn keep(&self, py: Python<'_>, lease: Option<Lease>) -> PyResult<()> {
        let call = self.keep_call(lease);
        blocking(py, |every, go_on| call.call_checking(every, go_on))
    }

    /// Releases the lock. False if it had been lost before.
    fn release(&self, py: Python<'_>) -> PyResult<bool> {
        blocking(py, |every, go_on| {
            self.core.release().call_checking(every, go_on)
        })
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    pub(crate) fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match self.release(py) {
            // The error of the body is what the caller has to see; that of the release goes with it.
            Err(failed)
                if !error.is_none()
                    && failed.is_instance_of::<pyo3::exceptions::PyException>(py) =>
            {
                crate::error::note(error, &failed);
                Ok(())
            }
            released => released.map(drop),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = if self.core.is_held() {
            "held"
        } else {
            "not held"
        };
        let key = self.key.0.bind(py).repr()?;
        Ok(format!(
            "<fairlock.Lock {key} token {} {state}>",
            self.token()
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.key.0)?;
        self.on_lost
            .as_ref()
            .map_or(Ok(()), |on_lost| visit.call(&on_lost.0))
    }
}

impl Lock {
    pub(crate) fn keep_call(&self, lease: Option<Lease>) -> fairlock::Call<()> {
        match lease {
            Some(Lease(lease)) => self.core.keep_for(lease),
            None => self.core.keep(),
        }
    }
}

/// What the code of an `async def` has among its flags.
const CO_COROUTINE: u32 = 0x80;

/// A callback for the loss of a lock.
pub(crate) struct OnLost(pub(crate) Py<PyAny>);

impl OnLost {
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> OnLost {
        OnLost(self.0.clone_ref(py))
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for OnLost {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<OnLost> {
        if !object.is_callable() {
            return Err(PyTypeError::new_err("on_lost has to be callable"));
        }
        let flags = object.getattr("__code__");
        let flags = flags.and_then(|code| code.getattr("co_flags")?.extract::<u32>());
        if flags.is_ok_and(|flags| flags & CO_COROUTINE != 0) {
            return Err(PyTypeError::new_err(
                "on_lost is called and never awaited; give a plain function, not an async one (it may start a task)",
            ));
        }
        Ok(OnLost(object.to_owned().unbind()))
    }
}
