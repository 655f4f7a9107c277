//! A node over real sockets, spoken to in raw lines: what the protocol page says, and what happens to
//! connections that break, stall or lie.
#![cfg(feature = "server")]

mod cluster;
mod nodes;
#[allow(unreachable_pub, reason = "the process tests use the same client")]
mod raw;

mod connections;
mod ends;
mod lists;
mod restart;
mod storm;
mod table;
mod users;
mod waiting;
