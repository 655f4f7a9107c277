//! How many connections the operating system allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that stay free for files, and for connections that are only taken to be turned away.
const RESERVED: u64 = 8;

/// A link in each direction, and one of each that is being made before the old one goes.
const PER_PEER: u64 = 4;

/// Raises the limit of open descriptors if `wanted` connections need it and it may be raised, and
/// says how many connections there can be.
pub(crate) fn connections_allowed(wanted: u32, peers: usize) -> u32 {
    let reserved = RESERVED + PER_PEER * peers as u64;
    let limit = getrlimit(Resource::Nofile);
    let in_use = std::fs::read_dir("/proc/self/fd").map_or(16, |entries| entries.count() as u64);
    let needed = u64::from(wanted) + in_use + reserved;
    let mut allowed = limit.current.unwrap_or(u64::MAX);
    if allowed < needed {
        let raised = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
        let new = Rlimit {
            current: Some(raised),
            maximum: limit.maximum,
        };
        if raised > allowed && setrlimit(Resource::Nofile, new).is_ok() {
            allowed = raised;
        }
    }
    let connections = allowed.saturating_sub(in_use + reserved).max(1);
    if connections < u64::from(wanted) {
        tracing::info!(
            "the operating system allows {allowed} open files, so at most {connections} connections (max_connections is {wanted})"
        );
    }
    u32::try_from(connections).unwrap_or(u32::MAX).min(wanted)
}
