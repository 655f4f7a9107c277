//! Python's arguments as the core takes them. What is wrong is said before anything is sent: a wrong type as
//! `TypeError`, a wrong value as `ValueError`.

use fairlock::FollowMoves;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::time::Duration;

/// A key that has been looked at: `str` or `bytes`, and no lone surrogate.
pub(crate) struct Key<'py>(Bound<'py, PyAny>);

impl Key<'_> {
    /// The bytes: those of a `bytes`, the UTF-8 of a `str`.
    pub(crate) fn bytes(&self) -> PyResult<&[u8]> {
        match self.0.cast::<PyString>() {
            Ok(text) => Ok(text.to_str()?.as_bytes()),
            Err(_) => Ok(self.0.cast::<PyBytes>()?.as_bytes()),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Key<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Key<'py>> {
        if !object.is_instance_of::<PyString>() && !object.is_instance_of::<PyBytes>() {
            let class = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "a key is str or bytes, not {class}"
            )));
        }
        let key = Key(object.to_owned());
        // A lone surrogate has no UTF-8; that error is a `UnicodeEncodeError` and so a `ValueError`.
        key.bytes()?;
        Ok(key)
    }
}

/// The object that a caller gave as a key, which is what it gets back as `Lock.key`.
pub(crate) struct KeyObject(pub(crate) Py<PyAny>);

impl From<Key<'_>> for KeyObject {
    fn from(key: Key<'_>) -> KeyObject {
        KeyObject(key.0.unbind())
    }
}

impl KeyObject {
    pub(crate) fn bind<'py>(&self, py: Python<'py>) -> Key<'py> {
        Key(self.0.bind(py).clone())
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> KeyObject {
        KeyObject(self.0.clone_ref(py))
    }
}

/// A key that comes from the node: `str` where it is UTF-8, else `bytes`.
pub(crate) fn key_to_python<'py>(py: Python<'py>, key: &[u8]) -> Bound<'py, PyAny> {
    match std::str::from_utf8(key) {
        Ok(text) => PyString::new(py, text).into_any(),
        Err(_) => PyBytes::new(py, key).into_any(),
    }
}

/// Seconds as a number.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Duration);

impl<'a, 'py> FromPyObject<'a, 'py> for Seconds {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Seconds> {
        let seconds: f64 = number(object)?;
        if seconds > 0.0 && seconds < 1e-9 {
            // Not zero, which would mean something else.
            return Ok(Seconds(Duration::from_nanos(1)));
        }
        Duration::try_from_secs_f64(seconds)
            .map(Seconds)
            .map_err(|_| {
                PyValueError::new_err(format!("{seconds} is not a number of seconds from 0 on"))
            })
    }
}

/// A secret: text or bytes.
#[derive(FromPyObject)]
pub(crate) enum Secret {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Secret> for Vec<u8> {
    fn from(secret: Secret) -> Vec<u8> {
        match secret {
            Secret::Text(text) => text.into_bytes(),
            Secret::Bytes(bytes) => bytes,
        }
    }
}

/// One address or several.
#[derive(FromPyObject)]
pub(crate) enum Servers {
    One(String),
    Several(Vec<String>),
}

impl From<Servers> for Vec<String> {
    fn from(servers: Servers) -> Vec<String> {
        match servers {
            Servers::One(server) => vec![server],
            Servers::Several(servers) => servers,
        }
    }
}

/// A number that can be a token.
pub(crate) struct TokenNumber(pub(crate) fairlock::Token);

impl<'a, 'py> FromPyObject<'a, 'py> for TokenNumber {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<TokenNumber> {
        let number: u64 = number(object)?;
        fairlock::Token::new(number)
            .map(TokenNumber)
            .ok_or_else(|| PyValueError::new_err(format!("{number} cannot be a token")))
    }
}

/// How many rows a list may have.
pub(crate) struct Limit(pub(crate) u32);

impl<'a, 'py> FromPyObject<'a, 'py> for Limit {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Limit> {
        number(object).map(Limit)
    }
}

/// A number that fits. Python's own word for one that does not is `OverflowError`, which is no `ValueError`.
fn number<'a, 'py, T>(object: Borrowed<'a, 'py, PyAny>) -> PyResult<T>
where
    T: FromPyObject<'a, 'py, Error = PyErr>,
{
    object.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(object.py()) {
            PyValueError::new_err("the number is out of its limits")
        } else {
            error
        }
    })
}

/// Which moves a client follows.
pub(crate) fn follow_moves(text: &str) -> PyResult<FollowMoves> {
    match text {
        "any" => Ok(FollowMoves::Any),
        "listed" => Ok(FollowMoves::Listed),
        _ => Err(PyValueError::new_err("follow_moves is 'any' or 'listed'")),
    }
}
