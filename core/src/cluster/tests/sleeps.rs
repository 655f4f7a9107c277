//! Goal: a node that has stood still decides nothing by what was before: it looks first, and the silence it has slept through
//! is nobody's death. Method: clusters of `Roles` over a simulated network, in which nodes sleep and wake.

use super::role_world::{MS, SECOND, World, cluster};
use crate::cluster::*;

#[test]
fn a_node_that_slept_yields_to_the_one_that_took_over_before_it_serves_anything() {
    let mut world = cluster(3);
    world.sleep(0);
    world.run(2 * SECOND);
    // What it did before it slept says nothing now: its clients find it frozen.
    world.wake(0);
    assert!(world.nodes[0].as_ref().is_some_and(|node| !node.serves));
    for _ in 0..100 {
        world.run(MS);
        let both = world.nodes[0].as_ref().is_some_and(|node| node.serves)
            && world.nodes[1].as_ref().is_some_and(|node| node.serves);
        assert!(!both, "the one that slept serves beside its successor");
    }
    world.settled("a sleep");
}

#[test]
fn what_lay_unread_while_a_node_slept_does_not_make_it_serve() {
    let mut world = cluster(3);
    world.sleep(0);
    world.run(2 * SECOND);
    assert_eq!(world.serving(), [0, 1], "the one that sleeps cannot know");
    let node = world.nodes[0].as_mut().expect("it sleeps");
    node.asleep = false;
    let unread = std::mem::take(&mut node.backlog);
    world.give(0, Event::Woke);
    // The first of it is from before the takeover.
    for (from, packet) in unread {
        world.arrive(0, from, packet);
        let serves = world.nodes[0].as_ref().is_some_and(|node| node.serves);
        assert!(!serves, "after {packet:?} from {from}");
    }
    assert!(world.nodes[1].as_ref().is_some_and(|node| node.serves));
    world.run(5 * MS);
    let stance = world.nodes[0].as_ref().map(|node| node.roles.stance());
    assert_eq!(stance, Some(Stance::Redirect(Slot(1))));
    assert_eq!(
        world.serving(),
        [1],
        "nor does the one that took over give way to it"
    );
}

#[test]
fn refusals_from_before_a_sleep_do_not_count() {
    let mut world = World::new(2, 1);
    world.start(0);
    // Refused, and about to write its term.
    world.packets.clear();
    world.give(0, Event::Refused { peer: Slot(1) });
    world.sleep(0);
    world.start(1);
    world.run(4 * SECOND);
    assert_eq!(world.serving(), [1]);
    let node = world.nodes[0].as_mut().expect("it sleeps");
    node.asleep = false;
    node.backlog.clear();
    world.give(0, Event::Woke);
    for _ in 0..100 {
        assert_eq!(world.serving(), [1]);
        world.run(5 * MS);
    }
}

#[test]
fn a_standby_that_slept_takes_over_only_after_a_full_failure_timeout() {
    let mut world = cluster(2);
    world.sleep(1);
    world.run(2 * SECOND);
    world.crash(0);
    world.wake(1);
    let took = world.until_serves(1, 3 * SECOND);
    assert!((1000 * MS..1100 * MS).contains(&took), "{took}");
}

#[test]
fn a_node_that_slept_waits_for_peers_that_were_dead_before() {
    let mut world = cluster(2);
    world.crash(1);
    world.run(SECOND);
    world.sleep(0);
    world.start(1);
    world.run(4 * SECOND);
    assert!(world.nodes[1].as_ref().is_some_and(|node| node.serves));
    let node = world.nodes[0].as_mut().expect("it sleeps");
    node.asleep = false;
    node.backlog.clear();
    world.give(0, Event::Woke);
    for _ in 0..100 {
        let serves = world.nodes[0].as_ref().is_some_and(|node| node.serves);
        assert!(!serves, "beside the one that started meanwhile");
        world.run(5 * MS);
    }
    assert_eq!(world.serving(), [1]);
}

#[test]
fn a_node_that_slept_alone_goes_on_once_its_peers_have_spoken() {
    let mut world = cluster(3);
    world.sleep(0);
    world.run(600 * MS);
    world.wake(0);
    assert!(world.until_serves(0, SECOND) < 300 * MS);
    assert_eq!(world.led.len(), 1, "nobody took over: {:?}", world.led);
}
