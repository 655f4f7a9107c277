//! Goal: the active place goes to another node in order: when a node stops, and when a better one has come back. Method:
//! clusters of `Roles` over a simulated network, whose nodes are told to stop, do not answer, or lose a word.

use super::role_world::{MS, Packet, SECOND, World, cluster};
use crate::cluster::*;

#[test]
fn no_higher_term_is_opened_while_a_handoff_is_under_way() {
    let mut world = cluster(3);
    world.give(0, Event::Stop);
    world.give(0, Event::TermSeen { term: 1000 });
    let node = world.nodes[0].as_mut().expect("it runs");
    let late = std::mem::take(&mut node.written);
    assert_eq!(late, [1001]);
    while world.nodes[0].as_ref().map(|node| node.roles.stage()) != Some(Stage::HandingOver) {
        world.run(MS / 10);
    }
    let before = world.led.len();
    world.give(0, Event::TermWritten { term: 1001 });
    assert_eq!(world.led.len(), before, "{:?}", world.led);
}

#[test]
fn a_handoff_that_a_successor_slept_through_is_off() {
    let mut world = cluster(3);
    world.give(0, Event::Stop);
    let ready = |world: &World| {
        let node = world.nodes[0].as_ref().expect("it hands over");
        node.roles.stage() == Stage::HandingOver
    };
    while !ready(&world) {
        world.run(MS / 10);
    }
    world.sleep(1);
    world.run(1500 * MS);
    assert_eq!(world.serving(), [2], "the next one was asked");
    let node = world.nodes[1].as_mut().expect("it sleeps");
    node.asleep = false;
    let unread = std::mem::take(&mut node.backlog);
    world.give(1, Event::Woke);
    for (from, packet) in unread {
        world.arrive(1, from, packet);
        assert_eq!(world.serving(), [2], "after {packet:?}");
    }
}

#[test]
fn a_better_node_gets_its_place_back_by_handoff_after_the_delay() {
    let mut world = cluster(3);
    world.crash(0);
    world.until_serves(1, SECOND);
    world.run(SECOND);
    world.start(0);
    let took = world.until_serves(0, 10 * SECOND);
    // It had become active and died within ten minutes, so it waits twice as long.
    assert!((4000 * MS..4400 * MS).contains(&took), "{took}");
    assert_eq!(world.led.last().map(|l| l.3), Some(Origin::Handoff));
}

#[test]
fn an_orderly_stop_hands_over_at_once() {
    let mut world = cluster(3);
    world.give(0, Event::Stop);
    assert!(world.until_serves(1, SECOND) < 20 * MS);
    assert_eq!(world.led.last().map(|l| l.3), Some(Origin::Handoff));
    world.run(5 * MS);
    let leaving = world.nodes[0].as_ref().expect("it drains").roles.stance();
    assert_eq!(leaving, Stance::Leave(Some(Slot(1))));
    world.run(3 * SECOND);
    assert!(world.nodes[0].is_none(), "it has gone");
}

#[test]
fn a_node_that_hands_over_does_not_raise_its_term_above_that_of_its_successor() {
    let mut world = cluster(3);
    world.give(0, Event::Stop);
    world.until_serves(1, SECOND);
    // What the third node says of the new term comes before the successor's own word.
    world.run(100 * MS);
    assert_eq!(world.led.len(), 2, "{:?}", world.led);
}

#[test]
fn a_stop_tries_the_next_one_when_the_first_does_not_answer() {
    let mut world = cluster(3);
    world.sleep(1);
    world.give(0, Event::Stop);
    let took = world.until_serves(2, 3 * SECOND);
    assert!(took < 1300 * MS, "{took}");
}

#[test]
fn a_successor_that_serves_has_taken_over_even_if_its_word_got_lost() {
    let mut world = cluster(3);
    world.give(0, Event::Stop);
    let taken = |packet: &Packet| {
        matches!(
            packet,
            Packet::Roles(Message::Handoff {
                step: Handoff::Taken,
                ..
            })
        )
    };
    let mut lost = false;
    for _ in 0..100 {
        world.run(MS / 5);
        let before = world.packets.len();
        world.packets.retain(|_, (.., packet)| !taken(packet));
        lost |= world.packets.len() < before;
    }
    assert!(lost, "the word was on its way");
    let leaving = world.nodes[0].as_ref().expect("it drains").roles.stance();
    assert_eq!(leaving, Stance::Leave(Some(Slot(1))));
    assert_eq!(world.serving(), [1]);
}

#[test]
fn a_node_without_peers_alive_leaves_alone() {
    let mut world = cluster(2);
    world.crash(1);
    world.run(500 * MS);
    world.give(0, Event::Stop);
    let stance = world.nodes[0].as_ref().expect("it drains").roles.stance();
    assert_eq!(stance, Stance::Leave(None));
}

#[test]
fn preempt_can_be_switched_off() {
    let mut world = World::new(2, 1);
    world.start(1);
    world.until_serves(1, SECOND);
    if let Some(node) = &mut world.nodes[1] {
        let timing = Timing {
            preempt: false,
            ..Timing::default()
        };
        node.roles.set_timing(timing);
    }
    world.start(0);
    world.run(20 * SECOND);
    assert_eq!(world.serving(), [1]);
}
