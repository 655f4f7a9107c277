//! Builders of the two operations that end in a lock.

use super::call::{Call, FromOutcome, Pending, Running};
use super::instance::Handle;
use super::lock::Lock;
use super::session::Ask;
use super::{DEFAULT_LEASE, TIMES, wire_key, wire_lease, wire_time};
use crate::error::{Error, LostReason};
use crate::protocol::{Key, Wait};
use std::sync::Arc;
use std::time::Duration;

pub(crate) type OnLost = Box<dyn FnOnce(LostReason) + Send>;

/// What both builders collect.
struct Wish {
    handle: Arc<Handle>,
    key: Result<Key, Error>,
    lease: Duration,
    keep_alive: bool,
    max_hold: Option<Duration>,
    on_lost: Option<OnLost>,
}

impl Wish {
    fn new(handle: &Arc<Handle>, key: &[u8]) -> Wish {
        Wish {
            handle: handle.clone(),
            key: wire_key(key),
            lease: DEFAULT_LEASE,
            keep_alive: false,
            max_hold: None,
            on_lost: None,
        }
    }

    #[inline(always)]
    fn into_call<T: FromOutcome>(self, wait: Result<Wait, Error>) -> Call<T> {
        let ask = (|| {
            if self.keep_alive && self.lease < Duration::from_secs(1) {
                let takes = "at least a second, or no keep_alive";
                return Err(Error::wrong_time("lease", self.lease, takes));
            }
            Ok(Ask::Acquire {
                key: self.key?,
                lease: wire_lease(self.lease)?,
                wait: wait?,
                keep_alive: self.keep_alive,
                max_hold: self
                    .max_hold
                    .map(|time| wire_time("max_hold", time, TIMES))
                    .transpose()?,
            })
        })();
        Call::with_on_lost(self.handle, ask, self.on_lost)
    }
}

macro_rules! options_of_a_grant {
    () => {
        /// How long the lock is held at most without being kept; 30 s by default, at least a
        /// millisecond, counted in whole milliseconds. Generous, but no longer than a dead client may
        /// block the others: if this process dies, everybody else waits until the lease is over.
        pub fn lease(mut self, lease: Duration) -> Self {
            self.wish.lease = lease;
            self
        }

        /// Renews the lock at every third of its lease on the client's own thread, whatever the
        /// caller's thread or event loop does, until it is released. The lease has to be at least a
        /// second.
        pub fn keep_alive(mut self) -> Self {
            self.wish.keep_alive = true;
            self
        }

        /// After this time [`keep_alive`](Self::keep_alive) renews no more, so that work that hangs
        /// does not hold the lock for ever.
        pub fn max_hold(mut self, time: Duration) -> Self {
            self.wish.max_hold = Some(time);
            self
        }

        /// Is told, once, if the lock is lost, on the client's own thread or on one that is just calling
        /// this client; never if it is released before. It must not block and must not panic.
        pub fn on_lost(mut self, told: impl FnOnce(LostReason) + Send + 'static) -> Self {
            self.wish.on_lost = Some(Box::new(told));
            self
        }
    };
}

macro_rules! faces {
    ($output:ty) => {
        /// Does it, blocking this thread.
        ///
        /// # Errors
        /// As when awaited, and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) in a callback on the
        /// client's own thread, where it would wait for itself.
        pub fn call(self) -> Result<$output, Error> {
            self.into_call().call()
        }

        /// Does it, blocking this thread, and asks `go_on` at least once in every `every`, and when a
        /// signal interrupts the wait. When it says false the operation is cancelled as if its future
        /// were dropped.
        ///
        /// # Errors
        /// As when awaited, and [`Cancelled`](crate::ErrorKind::Cancelled) when told to stop.
        pub fn call_checking(
            self,
            every: Duration,
            go_on: impl FnMut() -> bool,
        ) -> Result<$output, Error> {
            self.into_call().call_checking(every, go_on)
        }

        /// Starts it; `done` gets the result exactly once: on the client's own thread, on one that is just
        /// calling this client, or, if it is known at once, on this one. `done` must not block.
        pub fn submit(self, done: impl FnOnce(Result<$output, Error>) + Send + 'static) -> Pending {
            self.into_call().submit(done)
        }
    };
}

/// Locks a key, waiting in line for it: set what is to be set, then await it.
///
/// Dropping the future, also at a moment when the lock has just been granted, leaves nothing behind: the
/// request is cancelled on the server, and a grant on its way is released.
///
/// # Errors
/// [`WaitTimeout`](crate::ErrorKind::WaitTimeout),
/// [`ConnectionFailed`](crate::ErrorKind::ConnectionFailed) with each address and why it failed,
/// [`Refused`](crate::ErrorKind::Refused), [`InvalidArgument`](crate::ErrorKind::InvalidArgument) before
/// anything is sent, [`Closed`](crate::ErrorKind::Closed).
#[must_use = "nothing is sent until it is awaited, called or submitted"]
pub struct Acquire {
    wish: Wish,
    wait: Duration,
}

impl Acquire {
    pub(crate) fn new(handle: &Arc<Handle>, key: &[u8]) -> Acquire {
        Acquire {
            wish: Wish::new(handle, key),
            wait: Duration::ZERO,
        }
    }

    options_of_a_grant!();

    /// How long to wait for the lock, one budget over everything that the client tries; zero, the
    /// default, waits without limit. Counted in whole milliseconds.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    faces!(Lock);

    fn into_call(self) -> Call<Lock> {
        let wait = if self.wait.is_zero() {
            Ok(Wait::Forever)
        } else {
            let takes = "a time from a millisecond to a year, or 0 to wait without limit";
            wire_time("wait", self.wait, takes).map(Wait::For)
        };
        self.wish.into_call(wait)
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Lock, Error>;
    type IntoFuture = Running<Lock>;

    fn into_future(self) -> Running<Lock> {
        self.into_call().into_future()
    }
}

/// Locks a key if it is free at this moment. Otherwise as [`Acquire`].
#[must_use = "nothing is sent until it is awaited, called or submitted"]
pub struct TryAcquire {
    wish: Wish,
}

impl TryAcquire {
    pub(crate) fn new(handle: &Arc<Handle>, key: &[u8]) -> TryAcquire {
        TryAcquire {
            wish: Wish::new(handle, key),
        }
    }

    options_of_a_grant!();

    faces!(Option<Lock>);

    fn into_call(self) -> Call<Option<Lock>> {
        self.wish.into_call(Ok(Wait::No))
    }
}

impl IntoFuture for TryAcquire {
    type Output = Result<Option<Lock>, Error>;
    type IntoFuture = Running<Option<Lock>>;

    fn into_future(self) -> Running<Option<Lock>> {
        self.into_call().into_future()
    }
}
