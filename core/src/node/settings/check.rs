//! Which settings cannot be used, by themselves or beside the others, and what follows from those that can.
//! Looks at no file and asks for no name.

use super::values::{ClientAuth, JournalSync, Secret, Spin};
use super::{SettingError, Settings};
use crate::cluster::{Members, MembersError};
use crate::protocol::limits;
use std::time::Duration;

const YEAR: Duration = Duration::from_millis(limits::TIME_MAX_MS);

impl Settings {
    /// Says which setting is wrong, if any is, by itself or beside the others. Looks at no file.
    pub fn check(&self) -> Result<(), SettingError> {
        if self.ephemeral && self.data_dir.is_some() {
            return Err(self.wrong(
                "ephemeral",
                "a node with a `data_dir` is not ephemeral; leave one of the two away",
            ));
        }
        if self.journal_sync != JournalSync::None && (self.data_dir.is_none() || !self.keep_state) {
            return Err(self.wrong("journal_sync", "needs a `data_dir`, and `keep_state`"));
        }
        if let Some(advertise) = &self.advertise
            && (!is_host_and_port(advertise) || advertise.len() > limits::ADDRESS_BYTES)
        {
            return Err(self.wrong(
                "advertise",
                "must be `host:port` (IPv6 as `[::1]:7420`), at most 255 bytes",
            ));
        }
        if let Some(secret) = &self.secret {
            if self.secret_file.is_some() {
                return Err(self.wrong(
                    "secret_file",
                    "`secret` is set too; leave one of the two away",
                ));
            }
            check_secret("secret", secret)?;
        }
        for (name, value, least, most) in [
            ("max_lease", self.max_lease, Duration::from_millis(1), YEAR),
            (
                "hello_timeout",
                self.hello_timeout,
                Duration::from_millis(10),
                YEAR,
            ),
            (
                "idle_timeout",
                self.idle_timeout,
                Duration::from_millis(10),
                YEAR,
            ),
            (
                "reattach_grace",
                self.reattach_grace,
                Duration::ZERO,
                Duration::from_secs(3600),
            ),
            (
                "drain_timeout",
                self.drain_timeout,
                Duration::ZERO,
                Duration::from_secs(3600),
            ),
            (
                "restart_grace",
                self.restart_grace,
                Duration::ZERO,
                Duration::from_secs(3600),
            ),
        ] {
            if value < least || value > most {
                let range = format!(
                    "must be between {} and {} seconds",
                    least.as_secs_f64(),
                    most.as_secs()
                );
                return Err(self.wrong(name, range));
            }
        }
        for (name, value) in [
            ("max_keys", self.max_keys),
            ("max_waiters_per_key", self.max_waiters_per_key),
            ("max_waiters", self.max_waiters),
            ("max_connections", self.max_connections),
            ("max_handshakes", self.max_handshakes),
            (
                "max_waiting_per_connection",
                self.max_waiting_per_connection,
            ),
        ] {
            if value == 0 || value > 1_000_000_000 {
                return Err(self.wrong(name, "must be between 1 and 1000000000"));
            }
        }
        if self.max_unread.0 < 64 << 10 || self.max_unread.0 > 1 << 30 {
            return Err(self.wrong("max_unread", "must be between 64KiB and 1GiB"));
        }
        if self.max_unread_total.0 < self.max_unread.0 || self.max_unread_total.0 > 1 << 50 {
            return Err(self.wrong(
                "max_unread_total",
                "must be at least `max_unread`, and at most 1048576GiB",
            ));
        }
        if let Spin::Micros(micros) = self.spin
            && micros > 1_000_000
        {
            return Err(self.wrong("spin", "must be at most 1000000 microseconds"));
        }
        self.check_cluster()?;
        self.check_tls()?;
        self.check_addresses()
    }

    /// What concerns peers.
    fn check_cluster(&self) -> Result<(), SettingError> {
        for (name, value, least, most) in [
            ("heartbeat", self.heartbeat, 10, 60_000),
            ("failure_timeout", self.failure_timeout, 50, 600_000),
            ("discovery_timeout", self.discovery_timeout, 50, 600_000),
            ("preempt_delay", self.preempt_delay, 0, 300_000),
            ("park_timeout", self.park_timeout, 0, 600_000),
            ("takeover_grace", self.takeover_grace, 0, 3_600_000),
        ] {
            if value < Duration::from_millis(least) || value > Duration::from_millis(most) {
                let range = format!(
                    "must be between {} and {} seconds",
                    least as f64 / 1e3,
                    most as f64 / 1e3
                );
                return Err(self.wrong(name, range));
            }
        }
        if self.failure_timeout < self.heartbeat * 3 {
            return Err(self.wrong(
                "failure_timeout",
                "must be at least three times `heartbeat`",
            ));
        }
        if let Some(secret) = &self.cluster_secret {
            if self.cluster_secret_file.is_some() {
                return Err(self.wrong(
                    "cluster_secret_file",
                    "`cluster_secret` is set too; leave one of the two away",
                ));
            }
            check_secret("cluster_secret", secret)?;
        }
        let Some(members) = self.members()? else {
            return self.check_lone();
        };
        let secret = self.peer_secret().is_some()
            || self.secret_file.is_some()
            || self.cluster_secret_file.is_some();
        if self.users_file.is_some()
            && !secret
            && !self.wants_client_certificates()
            && !self.insecure
        {
            return Err(self.wrong(
                "users_file",
                "nodes are no users: with `peers` set `cluster_secret_file` too, or whoever reaches the port can join as a node",
            ));
        }
        let most = members.others().count();
        if self.sync_standbys as usize > most {
            let expected = format!("this cluster has only {most} other nodes");
            return Err(self.wrong("sync_standbys", expected));
        }
        if self.sync_strict && self.sync_standbys == 0 {
            return Err(self.wrong("sync_strict", "needs `sync_standbys`"));
        }
        let public = self.advertise.as_deref().unwrap_or_default();
        let line = crate::node::cluster::greeting(&members, public, self.peer_secret());
        if line.len() > limits::LINE_BYTES {
            return Err(self.wrong("peers", "is too long: use shorter names"));
        }
        Ok(())
    }

