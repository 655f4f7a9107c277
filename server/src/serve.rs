//! `fairlock serve`: reads the settings, starts the node, says where it listens, stops it on
//! SIGINT or SIGTERM, and lets it read its files again on SIGHUP. All that a node does is in the library.

use crate::admin::Admin;
use crate::exit::{self, Failure, tell};
use crate::memory;
use crate::misspelled;
use crate::notify;
use crate::settings::Given;
use crate::text;
use fairlock::Server;
use fairlock::node::{ClientAuth, LogFormat, LogLevel, Settings};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Runs a server until it is told to stop.
pub(crate) fn serve(given: &Given) -> Result<u8, Failure> {
    memory::give_back_what_is_freed();
    let (settings, overruled) = given.settings()?;
    start_log(settings.log_format, settings.log_level);
    for line in overruled {
        tracing::info!("{line}");
    }
    for (wrong, near) in misspelled::variables_of_server() {
        tracing::warn!("the variable {wrong} is no setting; perhaps {near}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit::FAILED, format_args!("cannot run: {error}")))?;
    runtime.block_on(run(settings))
}

async fn run(settings: Settings) -> Result<u8, Failure> {
    // Before the node starts, so that no signal can fall between.
    let mut stop = StopSignals::new()?;
    let mut hangup = listen_for(SignalKind::hangup())?;
    let all = nodes(settings.peers.as_deref());
    let proof = proof_options(&settings);
    let admin = Admin::bind(&settings)?;
    let mut server = Server::builder().settings(settings).start().await?;
    let admin = admin.map(|admin| admin.serve(server.view())).transpose()?;
    announce(server.address(), admin, &all, &proof);
    notify::ready();
    loop {
        tokio::select! {
            _ = hangup.recv() => server.reload(),
            _ = stop.next() => break,
            () = server.ended() => break,
        }
    }
    notify::stopping();
    tokio::select! {
        stopped = server.stop() => Ok(stopped.map(|()| exit::OK)?),
        signal = stop.next() => {
            tell("stopped at once");
            // The node's thread is left as it is: whoever says it twice does not want to wait for it.
            std::process::exit(exit::code_of_signal(signal.as_raw_value()).into());
        }
    }
}

/// The nodes of a cluster as a client is told them; empty where there is none.
fn nodes(peers: Option<&str>) -> String {
    let nodes = peers.into_iter().flat_map(|peers| peers.split(','));
    let nodes = nodes.map(str::trim).filter(|node| *node != "-");
    nodes.collect::<Vec<_>>().join(",")
}

/// The lines for scripts, and one to try the server. A script may stop reading after the first.
fn announce(address: SocketAddr, admin: Option<SocketAddr>, all: &str, proof: &str) {
    let servers = servers_option(address, all);
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "listening on {address}");
    if let Some(admin) = admin {
        let _ = writeln!(out, "admin on {admin}");
    }
    let _ = writeln!(
        out,
        "try it: fairlock run {servers}{proof}my-key -- echo \"I hold the lock\""
    );
    let _ = out.flush();
}

/// What a client needs to be served: files, by their names where the server knows them.
fn proof_options(settings: &Settings) -> String {
    let mut options = String::new();
    match &settings.secret_file {
        Some(path) => {
            let path = text::key(path.as_os_str().as_bytes());
            options += &format!("--secret-file {path} ");
        }
        None if settings.secret.is_some() || settings.users_file.is_some() => {
            options += "--secret-file SECRET ";
        }
        None => {}
    }
    if settings.tls_cert.is_some() {
        options += "--ca-file CA.pem ";
    }
    let are_certificates_asked_for = match settings.tls_client_auth {
        None => settings.tls_client_ca.is_some(),
        Some(wanted) => wanted == ClientAuth::Required,
    };
    if are_certificates_asked_for {
        options += "--cert-file CLIENT.pem --key-file CLIENT.key ";
    }
    options
}

/// What a client on this machine has to be told to find the server: nothing where it looks by itself.
fn servers_option(address: SocketAddr, all: &str) -> String {
    let local = [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED].map(IpAddr::from);
    match address.port() {
        _ if !all.is_empty() => format!("--servers {all} "),
        fairlock::protocol::limits::DEFAULT_PORT if local.contains(&address.ip()) => String::new(),
        _ => format!("--servers {address} "),
    }
}

/// SIGINT and SIGTERM, one by one.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    fn new() -> Result<StopSignals, Failure> {
        Ok(StopSignals {
            interrupt: listen_for(SignalKind::interrupt())?,
            terminate: listen_for(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
        }
    }
}

fn listen_for(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| {
        Failure::new(
            exit::FAILED,
            format_args!("cannot listen for signals: {error}"),
        )
    })
}

/// The log goes to standard error, without colours: it is mostly read from a file or a journal.
fn start_log(format: LogFormat, level: LogLevel) {
    let level = match level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
    };
    let log = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false)
        .with_max_level(level);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_try_says_what_the_server_asks_a_client_for() {
        for (given, expected) in [
            (&[][..], ""),
            (&[("secret", "x")], "--secret-file SECRET "),
            (&[("users_file", "u.toml")], "--secret-file SECRET "),
            (
                &[("secret_file", "my secret"), ("users_file", "u.toml")],
                "--secret-file 'my secret' ",
            ),
            (
                &[("tls_cert", "a.pem"), ("tls_client_ca", "ca.pem")],
                "--ca-file CA.pem --cert-file CLIENT.pem --key-file CLIENT.key ",
            ),
            (
                &[
                    ("tls_cert", "a.pem"),
                    ("tls_client_ca", "ca.pem"),
                    ("tls_client_auth", "optional"),
                ],
                "--ca-file CA.pem ",
            ),
        ] {
            let mut settings = Settings::default();
            for (name, text) in given {
                settings.set(name, text).expect("it can be used");
            }
            assert_eq!(proof_options(&settings), expected);
        }
    }

    #[test]
    fn the_line_to_try_names_the_server_unless_clients_look_there_anyway() {
        for (address, all, expected) in [
            ("127.0.0.1:7420", "", ""),
            ("0.0.0.0:7420", "", ""),
            ("127.0.0.2:7420", "", "--servers 127.0.0.2:7420 "),
            ("[::1]:7420", "", "--servers [::1]:7420 "),
            ("127.0.0.1:7421", "", "--servers 127.0.0.1:7421 "),
            ("127.0.0.1:7420", "a:1,b:2", "--servers a:1,b:2 "),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(servers_option(address, all), expected);
        }
    }
}
