//! `cargo +nightly fuzz run line fuzz/corpus/line fuzz/seeds/line`: whatever bytes arrive, reading them holds what `bodies/line.rs` says.
#![no_main]

#[path = "../bodies/line.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::check(data));
