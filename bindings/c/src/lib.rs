//! The C interface: `fairlock.h`, `libfairlock.so` and `libfairlock.a`.
//!
//! A function here converts its arguments, makes one call of the crate `fairlock` and converts the
//! result; it decides nothing about locks, retries or time. What it adds is the border: NULL and
//! wrong sizes become statuses, panics stay inside, handles are boxes that C owns, and callbacks
//! come exactly once. Names are spelled as C sees them, and the comments of this crate are those of
//! the header, which `tests/header.rs` writes.

// The border to C cannot be written without raw pointers; each block says why it holds.
#![allow(unsafe_code)]
// What C sees has the spelling of C.
#![allow(non_camel_case_types)]
// Public for C, not for another crate.
#![allow(unreachable_pub)]
// `cargo doc` is not how this crate is read: its documentation is the header.
#![allow(clippy::missing_safety_doc)]

mod argument;
mod callback;
mod client;
mod fence;
mod lock;
mod operator;
mod options;
mod pending;
mod report;
mod server;
mod status;

use std::ffi::c_char;

/// The version of the library, as in "0.1.0". The string lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn fairlock_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
