//! Every setting of a node: its one name, its default, what it means and what values it takes.
//!
//! The command line, the environment and the settings file are all made from [`Settings::ALL`] and
//! [`Settings::set`], so a setting added here appears in all three. Nothing here reads a file or the
//! environment, and nothing is corrected in silence: a value that cannot be used is an error that names it.

use crate::cluster::{Members, MembersError};
use crate::protocol::limits;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What the command line and the documentation need to know of one setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name: as it stands in the settings file; with dashes on the command line; in capitals and after `FAIRLOCK_` in the environment.
    pub name: &'static str,
    /// What it means, in sentences.
    pub help: &'static str,
    /// How its value is written.
    pub kind: SettingKind,
}

/// How the value of a setting is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// Free text: an address, for example.
    Text,
    /// A file or a folder.
    Path,
    /// `true` or `false`; a mere flag on the command line.
    Flag,
    /// A whole number.
    Number,
    /// Seconds, with a fraction if need be.
    Seconds,
    /// Bytes: a whole number, with `KiB`, `MiB` or `GiB` if need be.
    Bytes,
    /// Text that must not be an argument, because every process of the machine can read arguments.
    Secret,
    /// `auto`, `off` or a number of microseconds.
    Spin,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// A setting that cannot be used: which, what it was, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("setting `{name}` is `{value}`: {expected}")]
pub struct SettingError {
    /// The name of the setting.
    pub name: String,
    /// The value that was given. Secrets are never shown.
    pub value: String,
    /// What would be right.
    pub expected: String,
}

impl SettingError {
    fn new(name: &str, value: impl fmt::Display, expected: impl Into<String>) -> Self {
        SettingError {
            name: name.to_owned(),
            value: value.to_string(),
            expected: expected.into(),
        }
    }
}

/// A secret. It never shows up in a log or in the text of an error.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Wraps the bytes that a client has to say.
    pub fn new(secret: impl Into<Vec<u8>>) -> Secret {
        Secret(secret.into())
    }

    /// Whether `given` is this secret. Takes the same time wherever the two differ.
    pub(crate) fn matches(&self, given: &[u8]) -> bool {
        let mut difference = u8::from(self.0.len() != given.len());
        for (index, expected) in self.0.iter().enumerate() {
            // A shorter input is compared with itself at the end, so that the time depends on our own length alone.
            difference |= expected ^ given.get(index).copied().unwrap_or(!*expected);
        }
        std::hint::black_box(difference) == 0
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How long a node keeps looking for the next request before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// Only while it has lately paid, and never while somebody else wants the core.
    #[default]
    Auto,
    /// Never.
    Off,
    /// This many microseconds after each request, paying or not.
    Micros(u32),
}

/// A value of a setting: how it is read and shown.
trait Value: Sized {
    const KIND: SettingKind;
    /// Reads it; the error says what would be right.
    fn read(text: &str) -> Result<Self, &'static str>;
    /// Shows it as a user would write it.
    fn show(&self) -> Option<String>;
}

impl Value for String {
    const KIND: SettingKind = SettingKind::Text;
    fn read(text: &str) -> Result<Self, &'static str> {
        Ok(text.to_owned())
    }
    fn show(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl Value for PathBuf {
    const KIND: SettingKind = SettingKind::Path;
    fn read(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("must be a path");
        }
        Ok(PathBuf::from(text))
    }
    fn show(&self) -> Option<String> {
        Some(self.display().to_string())
    }
}

impl Value for bool {
    const KIND: SettingKind = SettingKind::Flag;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| "must be `true` or `false`")
    }
    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for u32 {
    const KIND: SettingKind = SettingKind::Number;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse()
            .map_err(|_| "must be a whole number between 0 and 4294967295")
    }
    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for Duration {
    const KIND: SettingKind = SettingKind::Seconds;
    fn read(text: &str) -> Result<Self, &'static str> {
        let seconds =
            f64::from_str(text).map_err(|_| "must be a number of seconds, such as 0.5")?;
        let micros = (seconds * 1e6).round();
        if !(0.0..1e15).contains(&micros) {
            return Err("must be a number of seconds, neither negative nor beyond a billion");
        }
        Ok(Duration::from_micros(micros as u64))
    }
    fn show(&self) -> Option<String> {
        Some(self.as_secs_f64().to_string())
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Value for Bytes {
    const KIND: SettingKind = SettingKind::Bytes;
    fn read(text: &str) -> Result<Self, &'static str> {
        let units = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("", 1),
        ];
        let (digits, unit) = units
            .iter()
            .find_map(|(unit, size)| {
                text.strip_suffix(unit)
                    .map(|digits| (digits.trim_end(), *size))
            })
            .expect("every text ends in the empty one");
        digits
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(unit))
            .map(Bytes)
            .ok_or("must be a number of bytes, such as 8388608 or 8MiB")
    }
    fn show(&self) -> Option<String> {
        let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let unit = units
            .iter()
            .find(|(_, size)| self.0 >= *size && self.0.is_multiple_of(*size));
        Some(unit.map_or_else(
            || self.0.to_string(),
            |(unit, size)| format!("{}{unit}", self.0 / size),
        ))
    }
}

