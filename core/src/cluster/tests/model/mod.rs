//! Every state that the roles of three nodes can come to: the pure code itself, run from state to state
//! along every order of events within the bounds, each state looked at once and the nearest first, so
//! that what is wrong comes with the shortest way to it.
//!
//! What is abstracted, and what is not:
//!
//! - Time stands still while anything is under way, and then goes on to the next moment at which a node
//!   has something to do. All times are whole halves of a second, so that silences, beats and delays
//!   meet in every order. A state knows how long ago things were, not when ([`Roles`] gives a
//!   fingerprint of itself in which all times count from now), so that a calm cluster is a circle.
//! - Each way from one node to another keeps its order. Across the ways things arrive in the order in
//!   which they were sent, except that at each moment so many may overtake; some searches set no limit
//!   to that. A beat that says what its receiver knows arrives at once, or not at all where one like it
//!   waits unread already.
//! - The state of the locks is a number: a grant adds one, and a copy is a number that it has.
//! - A way that is cut loses what is sent, one that stalls keeps it. A connection that breaks takes along
//!   all that was under way and both ends hear of it. A single word can also be lost, or come again at
//!   once or late, which no connection does: two nodes may be active for a while then, and the rest of
//!   the rules holds.
//! - The bounds of each search stand with it. A cut that never ends beside a second one, and a way that
//!   stalls for ever beside a crash, have no end of states (terms rise, words pile up) and are left to
//!   the simulation.
//!
//! Rules: see `rules`; and from every state at rest the cluster finds, once nothing more goes wrong, to the
//! living node of highest priority serving alone with the others copying it. `FAIRLOCK_MODEL_FAULTS=1`
//! lets so many more things go wrong in each search, which takes minutes to hours.
//!
//! [`Roles`]: crate::cluster::Roles

mod effects;
mod faults;
mod fingerprint;
mod play;
mod rules;
mod search;
mod step;
mod world;

use faults::{Breakage, Kind, Limits};
use search::{Seen, search};
use world::{NODES, World};

/// More states than any search within its bounds has.
const MOST: usize = 1_500_000;

/// Three nodes that start in the same moment.
fn cold(breakage: Breakage) -> World {
    let mut world = World::new(breakage);
    for index in 0..NODES {
        world.start(index);
    }
    world
}

/// A cluster that has started and come to rest.
fn settled(breakage: Breakage) -> World {
    let mut world = cold(breakage);
    let mut steps = Vec::new();
    for _ in 0..200 {
        steps.clear();
        world.ordinary_steps(&mut steps);
        world.take(steps[0]);
        world.note_opened();
    }
    while !world.at_rest() {
        steps.clear();
        world.ordinary_steps(&mut steps);
        world.take(steps[0]);
    }
    assert!(world.is_settled(), "it comes to rest");
    world
}

/// How many more faults than usual.
fn more_faults() -> u8 {
    std::env::var("FAIRLOCK_MODEL_FAULTS").map_or(0, |text| {
        text.parse()
            .expect("FAIRLOCK_MODEL_FAULTS is a small number")
    })
}

fn holds(name: &str, root: World, limits: Limits) -> Seen {
    let more = more_faults();
    let most = if more == 0 { MOST } else { usize::MAX };
    match search(root, &limits.more(more), most) {
        Ok(seen) => {
            println!("{name}: {seen}");
            seen
        }
        Err(story) => panic!("{name}: {story}"),
    }
}

/// Every kind of fault happens.
const ANY: [Kind; 12] = [
    Kind::Crash,
    Kind::Stop,
    Kind::Freeze,
    Kind::CutOneWay,
    Kind::CutBoth,
    Kind::Isolate,
    Kind::Stall,
    Kind::Break,
    Kind::Lose,
    Kind::Repeat,
    Kind::RepeatLate,
    Kind::BreakDisk,
];

const STARTS: [Kind; 2] = [Kind::Start, Kind::StartBlank];

#[test]
fn every_order_of_a_start_and_of_a_small_fault_keeps_the_rules() {
    holds("a start", cold(Breakage::None), Limits::of(0));
    let small = [
        Kind::Crash,
        Kind::Break,
        Kind::CutOneWay,
        Kind::CutBoth,
        Kind::Stall,
        Kind::BreakDisk,
        Kind::Stop,
    ];
    let limits = Limits::of(1).allow(1, &small);
    holds("a small fault", settled(Breakage::None), limits);
}

