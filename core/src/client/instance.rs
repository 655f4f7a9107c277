//! A client in this process: its session behind one lock, the callers on one side and the driver's
//! thread on the other.

use super::acquire::OnLost;
use super::options::Options;
use super::session::{Ask, LockId, OperationId, Outcome};
use crate::error::{Error, LostReason};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// What all clones of a client, its locks and its calls share.
pub(crate) struct Handle {
    options: Arc<Options>,
}

impl Handle {
    pub(crate) fn new(options: Options) -> Result<Arc<Handle>, Error> {
        Ok(Arc::new(Handle {
            options: Arc::new(options),
        }))
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn instance(&self) -> Result<Arc<Instance>, Error> {
        Err(Error::closed())
    }
}

/// Who is told the result of an operation.
pub(crate) enum Face {
    Waiting(Option<Waker>),
    Callback(Box<dyn FnOnce(Result<Outcome, Error>) + Send>),
}

/// An operation that a caller has started.
pub(crate) struct Started {
    pub(crate) operation: OperationId,
}

/// What the lock object shows.
pub(crate) struct LockView {
    pub(crate) lease: Duration,
    pub(crate) remaining: Duration,
    pub(crate) held: bool,
    pub(crate) lost: Option<LostReason>,
}

/// A client's identity and connections in one process.
#[derive(Debug)]
pub(crate) struct Instance {}

impl Instance {
    pub(crate) fn is_of_this_process(&self) -> bool {
        true
    }

    pub(crate) fn start(
        &self,
        _ask: Ask,
        _on_lost: Option<OnLost>,
        face: Face,
    ) -> Result<Started, (Error, Face)> {
        Err((Error::closed(), face))
    }

    pub(crate) fn poll(&self, _started: &Started, _waker: &Waker) -> Poll<Result<Outcome, Error>> {
        Poll::Pending
    }

    pub(crate) fn block(
        &self,
        _ask: Ask,
        _on_lost: Option<OnLost>,
        _check: Option<(Duration, &mut dyn FnMut() -> bool)>,
    ) -> Result<Outcome, Error> {
        Err(Error::closed())
    }

    pub(crate) fn abandon(&self, _started: &Started) {}

    pub(crate) fn cancel(&self, _operation: OperationId) {}

    pub(crate) fn drop_lock(&self, _lock: LockId) {}

    pub(crate) fn leave_held(&self, _lock: LockId) {}

    pub(crate) fn lock_view(&self, _lock: LockId) -> LockView {
        LockView {
            lease: Duration::ZERO,
            remaining: Duration::ZERO,
            held: false,
            lost: None,
        }
    }

    pub(crate) fn on_lost(&self, _lock: LockId, _told: OnLost) {}

    pub(crate) fn poll_lost(&self, _lock: LockId, _waker: &Waker) -> Poll<LostReason> {
        Poll::Pending
    }
}
