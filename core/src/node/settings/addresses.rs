//! Where a node and its admin page listen. What an address says by itself is checked with the other settings; a name is
//! asked for when it is bound and not before, so that a name service that is not there yet is no wrong setting.

use super::check::{check_secret, is_host_and_port};
use super::{SettingError, Settings};
use crate::node::error::ServerError;
use std::net::{SocketAddr, ToSocketAddrs};

impl Settings {
    /// Where the node listens.
    #[must_use]
    pub fn listen_address(&self) -> &str {
        let own = self.listen.as_ref().or(self.node.as_ref());
        own.map_or("127.0.0.1:7420", String::as_str)
    }

    /// The addresses that `listen` stands for. Refuses those that need a secret where there is none.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>, ServerError> {
        let addresses = look_up(self.listen_name(), self.listen_address())?;
        self.check_listen(&addresses)?;
        Ok(addresses)
    }

    /// The addresses that `admin` stands for, none where it is not set. Refuses those that need a secret where there is none.
    pub fn admin_addresses(&self) -> Result<Vec<SocketAddr>, ServerError> {
        let Some(admin) = &self.admin else {
            return Ok(Vec::new());
        };
        let addresses = look_up("admin", admin)?;
        self.check_admin(&addresses)?;
        Ok(addresses)
    }

    /// What can be said of the addresses before any name is asked for.
    pub(super) fn check_addresses(&self) -> Result<(), SettingError> {
        let listen = self.listen_address();
        if !is_host_and_port(listen) {
            return Err(
                self.wrong_listen("must be `host:port`, such as 127.0.0.1:7420 or [::1]:7420")
            );
        }
        let clients = literal(listen);
        self.check_listen(clients.as_slice())?;
        if self.admin_secret.is_some() && self.admin_secret_file.is_some() {
            return Err(self.wrong(
                "admin_secret_file",
                "`admin_secret` is set too; leave one of the two away",
            ));
        }
        if let Some(secret) = &self.admin_secret {
            check_secret("admin_secret", secret)?;
        }
        let Some(admin) = &self.admin else {
            return Ok(());
        };
        if !is_host_and_port(admin) {
            return Err(self.wrong(
                "admin",
                "must be `host:port`, such as 127.0.0.1:7429 or [::1]:7429",
            ));
        }
        let page = literal(admin);
        self.check_admin(page.as_slice())?;
        let clash = match (page, clients) {
            (Some(page), Some(clients)) => are_one_port(&page, &clients),
            _ => admin == listen,
        };
        if clash {
            let name = self.listen_name();
            let text = format!("`{name}` is {listen}; each of the two needs a port of its own");
            return Err(self.wrong("admin", text));
        }
        Ok(())
    }

    fn check_listen(&self, addresses: &[SocketAddr]) -> Result<(), SettingError> {
        let protected = self.secret.is_some()
            || self.secret_file.is_some()
            || self.users_file.is_some()
            || self.wants_client_certificates()
            || self.insecure;
        if !protected && addresses.iter().any(|address| !address.ip().is_loopback()) {
            return Err(self.wrong_listen(
                "beyond loopback a secret is needed: set `secret_file` (or `secret` in the environment), \
                 or `users_file`, or `tls_client_ca` for clients with certificates, or say `insecure` if everybody who reaches the port may take and free every lock",
            ));
        }
        Ok(())
    }

    fn check_admin(&self, addresses: &[SocketAddr]) -> Result<(), SettingError> {
        let protected =
            self.admin_secret.is_some() || self.admin_secret_file.is_some() || self.insecure;
        if !protected && addresses.iter().any(|address| !address.ip().is_loopback()) {
            return Err(self.wrong(
                "admin",
                "beyond loopback a secret is needed: set `admin_secret_file` (or `admin_secret` in the environment), \
                 or say `insecure` if everybody who reaches the port may see every key and every client",
            ));
        }
        Ok(())
    }

    /// Names the setting that says where the node listens.
    fn wrong_listen(&self, expected: impl Into<String>) -> SettingError {
        SettingError::new(self.listen_name(), self.listen_address(), expected)
    }

    fn listen_name(&self) -> &'static str {
        match (&self.listen, &self.node) {
            (None, Some(_)) => "node",
            _ => "listen",
        }
    }
}

/// An address that is no name.
fn literal(address: &str) -> Option<SocketAddr> {
    address.parse().ok()
}

/// Asks the system for the addresses of a name; those that are none are taken as they are.
fn look_up(setting: &'static str, address: &str) -> Result<Vec<SocketAddr>, ServerError> {
    let found = address.to_socket_addrs().and_then(|found| {
        let found: Vec<SocketAddr> = found.collect();
        match found.is_empty() {
            true => Err(std::io::Error::other("the name has no address")),
            false => Ok(found),
        }
    });
    found.map_err(|source| ServerError::LookUp {
        setting,
        address: address.to_owned(),
        source,
    })
}

/// Whether the system would refuse one of the two while the other is listened on.
fn are_one_port(one: &SocketAddr, other: &SocketAddr) -> bool {
    let everywhere = |address: &SocketAddr| address.ip().is_unspecified();
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || everywhere(one) || everywhere(other))
}
