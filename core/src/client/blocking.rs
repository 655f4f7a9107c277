//! The same client for threads that may block: each operation is a plain call.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! let client = fairlock::blocking::Client::connect("127.0.0.1:7420")?;
//! let lock = client.acquire_with("order:42", |acquire| acquire.wait(Duration::from_secs(5)))?;
//! println!("fencing token {}", lock.token());
//! lock.release()?;
//! # Ok::<(), fairlock::Error>(())
//! ```

use super::{Acquire, IntoServers, KeyState, LockPage, Status, TryAcquire, Waiters};
use crate::error::Error;
use crate::protocol::Token;
use std::ops::Deref;
use std::time::Duration;

/// [`fairlock::Client`](crate::Client) with blocking calls.
#[derive(Clone, Debug)]
pub struct Client(crate::Client);

impl Client {
    /// A client of these servers, which connects in the background.
    ///
    /// # Errors
    /// As [`fairlock::Client::new`](crate::Client::new).
    pub fn new(servers: impl IntoServers) -> Result<Client, Error> {
        crate::Client::new(servers).map(Client)
    }

    /// A client of these servers, as soon as one connection is up.
    ///
    /// # Errors
    /// As [`fairlock::Client::connect`](crate::Client::connect).
    pub fn connect(servers: impl IntoServers) -> Result<Client, Error> {
        let client = Client::new(servers)?;
        client.0.connected().call()?;
        Ok(client)
    }

    /// Locks `key` with the default lease, waiting without limit.
    ///
    /// # Errors
    /// As [`Acquire`].
    pub fn acquire(&self, key: impl AsRef<[u8]>) -> Result<Lock, Error> {
        self.acquire_with(key, |acquire| acquire)
    }

    /// Locks `key` as `options` says.
    ///
    /// # Errors
    /// As [`Acquire`].
    pub fn acquire_with(
        &self,
        key: impl AsRef<[u8]>,
        options: impl FnOnce(Acquire) -> Acquire,
    ) -> Result<Lock, Error> {
        options(self.0.acquire(key)).call().map(Lock)
    }

    /// Locks `key` with the default lease if it is free at this moment.
    ///
    /// # Errors
    /// As [`TryAcquire`].
    pub fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<Option<Lock>, Error> {
        self.try_acquire_with(key, |acquire| acquire)
    }

    /// Locks `key` as `options` says if it is free at this moment.
    ///
    /// # Errors
    /// As [`TryAcquire`].
    pub fn try_acquire_with(
        &self,
        key: impl AsRef<[u8]>,
        options: impl FnOnce(TryAcquire) -> TryAcquire,
    ) -> Result<Option<Lock>, Error> {
        let lock = options(self.0.try_acquire(key)).call()?;
        Ok(lock.map(Lock))
    }

    /// As [`fairlock::Client::release`](crate::Client::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(&self, key: impl AsRef<[u8]>, token: Token) -> Result<bool, Error> {
        self.0.release(key, token).call()
    }

    /// As [`fairlock::Client::keep`](crate::Client::keep).
    ///
    /// # Errors
    /// As there.
    pub fn keep(
        &self,
        key: impl AsRef<[u8]>,
        token: Token,
        lease: Duration,
    ) -> Result<bool, Error> {
        self.0.keep(key, token, lease).call()
    }

    /// As [`fairlock::Client::inspect`](crate::Client::inspect).
    ///
    /// # Errors
    /// As there.
    pub fn inspect(&self, key: impl AsRef<[u8]>) -> Result<KeyState, Error> {
        self.0.inspect(key).call()
    }

    /// As [`fairlock::Client::waiters`](crate::Client::waiters).
    ///
    /// # Errors
    /// As there.
    pub fn waiters(&self, key: impl AsRef<[u8]>, limit: u32) -> Result<Waiters, Error> {
        self.0.waiters(key, limit).call()
    }

    /// As [`fairlock::Client::locks`](crate::Client::locks).
    ///
    /// # Errors
    /// As there.
    pub fn locks(
        &self,
        prefix: impl AsRef<[u8]>,
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<LockPage, Error> {
        self.0.locks(prefix, after, limit).call()
    }

    /// As [`fairlock::Client::status`](crate::Client::status).
    ///
    /// # Errors
    /// As there.
    pub fn status(&self) -> Result<Status, Error> {
        self.0.status().call()
    }

    /// As [`fairlock::Client::close`](crate::Client::close).
    ///
    /// # Errors
    /// None.
    pub fn close(&self) -> Result<(), Error> {
        self.0.close().call()
    }
}

impl From<crate::Client> for Client {
    fn from(client: crate::Client) -> Client {
        Client(client)
    }
}

/// [`fairlock::Lock`](crate::Lock) with blocking calls; all else is as there.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct Lock(crate::Lock);

impl Lock {
    /// As [`fairlock::Lock::release`](crate::Lock::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(&self) -> Result<bool, Error> {
        self.0.release().call()
    }

    /// As [`fairlock::Lock::keep`](crate::Lock::keep).
    ///
    /// # Errors
    /// As there.
    pub fn keep(&self) -> Result<(), Error> {
        self.0.keep().call()
    }

    /// As [`fairlock::Lock::keep_for`](crate::Lock::keep_for).
    ///
    /// # Errors
    /// As there.
    pub fn keep_for(&self, lease: Duration) -> Result<(), Error> {
        self.0.keep_for(lease).call()
    }

    /// As [`fairlock::Lock::leave_held`](crate::Lock::leave_held).
    pub fn leave_held(self) -> Token {
        self.0.leave_held()
    }
}

impl From<crate::Lock> for Lock {
    fn from(lock: crate::Lock) -> Lock {
        Lock(lock)
    }
}

impl Deref for Lock {
    type Target = crate::Lock;

    fn deref(&self) -> &crate::Lock {
        &self.0
    }
}
