//! Goal: nodes that do not take each other for peers, because they know different secrets or lists, never
//! make two active nodes of one cluster.
//! Method: `Roles` over a simulated network in which each rejects the links of the other.

use super::role_world::{SECOND, World};

/// Both reject each other from now on; what links there were ends.
fn estrange(world: &mut World, one: usize, other: usize) {
    world.strangers.extend([(one, other), (other, one)]);
}

#[test]
fn a_node_that_a_living_one_does_not_take_for_its_peer_does_not_begin() {
    let mut world = World::new(2, 3);
    estrange(&mut world, 0, 1);
    // Its peer is not there yet, so it begins.
    world.start(1);
    world.until_serves(1, 10 * SECOND);
    world.start(0);
    world.run(60 * SECOND);
    assert_eq!(world.serving(), [1], "even one of higher priority waits");
    world.crash(1);
    world.until_serves(0, 10 * SECOND);
}

#[test]
fn strangers_that_start_together_leave_it_to_those_who_run_them() {
    let mut world = World::new(3, 4);
    for other in [0, 1] {
        estrange(&mut world, 2, other);
    }
    // None of them is called before all are there.
    world.cuts.extend([(0, 1), (0, 2), (1, 2)]);
    for index in 0..3 {
        world.start(index);
    }
    world.cuts.clear();
    world.run(60 * SECOND);
    assert!(world.serving().is_empty(), "{:?}", world.serving());
    world.crash(2);
    world.until_serves(0, 10 * SECOND);
}

#[test]
fn a_standby_with_a_copy_takes_over_from_one_that_comes_back_as_a_stranger() {
    let mut world = World::new(2, 5);
    for index in 0..2 {
        world.start(index);
    }
    world.until_serves(0, SECOND);
    world.run(3 * SECOND);
    world.crash(0);
    estrange(&mut world, 0, 1);
    world.start(0);
    world.until_serves(1, 5 * SECOND);
    world.run(60 * SECOND);
    assert_eq!(world.serving(), [1]);
}
