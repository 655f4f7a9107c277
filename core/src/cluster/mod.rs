//! Several nodes as one: who is active, and what the others copy.
//!
//! ```text
//! beats, refusals, silence ──▶ Roles    who is active; when to copy, hand over, give up
//! frames ──▶ Member ◀──▶ Engine         the state is copied, resumed, merged
//! requests ──▶ Parking                  while nobody is known to be active
//! ```
//!
//! Pure, as the engine is: time, messages and what the disk said come in, effects go out.

#![forbid(unsafe_code)]

mod copier;
mod feeds;
mod frame;
mod fresh;
mod greeting;
mod held;
mod member;
mod members;
mod message;
mod outgoing;
mod parking;
mod peer;
mod releases;
mod replay;
mod roles;
#[cfg(test)]
mod tests;

pub use feeds::FEED_BYTES;
pub use frame::{FRAME_BYTES, FrameError, Unit, VERSION, split_frame};
pub use greeting::{Greeting, GreetingError, is_welcome, opens_link, welcome};
pub use held::{HeldBack, HeldGrant};
pub use member::{Member, MemberSettings, Output, PeerState};
pub use members::{MAX_NODES, Members, MembersError, Slot};
pub use message::{Beat, Copy, Handoff, Message, Stage, Stream, Timing};
pub use parking::{Full, Overdue, Parked, Parking, wait_left};
pub use replay::{
    Replay, ReplayError, Spelled, batches, spell_begin, spell_news, spell_part, spell_whole,
};
pub use roles::{Beginning, Effect, Event, Note, Now, Origin, Roles, Stance};
