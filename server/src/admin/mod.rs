//! The admin page: numbers for Prometheus, health for whoever starts and stops nodes, and a page for people, over
//! HTTP on a port of its own. It only looks: nothing can be changed from here.
//!
//! ```text
//! accept, limits ──▶ guard: who asks, under which name ──▶ routes ──▶ ServerView ──▶ JSON, metrics, page
//!     http                    guard                        routes     (fairlock)
//! ```
//!
//! All of it runs on a thread of its own, so that the node's thread never serves a page; what looks cost the node says
//! `fairlock::node::ServerView`.

mod answers;
mod guard;
mod http;
mod metrics;
mod process;
mod query;
mod routes;

use crate::exit::{self, Failure};
use fairlock::node::{ServerView, Settings};
use guard::Guard;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// The port of the admin page, taken before the node starts, so that one that is in use keeps it from starting.
pub(crate) struct Admin {
    listener: TcpListener,
    guard: Guard,
}

impl Admin {
    /// Takes the port, if the settings name one.
    pub(crate) fn bind(settings: &Settings) -> Result<Option<Admin>, Failure> {
        let addresses = settings.admin_addresses()?;
        let Some(first) = addresses.first() else {
            return Ok(None);
        };
        let secret = settings
            .secret_of_admin()
            .map_err(|error| Failure::new(exit::FAILED, error))?;
        let listener = TcpListener::bind(&*addresses).map_err(|error| refusal(first, &error))?;
        listener
            .set_nonblocking(true)
            .map_err(|error| refusal(first, &error))?;
        let name = settings.admin.as_deref().unwrap_or_default();
        let guard = Guard::new(secret, name);
        Ok(Some(Admin { listener, guard }))
    }

    /// Serves until the process ends, and says where.
    pub(crate) fn serve(self, view: ServerView) -> Result<SocketAddr, Failure> {
        let address = self.listener.local_addr();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(routes::LOOKS_AT_ONCE)
            .build();
        let (address, runtime) = address
            .and_then(|address| Ok((address, runtime?)))
            .map_err(|error| Failure::new(exit::FAILED, format_args!("admin: {error}")))?;
        let router = routes::router(view, self.guard);
        std::thread::Builder::new()
            .name("fairlock-admin".to_owned())
            .spawn(move || runtime.block_on(http::serve(self.listener, router)))
            .map_err(|error| Failure::new(exit::FAILED, format_args!("admin: {error}")))?;
        Ok(address)
    }
}

fn refusal(address: &SocketAddr, error: &io::Error) -> Failure {
    let text = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the address is in use; stop the other process or set `admin` to another one".to_owned()
        }
        _ => error.to_string(),
    };
    let message = format_args!("cannot listen on {address} for the admin page: {text}").to_string();
    Failure::new(exit::FAILED, message)
}
