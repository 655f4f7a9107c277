//! Several nodes as one: who is active, and what the others copy.
//!
//! Pure, as the engine is: time, messages and what the disk said come in, effects go out.

#![forbid(unsafe_code)]

mod members;
mod message;
mod peer;
mod roles;
#[cfg(test)]
mod tests;

pub use members::{MAX_NODES, Members, MembersError, Slot};
pub use message::{Beat, Copy, Handoff, Message, Stage, Stream, Timing};
pub use roles::{Beginning, Effect, Event, Note, Now, Origin, Roles, Stance};
