//! The addon behind the npm package `fairlock`: what JavaScript calls, and the way back.
//!
//! ```text
//! lib/*.js ──▶ fast · client · lock · server · fence ──▶ fairlock      convert, one call, convert
//! lib/bridge.js ◀── bridge ◀── the event loop, fairlock's own thread   one wake-up for all that is done
//! ```
//!
//! Nothing here decides about locks, retries or time; that is the crate `fairlock`, the same for every language.
//! A call that takes time gives JavaScript a number at once, and its outcome comes back under it through the `bridge`.

// napi exports nothing into a test build, so there nothing of this is used.
#![cfg_attr(test, allow(dead_code, unused_imports))]

mod bridge;
mod client;
mod convert;
mod event_loop;
mod fast;
mod fence;
mod lock;
mod outcome;
mod server;
mod slots;
mod view;