impl Value for Secret {
    const KIND: SettingKind = SettingKind::Secret;
    fn read(text: &str) -> Result<Self, &'static str> {
        Ok(Secret::new(text))
    }
    fn show(&self) -> Option<String> {
        None
    }
}

impl Value for Spin {
    const KIND: SettingKind = SettingKind::Spin;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "auto" => Ok(Spin::Auto),
            "off" => Ok(Spin::Off),
            _ => text
                .parse()
                .map(Spin::Micros)
                .map_err(|_| "must be `auto`, `off` or a number of microseconds"),
        }
    }
    fn show(&self) -> Option<String> {
        Some(match self {
            Spin::Auto => "auto".to_owned(),
            Spin::Off => "off".to_owned(),
            Spin::Micros(micros) => micros.to_string(),
        })
    }
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not.
    Off,
    /// One that is shown has to be good, but none has to be shown.
    Optional,
    /// Without a good one there is no connection.
    Required,
}

impl Value for ClientAuth {
    const KIND: SettingKind = SettingKind::Choice(&["off", "optional", "required"]);
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "off" => Ok(ClientAuth::Off),
            "optional" => Ok(ClientAuth::Optional),
            "required" => Ok(ClientAuth::Required),
            _ => Err("must be `off`, `optional` or `required`"),
        }
    }
    fn show(&self) -> Option<String> {
        let text = match self {
            ClientAuth::Off => "off",
            ClientAuth::Optional => "optional",
            ClientAuth::Required => "required",
        };
        Some(text.to_owned())
    }
}

impl<T: Value> Value for Option<T> {
    const KIND: SettingKind = T::KIND;
    fn read(text: &str) -> Result<Self, &'static str> {
        T::read(text).map(Some)
    }
    fn show(&self) -> Option<String> {
        self.as_ref().and_then(T::show)
    }
}

/// Makes the struct, the defaults, the table and the reader of one list, so that they cannot differ.
macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr,)+) => {
        /// How a node is to run. Every field has a default; [`Settings::check`] says whether they go together.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Default for Settings {
            fn default() -> Settings {
                Settings { $($name: $default,)+ }
            }
        }

        impl Settings {
            /// All settings, in the order in which they are explained.
            pub const ALL: &'static [Setting] = &[$(Setting {
                name: stringify!($name),
                help: concat!($($doc, "\n"),+),
                kind: <$type as Value>::KIND,
            },)+];

            /// Sets one setting by its name from text, as it stands in the environment or on the command line.
            pub fn set(&mut self, name: &str, text: &str) -> Result<(), SettingError> {
                match name {
                    $(stringify!($name) => {
                        self.$name = Value::read(text).map_err(|expected| SettingError::new(name, text, expected))?;
                        Ok(())
                    })+
                    _ => Err(SettingError::new(name, text, "there is no setting of this name")),
                }
            }

            /// The value of a setting as a user would write it; `None` where it has none, or must not be shown.
            pub fn show(&self, name: &str) -> Option<String> {
                match name {
                    $(stringify!($name) => self.$name.show(),)+
                    _ => None,
                }
            }
        }
    };
}

