//! From the options of a client command to a client and an acquire: which servers, what secret to say
//! to them, how to be sure of them, and how to wait for a lock.

use crate::arguments::{Connection, Want};
use crate::exit::Failure;
use crate::values::Wait;
use fairlock::protocol::limits;
use fairlock::{Client, ClientBuilder, Error, FollowMoves, Lock, Pending};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

/// How long a connection to one server of several may take.
const SOON: Duration = Duration::from_secs(1);

impl Connection {
    /// The client that these options describe. Does not wait for the network.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let mut builder = self.builder()?;
        if let Some(servers) = &self.servers {
            builder = builder.servers(servers);
        }
        Ok(builder.build()?)
    }

    /// The same for `want`, which may go on trying where no server is in reach.
    pub(crate) fn client_for(&self, want: &Want) -> Result<Client, Failure> {
        let mut builder = self.builder()?.retry_for(want.retry_for);
        if let Some(servers) = &self.servers {
            builder = builder.servers(servers);
        }
        Ok(builder.build()?)
    }

    /// A client of one server alone, which does not turn to another one when that is down.
    pub(crate) fn client_of(&self, server: &str) -> Result<Client, Failure> {
        let builder = self.builder()?.servers(server).connect_timeout(SOON);
        Ok(builder.follow_moves(FollowMoves::Listed).build()?)
    }

    /// The servers as the user gave them, one by one.
    pub(crate) fn addresses(&self) -> Vec<String> {
        match &self.servers {
            None => vec![format!("127.0.0.1:{}", limits::DEFAULT_PORT)],
            Some(list) => list
                .split(',')
                .map(|address| address.trim().to_owned())
                .filter(|address| !address.is_empty())
                .collect(),
        }
    }

    /// The secret: from the file that an argument names, else from FAIRLOCK_SECRET, else from the file
    /// that FAIRLOCK_SECRET_FILE names.
    pub(crate) fn secret(&self) -> Result<Option<Vec<u8>>, Failure> {
        let variable = std::env::var_os("FAIRLOCK_SECRET").filter(|secret| !secret.is_empty());
        let Some(path) = &self.secret_file else {
            return Ok(variable.map(OsStringExt::into_vec));
        };
        let is_argument =
            std::env::var_os("FAIRLOCK_SECRET_FILE").as_deref() != Some(path.as_os_str());
        match variable {
            Some(secret) if !is_argument => Ok(Some(secret.into_vec())),
            _ => read_secret(path).map(Some),
        }
    }

    pub(crate) fn builder(&self) -> Result<ClientBuilder, Failure> {
        let mut builder = Client::builder();
        if let Some(secret) = self.secret()? {
            builder = builder.secret(secret);
        }
        if let Some(path) = &self.ca_file {
            builder = builder.ca_file(path);
        }
        if let Some(path) = &self.cert_file {
            builder = builder.cert_file(path);
        }
        if let Some(path) = &self.key_file {
            builder = builder.key_file(path);
        }
        if let Some(name) = &self.server_name {
            builder = builder.server_name(name);
        }
        if self.tls {
            builder = builder.tls(true);
        }
        Ok(builder)
    }
}

impl Want {
    /// Starts to acquire `key`; `done` gets the lock, or `None` if it was not to be waited for.
    pub(crate) fn submit(
        &self,
        client: &Client,
        key: &[u8],
        keep_alive: bool,
        done: impl FnOnce(Result<Option<Lock>, Error>) + Send + 'static,
    ) -> Pending {
        if self.no_wait {
            let mut acquire = client.try_acquire(key).lease(self.lease);
            if keep_alive {
                acquire = acquire.keep_alive();
            }
            return acquire.submit(done);
        }
        let mut acquire = client.acquire(key).lease(self.lease);
        if let Wait::For(time) = self.wait {
            acquire = acquire.wait(time);
        }
        if keep_alive {
            acquire = acquire.keep_alive();
        }
        acquire.submit(|result| done(result.map(Some)))
    }
}

/// Reads a secret; one line end behind it does not belong to it.
fn read_secret(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut secret = std::fs::read(path).map_err(|error| {
        Failure::usage(format_args!(
            "cannot read the secret file {}: {error}",
            path.display()
        ))
    })?;
    if secret.ends_with(b"\n") {
        secret.pop();
        if secret.ends_with(b"\r") {
            secret.pop();
        }
    }
    Ok(secret)
}
