//! Three real nodes that are killed, frozen, stopped, starved and cut off while Rust and Python clients work:
//! what the clients saw has to keep the rules of `history`.

mod disks;
mod doors;
mod failures;
mod journals;
mod networks;
mod stops;
