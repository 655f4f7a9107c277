//! `fairlock serve`: reads the settings, starts the node, says where it listens, stops it on
//! SIGINT or SIGTERM, and lets it read its files again on SIGHUP. All that a node does is in the library.

use crate::admin::Admin;
use crate::exit::{self, Failure, tell};
use crate::memory;
use crate::misspelled;
use crate::notify;
use crate::settings::Given;
use fairlock::Server;
use fairlock::node::{LogFormat, LogLevel, Settings};
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Runs a server until it is told to stop.
pub(crate) fn serve(given: &Given) -> Result<u8, Failure> {
    memory::give_back_what_is_freed();
    let (mut settings, overruled) = given.settings()?;
    if settings.data_dir.is_none() && !settings.ephemeral {
        let node = settings.node.as_deref();
        settings.data_dir = Some(default_data_dir(node, |name| std::env::var_os(name))?);
    }
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
    let secured = settings.tls_cert.is_some();
    let all = nodes(settings.peers.as_deref());
    let admin = Admin::bind(&settings)?;
    let mut server = Server::builder().settings(settings).start().await?;
    let admin = admin.map(|admin| admin.serve(server.view())).transpose()?;
    announce(server.address(), admin, &all, secured);
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
fn announce(address: SocketAddr, admin: Option<SocketAddr>, all: &str, secured: bool) {
    let authorities = if secured { "--ca-file CA.pem " } else { "" };
    let servers = servers_option(address, all);
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "listening on {address}");
    if let Some(admin) = admin {
        let _ = writeln!(out, "admin on {admin}");
    }
    let _ = writeln!(
        out,
        "try it: fairlock run {servers}{authorities}my-key -- echo \"I hold the lock\""
    );
    let _ = out.flush();
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

/// The folder for a server that was not told where to keep its data: the one that systemd made for it, or one in the
/// user's state folder, where nodes of one machine have a folder each.
fn default_data_dir(
    node: Option<&str>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, Failure> {
    let absolute = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let of_user = || {
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
        let state = state.join("fairlock");
        Some(match node {
            Some(node) => state.join(node.replace('/', "_")),
            None => state,
        })
    };
    absolute("STATE_DIRECTORY").or_else(of_user).ok_or_else(|| {
        Failure::usage("there is no HOME to keep data under: give --data-dir DIR, or --ephemeral")
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

    #[test]
    fn data_goes_to_the_folder_of_the_service_or_to_the_state_folder_of_the_user() {
        let with_node = |node, pairs: &'static [(&str, &str)]| {
            default_data_dir(node, move |name| {
                let pair = pairs.iter().find(|(candidate, _)| *candidate == name);
                pair.map(|(_, value)| OsString::from(value))
            })
        };
        let with = |pairs| with_node(None, pairs);
        let service = &[
            ("STATE_DIRECTORY", "/var/lib/fairlock"),
            ("HOME", "/home/a"),
        ];
        assert_eq!(with(service), Ok(PathBuf::from("/var/lib/fairlock")));
        assert_eq!(with_node(Some("a:7420"), service), with(service));
        assert_eq!(
            with_node(Some("a/b:7420"), &[("HOME", "/home/a")]),
            Ok(PathBuf::from("/home/a/.local/state/fairlock/a_b:7420"))
        );
        assert_eq!(
            with(&[("XDG_STATE_HOME", "/state"), ("HOME", "/home/a")]),
            Ok(PathBuf::from("/state/fairlock"))
        );
        assert_eq!(
            with(&[("XDG_STATE_HOME", "relative"), ("HOME", "/home/a")]),
            Ok(PathBuf::from("/home/a/.local/state/fairlock"))
        );
        assert_eq!(with(&[]).map_err(|failure| failure.code), Err(exit::USAGE));
    }
}
