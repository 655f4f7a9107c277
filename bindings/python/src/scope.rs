//! `with client.lock(key) as lock:`

use crate::arguments::KeyObject;
use crate::border::{blocking, lock};
use crate::lock::{Lock, OnLost};
use crate::options::Options;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::sync::Mutex;

/// Acquires when it is entered, and releases when it is left, whatever ends it.
#[pyclass(frozen, module = "fairlock")]
pub(crate) struct LockScope {
    core: fairlock::Client,
    key: KeyObject,
    options: Options,
    stage: Mutex<Stage>,
}

/// A scope is entered once at a time: two threads in one scope could not tell their locks apart.
enum Stage {
    Out,
    Entering,
    In(Py<Lock>),
}

impl LockScope {
    pub(crate) fn new(core: fairlock::Client, key: KeyObject, options: Options) -> LockScope {
        LockScope {
            core,
            key,
            options,
            stage: Mutex::new(Stage::Out),
        }
    }

    fn acquire(&self, py: Python<'_>) -> PyResult<Py<Lock>> {
        let call = self.options.acquire(&self.core, &self.key.bind(py))?;
        let core = blocking(py, |every, go_on| call.call_checking(every, go_on))?;
        let on_lost = self
            .options
            .on_lost
            .as_ref()
            .map(|callback| callback.clone_ref(py));
        Py::new(py, Lock::new(py, core, self.key.clone_ref(py), on_lost))
    }
}

#[pymethods]
impl LockScope {
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<Lock>> {
        let mut stage = lock(&self.stage);
        if !matches!(*stage, Stage::Out) {
            return Err(PyRuntimeError::new_err(
                "this scope has been entered already; call client.lock() for each use",
            ));
        }
        *stage = Stage::Entering;
        drop(stage);
        let acquired = self.acquire(py);
        *lock(&self.stage) = match &acquired {
            Ok(held) => Stage::In(held.clone_ref(py)),
            Err(_) => Stage::Out,
        };
        acquired
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let mut stage = lock(&self.stage);
        match std::mem::replace(&mut *stage, Stage::Out) {
            Stage::In(held) => {
                drop(stage);
                held.get().__exit__(py, class, error, traceback)
            }
            other => {
                *stage = other;
                Err(PyRuntimeError::new_err("this scope has not been entered"))
            }
        }
    }

    /// What a lock has, a scope has not. Asked only for names that are not found.
    fn __getattr__(&self, name: &str) -> PyResult<Py<PyAny>> {
        Err(PyAttributeError::new_err(format!(
            "'LockScope' object has no attribute '{name}': it is a scope and no lock yet; use `with client.lock(…) as lock:`, or client.acquire(…)"
        )))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.key.0)?;
        if let Some(OnLost(callback)) = &self.options.on_lost {
            visit.call(callback)?;
        }
        // Held by somebody else only for a moment; the next round of collection will see it.
        if let Ok(stage) = self.stage.try_lock()
            && let Stage::In(held) = &*stage
        {
            visit.call(held)?;
        }
        Ok(())
    }
}