settings! {
    /// Where clients and other nodes connect: `host:port`, 127.0.0.1:7420 unless `node` is set. Port 0 takes a free one. Anything but a loopback address needs a secret, client certificates, or `insecure`.
    listen: Option<String> = None,
    /// The folder in which the node keeps its term, so that fencing tokens rise over restarts. Made if it is missing; one node at a time.
    data_dir: Option<PathBuf> = None,
    /// Run without a folder. Tokens then rise over restarts only as long as the wall clock does.
    ephemeral: bool = false,
    /// The address that clients are told, `host:port`, where it is not the one the node listens on.
    advertise: Option<String> = None,
    /// What every client has to say before it is served. Not an argument: use the environment, or `secret_file`.
    secret: Option<Secret> = None,
    /// A file that holds the secret; a line end after it does not count.
    secret_file: Option<PathBuf> = None,
    /// A PEM file with the certificate that the node shows, and behind it those that lead to its CA. With it the node speaks TLS 1.3 on its port and nothing else. Read again when it changes.
    tls_cert: Option<PathBuf> = None,
    /// A PEM file with the key of `tls_cert`, without a passphrase.
    tls_key: Option<PathBuf> = None,
    /// A PEM file with the CAs that have to have signed the certificates of clients.
    tls_client_ca: Option<PathBuf> = None,
    /// Whether clients have to show a certificate: `off`, `optional` or `required`. Without it they have to where `tls_client_ca` is set.
    tls_client_auth: Option<ClientAuth> = None,
    /// A PEM file with the CAs that have to have signed the certificates of other nodes; without it those of `tls_client_ca`, and without both those that the system trusts.
    tls_ca: Option<PathBuf> = None,
    /// Listen beyond loopback without a secret: whoever reaches the port can take and free every lock.
    insecure: bool = false,
    /// The longest lease a client may ask for.
    max_lease: Duration = Duration::from_millis(limits::DEFAULT_MAX_LEASE_MS),
    /// How many keys can be held at once.
    max_keys: u32 = 10_000_000,
    /// How many requests can wait for one key.
    max_waiters_per_key: u32 = 100_000,
    /// How many requests can wait in all.
    max_waiters: u32 = 10_000_000,
    /// How many connections can be open; fewer where the operating system allows fewer descriptors.
    max_connections: u32 = 100_000,
    /// How many requests of one connection can wait.
    max_waiting_per_connection: u32 = 100_000,
    /// How much a client can leave unread before it is cut off.
    max_unread: Bytes = Bytes(8 << 20),
    /// How long a connection may take to say who it is, where a secret is asked for.
    hello_timeout: Duration = Duration::from_secs(5),
    /// How long a client that gave an id may be silent before its connection is closed.
    idle_timeout: Duration = Duration::from_secs(15),
    /// How long a waiting request keeps its place after its connection broke.
    reattach_grace: Duration = Duration::from_millis(500),
    /// All nodes of the cluster, `host:port` with commas between, the same on every node. Their order is their priority; new nodes go to the end, and `-` keeps the place of one that was removed.
    peers: Option<String> = None,
    /// Which of `peers` this node is. It listens there unless `listen` says otherwise.
    node: Option<String> = None,
    /// What a node has to say before others accept it as their peer; without it they ask for `secret`. Not an argument: use the environment, or `cluster_secret_file`.
    cluster_secret: Option<Secret> = None,
    /// A file that holds the cluster secret; a line end after it does not count.
    cluster_secret_file: Option<PathBuf> = None,
    /// How often nodes speak to each other when nothing happens.
    heartbeat: Duration = Duration::from_millis(250),
    /// How long a node may be silent before the others count it as dead.
    failure_timeout: Duration = Duration::from_secs(1),
    /// How long a node that starts waits for those that do not answer.
    discovery_timeout: Duration = Duration::from_secs(3),
    /// Whether a node of higher priority becomes the active one again once it has a copy of the state.
    preempt: bool = true,
    /// How long it has to have that copy before.
    preempt_delay: Duration = Duration::from_secs(2),
    /// How long a node keeps requests while it does not know who is active.
    park_timeout: Duration = Duration::from_secs(5),
    /// How long waiting requests keep their places after another node has become active.
    takeover_grace: Duration = Duration::from_secs(2),
    /// How many standbys have to have a grant before the client is told of it.
    sync_standbys: u32 = 0,
    /// Refuse grants that fewer standbys than `sync_standbys` have, instead of going on with a warning.
    sync_strict: bool = false,
    /// How long an orderly stop may take.
    drain_timeout: Duration = Duration::from_secs(2),
    /// How long the node looks for the next request before it sleeps: `auto`, `off`, or microseconds.
    spin: Spin = Spin::Auto,
}

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
        if let Spin::Micros(micros) = self.spin
            && micros > 1_000_000
        {
            return Err(self.wrong("spin", "must be at most 1000000 microseconds"));
        }
        self.check_cluster()?;
        self.check_tls()?;
        self.addresses().map(|_| ())
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
        let most = members.others().count();
        if self.sync_standbys as usize > most {
            let expected = format!("this cluster has only {most} other nodes");
            return Err(self.wrong("sync_standbys", expected));
        }
        if self.sync_strict && self.sync_standbys == 0 {
            return Err(self.wrong("sync_strict", "needs `sync_standbys`"));
        }
        let public = self.advertise.as_deref().unwrap_or_default();
        let line = super::cluster::greeting(&members, public, self.peer_secret());
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

    /// Where the node listens.
    #[must_use]
    pub fn listen_address(&self) -> &str {
        let own = self.listen.as_ref().or(self.node.as_ref());
        own.map_or("127.0.0.1:7420", String::as_str)
    }

    /// The addresses that `listen` stands for. Refuses those that need a secret where there is none.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>, SettingError> {
        let expected = "must be `host:port`, such as 127.0.0.1:7420 or [::1]:7420";
        let listen = self.listen_address();
        if !is_host_and_port(listen) {
            return Err(self.wrong_listen(expected));
        }
        let addresses: Vec<SocketAddr> = listen
            .to_socket_addrs()
            .map_err(|error| self.wrong_listen(format!("{expected} ({error})")))?
            .collect();
        let protected = self.secret.is_some()
            || self.secret_file.is_some()
            || self.wants_client_certificates()
            || self.insecure;
        if addresses.is_empty() {
            return Err(self.wrong_listen(expected));
        }
        if !protected && addresses.iter().any(|address| !address.ip().is_loopback()) {
            return Err(self.wrong_listen(
                "beyond loopback a secret is needed: set `secret_file` (or `secret` in the environment), \
                 or `tls_client_ca` for clients with certificates, or say `insecure` if everybody who reaches the port may take and free every lock",
            ));
        }
        Ok(addresses)
    }

    /// Names the setting that says where the node listens.
    fn wrong_listen(&self, expected: impl Into<String>) -> SettingError {
        let name = match (&self.listen, &self.node) {
            (None, Some(_)) => "node",
            _ => "listen",
        };
        SettingError::new(name, self.listen_address(), expected)
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

    fn wrong(&self, name: &str, expected: impl Into<String>) -> SettingError {
        SettingError::new(name, self.show(name).unwrap_or_default(), expected)
    }
}