#[test]
fn faults_of_any_kind_at_any_moment_keep_the_rules() {
    let mut happened = [0; Kind::ALL.len()];
    let mut holds = |name: &str, limits: Limits| {
        let seen = holds(name, settled(Breakage::None), limits);
        for (all, one) in happened.iter_mut().zip(seen.by_kind) {
            *all += one;
        }
    };
    let one = Limits::of(1).allow(1, &ANY).allow(1, &STARTS);
    holds("one fault", one.overtaking(2));

    let two = Limits::of(2).overtaking(0);
    let ends = [Kind::Crash, Kind::Stop, Kind::Break, Kind::BreakDisk];
    holds("two ends", two.allow(2, &ends).allow(1, &[Kind::Start]));
    let words = [
        Kind::Freeze,
        Kind::Stop,
        Kind::Lose,
        Kind::Repeat,
        Kind::RepeatLate,
    ];
    holds("sleeps and words", two.allow(1, &words));
    for cut in [Kind::Isolate, Kind::CutBoth, Kind::CutOneWay] {
        holds("a cut and a crash", two.allow(1, &[cut, Kind::Crash]));
    }
    for kind in ANY {
        assert!(happened[kind as usize] > 0, "{kind:?} happens");
    }
}

#[test]
fn faults_at_a_start_keep_the_rules() {
    let kinds = [
        Kind::Crash,
        Kind::Break,
        Kind::Stop,
        Kind::Freeze,
        Kind::BreakDisk,
    ];
    let limits = Limits::of(1).allow(1, &kinds).overtaking(0);
    holds("a fault at a start", cold(Breakage::None), limits);
}

#[test]
fn what_was_granted_in_between_is_fetched() {
    let kinds = [Kind::Crash, Kind::Stop, Kind::Break, Kind::Stall];
    let limits = Limits::of(1)
        .allow(1, &kinds)
        .allow(2, &[Kind::Change])
        .overtaking(1);
    holds("grants", settled(Breakage::None), limits);
}

#[test]
fn no_node_opens_a_term_twice_as_long_as_its_disk_lasts() {
    let mut root = settled(Breakage::None);
    root.wall_clocks = false;
    let limits = Limits::of(3)
        .allow(3, &[Kind::Crash])
        .allow(1, &[Kind::Start])
        .overtaking(0);
    holds("no wall clock", root, limits);
}

/// The model has to find what a broken build does, and finds the rule that it breaks.
fn finds(breakage: Breakage, root: World, kinds: &[Kind], rule: &str) {
    let limits = Limits::of(2).allow(2, kinds).overtaking(0);
    let story = match search(root, &limits, MOST) {
        Ok(seen) => panic!("{breakage:?} goes unnoticed: {seen}"),
        Err(story) => story,
    };
    let what = story.lines().next().unwrap_or_default();
    assert!(what.contains(rule), "{breakage:?}: {story}");
    println!("{breakage:?}: {} lines, {what}", story.lines().count());
}

#[test]
fn a_build_that_opens_a_term_not_above_all_others_is_found() {
    let breakage = Breakage::SkipTermBump;
    let mut root = settled(breakage);
    root.wall_clocks = false;
    finds(breakage, root, &[Kind::Crash], "and knew of");
}

#[test]
fn a_build_that_forgets_the_term_file_is_found() {
    let breakage = Breakage::ForgetTermFile;
    let mut root = settled(breakage);
    root.wall_clocks = false;
    root.crash(2);
    root.crash(1);
    let kinds = [Kind::Crash, Kind::Start];
    finds(breakage, root, &kinds, "opens term");
}

#[test]
fn a_build_that_serves_before_its_term_is_on_disk_is_found() {
    let breakage = Breakage::ServeBeforeDisk;
    finds(breakage, cold(breakage), &[], "is not on disk");
}

#[test]
fn a_build_that_takes_over_from_the_living_is_found() {
    let breakage = Breakage::TakeOverAnyway;
    let root = settled(breakage);
    finds(breakage, root, &[Kind::CutBoth], "takes over, and");
}

#[test]
fn a_build_that_promotes_an_incomplete_copy_is_found() {
    let breakage = Breakage::PromoteIncomplete;
    let root = cold(breakage);
    let kinds = [Kind::Crash, Kind::Break];
    finds(breakage, root, &kinds, "incomplete copy");
}

#[test]
fn a_build_in_which_two_active_nodes_go_on_side_by_side_is_found() {
    let breakage = Breakage::IgnoreOtherActive;
    let root = settled(breakage);
    let rule = "does not serve alone";
    finds(breakage, root, &[Kind::Isolate], rule);
}

#[test]
fn a_build_that_does_not_notice_that_it_slept_is_found() {
    let breakage = Breakage::SleepUnnoticed;
    let root = settled(breakage);
    finds(breakage, root, &[Kind::Freeze], "serve at once");
}
