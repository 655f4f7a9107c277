//! Whole clusters with their clients in one seeded world: the real engine, the real rules of the
//! cluster and the real decisions of the client, over a network, clocks and disks that are made up.
//!
//! ```text
//! seed ─▶ plan ─▶ world ─▶ nodes   (Member, Engine, Parking and a request desk)
//!                   │  └──▶ people  (the client's Session and who uses it)
//!                   ├─────▶ network (byte streams), clocks, disks, faults
//!                   └─────▶ checker (what has to hold) and coverage (what has happened)
//! ```
//!
//! One seed is one run, the same on every machine: nothing here asks a clock, a thread or a random number
//! outside of the seed.

mod arrivals;
mod checker;
mod client;
mod clock;
mod coverage;
mod desk;
mod disturbances;
mod ending;
mod faults;
mod greeting;
mod network;
mod node;
mod nodes;
mod parked;
mod peers;
mod people;
mod plan;
mod random;
mod run;
mod telling;
mod visitors;
mod watching;
mod world;

pub use checker::{Rule, Violation};
pub use coverage::{Coverage, KINDS};
pub use plan::{Harm, Profile};
pub use run::{Breakage, Report, Run, first_to_break, many, one};
