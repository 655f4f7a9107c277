//! TLS between real nodes and real clients, with certificates that are made here.
#![cfg(all(feature = "client", feature = "server", feature = "tls"))]

#[allow(unreachable_pub, reason = "the tests of the bindings use it too")]
mod certificates;
mod support;

mod files;
#[cfg(unix)]
#[path = "../support/forked.rs"]
mod forked;
#[cfg(unix)]
mod forks;
mod handshakes;
mod peers;
mod rotation;
mod traffic;
