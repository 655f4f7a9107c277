//! Goal: nothing is decided by what a peer said before it fell silent, slept, died or was asked again.
//! Method: clusters of `Roles` over a simulated network, in which such words are held up, read too late, or outlived by
//! who said them.

use super::role_world::{MS, SECOND, cluster};
use crate::cluster::*;

/// A machine that was lost while it was active comes back with nothing, and asks for a copy before its first beat is read.
#[test]
fn nobody_yields_to_what_a_peer_was_before_it_fell_silent() {
    let mut world = cluster(2);
    world.cuts.insert((0, 1));
    world.run(3 * SECOND);
    assert_eq!(world.serving(), [0, 1]);
    let now = world.at();
    let node = world.nodes[1].as_mut().expect("it runs");
    node.roles.spoke(now, Slot(0));
    world.give(1, Event::Tick);
    world.run(100 * MS);
    assert_eq!(world.serving(), [0, 1]);
    assert_eq!(world.led.len(), 2, "{:?}", world.led);
}

#[test]
fn nobody_takes_over_by_a_word_from_before_a_lost_connection() {
    let mut world = cluster(3);
    // What the other standby says after the connection broke is lost.
    world.give(2, Event::Lost { peer: Slot(1) });
    world.give(2, Event::Refused { peer: Slot(0) });
    world.run(100 * MS);
    assert_eq!(world.serving(), [0]);
    assert_eq!(world.led.len(), 1, "{:?}", world.led);
}

#[test]
fn what_a_process_said_before_it_died_does_not_count_for_the_next_one() {
    let mut world = cluster(3);
    world.crash(0);
    world.until_serves(1, SECOND);
    // Within the failure timeout of its last word as the active one.
    world.run(50 * MS);
    world.start(0);
    for _ in 0..200 {
        world.run(MS);
        assert_eq!(world.serving(), [1], "{}", world.notes.join("\n"));
    }
}
