//! The client: what users and the bindings call.
//!
//! ```text
//! caller ──▶ call / acquire / lock ──▶ instance ──▶ session ──▶ bytes ──▶ sockets
//!            faces: futures,           one lock,    pure: what
//!            callbacks, blocking       one thread   is decided
//! ```
//!
//! Everything that is decided — connections, retries, moves, renewals, what a reply means — is decided in
//! `session`, which knows no clock, socket or thread. `instance` and `driver` carry bytes and time to it
//! and results back. There is no async runtime in here: futures are woken by the one background thread that
//! serves all clients of a process, so they work under any executor.

mod acquire;
mod address;
mod block;
pub mod blocking;
mod call;
mod calling;
mod core;
mod driver;
mod event_loop;
mod flow;
mod instance;
mod lock;
pub mod measure;
mod options;
mod session;
#[cfg(any(test, not(feature = "tls")))]
mod tls_absent;
#[cfg(feature = "tls")]
mod tls_options;
mod view;
mod wave;

pub use acquire::{Acquire, TryAcquire};
pub use call::{Call, Pending, Running};
pub use driver::fork::generation as fork_generation;
pub use driver::wait_for_background_thread;
pub use event_loop::EventLoop;
pub use lock::{Lock, Lost};
pub use options::{ClientBuilder, DEFAULT_CONNECT_TIMEOUT, FollowMoves, IntoServers};
#[cfg(feature = "simulation")]
pub(crate) use session::simulation;
pub use view::{HeldLock, KeyState, LockPage, Status, Waiter, Waiters};

use crate::error::Error;
use crate::protocol::{Key, Token, limits};
use instance::Handle;
use session::Ask;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The lease of an acquire that names none.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// How many rows [`Client::waiters`] and [`Client::locks`] give at most in languages in which that need not be said.
pub const DEFAULT_ROWS: u32 = 1000;

/// A client of a fairlock server or cluster. Cheap to clone; clones are the same client. May be used
/// from any thread and any task.
///
/// Connections are made and kept in the background. A client never keeps a process from ending. When its
/// last clone, its last lock and its last call are gone it closes by itself.
///
/// ```no_run
/// # async fn example() -> Result<(), fairlock::Error> {
/// use std::time::Duration;
///
/// let client = fairlock::Client::connect("127.0.0.1:7420").await?;
/// let lock = client
///     .acquire("order:42")
///     .lease(Duration::from_secs(30))
///     .wait(Duration::from_secs(5))
///     .await?;
/// println!("fencing token {}", lock.token());
/// lock.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

impl Client {
    /// Says more about a client before it is made.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A client of these servers. Does not wait for the network: the first call waits for a
    /// connection, at most for the connect time-out.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument): an address that is none.
    pub fn new(servers: impl IntoServers) -> Result<Client, Error> {
        Client::builder().servers(servers).build()
    }

    /// A client of these servers, as soon as one connection is up.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument), or
    /// [`ConnectionFailed`](crate::ErrorKind::ConnectionFailed) with each address and why it failed.
    pub async fn connect(servers: impl IntoServers) -> Result<Client, Error> {
        let client = Client::new(servers)?;
        client.connected().await?;
        Ok(client)
    }

    fn with_options(options: options::Options) -> Result<Client, Error> {
        Ok(Client {
            handle: Handle::new(options)?,
        })
    }

    /// Waits until a connection is up, at most for the connect time-out.
    ///
    /// # Errors
    /// [`ConnectionFailed`](crate::ErrorKind::ConnectionFailed), or
    /// [`Refused`](crate::ErrorKind::Refused) where the servers do not want this client.
    pub fn connected(&self) -> Call<()> {
        Call::new(&self.handle, Ok(Ask::Connected))
    }

    /// Locks `key`, waiting in line for it. Set lease and wait on what this returns, then await it, or
    /// [`call`](Acquire::call) it where the thread may block.
    pub fn acquire(&self, key: impl AsRef<[u8]>) -> Acquire {
        Acquire::new(&self.handle, key.as_ref())
    }

    /// Locks `key` if it is free at this moment: `None` if it is not.
    pub fn try_acquire(&self, key: impl AsRef<[u8]>) -> TryAcquire {
        TryAcquire::new(&self.handle, key.as_ref())
    }

    /// Releases whatever holds `key` with `token`, also a lock of another client: for operators.
    /// False if this token does not hold it.
    ///
    /// # Errors
    /// [`ReleaseUnconfirmed`](crate::ErrorKind::ReleaseUnconfirmed) if no server that was told of it answered for 5 s,
    /// [`ConnectionFailed`](crate::ErrorKind::ConnectionFailed) if none could be told,
    /// [`Refused`](crate::ErrorKind::Refused), [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
    pub fn release(&self, key: impl AsRef<[u8]>, token: Token) -> Call<bool> {
        let ask = wire_key(key.as_ref()).map(|key| Ask::Release { key, token });
        Call::new(&self.handle, ask)
    }

