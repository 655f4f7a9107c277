//! A running server: sockets, clock and disk around the lock rules of [`engine`](crate::engine), which
//! know none of them. What a lock is, who waits for it and when it ends is decided there and never here.
//!
//! ```text
//!             ┌──────────── one thread ─────────────────────────────────────┐
//! accept ────▶│ serve, one task each ──▶ answer ──▶ Engine ──▶ effects      │
//!             │    ▲    │                            ▲            │         │
//! sockets ────┼────┘    └──▶ own replies, last       │         outboxes ────┼──▶ other sockets, first
//!             │            alarm ──▶ timers ─────────┘                      │
//!             └──────────────────── terms, journal ─────────────────────────┘──▶ disk
//! ```
//!
//! [`Server`] is the face of all this; `run` brings it up and down; `state` holds what the tasks share.

mod accept;
mod alarm;
mod answer;
mod clock;
mod cluster;
mod connection;
mod counters;
mod data_dir;
mod descriptors;
mod entrants;
mod error;
mod farewell;
pub mod journal;
mod lines;
mod listing;
mod log;
mod outbox;
mod reserved;
mod run;
mod secret_file;
mod serve;
mod server;
mod settings;
mod spin;
mod state;
mod stream;
mod term;
mod term_file;
mod terms;
mod timers;
mod tls;
mod unread;
mod users;
mod view;

pub use counters::{Counters, Limit, Outcome};
pub use error::ServerError;
pub use server::{Server, ServerBuilder};
pub use settings::{
    Bytes, ClientAuth, JournalSync, LogFormat, LogLevel, Secret, Setting, SettingError,
    SettingKind, Settings, Spin,
};
pub use users::hash_secret;
pub use view::{
    Busiest, LockView, LocksView, NodeView, QueueView, SURVEY_BUDGET, ServerView, Snapshot,
    WaiterView,
};
