//! A node inside this process.

use crate::arguments::{Listen, Node};
use crate::border::{guard, lock};
use crate::error;
use fairlock::ServerError;
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
    #[pyo3(signature = (listen=None, *, peers=None, node=None, data_dir=None, **settings))]
    fn new(
        py: Python<'_>,
        listen: Option<Listen>,
        peers: Option<&Bound<'_, PyAny>>,
        node: Option<Node>,
        data_dir: Option<PathBuf>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Server> {
        let mut given = Settings::default();
        let (listen, node) = (listen.map(|text| text.0), node.map(|text| text.0));
        given.listen = listen.or_else(|| node.is_none().then(|| "127.0.0.1:0".to_owned()));
        given.peers = peers.map(list).transpose()?;
        given.node = node;
        given.ephemeral = data_dir.is_none();
        given.data_dir = data_dir;
        for (name, value) in settings.into_iter().flatten() {
            set(&mut given, &name.extract::<String>()?, &value)?;
        }
        guard(py, || {
            let started =
                py.detach(|| fairlock::Server::builder().settings(given).start_blocking());
            let core = started.map_err(|error| error::server(py, &error))?;
            Ok(Server {
                address: core.address().to_string(),
                core: Mutex::new(Some(core)),
            })
        })
    }

    /// A free address for a node that this process starts later.
    #[staticmethod]
    fn free_address(py: Python<'_>) -> PyResult<String> {
        guard(py, || Ok(fairlock::Server::free_address()?.to_string()))
    }

    /// Where clients connect.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Stops the node in order. Stopping a stopped one is well.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, fairlock::Server::stop_blocking)
    }

    /// Ends the node as if its process had been killed.
    fn kill(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, fairlock::Server::kill)
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

impl Server {
    fn end(
        &self,
        py: Python<'_>,
        how: impl FnOnce(fairlock::Server) -> Result<(), ServerError> + Send,
    ) -> PyResult<()> {
        let core = lock(&self.core).take();
        guard(py, || {
            let Some(core) = core else { return Ok(()) };
            py.detach(|| how(core))
                .map_err(|error| error::server(py, &error))
        })
    }
}

/// A list of addresses, or the text of one.
fn list(peers: &Bound<'_, PyAny>) -> PyResult<String> {
    match peers.extract::<String>() {
        Ok(text) => Ok(text),
        Err(_) => match peers.extract::<Vec<String>>() {
            Ok(several) => Ok(several.join(",")),
            Err(_) => Err(PyTypeError::new_err(
                "peers has to be a list of addresses as str, 'host:port', or one str with commas",
            )),
        },
    }
}

/// Sets one setting of a node from a Python value, as its text would.
fn set(settings: &mut Settings, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if !Settings::ALL.iter().any(|known| known.name == name) {
        let known: Vec<&str> = Settings::ALL.iter().map(|known| known.name).collect();
        let near = value
            .py()
            .import("difflib")?
            .call_method1("get_close_matches", (name, known, 1))?;
        let near = match near.get_item(0) {
            Ok(near) => format!("; did you mean {near}?"),
            Err(_) => String::new(),
        };
        return Err(PyTypeError::new_err(format!(
            "Server() has no setting '{name}'{near}"
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
