//! Goal: whatever the network and the nodes go through, roles come out as behaviour 3 says.
//! Method: whole clusters of `Roles` over a simulated network, some faults by hand and many by seed.

use super::role_world::{MS, Packet, SECOND, World, cluster};
use crate::cluster::*;
use crate::engine::Time;

#[test]
fn a_lone_node_serves_as_soon_as_its_term_is_on_disk() {
    let mut world = World::new(1, 1);
    world.start(0);
    assert!(world.serving().is_empty(), "not before the term is on disk");
    assert!(world.until_serves(0, SECOND) <= 2 * MS);
    assert_eq!(world.led[0].3, Origin::Start);
}

#[test]
fn nodes_that_start_together_agree_on_the_first_at_once() {
    let mut world = World::new(3, 1);
    for index in 0..3 {
        world.start(index);
    }
    assert!(world.until_serves(0, SECOND) < 50 * MS);
    world.run(5 * SECOND);
    assert_eq!(world.led.len(), 1, "{:?}", world.led);
}

#[test]
fn a_connection_that_a_dying_node_still_takes_does_not_delay_the_takeover() {
    let mut world = cluster(3);
    world.crash(0);
    world.listens_until[0] = world.now + 10 * MS;
    assert!(world.until_serves(1, SECOND) < 50 * MS);
}

#[test]
fn a_node_does_not_start_beside_silent_ones_before_the_discovery_timeout() {
    let mut world = World::new(2, 1);
    world.cuts.insert((0, 1));
    world.start(1);
    let took = world.until_serves(1, 5 * SECOND);
    assert!((3000 * MS..3100 * MS).contains(&took), "{took}");
}

#[test]
fn a_refusal_is_an_answer() {
    let mut world = World::new(3, 1);
    world.start(2);
    assert!(world.until_serves(2, SECOND) < 50 * MS);
}

#[test]
fn after_a_crash_the_next_one_takes_over_within_milliseconds() {
    let mut world = cluster(3);
    world.crash(0);
    assert!(world.until_serves(1, SECOND) < 50 * MS);
    assert_eq!(world.led.last().map(|l| l.3), Some(Origin::Takeover));
    world.crash(1);
    assert!(world.until_serves(2, SECOND) < 50 * MS);
    world.check_history("two crashes");
}

#[test]
fn silence_counts_as_death_after_the_failure_timeout() {
    let mut world = cluster(3);
    world.sleep(0);
    let took = {
        let begun = world.now;
        while world.nodes[1].as_ref().is_some_and(|node| !node.serves) {
            world.run(MS);
            assert!(world.now < begun + 2 * SECOND);
        }
        world.now - begun
    };
    assert!((700 * MS..1300 * MS).contains(&took), "{took}");
}

#[test]
fn two_active_nodes_that_only_a_third_one_hears_do_not_race_for_the_higher_term() {
    let mut world = cluster(3);
    world.cuts.extend([(0, 1), (0, 2)]);
    world.run(3 * SECOND);
    assert_eq!(world.serving(), [0, 1]);
    world.cuts.remove(&(0, 2));
    world.run(10 * SECOND);
    assert!(world.led.len() < 100, "{} terms", world.led.len());
}

#[test]
fn an_active_node_that_comes_back_without_its_state_gives_way_to_the_best_standby() {
    let mut world = cluster(3);
    world.crash(0);
    world.packets.clear();
    world.start(0);
    assert!(world.until_serves(1, SECOND) < 50 * MS);
}

#[test]
fn a_term_that_somebody_names_while_it_is_written_is_not_opened() {
    let mut world = World::new(1, 1);
    world.start(0);
    world.until_serves(0, SECOND);
    let term = |world: &World| {
        world.nodes[0]
            .as_ref()
            .and_then(|node| node.roles.serving_term())
    };
    let first = term(&world).expect("it serves");
    world.give(0, Event::TermSeen { term: first + 5 });
    world.give(0, Event::TermSeen { term: first + 6 });
    world.until_serves(0, SECOND);
    assert_eq!(term(&world), Some(first + 7));
}

#[test]
fn a_deadline_lies_ahead_once_the_rules_were_looked_at() {
    let mut world = cluster(3);
    world.disk_broken[1] = true;
    world.sleep(2);
    for _ in 0..5000 {
        world.run(MS);
        for index in 0..2 {
            let now = Time(world.now);
            world.give(index, Event::Tick);
            let node = world.nodes[index].as_ref().expect("it runs");
            assert!(node.roles.next_deadline() > Some(now), "node {index}");
        }
    }
}

#[test]
fn a_standby_that_lost_only_its_own_way_to_the_active_node_stays_a_standby() {
    let mut world = cluster(3);
    world.cuts.insert((0, 1));
    world.run(10 * SECOND);
    assert_eq!(world.serving(), [0]);
    let stance = world.nodes[1].as_ref().map(|node| node.roles.stance());
    assert_eq!(stance, Some(Stance::Redirect(Slot(0))));
    // The other one can tell when the active node is really gone.
    world.crash(0);
    let begun = world.now;
    while world.serving().is_empty() && world.now < begun + 2 * SECOND {
        world.run(MS);
    }
    assert_eq!(world.serving().len(), 1);
}

