//! What a client is told when it is made: where the servers are, who it is, how patient it is.

use super::address::{Address, parse_list};
#[cfg(not(feature = "tls"))]
use super::tls_absent;
#[cfg(feature = "tls")]
use super::tls_options::TlsOptions;
use super::{Client, EventLoop, TIMES};
use crate::error::Error;
use crate::protocol::limits;
use crate::tls::Connector;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long one try of a connection may take, its hello included, unless the client is told otherwise.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Which addresses a client follows when a server says that another one is active.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FollowMoves {
    /// Any address that a server names.
    #[default]
    Any,
    /// Only addresses of the client's own list, compared as text.
    Listed,
}

/// What can name the servers of a client: an address, several in one text separated by commas, or a
/// list of addresses.
pub trait IntoServers {
    /// The addresses, as texts.
    fn into_servers(self) -> Vec<String>;
}

impl IntoServers for &str {
    fn into_servers(self) -> Vec<String> {
        vec![self.to_owned()]
    }
}

impl IntoServers for String {
    fn into_servers(self) -> Vec<String> {
        vec![self]
    }
}

impl IntoServers for &String {
    fn into_servers(self) -> Vec<String> {
        vec![self.clone()]
    }
}

impl IntoServers for std::net::SocketAddr {
    fn into_servers(self) -> Vec<String> {
        vec![self.to_string()]
    }
}

impl<S: ToString> IntoServers for Vec<S> {
    fn into_servers(self) -> Vec<String> {
        self.as_slice().into_servers()
    }
}

impl<S: ToString> IntoServers for &Vec<S> {
    fn into_servers(self) -> Vec<String> {
        self.as_slice().into_servers()
    }
}

impl<S: ToString> IntoServers for &[S] {
    fn into_servers(self) -> Vec<String> {
        self.iter().map(ToString::to_string).collect()
    }
}

impl<S: ToString, const N: usize> IntoServers for [S; N] {
    fn into_servers(self) -> Vec<String> {
        self.as_slice().into_servers()
    }
}

impl<S: ToString, const N: usize> IntoServers for &[S; N] {
    fn into_servers(self) -> Vec<String> {
        self.as_slice().into_servers()
    }
}

/// Says what a new client is to be. Made by [`Client::builder`].
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct ClientBuilder {
    servers: Option<Vec<String>>,
    name: Option<Vec<u8>>,
    secret: Option<Vec<u8>>,
    secret_file: Option<PathBuf>,
    connect_timeout: Option<Duration>,
    retry_for: Duration,
    follow_moves: FollowMoves,
    event_loop: Option<Arc<EventLoop>>,
    #[cfg(feature = "tls")]
    tls: TlsOptions,
}

impl ClientBuilder {
    /// One address or several, in any order; a port that is left out is 7420. Without this call
    /// `FAIRLOCK_SERVERS` is read, and without that it is `127.0.0.1:7420`.
    pub fn servers(mut self, servers: impl IntoServers) -> Self {
        self.servers = Some(servers.into_servers());
        self
    }

    /// Shown to operators who ask who holds a lock: 1 to 128 bytes. By default the name of the host
    /// and the number of the process.
    pub fn name(mut self, name: impl AsRef<[u8]>) -> Self {
        self.name = Some(name.as_ref().to_vec());
        self
    }

    /// What the servers want to hear before they serve: their secret, or `name:secret` of a user. Without this call and
    /// without [`secret_file`](Self::secret_file), `FAIRLOCK_SECRET` and then `FAIRLOCK_SECRET_FILE` are read.
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// A file with the secret; one line end at its end is not part of it. Read once, by
    /// [`build`](Self::build).
    pub fn secret_file(mut self, path: impl AsRef<Path>) -> Self {
        self.secret_file = Some(path.as_ref().to_owned());
        self
    }

