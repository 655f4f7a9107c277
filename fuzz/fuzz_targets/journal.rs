//! `cargo +nightly fuzz run journal fuzz/corpus/journal fuzz/seeds/journal`: whatever is on the disk, a start holds what
//! `bodies/journal.rs` says.
#![no_main]

#[path = "../bodies/journal.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    body::check(data);
});
