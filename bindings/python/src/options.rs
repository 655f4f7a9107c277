//! The options of an acquire, converted once and given to whichever call of the core they are for.

use crate::arguments::{Key, Lease, MaxHold, Wait};
use crate::lock::OnLost;
use pyo3::prelude::*;

/// How to acquire. What is not given is left to the core.
pub(crate) struct Options {
    pub(crate) lease: Option<Lease>,
    pub(crate) wait: Option<Wait>,
    pub(crate) keep_alive: bool,
    pub(crate) max_hold: Option<MaxHold>,
    pub(crate) on_lost: Option<OnLost>,
}

/// Tells a call what both kinds of acquire can be told.
macro_rules! tell {
    ($options:ident, $call:expr) => {{
        let mut call = $call;
        if let Some(Lease(lease)) = $options.lease {
            call = call.lease(lease);
        }
        if $options.keep_alive {
            call = call.keep_alive();
        }
        if let Some(MaxHold(time)) = $options.max_hold {
            call = call.max_hold(time);
        }
        call
    }};
}

impl Options {
    /// The call that waits in line.
    pub(crate) fn acquire(
        &self,
        core: &fairlock::Client,
        key: &Key<'_>,
    ) -> PyResult<fairlock::Acquire> {
        let call = tell!(self, core.acquire(key.bytes()?));
        Ok(match self.wait {
            Some(Wait(wait)) => call.wait(wait),
            None => call,
        })
    }

    /// The call that does not wait.
    pub(crate) fn try_acquire(
        &self,
        core: &fairlock::Client,
        key: &Key<'_>,
    ) -> PyResult<fairlock::TryAcquire> {
        Ok(tell!(self, core.try_acquire(key.bytes()?)))
    }
}
