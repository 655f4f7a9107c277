//! Goal: nothing is decided by what a peer said before it fell silent, slept, died or was asked again.
//! Method: clusters of `Roles` over a simulated network, in which such words are held up, read too late, or outlived by
//! who said them.

use super::role_world::{MS, Packet, SECOND, World, cluster};
use crate::cluster::*;

/// What node `at` keeps of what its peer said, and whether that counts as living.
fn known(world: &World, at: usize, peer: usize) -> (Beat, bool) {
    let node = world.nodes[at].as_ref().expect("it runs");
    let mut peers = node.roles.peers(world.at());
    let found = peers.find(|(slot, ..)| slot.index() == peer);
    found.map(|(_, beat, lives)| (beat, lives)).expect("a peer")
}

fn stance(world: &World, index: usize) -> Stance {
    let node = world.nodes[index].as_ref().expect("it runs");
    node.roles.stance()
}

/// Two nodes that do not hear each other any more, and are both active.
fn parted() -> World {
    let mut world = cluster(2);
    world.cuts.insert((0, 1));
    world.run(3 * SECOND);
    assert_eq!(world.serving(), [0, 1]);
    world
}

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

/// A message is not about what its sender is, so it says nothing of one that may be another by now.
#[test]
fn who_had_fallen_silent_lives_again_with_its_next_beat_and_by_no_other_message() {
    let round = 1;
    let handoff = |step| Message::Handoff { round, step };
    let copy = Copy::default();
    for message in [
        Message::Fetch { round, copy },
        Message::Fetched { round },
        handoff(Handoff::Offer),
        handoff(Handoff::Ready),
        handoff(Handoff::Withdraw),
        handoff(Handoff::Final { sequence: 1 }),
        handoff(Handoff::Taken),
    ] {
        let mut world = parted();
        let from = Slot(0);
        world.give(1, Event::Heard { from, message });
        assert!(!known(&world, 1, 0).1, "{message:?}");
        world.run(100 * MS);
        assert_eq!(world.serving(), [0, 1], "{message:?}");
    }
}

#[test]
fn a_sleep_brings_nobody_back_who_had_fallen_silent_before() {
    let mut world = parted();
    world.give(1, Event::Woke);
    assert!(!known(&world, 1, 0).1);
    for _ in 0..1100 {
        assert!(matches!(stance(&world, 1), Stance::Freeze | Stance::Serve));
        world.run(MS);
    }
    assert_eq!(world.serving(), [0, 1], "{}", world.notes.join("\n"));
    // Nor does a standby go back to the one that was active before.
    let mut world = cluster(3);
    world.cuts.extend([(0, 1), (0, 2)]);
    world.run(3 * SECOND);
    world.give(2, Event::Woke);
    for _ in 0..1100 {
        assert_eq!(stance(&world, 2), Stance::Redirect(Slot(1)));
        world.run(MS);
    }
}

/// The active node of higher priority dies between its word and the link over which it would be given everything; another
/// process with nothing is there when that is made.
#[test]
fn nobody_yields_before_the_other_active_node_has_answered() {
    let mut world = parted();
    let (beat, _) = known(&world, 1, 0);
    assert_eq!(beat.stage, Stage::Active);
    let (from, message) = (Slot(0), Message::Beat(beat));
    world.give(1, Event::Heard { from, message });
    assert_eq!(stance(&world, 1), Stance::Freeze, "it waits for an answer");
    world.start(0);
    world.cuts.clear();
    world.give(1, Event::Lost { peer: Slot(0) });
    for _ in 0..500 {
        world.run(MS);
        assert!(matches!(stance(&world, 1), Stance::Freeze | Stance::Serve));
    }
    assert_eq!(world.serving(), [1], "{}", world.notes.join("\n"));
}

/// Where the other one is heard but cannot be asked, somebody has to give way all the same.
#[test]
fn who_hears_another_active_node_but_gets_no_answer_yields_after_the_failure_timeout() {
    let mut world = parted();
    let (beat, _) = known(&world, 1, 0);
    let (from, message) = (Slot(0), Message::Beat(beat));
    let begun = world.now;
    while stance(&world, 1) != Stance::Redirect(from) {
        world.give(1, Event::Heard { from, message });
        world.run(10 * MS);
        assert!(world.now < begun + 2 * SECOND);
    }
    let took = world.now - begun;
    assert!((1000 * MS..1100 * MS).contains(&took), "{took}");
}

