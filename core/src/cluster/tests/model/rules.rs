//! What holds in every state.

use super::world::{Node, Opened, World};
use crate::cluster::*;

/// The first rule that a state breaks, looked at right after the step that led to it.
pub(super) fn broken_rule(before: &World, after: &World) -> Option<String> {
    after
        .news
        .iter()
        .find_map(|opened| broken_by_opening(before, after, opened))
        .or_else(|| serves_without_its_term(after))
        .or_else(|| two_serve(after))
}

fn serves_without_its_term(world: &World) -> Option<String> {
    world.up().find_map(|(index, node)| {
        let term = node.roles.serving_term();
        let on_disk = term.is_some_and(|term| term <= world.disks[index]);
        (node.serves() && !on_disk).then(|| format!("node {index} serves, {term:?} is not on disk"))
    })
}

/// At most one node serves, unless somebody's silence could be misjudged.
fn two_serve(world: &World) -> Option<String> {
    let serving: Vec<usize> = world
        .up()
        .filter(|(_, node)| node.serves())
        .map(|(index, _)| index)
        .collect();
    (serving.len() > 1 && !world.excused).then(|| format!("{serving:?} serve at once"))
}

fn broken_by_opening(before: &World, after: &World, opened: &Opened) -> Option<String> {
    let Opened {
        index,
        term,
        origin,
        had_all,
        told_term,
    } = *opened;
    if term <= before.opened[index] {
        return Some(format!("node {index} opens term {term} twice"));
    }
    if term <= told_term {
        return Some(format!(
            "node {index} opens term {term} and knew of {told_term}"
        ));
    }
    // Who takes over from somebody has its terms; who finds nobody has the wall clock, if it is right,
    // which cannot tell two that start in the same second apart. Their slots do.
    let takes_over = before.wall_clocks && origin.is_some_and(|origin| origin != Origin::Start);
    let highest = before.opened.iter().max().copied().unwrap_or(0);
    if !after.excused && takes_over && term <= highest {
        return Some(format!("node {index} opens term {term} after {highest}"));
    }
    if after.excused {
        return None;
    }
    let others = || {
        before
            .up()
            .filter(move |(other, node)| *other != index && node.awake())
    };
    // While a stop is under way the place is given, not taken.
    if origin == Some(Origin::Handoff) {
        return (!had_all).then(|| format!("node {index} was given the place without the state"));
    }
    // What the other has said has arrived, and be it with this step.
    let complete = |(other, node): &(usize, &Node)| {
        after.ways[*other][index].packets.is_empty()
            && is_complete(node)
            && counts_as_able(before, index, *other)
    };
    if !had_all && let Some((other, _)) = others().find(complete) {
        return Some(format!(
            "node {index} becomes active with an incomplete copy, {other} has a complete one"
        ));
    }
    None
}

fn is_complete(node: &Node) -> bool {
    let stands = matches!(
        node.roles.stage(),
        Stage::Starting | Stage::Standby | Stage::Candidate
    );
    node.has_all && stands
}

/// Whether a node knows of another one that lives and could lead.
fn counts_as_able(world: &World, index: usize, other: usize) -> bool {
    let known = |node: &Node| {
        node.roles
            .peers(world.at())
            .any(|(slot, beat, lives)| slot.index() == other && lives && beat.can_lead)
    };
    world.node(index).is_some_and(known)
}

/// Whether somebody becomes active although a living peer hears the active node; that holds during a
/// cut as well, and is what makes a standby patient that has lost only its own way.
pub(super) fn taken_from_the_living(before: &World, after: &World) -> Option<String> {
    let opened = after.news.iter().find(|opened| {
        opened
            .origin
            .is_some_and(|origin| origin != Origin::Handoff)
    })?;
    let passes = |from: usize, to: usize| {
        let way = &before.ways[from][to];
        !way.cut && !way.stalled && way.open.is_some()
    };
    // What was said has arrived, and be it with this step.
    let clear =
        |from: usize, to: usize| passes(from, to) && after.ways[from][to].packets.is_empty();
    before.up().find_map(|(teller, node)| {
        let Stance::Redirect(active) = node.roles.stance() else {
            return None;
        };
        let active = active.index();
        let index = opened.index;
        let serves = before.node(active).is_some_and(Node::serves);
        let counts_as_living = || {
            let mut known = before.node(index)?.roles.peers(before.at());
            known.find(|(slot, _, lives)| slot.index() == teller && *lives)
        };
        let told = teller != index && node.awake() && clear(teller, index) && passes(index, teller);
        let told = told && counts_as_living().is_some();
        (serves && told && active != index && clear(active, teller) && clear(teller, active))
            .then(|| format!("node {index} takes over, and {teller} hears {active}"))
    })
}