/// A secret has to fit into a hello line, escaped, beside everything else that may stand there.
pub(crate) fn check_secret(name: &str, secret: &Secret) -> Result<(), SettingError> {
    const LONGEST: usize = limits::SECRET_BYTES;
    if secret.is_empty() || secret.0.len() > LONGEST {
        let expected = format!("a secret has between 1 and {LONGEST} bytes");
        return Err(SettingError::new(name, "…", expected));
    }
    Ok(())
}

fn is_host_and_port(text: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Settings)) -> SettingError {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check().expect_err("a wrong setting is refused")
    }

    #[test]
    fn the_defaults_are_right_and_survive_being_shown_and_read() {
        let defaults = Settings::default();
        defaults.check().expect("the defaults go together");
        let mut copy = Settings::default();
        for setting in Settings::ALL {
            if let Some(text) = defaults.show(setting.name) {
                copy.set(setting.name, &text)
                    .expect("what is shown can be read");
            }
            assert!(!setting.help.trim().is_empty());
        }
        assert_eq!(copy, defaults);
    }

    #[test]
    fn values_are_read_as_users_write_them() {
        let mut settings = Settings::default();
        for (name, text) in [
            ("listen", "[::1]:0"),
            ("max_lease", "0.5"),
            ("max_unread", "1MiB"),
            ("spin", "50"),
            ("insecure", "true"),
            ("secret", "open sesame"),
        ] {
            settings.set(name, text).expect(name);
        }
        assert_eq!(settings.listen_address(), "[::1]:0");
        assert_eq!(settings.max_lease, Duration::from_millis(500));
        assert_eq!(settings.max_unread, Bytes(1 << 20));
        assert_eq!(settings.spin, Spin::Micros(50));
        assert!(settings.insecure);
        settings.check().expect("they go together");
        assert_eq!(settings.show("secret"), None);
        assert!(!format!("{settings:?}").contains("sesame"));
    }

    #[test]
    fn a_wrong_text_names_the_setting_the_value_and_what_is_right() {
        let mut settings = Settings::default();
        for (name, text) in [
            ("max_keys", "many"),
            ("max_keys", "-1"),
            ("max_lease", "NaN"),
            ("max_lease", "-1"),
            ("max_lease", "inf"),
            ("max_lease", "1e300"),
            ("max_unread", "8 apples"),
            ("max_unread", "99999999999999999999GiB"),
            ("ephemeral", "perhaps"),
            ("spin", "always"),
            ("data_dir", ""),
            ("no_such_setting", "1"),
        ] {
            let error = settings.set(name, text).expect_err(text);
            assert_eq!((error.name.as_str(), error.value.as_str()), (name, text));
            assert!(!error.expected.is_empty());
        }
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn settings_that_do_not_go_together_are_refused() {
        for (name, error) in [
            ("listen", refused(|s| s.listen = Some("0.0.0.0:0".into()))),
            ("listen", refused(|s| s.listen = Some("[::]:0".into()))),
            ("listen", refused(|s| s.listen = Some("localhost".into()))),
            ("listen", refused(|s| s.listen = Some("::1:7420".into()))),
            (
                "listen",
                refused(|s| s.listen = Some("127.0.0.1:99999".into())),
            ),
            (
                "advertise",
                refused(|s| s.advertise = Some("nowhere".into())),
            ),
            ("max_lease", refused(|s| s.max_lease = Duration::ZERO)),
            ("max_keys", refused(|s| s.max_keys = 0)),
            ("max_unread", refused(|s| s.max_unread = Bytes(1))),
            ("spin", refused(|s| s.spin = Spin::Micros(2_000_000))),
            ("secret", refused(|s| s.secret = Some(Secret::new("")))),
            (
                "secret",
                refused(|s| s.secret = Some(Secret::new([b'x'; 513]))),
            ),
            (
                "ephemeral",
                refused(|s| {
                    s.ephemeral = true;
                    s.data_dir = Some("x".into());
                }),
            ),
            (
                "secret_file",
                refused(|s| {
                    s.secret = Some(Secret::new("x"));
                    s.secret_file = Some("x".into());
                }),
            ),
        ] {
            assert_eq!(error.name, name, "{error}");
        }
    }

    /// A change of one setting that spoils a good cluster.
    type Spoil = fn(&mut Settings);

    #[test]
    fn a_cluster_that_cannot_be_names_the_setting_and_the_reason() {
        let cases: [(&str, &str, Spoil); 11] = [
            ("node", "none of `peers`", |s| s.node = Some("d:1".into())),
            ("node", "which of `peers`", |s| s.node = None),
            ("node", "`peers` is missing", |s| s.peers = None),
            ("peers", "twice", |s| {
                s.peers = Some("127.0.0.1:1,b:1,b:1".into())
            }),
            ("peers", "not an address", |s| {
                s.peers = Some("127.0.0.1:1,b".into())
            }),
            ("peers", "at most 16", |s| {
                let all: Vec<String> = (1..=17).map(|port| format!("127.0.0.1:{port}")).collect();
                s.peers = Some(all.join(","));
            }),
            ("sync_standbys", "only 2 other", |s| s.sync_standbys = 3),
            ("sync_strict", "needs", |s| s.sync_strict = true),
            ("failure_timeout", "three times", |s| {
                s.heartbeat = Duration::from_millis(400)
            }),
            ("cluster_secret", "between 1 and", |s| {
                s.cluster_secret = Some(Secret::new(""))
            }),
            ("cluster_secret_file", "leave one", |s| {
                s.cluster_secret = Some(Secret::new("x"));
                s.cluster_secret_file = Some("x".into());
            }),
        ];
        let good = Settings {
            peers: Some("127.0.0.1:1,b:1,-,c:1".into()),
            node: Some("127.0.0.1:1".into()),
            ..Settings::default()
        };
        good.check().expect("a good cluster");
        assert_eq!(good.listen_address(), "127.0.0.1:1");
        for (name, reason, spoil) in cases {
            let mut settings = good.clone();
            spoil(&mut settings);
            let error = settings.check().expect_err(reason);
            assert_eq!(error.name, name, "{error}");
            assert!(error.expected.contains(reason), "{error}");
        }
    }

    #[test]
    fn beyond_loopback_a_secret_or_insecure_is_enough() {
        for protect in [
            |s: &mut Settings| s.secret = Some(Secret::new("x")),
            |s: &mut Settings| s.secret_file = Some("x".into()),
            |s: &mut Settings| s.insecure = true,
        ] {
            let mut settings = Settings {
                listen: Some("0.0.0.0:0".into()),
                ..Settings::default()
            };
            protect(&mut settings);
            settings.check().expect("protected");
        }
    }

    #[test]
    fn only_the_same_secret_matches() {
        let secret = Secret::new("sesame");
        assert!(secret.matches(b"sesame"));
        for wrong in [&b""[..], b"sesam", b"sesame2", b"Sesame", b"sesamE"] {
            assert!(!secret.matches(wrong));
        }
    }
}
