//! Goal: locks, queues and tokens come through crashes, stops, sleeps and cuts as behaviour 3 says.
//! Method: whole members with their engines over a simulated network of frames, and clients that ask
//! the engine of whatever node serves; what they are told is checked against what they hold.

use super::member_world::{LEASE, MS, SECOND, State, World, key};
use crate::cluster::*;
use crate::engine::Inspection;
use crate::protocol::Tag;

#[test]
fn locks_come_through_crashes_and_stops_with_one_holder_each() {
    for seed in 0..8 {
        let mut world = World::new(3, seed + 1);
        for _ in 0..30 {
            let index = world.below(3) as usize;
            let others = (0..3).filter(|other| *other != index);
            let alive = others.filter(|other| world.nodes[*other].is_some()).count();
            match world.below(5) {
                // One that is the last keeps the state.
                0 if alive > 0 => world.crash(index),
                1 if alive > 0 => world.give(index, Event::Stop),
                2 | 3 if world.nodes[index].is_none() => world.start(index),
                _ => {
                    let pause = (500 + world.below(6000)) * MS;
                    world.run(pause);
                }
            }
            // A standby that has just begun has nothing to take over with.
            world.run(4 * SECOND);
        }
        world.settle(&format!("seed {seed}"));
    }
}

#[test]
fn whatever_happens_copies_agree_in_the_end_and_locks_go_on() {
    for seed in 0..8 {
        let size = 2 + (seed % 3) as usize;
        let mut world = World::new(size, 100 + seed);
        world.split = true;
        for _ in 0..40 {
            let (a, b) = (
                world.below(size as u64) as usize,
                world.below(size as u64) as usize,
            );
            match world.below(9) {
                0 => world.crash(a),
                1 | 2 if world.nodes[a].is_none() => world.start(a),
                3 if a != b => {
                    world.cuts.insert((a.min(b), a.max(b)));
                }
                4 => world.cuts.clear(),
                5 => world.sleep(a),
                6 => world.wake(a),
                7 => world.give(a, Event::Stop),
                _ => {
                    let pause = world.below(4000) * MS;
                    world.run(pause);
                }
            }
        }
        world.settle(&format!("seed {seed}"));
    }
}

/// What is left of a grant on the node that stays, when it was made before or after two of them lost sight of each other
/// and given back on one of them.
fn left_after_a_cut(granted_before: bool, released_at: usize) -> usize {
    let mut world = World::new(2, 1);
    let cut = |world: &mut World| {
        world.cuts.insert((0, 1));
        world.split = true;
        world.run(3 * SECOND);
        assert_eq!(world.serving(), [0, 1]);
    };
    if !granted_before {
        cut(&mut world);
    }
    let now = world.now;
    // None of those that the clients use by themselves.
    let key = key(99);
    world.ask(0, 0, key.clone(), Tag::first(1_000_000), now);
    let State::Holding { token, .. } = std::mem::replace(&mut world.clients[0], State::Idle) else {
        panic!("the key is free");
    };
    if granted_before {
        world.run(SECOND);
        cut(&mut world);
    }
    let now = world.at().time;
    if let Some(node) = &mut world.nodes[released_at]
        && !node.engine.release(now, key.as_ref(), token)
    {
        node.member.stale_release(now, token);
    }
    world.after(released_at);
    world.run(SECOND);
    world.cuts.clear();
    world.run(5 * SECOND);
    assert_eq!(world.serving(), [0]);
    let held = world.held(0);
    held.iter().filter(|(held, _)| *held == key).count()
}

#[test]
fn what_was_given_back_on_either_side_of_a_cut_is_given_back_when_both_are_one() {
    for granted_before in [true, false] {
        for released_at in [0, 1] {
            let left = left_after_a_cut(granted_before, released_at);
            assert_eq!(
                left, 0,
                "granted before: {granted_before}, released at {released_at}"
            );
        }
    }
}

/// Goal: an orderly handoff keeps the end of a lease that began only when its holder was told of the grant.
#[test]
fn a_lease_that_began_late_ends_on_the_successor_when_it_would_have() {
    let mut world = World::new(2, 1);
    let (now, key) = (world.now, key(99));
    world.ask(0, 0, key.clone(), Tag::first(1_000_000), now);
    let State::Holding { token, .. } = std::mem::replace(&mut world.clients[0], State::Idle) else {
        panic!("the key is free");
    };
    world.run(SECOND);
    let began = world.at().time;
    let node = world.nodes[0].as_mut().expect("it serves");
    let grant = node.engine.grant_of(key.as_ref(), token);
    assert!(node.engine.begin_lease(began, grant.expect("it is held")));
    world.after(0);
    world.give(0, Event::Stop);
    world.run(SECOND);
    assert_eq!(world.serving(), [1]);
    let now = world.at().time;
    let node = world.nodes[1].as_mut().expect("it serves");
    let Inspection::Held(row) = node.engine.inspect(now, key.as_ref()) else {
        panic!("it is held");
    };
    let lasted = (now.0 - began.0) / MS;
    let late = row.remaining.0 + lasted - LEASE.0;
    // A frame tells what was left when it was sent.
    assert!(late <= 3, "{late} ms");
}
