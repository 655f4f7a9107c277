//! Every setting of a node: its one name, its default, what it means and what values it takes.
//!
//! The command line, the environment and the settings file are all made from [`Settings::ALL`] and
//! [`Settings::set`], so a setting added here appears in all three. Nothing here reads a file or the
//! environment, and nothing is corrected in silence: a value that cannot be used is an error that names it.
//! A new setting is a line in the table below, and where its range matters one in `check`.

mod addresses;
mod check;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use check::check_secret;
pub use values::{Bytes, ClientAuth, JournalSync, LogFormat, LogLevel, Secret, Spin};

use crate::protocol::limits;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use values::Value;

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
    /// Where clients and other nodes connect: `host:port`, 127.0.0.1:7420 unless `node` is set. Port 0 takes a free one. Anything but a loopback address needs a secret, users, client certificates, or `insecure`.
    listen: Option<String> = None,
    /// The folder in which the node keeps its term, so that fencing tokens rise over restarts, and its locks. Made if it is missing; one node at a time.
    data_dir: Option<PathBuf> = None,
    /// Run without a folder. A restart then frees every lock, and tokens rise over restarts only as long as the wall clock does.
    ephemeral: bool = false,
    /// Keep locks and queues in a journal in the data dir, so that they are as before after a restart. Without it a restart frees every lock.
    keep_state: bool = true,
    /// Whether a grant waits until the disk has it: `none`, so that it outlasts the end of the process, or `batch`, so that it outlasts a power cut too.
    journal_sync: JournalSync = JournalSync::None,
    /// How long waiting requests keep their places after a restart.
    restart_grace: Duration = Duration::from_secs(5),
    /// The address that clients are told, `host:port`, where it is not the one the node listens on.
    advertise: Option<String> = None,
    /// What every client has to say before it is served. Not an argument: use the environment, or `secret_file`.
    secret: Option<Secret> = None,
    /// A file that holds the secret; a line end after it does not count.
    secret_file: Option<PathBuf> = None,
    /// A TOML file with the users that may connect beside those who know the secret, and what each may do; the README shows one. Without a secret only they may. Read again when it changes.
    users_file: Option<PathBuf> = None,
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
    /// How much all clients together can leave unread. From half of it on, those that leave more than their equal share of that half are cut off.
    max_unread_total: Bytes = Bytes(1 << 30),
    /// How many TLS handshakes can be under way. Where another one begins, the oldest is ended.
    max_handshakes: u32 = 1000,
    /// How long a connection may take to say who it is, where a secret is asked for. Elsewhere one that has said nothing for so long is closed when `max_connections` is reached.
    hello_timeout: Duration = Duration::from_secs(5),
    /// How long a client that gave an id may be silent before its connection is closed.
    idle_timeout: Duration = Duration::from_secs(15),
    /// How long a waiting request keeps its place after its connection broke.
    reattach_grace: Duration = Duration::from_millis(500),
    /// Where the admin page and the metrics are served over HTTP, `host:port`; not at all without it. Port 0 takes a free one. Anything but a loopback address needs `admin_secret_file`, or `insecure`. A node inside another program has `Server::view` instead.
    admin: Option<String> = None,
    /// What has to be said to the admin page: as the password of any user, or as a bearer token. Not an argument: use the environment, or `admin_secret_file`.
    admin_secret: Option<Secret> = None,
    /// A file that holds the secret of the admin page; a line end after it does not count.
    admin_secret_file: Option<PathBuf> = None,
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
    /// How the log on standard error is written: `text` for people, or `json`, an object a line. A node inside another program logs as that program does.
    log_format: LogFormat = LogFormat::Text,
    /// What is logged: `error`, `warn` or `info`, which is all there is.
    log_level: LogLevel = LogLevel::Info,
}
