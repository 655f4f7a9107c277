//! Goal: the checker sees what it is for.
//! Method: one rule after another is broken on purpose, in the code under test or in the simulated node,
//! and the rule of the checker that is named beside it has to fail in some seed. Every rule of the
//! checker is named.

use fairlock::simulation::Mutation;
use fairlock_simulation::{Breakage, Harm, Rule, first_to_break};
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

/// What is broken, and the rule that sees it.
const BROKEN: &[(Breakage, Rule)] = &[
    (code(Mutation::SkipTermBump), Rule::TermsRise),
    (code(Mutation::SameSlot), Rule::TokensUnique),
    (code(Mutation::ForgetReleases), Rule::Drains),
    (code(Mutation::ForgetQueues), Rule::OneActive),
    (code(Mutation::GrantToDead), Rule::GrantedToSomebody),
    (code(Mutation::LastComeFirstServed), Rule::Order),
    (code(Mutation::NeverTimeOut), Rule::WaitsEnd),
    (code(Mutation::EndLeasesEarly), Rule::ToldInTime),
    (code(Mutation::KeepIdleKeys), Rule::Invariants),
    (code(Mutation::PromoteIncomplete), Rule::OneHolder),
    (code(Mutation::NeverYield), Rule::OneActive),
    (code(Mutation::GiveNothing), Rule::OneHolder),
    (code(Mutation::ServeOnInHandoff), Rule::OneServes),
    (code(Mutation::TrustThePast), Rule::OneServes),
    (code(Mutation::IgnoreGaps), Rule::Drains),
    (code(Mutation::NeverPreempt), Rule::OneActive),
    (code(Mutation::TellLossesLate), Rule::ToldInTime),
    (code(Mutation::KeepStrayGrants), Rule::Drains),
    (node(Harm::TermNotWritten), Rule::TermsRise),
    (node(Harm::AnswerTwice), Rule::OneReply),
    (node(Harm::AnswerNever), Rule::NoErrors),
    (node(Harm::NoFence), Rule::Fence),
    (node(Harm::NeverDisconnect), Rule::GrantedToSomebody),
    (node(Harm::StandbyServes), Rule::TokensRise),
    (node(Harm::DeafToClients), Rule::TokensRise),
];

/// So many seeds at most until a breakage is seen.
const WITHIN: u64 = 4000;

#[test]
fn every_breakage_is_seen_by_its_rule_and_every_rule_sees_one() {
    std::panic::set_hook(Box::new(|_| {}));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut unseen = Vec::new();
    for (breakage, rule) in BROKEN {
        match first_to_break(0..WITHIN, *breakage, *rule, threads) {
            Some(run) => {
                let text = run.violation.map(|violation| violation.to_string());
                println!(
                    "{breakage:?}: seed {}: {}",
                    run.seed,
                    text.unwrap_or_default()
                );
            }
            None => unseen.push(format!("{breakage:?} by {rule:?}")),
        }
    }
    drop(std::panic::take_hook());
    assert!(unseen.is_empty(), "not seen in {WITHIN} seeds: {unseen:#?}");
}

#[test]
fn nothing_that_can_be_broken_and_no_rule_is_left_out() {
    let broken: Vec<Breakage> = BROKEN.iter().map(|(breakage, _)| *breakage).collect();
    let missing: Vec<Breakage> = Breakage::all()
        .filter(|breakage| !broken.contains(breakage))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let named: BTreeSet<Rule> = BROKEN.iter().map(|(_, rule)| *rule).collect();
    let idle: Vec<Rule> = Rule::ALL
        .into_iter()
        .filter(|rule| !named.contains(rule))
        .collect();
    assert!(idle.is_empty(), "{idle:?}");
}
