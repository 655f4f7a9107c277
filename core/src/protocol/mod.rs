//! Bytes ⇄ messages: the wire protocol, version 1, for the server and the clients alike.
//!
//! ```text
//! bytes ──▶ line::split ──▶ Request::parse ──▶ what to do
//! bytes ◀── Reply::encode ◀── what came of it
//! ```
//!
//! Reading never allocates: requests and replies borrow from the buffer that they came in. Nothing in
//! here knows a socket, a clock or what a lock is.

#![forbid(unsafe_code)]

mod ahead;
mod code;
mod draft;
mod escape;
mod key;
pub mod limits;
mod line;
mod number;
mod reply;
mod request;
mod spelled;
#[cfg(test)]
mod tests;
mod word;

pub use code::Code;
pub use escape::SpellingError;
pub use key::{Key, KeyRef, NameRef, Prefix, SecretRef};
pub use line::{Split, split};
pub use number::{ClientId, Millis, Tag, Token, Wait};
pub use reply::{AddressList, HelloReply, Holder, Operation, Reply, Role, StatusReply};
pub use request::{Hello, Refusal, Request};
pub use spelled::SpelledToken;
