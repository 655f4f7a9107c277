//! Measures what clients notice of a cluster: how long nobody or one of them gets a lock when the active node is
//! killed, stopped or frozen. Everything is on this machine, the nodes are `FAIRLOCK_BIN` or the binary beside this
//! program, with the settings that they have by themselves.
//!
//! ```sh
//! cargo build --release -p fairlock-server
//! FAIRLOCK_BIN=target/release/fairlock cargo run --release -p fairlock-processes --example pauses -- --json
//! ```
//!
//! `--rounds N` says how often each fault happens.

use fairlock::Client;
use fairlock_processes::Peer;
use fairlock_processes::cluster::Cluster;
use fairlock_processes::history::{Moment, moment};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const CLIENTS: usize = 8;
/// How long clients go on after a fault.
const AFTER: Duration = Duration::from_millis(2500);

#[derive(Serialize)]
struct Figures {
    rounds: usize,
    kill: Pauses,
    stop: Pauses,
    freeze: Pauses,
    /// A client that waited on the node that froze, for a key that was given back after that.
    freeze_waiting: Spread,
    /// Of the machine, at the end: below its number of processors the figures mean something.
    load_average: String,
}

/// What a kind of fault looks like.
#[derive(Serialize)]
struct Pauses {
    /// The longest time between two locks of one client.
    of_a_client: Spread,
    /// The longest time in which no client got a lock.
    of_all: Spread,
    errors: usize,
}

/// Of some times, in milliseconds.
#[derive(Serialize)]
struct Spread {
    count: usize,
    p50: f64,
    p99: f64,
    max: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: usize| {
        let place = arguments.iter().position(|argument| argument == name);
        place.map_or(default, |place| {
            let number = arguments.get(place + 1).and_then(|text| text.parse().ok());
            number.unwrap_or_else(|| panic!("{name} takes a number"))
        })
    };
    let rounds = number("--rounds", 20);
    let figures = Figures {
        rounds,
        kill: pauses(rounds, Cluster::kill),
        stop: pauses(rounds, |cluster, index| {
            cluster.stop(index);
        }),
        freeze: pauses(rounds, |cluster, index| cluster.node(index).freeze()),
        freeze_waiting: spread((0..rounds).map(|_| waiting_on_a_frozen_node()).collect()),
        load_average: std::fs::read_to_string("/proc/loadavg").unwrap_or_default(),
    };
    if arguments.iter().any(|argument| argument == "--json") {
        let text = serde_json::to_string_pretty(&figures);
        println!("{}", text.expect("numbers and texts"));
    } else {
        show(&figures);
    }
}

fn show(figures: &Figures) {
    let line = |what: &str, spread: &Spread, errors: usize| {
        println!(
            "{what:<44} p50 {:>8.1}  p99 {:>8.1}  max {:>8.1} ms  ({} times, {errors} errors)",
            spread.p50, spread.p99, spread.max, spread.count
        );
    };
    for (what, pauses) in [
        ("kill -9", &figures.kill),
        ("SIGINT", &figures.stop),
        ("SIGSTOP", &figures.freeze),
    ] {
        line(
            &format!("{what}: between two locks of a client"),
            &pauses.of_a_client,
            pauses.errors,
        );
        line(
            &format!("{what}: without a lock for anybody"),
            &pauses.of_all,
            pauses.errors,
        );
    }
    line(
        "SIGSTOP: who waited on that node",
        &figures.freeze_waiting,
        0,
    );
    print!("load average {}", figures.load_average);
}

/// Clients that lock and release keys of their own, and note when they got each lock.
struct Clients {
    stop: Arc<AtomicBool>,
    errors: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<Moment>>>,
}

impl Clients {
    fn start(servers: &[String]) -> Clients {
        let stop: Arc<AtomicBool> = Arc::default();
        let errors: Arc<AtomicUsize> = Arc::default();
        let threads = (0..CLIENTS).map(|number| {
            let mut servers = servers.to_vec();
            let shift = number % servers.len();
            servers.rotate_left(shift);
            let (stop, errors) = (stop.clone(), errors.clone());
            std::thread::spawn(move || {
                let client = Client::new(servers).expect("plain addresses");
                let mut granted = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match client.acquire(format!("key-{number}")).call() {
                        Ok(lock) => {
                            granted.push(moment());
                            if lock.release().call().is_err() {
                                errors.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        Err(_) => {
                            errors.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    std::thread::sleep(Duration::from_micros(500));
                }
                granted
            })
        });
        Clients {
            threads: threads.collect(),
            stop,
            errors,
        }
    }

    fn finish(self) -> (Vec<Vec<Moment>>, usize) {
        self.stop.store(true, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        let granted = threads.map(|thread| thread.join().expect("no client panics"));
        (granted.collect(), self.errors.load(Ordering::Relaxed))
    }
}

fn pauses(rounds: usize, fault: impl Fn(&mut Cluster, usize)) -> Pauses {
    let (mut each, mut all, mut errors) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        let mut cluster = Cluster::start(3);
        let clients = Clients::start(&cluster.servers());
        std::thread::sleep(Duration::from_millis(300));
        let from = moment();
        fault(&mut cluster, 0);
        std::thread::sleep(AFTER);
        let (granted, failed) = clients.finish();
        errors += failed;
        each.extend(granted.iter().map(|moments| longest_gap(moments, from)));
        let mut together = granted.concat();
        together.sort_unstable();
        all.push(longest_gap(&together, from));
    }
    Pauses {
        of_a_client: spread(each),
        of_all: spread(all),
        errors,
    }
}

/// The longest time between two locks, the first of which may have been had shortly before `from`.
fn longest_gap(moments: &[Moment], from: Moment) -> f64 {
    let last = moments.partition_point(|at| *at < from).saturating_sub(1);
    let gaps = moments[last..].windows(2).map(|pair| pair[1] - pair[0]);
    // Who got none any more has waited until the end.
    gaps.max().unwrap_or(AFTER.as_nanos() as u64) as f64 / 1e6
}

/// From freezing the node until a client has the lock that it waits for there.
fn waiting_on_a_frozen_node() -> f64 {
    let cluster = Cluster::start(3);
    let holder = Client::new(cluster.servers()).expect("plain addresses");
    let waiter = Client::new(cluster.servers()).expect("plain addresses");
    let lock = holder.acquire("k").call().expect("a node runs");
    let had: Arc<Mutex<Option<Moment>>> = Arc::default();
    let (send, receive) = std::sync::mpsc::channel();
    let note = had.clone();
    waiter.acquire("k").submit(move |result| {
        *note.lock().expect("nobody panics in it") = Some(moment());
        let _ = send.send(result);
    });
    let mut watcher = Peer::connect(cluster.address(0));
    fairlock_processes::until_waiting(&mut watcher, "k", 1);
    // The copies have it too.
    std::thread::sleep(Duration::from_millis(100));
    let from = moment();
    cluster.node(0).freeze();
    lock.release()
        .call()
        .expect("it is confirmed by another node");
    let waited = receive.recv().expect("the callback is called");
    drop(waited.expect("it gets the lock"));
    let had = had.lock().expect("nobody panics in it");
    (had.expect("it was set before") - from) as f64 / 1e6
}

fn spread(mut times: Vec<f64>) -> Spread {
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
    Spread {
        count: times.len(),
        p50: at(0.5),
        p99: at(0.99),
        max: at(1.0),
    }
}
