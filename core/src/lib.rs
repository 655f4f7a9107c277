//! Fair distributed locks with leases and fencing tokens.

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "server")]
pub mod cluster;
#[cfg(feature = "server")]
pub mod engine;
mod error;
mod fence;
pub mod protocol;
pub mod tls;

#[cfg(feature = "client")]
pub use client::{
    Acquire, Call, Client, ClientBuilder, DEFAULT_CONNECT_TIMEOUT, DEFAULT_LEASE, EventLoop,
    FollowMoves, HeldLock, IntoServers, KeyState, Lock, LockPage, Lost, Pending, Running, Status,
    TryAcquire, Waiter, Waiters, blocking, fork_generation, wait_for_background_thread,
};
pub use error::{ERRORS, Error, ErrorKind, ErrorRow, LostReason};
pub use fence::Fence;
pub use protocol::{Role, Token};

#[cfg(feature = "server")]
pub mod node;
#[cfg(feature = "server")]
pub use node::{Server, ServerBuilder, ServerError};
