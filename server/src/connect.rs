//! From the options of a client command to a client and an acquire: which servers, what secret to say
//! to them, how to be sure of them, and how to wait for a lock and say so.

use crate::arguments::{Connection, Want};
use crate::exit::{Failure, tell};
use crate::text;
use crate::values::{self, Wait};
use fairlock::protocol::limits;
use fairlock::{Client, ClientBuilder, Error, FollowMoves, KeyState, Lock, Pending};
use std::io::{self, IsTerminal};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

/// How long a connection to one server of several may take.
const SOON: Duration = Duration::from_secs(1);

/// How long people wait for a lock before they are told what for.
const QUIET_WAIT: Duration = Duration::from_secs(5);

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
        let is_in_blanks = |address: &str| address.trim().contains(char::is_whitespace);
        if let Some(list) = &self.servers
            && list.split(',').any(is_in_blanks)
        {
            return Err(Failure::usage(format_args!(
                "`{list}` is no list of servers: commas stand between the addresses, as in a:7420,b:7420"
            )));
        }
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
    /// Refuses a wait that cannot end: for a key that the `fairlock run` around this process holds as long as it runs.
    pub(crate) fn check_for_outer_run(&self, client: &Client, key: &[u8]) -> Result<(), Failure> {
        let is_key_of_outer =
            || std::env::var_os("FAIRLOCK_KEY").is_some_and(|outer| outer.as_bytes() == key);
        if self.no_wait || self.wait != Wait::Forever || !is_key_of_outer() {
            return Ok(());
        }
        let token = std::env::var("FAIRLOCK_TOKEN").ok();
        let token = token.and_then(|text| values::token(&text).ok());
        // Only the token tells whether it is the same lock: that of other servers may have the same key.
        match client.inspect(key).call() {
            Ok(KeyState::Held(lock)) if Some(lock.token) == token => {
                let key = text::key(key);
                Err(Failure::usage(format_args!(
                    "a `fairlock run {key}` around this command holds {key} until it has ended, so this would wait for itself: \
                     give --wait or --no-wait, or start it with `env -u FAIRLOCK_KEY` where the outer one does not wait for it"
                )))
            }
            _ => Ok(()),
        }
    }

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

/// How long to wait for a lock before [`tell_of_wait`] is called; None where nobody would read it.
pub(crate) fn quiet_wait() -> Option<Duration> {
    io::stderr().is_terminal().then_some(QUIET_WAIT)
}

/// Says what is waited for, and who holds it if that may be known.
pub(crate) fn tell_of_wait(client: &Client, key: &[u8]) {
    let shown = text::key(key);
    client.inspect(key).submit(move |state| match state {
        Ok(KeyState::Held(lock)) => tell(format_args!(
            "waiting for {shown}, which {} at {} holds",
            text::name(lock.name.as_deref()),
            lock.address
        )),
        Ok(KeyState::Free { .. }) | Err(_) => tell(format_args!("waiting for {shown}")),
    });
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