    /// A node without peers has no use for some settings.
    fn check_lone(&self) -> Result<(), SettingError> {
        if self.node.is_some() {
            return Err(self.wrong("node", "`peers` is missing: the list that this node is in"));
        }
        if self.sync_standbys > 0 || self.sync_strict {
            let name = if self.sync_strict {
                "sync_strict"
            } else {
                "sync_standbys"
            };
            return Err(self.wrong(name, "needs `peers`"));
        }
        Ok(())
    }

    /// The cluster that this node belongs to, if it has peers.
    pub(crate) fn members(&self) -> Result<Option<Members>, SettingError> {
        let Some(peers) = &self.peers else {
            return Ok(None);
        };
        let Some(node) = &self.node else {
            return Err(self.wrong("node", "say which of `peers` this node is"));
        };
        let list = peers.split(',').map(str::trim);
        let members = Members::new(list, node).map_err(|error| match error {
            MembersError::NotListed(_) => self.wrong(
                "node",
                format!("that is none of `peers`, which are {peers}"),
            ),
            MembersError::Empty
            | MembersError::TooMany(_)
            | MembersError::Twice(_)
            | MembersError::NotAnAddress(_) => self.wrong("peers", error.to_string()),
        })?;
        let wrong = members
            .others()
            .chain([members.own()])
            .find(|slot| !members.address(*slot).is_some_and(is_host_and_port));
        if wrong.is_some() {
            return Err(self.wrong(
                "peers",
                "must be `host:port,host:port,…` (IPv6 as `[::1]:7420`)",
            ));
        }
        Ok(Some(members))
    }

    /// What nodes ask each other for.
    pub(crate) fn peer_secret(&self) -> Option<&Secret> {
        self.cluster_secret.as_ref().or(self.secret.as_ref())
    }

    /// Whether a client without a certificate is turned away.
    pub(crate) fn wants_client_certificates(&self) -> bool {
        match self.tls_client_auth {
            None => self.tls_client_ca.is_some(),
            Some(ClientAuth::Required) => true,
            Some(ClientAuth::Off | ClientAuth::Optional) => false,
        }
    }

    /// Whether a client may show a certificate.
    pub(crate) fn looks_at_client_certificates(&self) -> bool {
        self.wants_client_certificates() || self.tls_client_auth == Some(ClientAuth::Optional)
    }

    /// Which of the settings for TLS lacks another one, if any does.
    fn check_tls(&self) -> Result<(), SettingError> {
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            let name = if self.tls_cert.is_some() {
                "tls_cert"
            } else {
                "tls_key"
            };
            return Err(self.wrong(
                name,
                "a certificate and its key go together: set both `tls_cert` and `tls_key`",
            ));
        }
        for (name, given) in [
            ("tls_client_ca", self.tls_client_ca.is_some()),
            ("tls_ca", self.tls_ca.is_some()),
            ("tls_client_auth", self.looks_at_client_certificates()),
        ] {
            if given && self.tls_cert.is_none() {
                return Err(self.wrong(
                    name,
                    "there is no TLS without a certificate of the node: set `tls_cert` and `tls_key`",
                ));
            }
        }
        if self.looks_at_client_certificates() && self.tls_client_ca.is_none() {
            return Err(self.wrong(
                "tls_client_auth",
                "`tls_client_ca` has to say who signs the certificates of clients",
            ));
        }
        Ok(())
    }

    pub(super) fn wrong(&self, name: &str, expected: impl Into<String>) -> SettingError {
        SettingError::new(name, self.show(name).unwrap_or_default(), expected)
    }
}

/// A secret has to fit into a hello line, escaped, beside everything else that may stand there.
pub(crate) fn check_secret(name: &str, secret: &Secret) -> Result<(), SettingError> {
    const LONGEST: usize = limits::SECRET_BYTES;
    if secret.is_empty() || secret.bytes().len() > LONGEST {
        let expected = format!("a secret has between 1 and {LONGEST} bytes");
        let shown = if secret.is_empty() { "" } else { "…" };
        return Err(SettingError::new(name, shown, expected));
    }
    Ok(())
}

pub(super) fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let clean = bare.map_or(!host.contains(':'), |inner| inner.contains(':'));
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let printable = text.bytes().all(|byte| byte > b' ' && byte != 0x7f);
        !host.is_empty() && clean && digits && printable && port.parse::<u16>().is_ok()
    })
}
