//! Tells people how it went: each failure with the play up to the line that did not come true, what
//! came instead, and everything that was seen; then one line a language and one for all.

use crate::Run;
use crate::perform::{Failure, Outcome};
use crate::scenario::Scenario;
use std::time::Duration;

/// The scenarios and the rules that they prove.
pub(crate) fn list(scenarios: &[Scenario]) {
    for scenario in scenarios {
        println!("{:<40} {}", scenario.name, scenario.rule);
    }
    println!("{} scenarios", scenarios.len());
}

/// The whole report. True if everything came true everywhere.
pub(crate) fn all(
    scenarios: &[Scenario],
    languages: &[&str],
    runs: &[Run<'_>],
    verbose: bool,
    took: Duration,
) -> bool {
    let (mut passed, mut failed) = (0, 0);
    for scenario in scenarios {
        let mut agreed: Option<(&str, &[String])> = None;
        for run in runs
            .iter()
            .filter(|run| std::ptr::eq(run.scenario, scenario))
        {
            let Some(outcome) = &run.outcome else {
                continue;
            };
            match &outcome.failure {
                Some(failure) => {
                    failed += 1;
                    show(scenario, run.language, outcome, failure);
                }
                None if agreed.is_some_and(|(_, trace)| trace != outcome.trace) => {
                    failed += 1;
                    let (other, trace) = agreed.unwrap_or_default();
                    println!("\n✗ {}: {other} and {} differ", scenario.name, run.language);
                    differences(trace, &outcome.trace);
                }
                None => {
                    passed += 1;
                    agreed = agreed.or(Some((run.language, &outcome.trace)));
                    if verbose {
                        println!(
                            "\n✓ {} ({}) in {}",
                            scenario.name, scenario.rule, run.language
                        );
                        outcome.log.iter().for_each(|line| println!("    {line}"));
                    }
                }
            }
        }
    }
    println!();
    for language in languages {
        let of_language = runs.iter().filter(|run| run.language == *language);
        let good = of_language.clone().filter(|run| is_good(run)).count();
        println!("{language:<16} {good} of {}", of_language.count());
    }
    println!(
        "{} scenarios, {} languages, {:.1} s",
        scenarios.len(),
        languages.len(),
        took.as_secs_f64()
    );
    println!("conformance: {passed} passed, {failed} failed");
    failed == 0 && passed > 0
}

fn is_good(run: &Run<'_>) -> bool {
    run.outcome
        .as_ref()
        .is_some_and(|outcome| outcome.failure.is_none())
}

fn show(scenario: &Scenario, language: &str, outcome: &Outcome, failure: &Failure) {
    println!("\n✗ {} ({}) in {language}", scenario.name, scenario.rule);
    for (index, step) in scenario.steps.iter().enumerate() {
        let sign = match index.cmp(&failure.step) {
            std::cmp::Ordering::Less => "  ",
            std::cmp::Ordering::Equal => "✗ ",
            std::cmp::Ordering::Greater => "· ",
        };
        println!("  {sign}{:>4}  {}", step.line, step.text);
        if index == failure.step {
            println!("          └─ {}", failure.why);
        }
    }
    if failure.step >= scenario.steps.len() {
        println!("  ✗       (behind the last line) {}", failure.why);
    }
    println!("  everything, with seconds:");
    outcome.log.iter().for_each(|line| println!("    {line}"));
}

fn differences(one: &[String], other: &[String]) {
    for index in 0..one.len().max(other.len()) {
        let (left, right) = (one.get(index), other.get(index));
        if left != right {
            let nothing = "(nothing)".to_owned();
            println!("  - {}", left.unwrap_or(&nothing));
            println!("  + {}", right.unwrap_or(&nothing));
        }
    }
}
