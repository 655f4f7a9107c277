//! Options of a client and of an acquire, as C writes them.

use crate::argument::{sized, text};
use crate::callback::fairlock_lost_callback;
use crate::report::{Failure, Outcome};
use fairlock::{Client, ClientBuilder, FollowMoves};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::time::Duration;

/// The lease of a lock for which none is given.
pub const FAIRLOCK_DEFAULT_LEASE_MS: u64 = 30_000;

/// How long one try of a connection may take unless the client is told otherwise.
pub const FAIRLOCK_DEFAULT_CONNECT_TIMEOUT_MS: u64 = 3_000;

/// `follow_moves`: go to any address that a server names.
pub const FAIRLOCK_FOLLOW_ANY: c_int = 0;

/// `follow_moves`: go only to addresses of the client's own list, compared as text.
pub const FAIRLOCK_FOLLOW_LISTED: c_int = 1;

/// `tls`: with TLS where `FAIRLOCK_TLS` is `true`, and as soon as one of the files or the name is
/// given, here or in the environment.
pub const FAIRLOCK_TLS_AUTO: c_int = 0;

/// `tls`: with TLS.
pub const FAIRLOCK_TLS_ON: c_int = 1;

/// `tls`: surely without TLS.
pub const FAIRLOCK_TLS_OFF: c_int = 2;

/// What a client is told when it is made. Always begin with
/// `fairlock_client_options options = FAIRLOCK_CLIENT_OPTIONS_INIT;`. Strings are copied.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fairlock_client_options {
    /// Set by the macro, so that later versions can add fields.
    pub size: usize,
    /// Shown to operators who ask who holds a lock, 1 to 128 bytes. NULL: host name and process id.
    pub name: *const c_char,
    /// What the servers want to hear before they serve: their secret, or `name:secret` of a user. NULL: `FAIRLOCK_SECRET`, if it is set.
    pub secret: *const c_char,
    /// A file with the secret. NULL: `FAIRLOCK_SECRET_FILE`, if it is set.
    pub secret_file: *const c_char,
    /// How long one try of a connection may take, and how long a call waits when none is up; it also waits
    /// until each server has been tried once more, which is every three seconds.
    pub connect_timeout_ms: u64,
    /// How long an acquire goes on trying after its tries are used up.
    pub retry_for_ms: u64,
    /// FAIRLOCK_FOLLOW_ANY or FAIRLOCK_FOLLOW_LISTED.
    pub follow_moves: c_int,
    /// FAIRLOCK_TLS_AUTO, FAIRLOCK_TLS_ON or FAIRLOCK_TLS_OFF.
    pub tls: c_int,
    /// A PEM file with the CAs that have to have signed the servers' certificates. NULL:
    /// `FAIRLOCK_CA_FILE`, if it is set, and else the CAs that the system trusts.
    pub ca_file: *const c_char,
    /// A PEM file with the certificate that this client shows where a server asks for one, and one
    /// with its key. NULL: `FAIRLOCK_CERT_FILE` and `FAIRLOCK_KEY_FILE`, if they are set. All files
    /// are read again for new connections when they have changed.
    pub cert_file: *const c_char,
    /// See `cert_file`.
    pub key_file: *const c_char,
    /// The name that the servers' certificates have to be for. NULL: `FAIRLOCK_SERVER_NAME`, if it
    /// is set, and else the host of each address.
    pub server_name: *const c_char,
}

const CLIENT_DEFAULTS: fairlock_client_options = fairlock_client_options {
    size: size_of::<fairlock_client_options>(),
    name: ptr::null(),
    secret: ptr::null(),
    secret_file: ptr::null(),
    connect_timeout_ms: FAIRLOCK_DEFAULT_CONNECT_TIMEOUT_MS,
    retry_for_ms: 0,
    follow_moves: FAIRLOCK_FOLLOW_ANY,
    tls: FAIRLOCK_TLS_AUTO,
    ca_file: ptr::null(),
    cert_file: ptr::null(),
    key_file: ptr::null(),
    server_name: ptr::null(),
};

/// The smallest size there has been: that of the first version.
const CLIENT_LEAST: usize = size_of::<fairlock_client_options>();

