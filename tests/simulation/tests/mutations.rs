//! Goal: the checker sees what it is for.
//! Method: one rule after another is broken on purpose, in the code under test or in the simulated node,
//! and some seed has to fail for it. Every rule of the checker has to be hit by one of them.

use fairlock::simulation::Mutation;
use fairlock_simulation::{Breakage, Harm, Rule, many};
use std::collections::BTreeSet;

const fn code(mutation: Mutation) -> Breakage {
    Breakage {
        mutation,
        harm: Harm::None,
    }
}

const fn node(harm: Harm) -> Breakage {
    Breakage {
        mutation: Mutation::None,
        harm,
    }
}

/// What is broken, and the rules that may be the first to see it.
const BROKEN: &[(Breakage, &[Rule])] = &[(code(Mutation::SkipTermBump), &[Rule::TermsRise])];

/// So many seeds at most until a breakage is seen.
const WITHIN: u64 = 400;

#[test]
fn every_breakage_is_seen_and_every_rule_sees_one() {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut seen = BTreeSet::new();
    let mut unseen = Vec::new();
    for (breakage, rules) in BROKEN {
        let report = many(0..WITHIN, *breakage, threads, 1);
        let first = report.failed.first();
        let Some(violation) = first.and_then(|run| run.violation.as_ref()) else {
            unseen.push(format!("{breakage:?}: nobody saw it in {WITHIN} seeds"));
            continue;
        };
        println!("{breakage:?}: {violation} (after {} seeds)", report.seeds);
        if !rules.contains(&violation.rule) {
            unseen.push(format!("{breakage:?}: seen as {violation}"));
        }
        seen.insert(violation.rule);
    }
    assert!(unseen.is_empty(), "\n{}", unseen.join("\n"));
    let idle: Vec<Rule> = Rule::ALL
        .into_iter()
        .filter(|rule| !seen.contains(rule))
        .collect();
    assert!(idle.is_empty(), "no breakage is seen by {idle:?}");
}
