//! Tells a service manager that started the server how far it is, as `sd_notify` does: one datagram to the
//! socket that NOTIFY_SOCKET names. Without that variable nothing happens, and a failure changes nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The server listens: units that need it can be started.
pub(crate) fn ready() {
    say("READY=1");
}

/// The server has been told to stop.
pub(crate) fn stopping() {
    say("STOPPING=1");
}

fn say(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return;
    };
    let sent = address(&name)
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!("cannot tell the service manager {state}: {error}");
    }
}

/// A path, or a name in the abstract namespace where `@` stands for its first byte.
fn address(name: &OsStr) -> std::io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name),
        #[cfg(not(target_os = "linux"))]
        Some(_) => Err(std::io::ErrorKind::Unsupported.into()),
        None => SocketAddr::from_pathname(name),
    }
}
