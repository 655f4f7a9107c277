//! Fair distributed locks with leases and fencing tokens: a client, and a server to run inside a process.
//!
//! `Client` (feature `client`, on by default) works under any async runtime, with callbacks, and blocking
//! (`blocking::Client`). `Server` (feature `server`) is one node; several with the same list of peers are a
//! cluster (`ServerBuilder::cluster`): the first that lives is active, the others have a copy of its state
//! and take over when it is gone. A client that is given the addresses of all nodes notices a pause at most.
//!
//! # What this does not promise
//!
//! A holder that stands still can wake up after its lease has ended and go on as if it had the lock. And
//! there is no quorum: while the network is split both sides may have an active node, and what was granted
//! in the last instant before a node died may be unknown to the one that takes over. So let the thing that
//! is protected remember the highest [`Token`] it has seen and refuse smaller ones ([`Fence`] does it):
//! tokens only ever rise, over takeovers too, and no two nodes give out the same one.

#[cfg(any(feature = "client", feature = "server"))]
mod background;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "server")]
pub mod cluster;
#[cfg(feature = "server")]
pub mod engine;
mod error;
mod fence;
#[cfg(any(feature = "client", feature = "server"))]
mod mutation;
pub mod protocol;
#[cfg(any(feature = "server", feature = "tls"))]
mod stamps;
pub mod tls;

/// For bindings that run code of the program on threads of their own.
#[cfg(any(feature = "client", feature = "server"))]
#[doc(hidden)]
pub use background::Signals;
#[cfg(feature = "client")]
#[doc(hidden)]
pub use client::measure;
#[cfg(feature = "client")]
pub use client::{
    Acquire, Call, Client, ClientBuilder, DEFAULT_CONNECT_TIMEOUT, DEFAULT_LEASE, DEFAULT_ROWS,
    EventLoop, FollowMoves, HeldLock, IntoServers, KeyState, Lock, LockPage, Lost, Pending,
    Running, Status, TryAcquire, Waiter, Waiters, blocking, fork_generation,
    wait_for_background_thread,
};
pub use error::{ERRORS, Error, ErrorKind, ErrorRow, LostReason, WrongTime};
pub use fence::Fence;
pub use protocol::{Role, Token};

/// For tests/simulation and nobody else.
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation {
    pub use crate::client::simulation::*;
    pub use crate::mutation::Mutation;
}

#[cfg(feature = "server")]
pub mod node;
#[cfg(feature = "server")]
pub use node::{Server, ServerBuilder, ServerError};
