//! TLS 1.3 around the bytes of a connection: files with certificates become configurations, and a
//! [`Channel`] turns plain bytes into records and back. It owns no socket, waits for nothing and knows nothing of what
//! the bytes mean; node and client lend it their sockets.
//!
//! ```text
//! files ──▶ Acceptor / Connector ──▶ Channel      plain bytes ⇄ records ⇄ socket (lent)
//!           read again when they
//!           change
//! ```
//!
//! Sessions are never resumed: a resumed one would outlive the certificates that it was made with.

mod error;
mod file_names;

pub use error::{ConnectorError, FileError};
pub use file_names::ClientFiles;
#[cfg(feature = "server")]
pub(crate) use file_names::{Clients, ServerFiles};

#[cfg(all(feature = "tls", feature = "server"))]
mod acceptor;
#[cfg(feature = "tls")]
mod channel;
#[cfg(feature = "tls")]
mod connector;
#[cfg(feature = "tls")]
mod explain;
#[cfg(feature = "tls")]
mod files;

#[cfg(all(feature = "tls", feature = "server"))]
pub(crate) use acceptor::Acceptor;
#[cfg(all(test, feature = "tls", feature = "server"))]
pub(crate) use channel::tests::{ends, pair};
#[cfg(feature = "tls")]
pub use channel::{Channel, Room, with_room};
#[cfg(feature = "tls")]
pub use connector::{Connector, server_name};

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(all(not(feature = "tls"), feature = "server"))]
pub(crate) use absent::Acceptor;
#[cfg(not(feature = "tls"))]
pub use absent::{Channel, Connector, Room, with_room};

/// How far a handshake has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is done.
    Done,
    /// The socket has to have something to read.
    Reads,
    /// The socket has to take something.
    Writes,
}
