//! The limits and times that an operator may change.

use super::changes::Recording;
use crate::mutation::Mutation;
use crate::protocol::Millis;

/// What an engine allows and for how long it waits for clients that it lost.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Keys that are held or waited for at the same time.
    pub max_keys: u32,
    /// Requests that wait for one key.
    pub max_waiters_per_key: u32,
    /// Requests that wait in all.
    pub max_waiters: u32,
    /// Requests of one connection that wait.
    pub max_waiting_per_connection: u32,
    /// How long a request keeps its place, and an undelivered grant its lock, after their
    /// connection broke.
    pub reattach_grace: Millis,
    /// How long the attempt number of a request that is over is remembered.
    pub attempt_memory: Millis,
    /// How many attempt numbers are remembered.
    pub max_attempts_remembered: u32,
    /// How many requests that wait on a connection leave in the step in which it breaks, and how many are refused in the
    /// step in which no token is left; the rest follows with [`Engine::expire`](super::Engine::expire).
    pub parted_at_once: u32,
    /// Which changes of the state [`Engine::tell_standbys`](super::Engine::tell_standbys) tells.
    pub recording: Recording,
    /// What is broken on purpose: nothing, outside of tests.
    #[doc(hidden)]
    pub mutation: Mutation,
}

impl Default for EngineSettings {
    fn default() -> Self {
        EngineSettings {
            max_keys: 10_000_000,
            max_waiters_per_key: 100_000,
            max_waiters: 10_000_000,
            max_waiting_per_connection: 100_000,
            reattach_grace: Millis(500),
            attempt_memory: Millis(600_000),
            max_attempts_remembered: 1_000_000,
            parted_at_once: 256,
            recording: Recording::Nothing,
            mutation: Mutation::None,
        }
    }
}
