//! The engine against a naive model: a million random steps, equal outputs, invariants and an equal
//! copy all the way. A failure prints the seed of its run; `ENGINE_SEED=… cargo test` repeats that run
//! alone.
#![cfg(feature = "server")]

#[path = "../../fuzz/bodies/engine.rs"]
mod body;

const STEPS: usize = 1_000_000;
const BYTES_A_RUN: usize = 60_000;

#[test]
fn a_million_random_steps_agree_with_the_naive_model() {
    if let Ok(seed) = std::env::var("ENGINE_SEED") {
        body::check(&random_bytes(seed.parse().expect("a number")));
        return;
    }
    let mut steps = 0;
    let mut seed = 1;
    while steps < STEPS {
        let bytes = random_bytes(seed);
        let run = std::panic::catch_unwind(|| body::check(&bytes));
        steps += run.unwrap_or_else(|_| panic!("repeat with ENGINE_SEED={seed}"));
        seed += 1;
    }
}

fn random_bytes(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..BYTES_A_RUN).map(|_| byte()).collect()
}