/// What a client is to be.
///
/// # Safety
/// `servers` and the strings of the options are NULL or end with NUL; `options` is NULL or as
/// [`sized`] wants it.
pub(crate) unsafe fn client(
    servers: *const c_char,
    options: *const fairlock_client_options,
) -> Outcome<ClientBuilder> {
    // SAFETY: as the caller promises.
    let options = unsafe { sized(options, CLIENT_DEFAULTS, CLIENT_LEAST, "options")? };
    // SAFETY: as the caller promises.
    let (servers, name, secret, secret_file) = unsafe {
        (
            text(servers, "servers")?,
            text(options.name, "name")?,
            text(options.secret, "secret")?,
            text(options.secret_file, "secret_file")?,
        )
    };
    let mut builder = Client::builder()
        .connect_timeout(Duration::from_millis(options.connect_timeout_ms))
        .retry_for(Duration::from_millis(options.retry_for_ms))
        .follow_moves(match options.follow_moves {
            FAIRLOCK_FOLLOW_ANY => FollowMoves::Any,
            FAIRLOCK_FOLLOW_LISTED => FollowMoves::Listed,
            other => {
                return Err(Failure::argument(format!(
                    "`follow_moves` cannot be {other}"
                )));
            }
        });
    if let Some(servers) = servers {
        builder = builder.servers(servers);
    }
    if let Some(name) = name {
        builder = builder.name(name);
    }
    if let Some(secret) = secret {
        builder = builder.secret(secret);
    }
    if let Some(file) = secret_file {
        builder = builder.secret_file(file);
    }
    builder = match options.tls {
        FAIRLOCK_TLS_AUTO => builder,
        FAIRLOCK_TLS_ON => builder.tls(true),
        FAIRLOCK_TLS_OFF => builder.tls(false),
        other => return Err(Failure::argument(format!("`tls` cannot be {other}"))),
    };
    // SAFETY: as the caller promises.
    let (ca_file, cert_file, key_file, server_name) = unsafe {
        (
            text(options.ca_file, "ca_file")?,
            text(options.cert_file, "cert_file")?,
            text(options.key_file, "key_file")?,
            text(options.server_name, "server_name")?,
        )
    };
    if let Some(file) = ca_file {
        builder = builder.ca_file(file);
    }
    if let Some(file) = cert_file {
        builder = builder.cert_file(file);
    }
    if let Some(file) = key_file {
        builder = builder.key_file(file);
    }
    if let Some(name) = server_name {
        builder = builder.server_name(name);
    }
    Ok(builder)
}

/// How a lock is asked for. Always begin with `fairlock_options options = FAIRLOCK_OPTIONS_INIT;`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fairlock_options {
    /// Set by the macro, so that later versions can add fields.
    pub size: usize,
    /// How long the lock stays held if nobody keeps or releases it. Be generous, but no longer than a
    /// dead client may block the others. Default: 30 s.
    pub lease_ms: u64,
    /// How long to wait for the lock; 0, the default, without limit. Not waiting at all is
    /// fairlock_try_acquire(), which does not look at this.
    pub wait_ms: u64,
    /// Not 0: renew the lease in the background, at a third of it, until the lock is released. Needs
    /// a lease of at least a second.
    pub keep_alive: c_int,
    /// The longest time that `keep_alive` goes on; 0, the default, without limit.
    pub max_hold_ms: u64,
    /// Told once if the lock is lost before it is released; see fairlock_lock_on_lost(). May be NULL.
    pub on_lost: fairlock_lost_callback,
    /// Given to `on_lost`.
    pub on_lost_data: *mut c_void,
}

const DEFAULTS: fairlock_options = fairlock_options {
    size: size_of::<fairlock_options>(),
    lease_ms: FAIRLOCK_DEFAULT_LEASE_MS,
    wait_ms: 0,
    keep_alive: 0,
    max_hold_ms: 0,
    on_lost: None,
    on_lost_data: ptr::null_mut(),
};

/// The smallest size there has been: that of the first version.
const LEAST: usize = size_of::<fairlock_options>();

/// # Safety
/// `options` is NULL or as [`sized`] wants it.
pub(crate) unsafe fn acquire(options: *const fairlock_options) -> Outcome<fairlock_options> {
    // SAFETY: as the caller promises. Any bytes make these fields: numbers, a pointer, and a function
    // pointer that may be NULL, for which the caller answers.
    unsafe { sized(options, DEFAULTS, LEAST, "options") }
}
