//! A running server: sockets, clock and disk around the lock rules of [`engine`](crate::engine).

mod data_dir;
mod error;
mod run;
mod server;
mod settings;
mod term;
mod term_file;

pub use error::ServerError;
pub use server::{Server, ServerBuilder};
pub use settings::{Bytes, Secret, Setting, SettingError, SettingKind, Settings, Spin};
