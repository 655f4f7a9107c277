//! Instructions a step of the protocol, the lock rules and the client's decisions: the same on a busy machine
//! as on a quiet one, so that a slow-down shows as a difference of numbers and not as noise.
//! `cargo bench -p fairlock --features server --bench instructions` compares them with
//! `instructions.toml`; with `UPDATE=1` it writes them there.
//!
//! Each case runs twice under callgrind, once with twice the steps, in processes of their own: the
//! difference is free of what only begins and ends. Costs a few seconds.

#[path = "instructions/cases.rs"]
mod cases;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::process::{Command, ExitCode};
use std::thread;

/// What a count may differ from the one that is kept, in percent: other versions of the compiler and
/// the C library stay below it mostly, a step that was forgotten does not.
const MARGIN: f64 = 3.0;

const COUNTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.toml");

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [case, steps] = &arguments[..]
        && let Ok(steps) = steps.parse()
    {
        cases::run(case, steps);
        return ExitCode::SUCCESS;
    }
    let update = env::var("UPDATE").is_ok_and(|value| value == "1");
    let counted = count_all();
    if update {
        fs::write(COUNTS, to_text(&counted)).expect("the counts can be written");
        println!("wrote {COUNTS}");
        println!("instructions: {} passed, 0 failed", counted.len());
        return ExitCode::SUCCESS;
    }
    let text = fs::read_to_string(COUNTS).expect("the counts can be read");
    compare(&from_text(&text), &counted)
}

/// Instructions a step of each case.
fn count_all() -> BTreeMap<String, f64> {
    let queue: Vec<_> = cases::ALL.iter().collect();
    let middle = queue.len() / 2;
    let (one, other) = queue.split_at(middle);
    let count = |part: &[&cases::Case]| {
        let counts = part.iter().map(|case| (case.name.to_owned(), count(case)));
        counts.collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let one = scope.spawn(move || count(one));
        let other = count(other);
        let one = one.join().expect("a case that fails has said so");
        one.into_iter().chain(other).collect()
    })
}

fn count(case: &cases::Case) -> f64 {
    let once = collected(case.name, case.steps);
    let twice = collected(case.name, 2 * case.steps);
    (twice - once) / case.steps as f64
}

/// All instructions of a process that does so many steps.
fn collected(case: &str, steps: usize) -> f64 {
    let this = env::current_exe().expect("this program has a path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .args([case, &steps.to_string()])
        .output()
        .expect("valgrind is installed");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {text}");
    let number = text
        .lines()
        .find_map(|line| line.split("Collected : ").nth(1));
    number
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("{case}: callgrind counts nothing: {text}"))
}

fn compare(kept: &BTreeMap<String, f64>, counted: &BTreeMap<String, f64>) -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    for (case, now) in counted {
        let Some(before) = kept.get(case) else {
            println!("{case:<44} {now:>9.1}   not kept yet");
            failed += 1;
            continue;
        };
        let percent = (now - before) / before * 100.0;
        let far = percent.abs() > MARGIN;
        let mark = if far {
            "   ← more than the margin"
        } else {
            ""
        };
        println!("{case:<44} {now:>9.1} {before:>9.1} {percent:>+6.1} %{mark}");
        if far {
            failed += 1;
        } else {
            passed += 1;
        }
    }
    for case in kept.keys().filter(|case| !counted.contains_key(*case)) {
        println!("{case}: is kept, but there is no such case");
        failed += 1;
    }
    if failed > 0 {
        println!(
            "\nMore: look what the step does that it did not do before, or keep the new count if it is worth it.\n\
             Less: keep the new count, so that it stays so.\n\
             All of them a little, after another compiler: keep the new counts, in a commit of its own.\n\
             To keep: UPDATE=1 tests/run instructions"
        );
    }
    println!("instructions: {passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

fn to_text(counts: &BTreeMap<String, f64>) -> String {
    let mut text =
        "# Instructions a step; `UPDATE=1 tests/run instructions` writes this file.\n".to_owned();
    for (case, count) in counts {
        text.push_str(&format!("{case:?} = {count:.1}\n"));
    }
    text
}

fn from_text(text: &str) -> BTreeMap<String, f64> {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs = lines.map(|line| {
        let (case, count) = line.split_once(" = ")?;
        Some((case.trim_matches('"').to_owned(), count.parse().ok()?))
    });
    pairs
        .collect::<Option<_>>()
        .expect("a line of the counts is a name and a number")
}