/// What an active node had sent when it fell asleep is read after another one has taken over, and both know of each
/// other by words from before.
#[test]
fn of_two_active_nodes_that_hear_of_each_other_by_old_words_one_keeps_its_state() {
    let mut world = cluster(2);
    let (beat, _) = known(&world, 1, 0);
    world.sleep(0);
    world.run(2 * SECOND);
    let (from, message) = (Slot(0), Message::Beat(beat));
    world.give(1, Event::Heard { from, message });
    world.wake(0);
    world.run(100 * MS);
    let yields = |note: &&String| note.contains("another node is active too");
    let notes = &world.notes;
    assert_eq!(
        notes.iter().filter(yields).count(),
        1,
        "{}",
        notes.join("\n")
    );
    assert_eq!(world.serving().len(), 1);
}

/// A third node has what the second one did while the first one slept; so that may not go on with what it had before.
#[test]
fn what_came_after_a_sleep_counts_even_if_who_did_it_stands_still_by_now() {
    let mut world = cluster(3);
    world.sleep(0);
    world.run(2 * SECOND);
    assert_eq!(world.serving(), [0, 1], "the one that sleeps cannot know");
    world.sleep(1);
    world.wake(0);
    let begun = world.now;
    while !world.serving().contains(&2) {
        world.run(MS);
        assert!(!world.serving().contains(&0), "{}", world.notes.join("\n"));
        assert!(world.now < begun + 3 * SECOND);
    }
}

/// The word that the successor may begin lies in the network until the active node has gone on without it.
#[test]
fn an_offer_ends_with_the_silence_of_who_made_it() {
    let mut world = cluster(3);
    world.crash(0);
    world.until_serves(1, SECOND);
    world.start(0);
    let begun = world.now;
    let is_final = |packet: &Packet| {
        let Packet::Roles(Message::Handoff { step, .. }) = packet else {
            return false;
        };
        matches!(step, Handoff::Final { .. })
    };
    let held_up = loop {
        world.run(MS / 10);
        assert!(world.now < begun + 10 * SECOND);
        let mut packets = world.packets.values();
        if let Some((to, from, packet)) = packets.find(|(.., packet)| is_final(packet)) {
            break (*to, *from, *packet);
        }
    };
    assert_eq!((held_up.0, held_up.1), (0, 1));
    world.packets.retain(|_, (.., packet)| !is_final(packet));
    // The changes before it have arrived.
    world.run(MS / 2);
    world.cuts.insert((0, 1));
    world.run(1500 * MS);
    assert_eq!(
        world.serving(),
        [1],
        "it goes on, and the third one says so"
    );
    world.arrive(held_up.0, held_up.1, held_up.2);
    world.run(100 * MS);
    assert_eq!(world.serving(), [1]);
}

/// A node knows of a peer only what its process before the present one was. A third node hears the present one.
#[test]
fn whom_a_third_node_hears_is_not_doubted_because_of_a_process_that_is_long_gone() {
    let mut world = cluster(3);
    world.cuts.insert((0, 1));
    // Only the third one can take over.
    world.disk_broken[1] = true;
    world.give(1, Event::TermFailed { term: 1 });
    world.run(3 * SECOND);
    world.crash(0);
    world.packets.clear();
    world.start(0);
    world.until_serves(2, SECOND);
    world.until_serves(0, 10 * SECOND);
    world.run(100 * MS);
    assert_eq!(stance(&world, 1), Stance::Redirect(Slot(0)));
    world.disk_broken[1] = false;
    for _ in 0..3000 {
        world.run(MS);
        assert_eq!(world.serving(), [0], "{}", world.notes.join("\n"));
    }
}

#[test]
fn a_better_node_that_had_fallen_silent_waits_for_its_place_anew() {
    let mut world = cluster(2);
    world.crash(0);
    world.until_serves(1, SECOND);
    world.start(0);
    world.run(SECOND);
    let copies = world.nodes[0]
        .as_ref()
        .is_some_and(|node| node.copy.complete);
    assert!(copies && world.serving() == [1]);
    let (beat, _) = known(&world, 1, 0);
    assert_eq!(beat.stage, Stage::Standby);
    // It is read no more for longer than it has to be a standby.
    let heard = world.now;
    while world.now < heard + 5 * SECOND {
        world.packets.retain(|_, (to, ..)| *to != 1);
        world.run(MS);
    }
    let took = world.until_serves(0, 10 * SECOND);
    assert!(took > 3500 * MS, "{took}");
}
