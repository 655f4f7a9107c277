//! Free addresses for nodes that this process is going to start: bound, so that nobody else gets them,
//! and not listened on, so that whoever tries one before its node runs hears at once that nobody is there.

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// What has been reserved and not been taken.
static RESERVED: Mutex<Vec<(SocketAddr, OwnedFd)>> = Mutex::new(Vec::new());

/// Reserves a loopback address with a port of its own.
pub(super) fn reserve() -> io::Result<SocketAddr> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    // As the standard library does for every listener, so that a node can come back to its address.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let listener = TcpListener::from(socket);
    let address = listener.local_addr()?;
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    reserved.push((address, listener.into()));
    Ok(address)
}

/// The socket that is bound to `address`, if it has been reserved. It does not listen yet.
pub(super) fn take(address: SocketAddr) -> Option<TcpListener> {
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    let place = reserved.iter().position(|(one, _)| *one == address)?;
    let (_, socket) = reserved.swap_remove(place);
    if reserved.is_empty() {
        // So that a process that is done with nodes keeps nothing of them.
        *reserved = Vec::new();
    }
    Some(socket.into())
}
