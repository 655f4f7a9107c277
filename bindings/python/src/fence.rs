//! For the protected resource.

use crate::arguments::{Key, TokenNumber};
use crate::border::guard;
use crate::error;
use pyo3::prelude::*;

/// Remembers the highest token seen of each key and refuses smaller ones.
#[pyclass(frozen, weakref, module = "fairlock")]
pub(crate) struct Fence(fairlock::Fence);

#[pymethods]
impl Fence {
    #[new]
    fn new() -> Fence {
        Fence(fairlock::Fence::new())
    }

    /// Lets `token` pass if it is at least the highest one seen of `key`, and remembers it.
    fn check(&self, py: Python<'_>, key: Key<'_>, token: TokenNumber) -> PyResult<()> {
        let key = key.bytes()?;
        guard(py, || {
            self.0
                .check(key, token.0)
                .map_err(|error| error::to_python(py, &error))
        })
    }

    /// The highest token seen of `key`; `None` if there was none.
    fn highest(&self, py: Python<'_>, key: Key<'_>) -> PyResult<Option<u64>> {
        let key = key.bytes()?;
        guard(py, || Ok(self.0.highest(key).map(fairlock::Token::get)))
    }

    /// Forgets `key`, for resources that are gone.
    fn forget(&self, py: Python<'_>, key: Key<'_>) -> PyResult<()> {
        let key = key.bytes()?;
        guard(py, || {
            self.0.forget(key);
            Ok(())
        })
    }
}
