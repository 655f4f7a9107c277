//! Python's arguments as the core takes them. What is wrong is said before anything is sent: a wrong type as
//! `TypeError`, a wrong value as `ValueError`.

use fairlock::FollowMoves;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySequence, PyString};
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

/// Times in seconds. They know the name of their option, because what is wrong with it has to be said with its name.
macro_rules! times {
    ($($type:ident = $name:literal, $takes:literal;)+) => {$(
        #[doc = concat!("`", $name, "`, in seconds.")]
        #[derive(Clone, Copy)]
        pub(crate) struct $type(pub(crate) Duration);

        impl<'a, 'py> FromPyObject<'a, 'py> for $type {
            type Error = PyErr;

            fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<$type> {
                seconds(object, $name, $takes).map($type)
            }
        }
    )+};
}

times! {
    Lease = "lease", "a number of seconds";
    Wait = "wait", "a number of seconds, or 0 to wait without limit";
    MaxHold = "max_hold", "a number of seconds";
    ConnectTimeout = "connect_timeout", "a number of seconds";
    RetryFor = "retry_for", "a number of seconds";
}

fn seconds(object: Borrowed<'_, '_, PyAny>, name: &str, takes: &str) -> PyResult<Duration> {
    let seconds: f64 = number(object, name, takes)?;
    if seconds > 0.0 && seconds < 1e-9 {
        // Not zero, which would mean something else.
        return Ok(Duration::from_nanos(1));
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{name} is {seconds:?}; give {takes}")))
}

/// What an option takes that was given something of another type.
fn not_of_type(object: Borrowed<'_, '_, PyAny>, name: &str, takes: &str) -> PyErr {
    match object.get_type().name() {
        Ok(class) => PyTypeError::new_err(format!("{name} takes {takes}, not {class}")),
        Err(error) => error,
    }
}

/// Texts, which know the name of their option too.
macro_rules! texts {
    ($($type:ident = $name:literal;)+) => {$(
        #[doc = concat!("`", $name, "`.")]
        pub(crate) struct $type(pub(crate) String);

        impl<'a, 'py> FromPyObject<'a, 'py> for $type {
            type Error = PyErr;

            fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<$type> {
                match object.cast::<PyString>() {
                    Ok(text) => Ok($type(text.to_str()?.to_owned())),
                    Err(_) => Err(not_of_type(object, $name, "a str")),
                }
            }
        }
    )+};
}

texts! {
    Name = "name";
    Moves = "follow_moves";
    ServerName = "server_name";
    Listen = "listen";
    Node = "node";
}

/// `keep_alive`: nothing that only counts as true or false.
pub(crate) fn keep_alive(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    flag(object, "keep_alive")
}

/// `tls`, if it is given.
pub(crate) fn tls(object: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    (!object.is_none()).then(|| flag(object, "tls")).transpose()
}

fn flag(object: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    object
        .extract()
        .map_err(|_| not_of_type(object.as_borrowed(), name, "True or False"))
}

/// A secret: text or bytes.
pub(crate) struct Secret(Vec<u8>);

impl<'a, 'py> FromPyObject<'a, 'py> for Secret {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Secret> {
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Secret(text.to_str()?.as_bytes().to_owned()));
        }
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Secret(bytes.as_bytes().to_owned())),
            Err(_) => Err(not_of_type(object, "secret", "a str or bytes")),
        }
    }
}

impl From<Secret> for Vec<u8> {
    fn from(secret: Secret) -> Vec<u8> {
        secret.0
    }
}

/// One address or several.
pub(crate) struct Servers(Vec<String>);

impl<'a, 'py> FromPyObject<'a, 'py> for Servers {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Servers> {
        let takes = "an address as str, 'host:port', or a list of such";
        if let Ok(address) = object.cast::<PyString>() {
            return Ok(Servers(vec![address.to_str()?.to_owned()]));
        }
        let (Ok(several), Err(_)) = (object.cast::<PySequence>(), object.cast::<PyBytes>()) else {
            return Err(not_of_type(object, "servers", takes));
        };
        let mut addresses = Vec::new();
        for address in several.try_iter()? {
            let address = address?;
            match address.cast::<PyString>() {
                Ok(text) => addresses.push(text.to_str()?.to_owned()),
                Err(_) => {
                    let class = object.get_type().name()?;
                    let other = address.get_type().name()?;
                    return Err(PyTypeError::new_err(format!(
                        "servers takes {takes}, not a {class} with {other} in it"
                    )));
                }
            }
        }
        Ok(Servers(addresses))
    }
}

impl From<Servers> for Vec<String> {
    fn from(servers: Servers) -> Vec<String> {
        servers.0
    }
}

/// A number that can be a token.
pub(crate) struct TokenNumber(pub(crate) fairlock::Token);

impl<'a, 'py> FromPyObject<'a, 'py> for TokenNumber {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<TokenNumber> {
        let takes = "the token of a lock, an int from 1 to 2**63 - 1";
        let number: u64 = number(object, "token", takes)?;
        fairlock::Token::new(number)
            .map(TokenNumber)
            .ok_or_else(|| PyValueError::new_err(format!("token is {number}; give {takes}")))
    }
}

/// How many rows a list may have.
pub(crate) struct Limit(pub(crate) u32);

impl<'a, 'py> FromPyObject<'a, 'py> for Limit {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Limit> {
        number(
            object,
            "limit",
            "a number of rows, an int from 1 to 100,000",
        )
        .map(Limit)
    }
}

/// A number that fits. Python's own word for one that does not is `OverflowError`, which is no `ValueError`.
fn number<'a, 'py, T>(object: Borrowed<'a, 'py, PyAny>, name: &str, takes: &str) -> PyResult<T>
where
    T: FromPyObject<'a, 'py, Error = PyErr>,
{
    object.extract().map_err(|error: PyErr| {
        let py = object.py();
        if error.is_instance_of::<PyOverflowError>(py) {
            PyValueError::new_err(format!("{name} is out of its limits; give {takes}"))
        } else if error.is_instance_of::<PyTypeError>(py) {
            not_of_type(object, name, takes)
        } else {
            error
        }
    })
}

/// Which moves a client follows.
pub(crate) fn follow_moves(Moves(text): &Moves) -> PyResult<FollowMoves> {
    match text.as_str() {
        "any" => Ok(FollowMoves::Any),
        "listed" => Ok(FollowMoves::Listed),
        other => Err(PyValueError::new_err(format!(
            "follow_moves is {other:?}; give 'any' or 'listed'"
        ))),
    }
}
