//! What a node counts, in one place; whoever shows metrics reads it from here.

use crate::engine::Refusal;

/// Counts up from the start of the node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Connections taken.
    pub(crate) accepted: u64,
    /// Connections turned away because there were too many (`max_connections`, or what the system allows).
    pub(crate) turned_away: u64,
    /// How often taking connections paused because the system had nothing left for another one.
    pub(crate) accept_paused: u64,
    /// Lines read.
    pub(crate) lines: u64,
    /// Reads that brought something; lines by reads is how well pipelining works.
    pub(crate) reads: u64,
    /// Acquires refused because too many keys were held (`max_keys`).
    pub(crate) refused_keys: u64,
    /// Acquires refused because too many waited for the key (`max_waiters_per_key`).
    pub(crate) refused_waiters_of_key: u64,
    /// Acquires refused because too many waited in all (`max_waiters`).
    pub(crate) refused_waiters: u64,
    /// Requests refused because too many of the connection waited (`max_waiting_per_connection`), parked ones included.
    pub(crate) refused_waiting_of_connection: u64,
    /// Requests refused because those that were parked took too much memory.
    pub(crate) refused_parked: u64,
    /// Acquires refused because no fencing token was left.
    pub(crate) refused_tokens: u64,
    /// Connections closed because a line was too long.
    pub(crate) too_long: u64,
    /// Connections cut off because the client did not read (`max_unread`).
    pub(crate) cut_off: u64,
    /// Connections cut off because all clients together left too much unread, and this one more than its share (`max_unread_total`).
    pub(crate) cut_off_in_all: u64,
    /// Connections closed because they had not said hello in time (`hello_timeout`).
    pub(crate) unannounced: u64,
    /// Connections closed because the client was silent (`idle_timeout`).
    pub(crate) silent: u64,
    /// Requests that were sent to the active node.
    pub(crate) moved: u64,
    /// Requests that were kept until a node became active.
    pub(crate) parked: u64,
    /// Connections closed for a missing or wrong secret.
    pub(crate) not_admitted: u64,
    /// Connections closed because there was no TLS, or the wrong one, where there should have been, or the reverse.
    pub(crate) not_secured: u64,
    /// TLS handshakes ended because others came when there were too many (`max_handshakes`).
    pub(crate) handshakes_pushed_out: u64,
    /// Requests that their users were not allowed.
    pub(crate) denied: u64,
    /// Hellos that were turned away because too many secrets were to be checked.
    pub(crate) unchecked: u64,
}

impl Counters {
    /// An acquire has been refused.
    pub(crate) fn refused(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Keys => self.refused_keys += 1,
            Refusal::WaitersOfKey => self.refused_waiters_of_key += 1,
            Refusal::Waiters => self.refused_waiters += 1,
            Refusal::WaitingOfConnection => self.refused_waiting_of_connection += 1,
            Refusal::TokensUsedUp => self.refused_tokens += 1,
            // That is no limit: the client goes elsewhere.
            Refusal::Leaving => {}
        }
    }
}
