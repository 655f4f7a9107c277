//! From settings to a serving node: what has to be there first, and the loop that serves.

use super::data_dir::DataDir;
use super::error::ServerError;
use super::settings::{Secret, Settings, check_secret};
use super::term::{self, Wall};
use super::term_file;
use std::fs;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::SystemTime;

/// A node that has all it needs and does not serve yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    settings: Settings,
    listener: TcpListener,
    address: SocketAddr,
    data_dir: Option<DataDir>,
    term: u32,
}

impl Prepared {
    /// Checks, binds, locks and writes, in this order, so that a node that cannot start changes nothing.
    pub(crate) fn new(mut settings: Settings) -> Result<Prepared, ServerError> {
        settings.check()?;
        read_secret_file(&mut settings)?;
        let listener = bind(&settings.addresses()?)?;
        let address = listener.local_addr()?;
        let data_dir = settings
            .data_dir
            .as_deref()
            .map(DataDir::open)
            .transpose()?;
        let known = match &data_dir {
            Some(dir) => term_file::read(dir)?.unwrap_or(0),
            None => 0,
        };
        let wall = Wall::read(SystemTime::now());
        if wall == Wall::Absurd {
            tracing::warn!("the wall clock is beyond 2090 and does not count for terms");
        }
        let term = term::next_term(known, wall).ok_or(ServerError::TermsUsedUp { last: known })?;
        match &data_dir {
            Some(dir) => term_file::write(dir, term).map_err(|source| ServerError::DataDir {
                path: dir.file("term"),
                source,
            })?,
            None => tracing::warn!(
                "without a data dir: a restart frees every lock, and tokens rise over restarts only as long as the wall clock does"
            ),
        }
        Ok(Prepared {
            settings,
            listener,
            address,
            data_dir,
            term,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Serves until `shutdown` is ready, and then ends in order.
pub(crate) fn run(
    prepared: Prepared,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let Prepared {
            settings: _,
            listener: _,
            address: _,
            data_dir: _,
            term: _,
        } = &prepared;
        shutdown.await;
        Ok(())
    })
}

fn bind(addresses: &[SocketAddr]) -> Result<TcpListener, ServerError> {
    let mut failure = None;
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                // The standard library asks for a queue of 128, which a thousand clients that come back at once overrun.
                rustix::net::listen(&listener, 4096).map_err(io::Error::from)?;
                return Ok(listener);
            }
            Err(source) if source.kind() == io::ErrorKind::AddrInUse => {
                failure = Some(ServerError::AddressInUse { address: *address });
            }
            Err(source) => {
                failure = Some(ServerError::Listen {
                    address: *address,
                    source,
                })
            }
        }
    }
    Err(failure.expect("settings name at least one address"))
}

fn read_secret_file(settings: &mut Settings) -> Result<(), ServerError> {
    let Some(path) = &settings.secret_file else {
        return Ok(());
    };
    let broken = |problem: String| ServerError::SecretFile {
        path: path.clone(),
        problem,
    };
    let mut bytes = fs::read(path).map_err(|error| broken(error.to_string()))?;
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    let secret = Secret::new(bytes);
    check_secret("secret_file", &secret).map_err(|error| broken(error.expected))?;
    settings.secret = Some(secret);
    Ok(())
}
