//! `simulate [FIRST [COUNT]]`: runs COUNT seeds from FIRST on; `simulate --trace SEED`: one, line by line.

use fairlock_simulation::{Breakage, many, one};
use std::process::ExitCode;

const USAGE: &str = "simulate [FIRST [COUNT]]     runs COUNT seeds (10000) from FIRST (0) on
simulate --trace SEED        runs one seed and prints what happens
simulate --broken COUNT [NAME]  breaks one rule after another and says who sees it within COUNT seeds";

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--broken", count] => number(count).map_or_else(usage, |count| broken(count, "")),
        ["--broken", count, name] => number(count).map_or_else(usage, |count| broken(count, name)),
        ["--trace", seed] => match number(seed) {
            Some(seed) => trace(seed),
            None => usage(),
        },
        [] => run(0, 10_000),
        [first] => number(first).map_or_else(usage, |first| run(first, 1)),
        [first, count] => match (number(first), number(count)) {
            (Some(first), Some(count)) => run(first, count),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(64)
}

fn trace(seed: u64) -> ExitCode {
    let run = one(seed, Breakage::default(), true);
    for line in &run.trace {
        println!("{line}");
    }
    println!("seed {seed}, trace {:016x}", run.hash);
    match run.violation {
        Some(violation) => {
            println!("{violation}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn broken(count: u64, name: &str) -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let named = |breakage: &Breakage| format!("{breakage:?}").contains(name);
    for breakage in Breakage::all().filter(named) {
        let mut rules = std::collections::BTreeMap::new();
        let report = many(0..count, breakage, threads, usize::MAX);
        for violation in report
            .failed
            .iter()
            .filter_map(|run| run.violation.as_ref())
        {
            *rules.entry(violation.rule).or_insert(0) += 1;
        }
        println!("{breakage:?}: {rules:?}");
    }
    ExitCode::SUCCESS
}

fn run(first: u64, count: u64) -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let begun = std::time::Instant::now();
    let report = many(
        first..first.saturating_add(count),
        Breakage::default(),
        threads,
        20,
    );
    print!("{}", report.coverage.table());
    println!(
        "{} seeds, {} s of simulated time in {:.1} s; {} locks in two hands excused by faults",
        report.seeds,
        report.simulated,
        begun.elapsed().as_secs_f64(),
        report.excused
    );
    for failed in &report.failed {
        if let Some(violation) = &failed.violation {
            println!(
                "seed {}: {violation}\n  again: simulate --trace {}",
                failed.seed, failed.seed
            );
        }
    }
    if report.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