    /// Lets the lease of whatever holds `key` with `token` end no earlier than `lease` from now.
    /// False if this token does not hold it.
    ///
    /// # Errors
    /// As [`release`](Self::release), with
    /// [`ConnectionFailed`](crate::ErrorKind::ConnectionFailed) if no server answered.
    pub fn keep(&self, key: impl AsRef<[u8]>, token: Token, lease: Duration) -> Call<bool> {
        let ask = wire_key(key.as_ref()).and_then(|key| {
            let lease = wire_lease(lease)?;
            Ok(Ask::Keep { key, token, lease })
        });
        Call::new(&self.handle, ask)
    }

    /// Who holds `key`.
    ///
    /// # Errors
    /// [`ConnectionFailed`](crate::ErrorKind::ConnectionFailed),
    /// [`Refused`](crate::ErrorKind::Refused), [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
    pub fn inspect(&self, key: impl AsRef<[u8]>) -> Call<KeyState> {
        let ask = wire_key(key.as_ref()).map(|key| Ask::Inspect { key });
        Call::new(&self.handle, ask)
    }

    /// Who waits for `key`: the first `limit` of them (1 to 100,000), and how many there are in all.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn waiters(&self, key: impl AsRef<[u8]>, limit: u32) -> Call<Waiters> {
        let ask = wire_key(key.as_ref()).and_then(|key| {
            let limit = rows(limit)?;
            Ok(Ask::Waiters { key, limit })
        });
        Call::new(&self.handle, ask)
    }

    /// Held keys that begin with `prefix` (empty for all), at most `limit` (1 to 100,000), from behind
    /// the key `after`. Call it again with the page's `next` until that is `None`.
    ///
    /// # Errors
    /// As [`inspect`](Self::inspect).
    pub fn locks(
        &self,
        prefix: impl AsRef<[u8]>,
        after: Option<&[u8]>,
        limit: u32,
    ) -> Call<LockPage> {
        Call::new(&self.handle, locks_ask(prefix.as_ref(), after, limit))
    }

    /// One line of status of the node that serves this client.
    ///
    /// # Errors
    /// [`ConnectionFailed`](crate::ErrorKind::ConnectionFailed).
    pub fn status(&self) -> Call<Status> {
        Call::new(&self.handle, Ok(Ask::Status))
    }

    /// Closes the client and all its clones: what is under way fails with
    /// [`Closed`](crate::ErrorKind::Closed) at once, locks are told that they are lost, and those still held are
    /// released, for at most a second. The call ends when that is done.
    ///
    /// # Errors
    /// None; closing a closed client is well.
    pub fn close(&self) -> Call<()> {
        Call::new(&self.handle, Ok(Ask::Close))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("servers", &self.handle.options().servers)
            .finish_non_exhaustive()
    }
}

fn locks_ask(prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<Ask, Error> {
    let prefix = if prefix.is_empty() {
        None
    } else {
        Some(wire_key(prefix)?)
    };
    let after = after.map(wire_key).transpose()?;
    Ok(Ask::Locks {
        prefix,
        after,
        limit: rows(limit)?,
    })
}

fn wire_key(bytes: &[u8]) -> Result<Key, Error> {
    Key::encode(bytes).map_err(|_| {
        Error::argument(format!(
            "the key has {} bytes; a key has 1 to {}",
            bytes.len(),
            limits::KEY_BYTES
        ))
    })
}

/// What times of the wire are.
const TIMES: &str = "a time from a millisecond to a year";

fn wire_time(
    option: &'static str,
    time: Duration,
    takes: &'static str,
) -> Result<crate::protocol::Millis, Error> {
    let ms = time.as_millis();
    match u64::try_from(ms) {
        Ok(ms) if (limits::TIME_MIN_MS..=limits::TIME_MAX_MS).contains(&ms) => {
            Ok(crate::protocol::Millis(ms))
        }
        _ => Err(Error::wrong_time(option, time, takes)),
    }
}

fn wire_lease(lease: Duration) -> Result<crate::protocol::Millis, Error> {
    wire_time("lease", lease, TIMES)
}

fn rows(limit: u32) -> Result<u32, Error> {
    if (1..=limits::ROWS_MAX).contains(&limit) {
        Ok(limit)
    } else {
        Err(Error::argument(format!(
            "a limit of {limit} rows; give 1 to {}",
            limits::ROWS_MAX
        )))
    }
}