    /// How long one try of a connection may take, TLS and hello included, and how long a call waits when
    /// no connection is up; it also waits until each server has been tried once more, which is every 3 s. 3 s by default.
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.connect_timeout = Some(time);
        self
    }

    /// How long an acquire goes on trying where it would end with
    /// [`ConnectionFailed`](crate::ErrorKind::ConnectionFailed): after as many failed tries as there are connections, or
    /// with no server in reach for `connect_timeout`. Zero by default. Its wait still ends it.
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.retry_for = time;
        self
    }

    /// Which addresses to follow when a server says that another one is active.
    pub fn follow_moves(mut self, follow: FollowMoves) -> Self {
        self.follow_moves = follow;
        self
    }

    /// With TLS, or surely without it. Without this call there is TLS where `FAIRLOCK_TLS` is `true`, and as soon as one of the
    /// files or the server's name is given, here or in the environment. With TLS and without [`ca_file`](Self::ca_file) the CAs count that the system trusts.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls.wanted = Some(tls);
        self
    }

    /// A PEM file with the CAs that have to have signed the servers' certificates. Without this call `FAIRLOCK_CA_FILE` is
    /// read. This file and the next two are read again for new connections when they have changed.
    #[cfg(feature = "tls")]
    pub fn ca_file(mut self, path: impl AsRef<Path>) -> Self {
        self.tls.ca_file = Some(path.as_ref().to_owned());
        self
    }

    /// A PEM file with the certificate that this client shows where a server asks for one, and behind it those that lead to
    /// its CA. Without this call and without [`key_file`](Self::key_file), `FAIRLOCK_CERT_FILE` and `FAIRLOCK_KEY_FILE` are read.
    #[cfg(feature = "tls")]
    pub fn cert_file(mut self, path: impl AsRef<Path>) -> Self {
        self.tls.cert_file = Some(path.as_ref().to_owned());
        self
    }

    /// A PEM file with the key of [`cert_file`](Self::cert_file), without a passphrase.
    #[cfg(feature = "tls")]
    pub fn key_file(mut self, path: impl AsRef<Path>) -> Self {
        self.tls.key_file = Some(path.as_ref().to_owned());
        self
    }

    /// The name that the servers' certificates have to be for, where that is not the host of each address. Without this call
    /// `FAIRLOCK_SERVER_NAME` is read.
    #[cfg(feature = "tls")]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.tls.server_name = Some(name.into());
        self
    }

    /// What secures the connections of such a client, if anything does: for tools that speak the protocol over sockets of their own.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument): as [`build`](Self::build).
    #[cfg(feature = "tls")]
    pub fn connector(&self) -> Result<Option<Connector>, Error> {
        self.tls.clone().connector(&environment)
    }

    /// Lets an event loop read the sockets of this client, beside the client's own thread.
    pub fn event_loop(mut self, event_loop: Arc<EventLoop>) -> Self {
        self.event_loop = Some(event_loop);
        self
    }

    /// Makes the client. Does not wait for the network: connections come up in the background, and
    /// the first call waits for them.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument): an address that is none, a name, secret
    /// or time out of its limits, a secret file that cannot be read, a certificate or key that cannot be used, a variable
    /// of the environment that asks for TLS in a program built without the feature `tls`.
    pub fn build(self) -> Result<Client, Error> {
        Client::with_options(self.into_options()?)
    }

    fn into_options(self) -> Result<Options, Error> {
        let servers = match self.servers {
            Some(servers) => servers,
            None => vec![servers_of(&environment)?],
        };
        #[cfg(feature = "tls")]
        let tls = self.tls.connector(&environment)?;
        #[cfg(not(feature = "tls"))]
        let tls = tls_absent::check(&environment).map(|()| None)?;
        let connect_timeout = self.connect_timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT);
        if connect_timeout < Duration::from_millis(1) || connect_timeout > YEAR {
            let option = "connect_timeout";
            return Err(Error::wrong_time(option, connect_timeout, TIMES));
        }
        if self.retry_for > YEAR {
            return Err(Error::wrong_time(
                "retry_for",
                self.retry_for,
                "at most a year",
            ));
        }
        if let Some(name) = &self.name
            && !(1..=limits::NAME_BYTES).contains(&name.len())
        {
            return Err(Error::argument(format!(
                "the client's name has {} bytes; give 1 to {}",
                name.len(),
                limits::NAME_BYTES
            )));
        }
        Ok(Options {
            servers: parse_list(&servers)?,
            name: self.name,
            secret: secret(self.secret, self.secret_file)?,
            connect_timeout,
            retry_for: self.retry_for,
            follow_moves: self.follow_moves,
            event_loop: self.event_loop,
            tls,
        })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

const YEAR: Duration = Duration::from_millis(limits::TIME_MAX_MS);

/// Checked options of a client.
pub(crate) struct Options {
    pub(crate) servers: Vec<Address>,
    /// The default name if none is given: it has the number of the process, and so is another one in a forked child.
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) secret: Option<Vec<u8>>,
    pub(crate) connect_timeout: Duration,
    pub(crate) retry_for: Duration,
    pub(crate) follow_moves: FollowMoves,
    pub(crate) event_loop: Option<Arc<EventLoop>>,
    pub(crate) tls: Option<Connector>,
}

