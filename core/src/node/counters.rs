//! What a node counts, in one place; whoever shows metrics reads it from here.

/// Counts up from the start of the node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Connections taken.
    pub(crate) accepted: u64,
    /// Connections turned away because there were too many.
    pub(crate) turned_away: u64,
    /// Lines read.
    pub(crate) lines: u64,
    /// Reads that brought something; lines by reads is how well pipelining works.
    pub(crate) reads: u64,
    /// Connections cut off because the client did not read.
    pub(crate) cut_off: u64,
    /// Connections closed because the client was silent.
    pub(crate) silent: u64,
    /// Requests that were sent to the active node.
    pub(crate) moved: u64,
    /// Requests that were kept until a node became active.
    pub(crate) parked: u64,
    /// Connections closed for a missing or wrong secret.
    pub(crate) not_admitted: u64,
    /// Connections closed because there was no TLS, or the wrong one, where there should have been, or the reverse.
    pub(crate) not_secured: u64,
}
