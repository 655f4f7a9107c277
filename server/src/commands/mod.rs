//! The client commands that ask a server once: each takes its arguments, makes one call, and prints
//! what came of it, for people or as JSON.

mod acquire;
mod json;
mod keep_release;
mod look;
mod status;

pub(crate) use acquire::acquire;
pub(crate) use json::{Key, seconds, text};
pub(crate) use keep_release::{keep, release};
pub(crate) use look::{inspect, locks, waiters};
pub(crate) use status::status;