#[test]
fn two_active_nodes_that_meet_become_one() {
    let mut world = cluster(3);
    world.cuts.extend([(0, 1), (0, 2)]);
    world.run(3 * SECOND);
    assert_eq!(world.serving(), [0, 1]);
    world.cuts.clear();
    world.until_serves(0, SECOND);
    let (_, index, term, _) = *world.led.last().expect("terms were opened");
    assert_eq!(index, 0);
    assert!(
        world
            .led
            .iter()
            .all(|(_, other, known, _)| (*other, *known) == (0, term) || *known < term),
        "the one that stays opens a term above both: {:?}",
        world.led
    );
    world.settled("a partition");
}

#[test]
fn a_node_that_cannot_write_its_term_leaves_the_place_to_another() {
    let mut world = cluster(3);
    world.disk_broken[1] = true;
    world.crash(0);
    assert!(world.until_serves(2, SECOND) < 100 * MS);
    assert!(world.notes.iter().any(|note| note.contains("cannot write")));
    world.disk_broken[1] = false;
    world.until_serves(1, 10 * SECOND);
    world.settled("a full disk");
}

#[test]
fn a_node_whose_disk_hangs_leaves_the_place_to_another() {
    let mut world = cluster(3);
    world.disk_hangs[1] = true;
    world.crash(0);
    let took = world.until_serves(2, 3 * SECOND);
    assert!((1000 * MS..1300 * MS).contains(&took), "{took}");
    assert!(world.notes.iter().any(|note| note.contains("cannot write")));
    let writes = world.nodes[1].as_ref().map(|node| node.written.len());
    world.run(5 * SECOND);
    let later = world.nodes[1].as_ref().map(|node| node.written.len());
    assert_eq!(
        (writes, later),
        (Some(1), Some(1)),
        "one waits, and no others behind it"
    );
    world.disk_hangs[1] = false;
    world.until_serves(1, 10 * SECOND);
    world.settled("a disk that hung");
}

#[test]
fn an_active_node_that_is_not_in_the_own_list_is_nobody_to_send_clients_to() {
    let mut world = World::new(2, 1);
    world.start(1);
    let told = Message::Beat(Beat {
        incarnation: 99,
        stage: Stage::Standby,
        active: Some((Slot(7), 1)),
        ..Beat::default()
    });
    let (from, message) = (Slot(0), told);
    world.give(1, Event::Heard { from, message });
    let node = world.nodes[1].as_ref().expect("it lives");
    assert_eq!(
        (node.roles.stance(), node.roles.active()),
        (Stance::Park, None)
    );
}

/// Goal: two processes that call themselves the same node do not take the link from each other as fast
/// as they can.
#[test]
fn links_that_end_as_soon_as_they_are_made_are_made_again_with_pauses() {
    let mut world = cluster(2);
    let peer = Slot(0);
    let dials = |world: &mut World| {
        world.packets.clear();
        world.give(1, Event::Lost { peer });
        let dialled = world
            .packets
            .values()
            .any(|(to, _, packet)| *to == 1 && matches!(packet, Packet::Connected));
        world.packets.clear();
        world.give(1, Event::Connected { peer });
        dialled
    };
    let at_once: Vec<bool> = (0..6).map(|_| dials(&mut world)).collect();
    assert_eq!(at_once, [true, true, true, true, false, false]);
}

#[test]
fn crashes_alone_never_make_two_active_nodes_and_terms_only_rise() {
    for seed in 0..10 {
        let mut world = World::new(3, seed);
        for index in 0..3 {
            world.start(index);
        }
        for _ in 0..40 {
            let pause = world.below(50) * MS;
            world.run(pause);
            let index = world.below(3) as usize;
            match world.below(3) {
                0 => world.crash(index),
                1 if world.nodes[index].is_none() => world.start(index),
                _ => {
                    let pause = world.below(2000) * MS;
                    for _ in 0..pause / (10 * MS) {
                        world.run(10 * MS);
                        assert!(
                            world.serving().len() <= 1,
                            "seed {seed}: {:?}\n{}",
                            world.serving(),
                            world.notes.join("\n")
                        );
                    }
                }
            }
        }
        // Where nobody lives who knows the last term, the wall clock is all there is, and it counts in
        // seconds; whoever takes over from somebody is above it for certain.
        let rises = world.led.windows(2).all(|pair| {
            pair[1].2 > pair[0].2 || (pair[1].2 == pair[0].2 && pair[1].3 == Origin::Start)
        });
        assert!(rises, "seed {seed}: {:?}", world.led);
        world.settled(&format!("seed {seed}"));
    }
}

#[test]
fn after_any_faults_the_best_node_serves_alone() {
    for seed in 0..10 {
        let size = 2 + (seed % 4) as usize;
        let mut world = World::new(size, seed);
        for index in 0..size {
            world.start(index);
        }
        for _ in 0..40 {
            let (a, b) = (
                world.below(size as u64) as usize,
                world.below(size as u64) as usize,
            );
            match world.below(10) {
                0 => world.crash(a),
                1 | 2 if world.nodes[a].is_none() => world.start(a),
                3 if a != b => {
                    world.cuts.insert((a, b));
                }
                4 => world.cuts.clear(),
                5 => world.sleep(a),
                6 => world.wake(a),
                7 => world.give(a, Event::Stop),
                8 => world.disk_broken[a] = !world.disk_broken[a],
                _ => {
                    let pause = world.below(3000) * MS;
                    world.run(pause);
                }
            }
        }
        world.settled(&format!("seed {seed}"));
    }
}
