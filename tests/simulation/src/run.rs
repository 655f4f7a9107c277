//! One seed, or many of them on several threads.

use crate::checker::{Rule, Violation};
use crate::coverage::Coverage;
use crate::plan::{Harm, Plan};
use crate::random::Random;
use crate::world::World;
use fairlock::simulation::Mutation;
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A rule that is broken on purpose, in the code under test or in the simulated node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Breakage {
    /// In the code under test.
    pub mutation: Mutation,
    /// In the simulated node.
    pub harm: Harm,
}

impl Breakage {
    /// Each rule that can be broken, alone.
    pub fn all() -> impl Iterator<Item = Breakage> {
        let code = Mutation::ALL.into_iter().map(|mutation| Breakage {
            mutation,
            harm: Harm::None,
        });
        let node = Harm::ALL.into_iter().map(|harm| Breakage {
            mutation: Mutation::None,
            harm,
        });
        code.chain(node)
    }
}

/// What came of a seed.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which.
    pub seed: u64,
    /// The first rule that did not hold.
    pub violation: Option<Violation>,
    /// Of everything that happened, in order.
    pub hash: u64,
    /// What happened, counted.
    pub coverage: Coverage,
    /// Locks in two hands that a fault excuses.
    pub excused: u64,
    /// How long the run was, in microseconds of its own time.
    pub length: u64,
    /// Lines for people, if they were asked for.
    pub trace: Vec<String>,
}

/// Runs a seed. With `trace`, line by line.
#[must_use]
pub fn one(seed: u64, breakage: Breakage, trace: bool) -> Run {
    let mut random = Random::new(seed);
    let mut plan = Plan::new(seed, &mut random);
    plan.mutation = breakage.mutation;
    plan.harm = breakage.harm;
    let text = format!("{plan:?}");
    let mut world = None;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        world.insert(World::new(plan, random, trace)).run();
    }));
    let panic = ended.err().map(|panic| text_of(&*panic));
    let Some(world) = world else {
        return Run {
            seed,
            violation: panic.map(|text| violation(0, text)),
            hash: 0,
            coverage: Coverage::default(),
            excused: 0,
            length: 0,
            trace: Vec::new(),
        };
    };
    let panicked = panic.map(|text| violation(world.now, text));
    let mut lines = world.trace.unwrap_or_default();
    lines.insert(0, text);
    Run {
        seed,
        violation: panicked.or(world.checker.violation),
        hash: world.hash,
        coverage: world.coverage,
        excused: world.checker.holders.excused,
        length: world.now,
        trace: lines,
    }
}

fn violation(at: u64, text: String) -> Violation {
    Violation {
        rule: Rule::Invariants,
        at,
        text,
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a word"))
}

/// The first of many seeds in which this rule does not hold, with what it said.
#[must_use]
pub fn first_to_break(
    seeds: Range<u64>,
    breakage: Breakage,
    rule: Rule,
    threads: usize,
) -> Option<Run> {
    let step = 16 * threads.max(1) as u64;
    let mut first = seeds.start;
    while first < seeds.end {
        let end = seeds.end.min(first + step);
        let report = many(first..end, breakage, threads, usize::MAX);
        let breaks = |run: &Run| {
            run.violation
                .as_ref()
                .is_some_and(|violation| violation.rule == rule)
        };
        if let Some(run) = report.failed.into_iter().find(breaks) {
            return Some(run);
        }
        first = end;
    }
    None
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many were run.
    pub seeds: u64,
    /// The runs in which a rule did not hold, by seed.
    pub failed: Vec<Run>,
    /// All of them together.
    pub coverage: Coverage,
    /// Locks in two hands that a fault excuses.
    pub excused: u64,
    /// The simulated time, in seconds.
    pub simulated: u64,
}

/// Runs seeds on `threads` threads, up to the first `most` failures.
#[must_use]
pub fn many(seeds: Range<u64>, breakage: Breakage, threads: usize, most: usize) -> Report {
    let next = AtomicU64::new(seeds.start);
    let enough = AtomicBool::new(false);
    let report = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let run = one(seed, breakage, false);
                    let mut report = report.lock().expect("nobody panics while holding it");
                    report.seeds += 1;
                    report.coverage.add(&run.coverage);
                    report.excused += run.excused;
                    report.simulated += run.length / 1_000_000;
                    if run.violation.is_some() {
                        report.failed.push(run);
                        if report.failed.len() >= most {
                            enough.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let mut report = report.into_inner().expect("nobody panics while holding it");
    report.failed.sort_by_key(|run| run.seed);
    report
}