/// How a variable is read, empty ones being none.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Result<Option<String>, Error>;

/// The servers of a client that is told none.
fn servers_of(environment: Environment<'_>) -> Result<String, Error> {
    if let Some(list) = environment("FAIRLOCK_SERVERS")? {
        return Ok(list);
    }
    if environment("FAIRLOCK_SERVER")?.is_some() {
        return Err(Error::argument(
            "FAIRLOCK_SERVER is set, which nothing reads; did you mean FAIRLOCK_SERVERS?",
        ));
    }
    Ok(format!("127.0.0.1:{}", limits::DEFAULT_PORT))
}

/// A variable that says yes or no.
pub(super) fn flag(environment: Environment<'_>, name: &str) -> Result<Option<bool>, Error> {
    match environment(name)?.as_deref() {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => Err(Error::argument(format!(
            "{name} is {other:?}; it can be true or false"
        ))),
    }
}

fn environment(name: &str) -> Result<Option<String>, Error> {
    match std::env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Error::argument(format!(
            "the environment variable {name} is not valid UTF-8"
        ))),
    }
}

fn secret(secret: Option<Vec<u8>>, file: Option<PathBuf>) -> Result<Option<Vec<u8>>, Error> {
    let secret = match (secret, file) {
        (Some(secret), None) => secret,
        (None, Some(file)) => read_secret(&file)?,
        (Some(_), Some(_)) => {
            return Err(Error::argument(
                "both secret and secret_file are given; give one of them",
            ));
        }
        (None, None) => match environment("FAIRLOCK_SECRET")? {
            Some(secret) => secret.into_bytes(),
            None => match std::env::var_os("FAIRLOCK_SECRET_FILE") {
                Some(file) if !file.is_empty() => read_secret(Path::new(&file))?,
                _ => return Ok(None),
            },
        },
    };
    if secret.is_empty() || secret.len() > limits::SECRET_BYTES {
        return Err(Error::argument(format!(
            "the secret has {} bytes; give 1 to {}",
            secret.len(),
            limits::SECRET_BYTES
        )));
    }
    Ok(Some(secret))
}

fn read_secret(path: &Path) -> Result<Vec<u8>, Error> {
    let mut secret = std::fs::read(path).map_err(|error| {
        Error::argument(format!(
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

pub(super) fn default_name() -> Vec<u8> {
    #[cfg(unix)]
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned());
    let process = format!(":{}", std::process::id());
    let mut name = host.into_bytes();
    name.truncate(limits::NAME_BYTES - process.len());
    name.extend_from_slice(process.as_bytes());
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn refused(builder: ClientBuilder) -> String {
        let error = builder.into_options().err().expect("refused");
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
        error.to_string()
    }

    #[test]
    fn bad_options_say_which_and_what_would_be_right() {
        let base = || Client::builder().servers("a:1");
        assert!(refused(base().connect_timeout(Duration::ZERO)).contains("connect_timeout"));
        assert!(refused(base().connect_timeout(Duration::MAX)).contains("connect_timeout"));
        assert!(refused(base().retry_for(Duration::MAX)).contains("retry_for"));
        assert!(refused(base().name("")).contains("name"));
        assert!(refused(base().name([b'x'; 129])).contains("name"));
        assert!(refused(base().secret("")).contains("secret"));
        assert!(refused(base().secret([b'x'; 513])).contains("secret"));
        assert!(refused(base().secret("x").secret_file("y")).contains("secret_file"));
        assert!(refused(base().secret_file("/no/such/file")).contains("/no/such/file"));
        assert!(refused(Client::builder().servers(Vec::<String>::new())).contains("address"));
    }

    #[test]
    fn servers_come_from_the_environment_and_a_near_miss_of_its_name_is_no_silence() {
        let of = |variable: &'static str| {
            servers_of(&move |name: &str| Ok((name == variable).then(|| "a:1,b:2".to_owned())))
        };
        assert_eq!(of("FAIRLOCK_SERVERS").expect("a list"), "a:1,b:2");
        assert_eq!(of("ANOTHER").expect("the default"), "127.0.0.1:7420");
        let error = of("FAIRLOCK_SERVER").expect_err("a near miss");
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("mean FAIRLOCK_SERVERS?"));
    }

    #[test]
    fn the_default_name_is_host_and_process() {
        let name = String::from_utf8(default_name()).expect("text");
        assert!(
            name.ends_with(&format!(":{}", std::process::id())),
            "{name}"
        );
        assert!(name.len() <= limits::NAME_BYTES);
    }
}
