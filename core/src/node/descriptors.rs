//! How many connections the operating system allows.

use super::accept::SORTED_OUT_AT_ONCE;
use super::settings::Settings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that stay free for files, and for connections that are only taken to be turned away.
const RESERVED: u64 = 8;

/// A link in each direction, and one of each that is being made before the old one goes.
const PER_PEER: u64 = 4;

/// What the admin page takes: its listener, and the most connections that it keeps.
const ADMIN_PAGE: u64 = 1 + 64;

/// Descriptors that are no client's, beside those that are in use already.
fn reserved(settings: &Settings, peers: usize) -> u64 {
    let sorted_out = if peers > 0 { SORTED_OUT_AT_ONCE } else { 0 };
    let admin = settings.admin.as_ref().map_or(0, |_| ADMIN_PAGE);
    RESERVED + PER_PEER * peers as u64 + u64::from(sorted_out) + admin
}

/// Raises the limit of open descriptors if `max_connections` need it and it may be raised, and
/// says how many connections there can be.
pub(crate) fn connections_allowed(settings: &Settings, peers: usize) -> u32 {
    let wanted = settings.max_connections;
    let reserved = reserved(settings, peers);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_holds_a_socket_beside_the_clients_has_its_descriptors() {
        let alone = Settings::default();
        let with_page = Settings {
            admin: Some("127.0.0.1:0".to_owned()),
            ..Settings::default()
        };
        let [plain, page, peers] = [
            reserved(&alone, 0),
            reserved(&with_page, 0),
            reserved(&alone, 2),
        ];
        assert_eq!(page - plain, 65);
        assert_eq!(peers - plain, u64::from(SORTED_OUT_AT_ONCE) + 2 * PER_PEER);
    }
}
