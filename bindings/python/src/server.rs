//! A node inside this process.

use crate::border::{guard, lock};
use crate::error;
use fairlock::node::Settings;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::Mutex;

/// A running node.
#[pyclass(frozen, weakref, module = "fairlock")]
pub(crate) struct Server {
    address: String,
    core: Mutex<Option<fairlock::Server>>,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (listen="127.0.0.1:0", *, data_dir=None, **settings))]
    fn new(
        py: Python<'_>,
        listen: &str,
        data_dir: Option<PathBuf>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Server> {
        let mut node = Settings::default();
        node.listen = Some(listen.to_owned());
        node.ephemeral = data_dir.is_none();
        node.data_dir = data_dir;
        for (name, value) in settings.into_iter().flatten() {
            set(&mut node, &name.extract::<String>()?, &value)?;
        }
        guard(py, || {
            let started = py.detach(|| fairlock::Server::builder().settings(node).start_blocking());
            let core = started.map_err(|error| error::server(py, &error))?;
            Ok(Server {
                address: core.address().to_string(),
                core: Mutex::new(Some(core)),
            })
        })
    }

    /// Where clients connect.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Stops the node in order. Stopping a stopped one is well.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let core = lock(&self.core).take();
        guard(py, || {
            let Some(core) = core else { return Ok(()) };
            py.detach(|| core.stop_blocking())
                .map_err(|error| error::server(py, &error))
        })
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.stop(py)
    }

    fn __repr__(&self) -> String {
        format!("<fairlock.Server on {}>", self.address)
    }
}

/// Sets one setting of a node from a Python value, as its text would.
fn set(settings: &mut Settings, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if !Settings::ALL.iter().any(|known| known.name == name) {
        return Err(PyTypeError::new_err(format!(
            "Server() has no setting '{name}'"
        )));
    }
    if value.is_none() {
        return Ok(());
    }
    let text = if let Ok(flag) = value.cast::<PyBool>() {
        flag.is_true().to_string()
    } else if let Ok(bytes) = value.cast::<PyBytes>() {
        String::from_utf8(bytes.as_bytes().to_owned())?
    } else {
        value.str()?.to_string()
    };
    settings
        .set(name, &text)
        .map_err(|error| PyValueError::new_err(error.to_string()))
}
