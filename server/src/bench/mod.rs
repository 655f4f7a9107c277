//! `fairlock bench`: how many locks a server gives and takes back in a second, and how long each
//! request takes. The load speaks the protocol over sockets of its own, so that the client's work is
//! not measured with it. It uses keys that begin with `bench:` and leaves none of them held.

mod crowd;
mod link;
mod load;
mod machine;
mod report;
mod workload;

pub(crate) use workload::Name;

use crate::arguments::Bench;
use crate::exit::{self, Failure};
use crate::inbox::{Inbox, Received};
use clap::ValueEnum;
use crowd::Crowd;
use indicatif::{ProgressBar, ProgressStyle};
use link::Link;
use load::Load;
use machine::{Process, Watch};
use nix::sys::signal::Signal;
use report::{Figures, thousands};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::time::Duration;
use workload::{Kind, Workload};

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
    let connector = connector.as_ref();
    let workloads = workloads(arguments);
    let process = Process::listening_on(server);
    allow_many_descriptors();

    let mut ended_by = None;
    let mut all: Vec<(&Workload, Figures)> = Vec::new();
    for workload in &workloads {
        let progress = progress(workload, arguments.seconds);
        let mut watch = Watch::new(process);
        let mut noted = Duration::ZERO;
        let mut go_on = |passed: Duration, done: u64| {
            if passed >= noted + LOOK {
                noted = passed;
                watch.note(passed, done);
                let rate = done as f64 / passed.as_secs_f64();
                progress.set_message(thousands(rate as u64));
                progress.set_position(match workload.kind {
                    Kind::OwnKeys | Kind::HotKey => {
                        u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
                    }
                    Kind::Held | Kind::Queue | Kind::Expiry => done,
                });
                let signal = inbox.next(Some(Duration::ZERO));
                if let Ok(Some(Received::Signal { number, .. })) = signal {
                    ended_by = Some(number);
                }
            }
            ended_by.is_none()
        };
        let secret = secret.as_deref();
        let links = || {
            let links = (0..workload.connections).map(|_| Link::open(server, secret, connector));
            links.collect::<Result<Vec<_>, _>>()
        };
        let figures = match workload.kind {
            Kind::OwnKeys | Kind::HotKey => {
                Load::new(workload, server, secret, connector)?.run(arguments.seconds, go_on)
            }
            Kind::Held | Kind::Queue | Kind::Expiry => {
                Crowd::new(workload, links()?, process, &mut go_on)?.run()
            }
        };
        let figures = figures.map(|mut figures| {
            figures.noise = watch.end();
            figures
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

/// How often it is looked how far a load is.
const LOOK: Duration = Duration::from_millis(50);

/// What runs, one after the other.
fn workloads(arguments: &Bench) -> Vec<Workload> {
    let own = Workload {
        name: "load",
        kind: Kind::OwnKeys,
        connections: 1,
        depth: 1,
        count: 0,
    };
    let chosen: Vec<Workload> = match &arguments.workload[..] {
        [] if arguments.connections.is_some() || arguments.depth.is_some() => vec![own],
        [] => Name::value_variants()
            .iter()
            .map(|name| name.workload())
            .collect(),
        names => names.iter().map(|name| name.workload()).collect(),
    };
    let changed = chosen.into_iter().map(|workload| Workload {
        connections: arguments.connections.unwrap_or(workload.connections),
        depth: arguments.depth.unwrap_or(workload.depth),
        count: arguments.count.unwrap_or(workload.count),
        ..workload
    });
    changed.collect()
}

/// A line that shows how far a workload is; nothing where there is no terminal.
fn progress(workload: &Workload, time: Duration) -> ProgressBar {
    let length = match workload.kind {
        Kind::OwnKeys | Kind::HotKey => u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        Kind::Held | Kind::Queue | Kind::Expiry => u64::from(workload.count),
    };
    let name = workload.name;
    let style = ProgressStyle::with_template("{prefix:18} {wide_bar} {msg:>12} /s")
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
