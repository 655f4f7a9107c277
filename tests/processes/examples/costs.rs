//! Measures what a pair of acquire and release costs a node's processor: alone, with two standbys, and with a journal,
//! under 4 connections with 64 requests under way on each.
//!
//! Three nodes and the load want more processors than small machines have, so their pairs a second say little. The
//! processor time of the active node tells what copies cost it wherever the others run. It has a core of its own here,
//! and everything else shares another one. Everything is on this machine; the nodes are `FAIRLOCK_BIN` or the binary
//! beside this program.
//!
//! ```sh
//! cargo build --release -p fairlock-server
//! FAIRLOCK_BIN=target/release/fairlock cargo run --release -p fairlock-processes --example costs -- --json
//! ```
//!
//! `--rounds N` says how often each kind has its turn, `--seconds S` how long a turn is.

use fairlock_processes::cluster::Cluster;
use fairlock_processes::{Folder, Node, binary, run, token};
use serde::Serialize;
use std::process::{Command, Stdio};

/// The cores of the node that is measured, and of everything else.
const OWN: &str = "1";
const OTHERS: &str = "0";

#[derive(Serialize)]
struct Figures {
    rounds: usize,
    lone: Cost,
    with_two_standbys: Cost,
    standby: Cost,
    with_journal: Cost,
    /// Medians of the ratios within each round.
    copies: f64,
    journal: f64,
    /// Of the machine, at the end: above its number of processors the figures mean less.
    load_average: String,
}

/// Nanoseconds of processor time a pair, in each round: in the program and in the system.
#[derive(Serialize, Default)]
struct Cost {
    program: Vec<f64>,
    system: Vec<f64>,
}

impl Cost {
    fn add(&mut self, (program, system): (f64, f64)) {
        self.program.push(program);
        self.system.push(system);
    }

    /// The medians of both, and of their sum.
    fn medians(&self) -> [f64; 3] {
        let sums = self.sums().collect();
        [self.program.clone(), self.system.clone(), sums].map(median)
    }

    fn sums(&self) -> impl Iterator<Item = f64> {
        let both = self.program.iter().zip(&self.system);
        both.map(|(program, system)| program + system)
    }

    /// How many times that of `other`, round by round.
    fn times(&self, other: &Cost) -> f64 {
        let ratios = self
            .sums()
            .zip(other.sums())
            .map(|(own, other)| own / other);
        median(ratios.collect())
    }
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
    let figures = measure(number("--rounds", 9), number("--seconds", 2));
    if arguments.iter().any(|argument| argument == "--json") {
        let text = serde_json::to_string_pretty(&figures);
        println!("{}", text.expect("numbers and texts"));
    } else {
        show(&figures);
    }
}

fn show(figures: &Figures) {
    let line = |what: &str, cost: &Cost, ratio: f64| {
        let [program, system, both] = cost.medians();
        println!(
            "{what:<30} {both:>5.0} ns a pair ({program:.0} in the program, {system:.0} in the system): {ratio:.2}"
        );
    };
    line("alone", &figures.lone, 1.0);
    line(
        "with two standbys",
        &figures.with_two_standbys,
        figures.copies,
    );
    line(
        "one of them",
        &figures.standby,
        figures.standby.times(&figures.lone),
    );
    line(
        "alone with a journal",
        &figures.with_journal,
        figures.journal,
    );
    print!("load average {}", figures.load_average);
}

fn measure(rounds: usize, seconds: usize) -> Figures {
    let folder = Folder::new("costs");
    let lone = Node::ephemeral(&[]);
    let journaling = Node::on(&folder.0);
    // The journals of three nodes would be measured with them.
    let cluster = Cluster::start_with(3, &["--keep-state=false"]);
    let (active, standby) = (cluster.node(0), cluster.node(1));
    for node in [&lone, &journaling, active] {
        pin(node, OWN);
    }
    for index in 1..3 {
        pin(cluster.node(index), OTHERS);
    }
    let mut figures = Figures {
        rounds,
        lone: Cost::default(),
        with_two_standbys: Cost::default(),
        standby: Cost::default(),
        with_journal: Cost::default(),
        copies: 0.0,
        journal: 0.0,
        load_average: String::new(),
    };
    for _ in 0..rounds {
        figures.lone.add(turn(&lone, &lone, seconds).0);
        let (own, others) = turn(active, standby, seconds);
        figures.with_two_standbys.add(own);
        figures.standby.add(others);
        figures
            .with_journal
            .add(turn(&journaling, &journaling, seconds).0);
    }
    // Copied all the time: a standby that was left behind would have cost nothing.
    cluster.settle(0);
    figures.copies = figures.with_two_standbys.times(&figures.lone);
    figures.journal = figures.with_journal.times(&figures.lone);
    figures.load_average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    figures
}

/// What a pair at `node` costs itself, and `other`.
fn turn(node: &Node, other: &Node, seconds: usize) -> ((f64, f64), (f64, f64)) {
    // Each grant takes the next token.
    let count = || token(&node.connect().ask("A count 60 -"));
    let give_back = |token: u64| node.connect().ask(&format!("R count {token}"));
    let (own_before, other_before) = (node.processor_times(), other.processor_times());
    let first = count();
    give_back(first);
    load(node, seconds);
    let last = count();
    give_back(last);
    let (own, others) = (node.processor_times(), other.processor_times());
    assert_eq!(first >> 32, last >> 32, "both are of one term");
    let pairs = (last - first) as f64;
    let each = |before: [std::time::Duration; 2], after: [std::time::Duration; 2]| {
        let [program, system] =
            [0, 1].map(|part| (after[part] - before[part]).as_nanos() as f64 / pairs);
        (program, system)
    };
    (each(own_before, own), each(other_before, others))
}

fn load(node: &Node, seconds: usize) {
    let mut command = Command::new("taskset");
    command.args(["-c", OTHERS]).arg(binary());
    command.args(["bench", "--workload", "pipelined", "--json"]);
    command.args(["--servers", &node.address().to_string()]);
    command.args(["--seconds", &seconds.to_string()]);
    let output = run(command);
    assert!(output.status.success(), "{output:?}");
}

fn pin(node: &Node, core: &str) {
    let pinned = Command::new("taskset")
        .args([
            "-a",
            "-c",
            "-p",
            core,
            &node.pid().as_raw_nonzero().to_string(),
        ])
        .stdout(Stdio::null())
        .status();
    assert!(pinned.expect("taskset is there").success());
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
