//! `fairlock bench`: how many locks a server gives and takes back in a second, and how long each
//! request takes. The load speaks the protocol over sockets of its own, so that the client's work is
//! not measured with it. It uses keys that begin with `bench:` and leaves none of them held.

mod link;
mod load;
mod report;

use crate::arguments::Bench;
use crate::exit::{self, Failure};
use crate::inbox::{Inbox, Received};
use indicatif::{ProgressBar, ProgressStyle};
use load::Load;
use nix::sys::signal::Signal;
use report::{Figures, thousands};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::time::Duration;

/// A load.
pub(crate) struct Workload {
    name: &'static str,
    kind: Kind,
    connections: u32,
    /// Requests under way on each connection.
    depth: u32,
}

/// Which keys a load uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Each worker has a key of its own: nobody waits for anybody.
    OwnKeys,
    /// All want the same key: what counts is the hand-over.
    HotKey,
}

/// What runs if nothing else is asked for.
const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "one at a time",
        kind: Kind::OwnKeys,
        connections: 1,
        depth: 1,
    },
    Workload {
        name: "many connections",
        kind: Kind::OwnKeys,
        connections: 64,
        depth: 1,
    },
    Workload {
        name: "pipelined",
        kind: Kind::OwnKeys,
        connections: 4,
        depth: 64,
    },
    Workload {
        name: "one hot key",
        kind: Kind::HotKey,
        connections: 16,
        depth: 1,
    },
];

/// Runs the workloads one after the other.
pub(crate) fn bench(arguments: &Bench) -> Result<u8, Failure> {
    let inbox: Inbox<()> = Inbox::new(&[Signal::SIGINT, Signal::SIGTERM]).map_err(|error| {
        Failure::new(
            exit::FAILED,
            format_args!("cannot listen for signals: {error}"),
        )
    })?;
    let addresses = arguments.connection.addresses();
    let server = addresses
        .first()
        .ok_or_else(|| Failure::usage("no server is named"))?;
    let secret = arguments.connection.secret()?;
    let connector = arguments.connection.builder()?.connector()?;
    let own = [Workload {
        name: "load",
        kind: Kind::OwnKeys,
        connections: arguments.connections.unwrap_or(1),
        depth: arguments.depth.unwrap_or(1),
    }];
    let workloads = match (arguments.connections, arguments.depth) {
        (None, None) => &WORKLOADS[..],
        _ => &own[..],
    };
    allow_many_descriptors();

    let mut ended_by = None;
    let mut all: Vec<(&Workload, Figures)> = Vec::new();
    for workload in workloads {
        let progress = progress(workload.name, arguments.seconds);
        let load = Load::new(workload, server, secret.as_deref(), connector.as_ref())?;
        let figures = load.run(arguments.seconds, |passed, pairs| {
            let rate = pairs as f64 / passed.as_secs_f64();
            progress.set_message(thousands(rate as u64));
            progress.set_position(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX));
            if let Ok(Some(Received::Signal { number, .. })) = inbox.next(Some(Duration::ZERO)) {
                ended_by = Some(number);
            }
            ended_by.is_none()
        });
        progress.finish_and_clear();
        all.push((workload, figures?));
        if ended_by.is_some() {
            break;
        }
    }

    let mut out = io::stdout().lock();
    if arguments.json {
        report::json(&mut out, server, &all)?;
    } else {
        report::table(&mut out, &all)?;
    }
    Ok(ended_by.map_or(exit::OK, exit::code_of_signal))
}

/// A line that shows how far a workload is; nothing where there is no terminal.
fn progress(name: &'static str, time: Duration) -> ProgressBar {
    let length = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let style = ProgressStyle::with_template("{prefix:18} {wide_bar} {msg:>12} pairs/s")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(length).with_style(style).with_prefix(name);
    bar.set_message("0");
    bar
}

/// Each connection takes a descriptor; the usual soft limit allows a thousand. Where the hard limit is
/// too low as well, connecting says so.
fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}
