//! Fair distributed locks with leases and fencing tokens.

pub mod protocol;
