//! Fair distributed locks with leases and fencing tokens.

#[cfg(feature = "server")]
pub mod engine;
pub mod protocol;

#[cfg(feature = "server")]
pub mod node;
#[cfg(feature = "server")]
pub use node::{Server, ServerBuilder, ServerError};
