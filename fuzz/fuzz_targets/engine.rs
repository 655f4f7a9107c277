//! `cargo +nightly fuzz run engine fuzz/corpus/engine fuzz/seeds/engine`: whatever happens to the lock rules, what
//! `bodies/engine.rs` says holds.
#![no_main]

#[path = "../bodies/engine.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    body::check(data);
});
