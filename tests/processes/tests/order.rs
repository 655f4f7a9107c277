//! Who gets a lock: in the order of asking, whoever else pushes in, and never a dead one.

use fairlock_processes::{Node, Peer, token, until, until_waiting};
use std::thread;

/// The numbers below `count` in an order that looks random and is always the same.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for place in (1..count).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        order.swap(place, (state >> 33) as usize % (place + 1));
    }
    order
}

#[test]
fn sixty_waiters_that_come_in_shuffled_order_are_served_in_that_order() {
    let node = Node::ephemeral(&[]);
    let mut holder = node.connect();
    let mut held = holder.acquire("A k 60 5");
    let mut peers: Vec<Peer> = (0..60).map(|_| node.connect()).collect();
    let order = shuffled(peers.len());
    for (count, index) in order.iter().enumerate() {
        peers[*index].say("A k 60 0");
        until_waiting(&mut holder, "k", count + 1);
    }
    // Each waits in a thread of its own and notes when it was served by the token it got.
    let waiting: Vec<_> = peers
        .into_iter()
        .map(|mut peer| {
            thread::spawn(move || {
                let token = token(&peer.hear());
                assert_eq!(peer.ask(&format!("R k {token}")), "R k ok");
                token
            })
        })
        .collect();
    assert_eq!(holder.ask(&format!("R k {held}")), "R k ok");
    let tokens: Vec<u64> = waiting
        .into_iter()
        .map(|thread| thread.join().expect("served"))
        .collect();
    for index in order {
        held += 1;
        assert_eq!(tokens[index], held);
    }
}

#[test]
fn nobody_gets_between_a_release_and_the_first_in_the_queue() {
    let node = Node::ephemeral(&[]);
    let address = node.address();
    let mut holder = node.connect();
    let mut waiter = node.connect();
    let mut token_now = holder.acquire("A k 60 5");
    // Three that ask without waiting, as fast as they can, and must never have it.
    let bargers: Vec<_> = (0..3)
        .map(|_| {
            thread::spawn(move || {
                let mut peer = Peer::connect(address);
                let mut tries = 0_u64;
                loop {
                    if peer.ask("A k 60 -") != "T k" {
                        panic!("had it between the others");
                    }
                    tries += 1;
                    if peer.ask("I end").starts_with("I end held") {
                        return tries;
                    }
                }
            })
        })
        .collect();
    for _ in 0..2000 {
        waiter.say("A k 60 0");
        until_waiting(&mut holder, "k", 1);
        assert_eq!(holder.ask(&format!("R k {token_now}")), "R k ok");
        token_now = token(&waiter.hear());
        std::mem::swap(&mut holder, &mut waiter);
    }
    holder.acquire("A end 60 5");
    let tries: u64 = bargers
        .into_iter()
        .map(|thread| thread.join().expect("never had it"))
        .sum();
    println!("{tries} tries in between");
    assert!(tries > 0);
}

#[test]
fn five_hundred_dead_waiters_cost_the_living_one_nothing() {
    let node = Node::ephemeral(&[]);
    let mut holder = node.connect();
    let held = holder.acquire("A k 60 5");
    let dead: Vec<Peer> = (0..500)
        .map(|number| {
            // Half of them can be recognised and keep their place for a moment.
            let mut peer = node.connect();
            if number % 2 == 0 {
                peer.ask(&format!("H 1 id={number:032x}"));
            }
            peer.say("A k 60 0 #1");
            peer
        })
        .collect();
    until_waiting(&mut holder, "k", dead.len());
    let mut alive = node.connect();
    alive.say("A k 60 0");
    until_waiting(&mut holder, "k", dead.len() + 1);
    drop(dead);
    until(&mut holder, "S", |reply| reply.contains(" connections=2 "));
    assert_eq!(holder.ask(&format!("R k {held}")), "R k ok");
    // The next token is the next number: no dead one had it in between.
    assert_eq!(token(&alive.hear()), held + 1);
}
