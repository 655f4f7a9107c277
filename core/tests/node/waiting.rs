//! Requests that wait: their order, what they do not delay, and what becomes of them when their
//! connection breaks.

use crate::nodes::{server, server_with};
use crate::raw::{Peer, token, until, until_waiting};
use std::time::Duration;

#[test]
fn waiters_are_served_in_the_order_in_which_they_were_read() {
    let server = server();
    let mut holder = Peer::connect(server.address());
    let mut held = holder.acquire("A k 30 5");
    let mut waiters = Vec::new();
    for count in 1..=20 {
        let mut waiter = Peer::connect(server.address());
        waiter.say("A k 30 0");
        until_waiting(&mut holder, "k", count);
        waiters.push(waiter);
    }
    for mut waiter in waiters {
        holder.say(&format!("R k {held}"));
        assert_eq!(holder.hear(), "R k ok");
        let next = token(&waiter.hear());
        assert_eq!(next, held + 1);
        held = next;
    }
}

#[test]
fn a_release_and_a_new_request_in_one_write_do_not_overtake_the_queue() {
    let server = server();
    let mut holder = Peer::connect(server.address());
    let mut waiter = Peer::connect(server.address());
    let held = holder.acquire("A k 30 5");
    waiter.say("A k 30 0");
    until_waiting(&mut holder, "k", 1);
    holder.send(format!("R k {held}\nA k 30 -\n").as_bytes());
    assert_eq!(
        (holder.hear(), holder.hear()),
        ("R k ok".into(), "T k".into())
    );
    assert_eq!(token(&waiter.hear()), held + 1);
}

#[test]
fn a_hand_over_to_the_own_connection_comes_before_the_reply_to_the_release() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let held = peer.acquire("A k 30 5");
    peer.say(&format!("A k 30 0 #1\nR k {held} #2"));
    assert_eq!(peer.hear(), format!("A k {} #1", held + 1));
    assert_eq!(peer.hear(), "R k ok #2");
}

#[test]
fn a_waiting_request_delays_nothing_else_on_its_connection() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let held = peer.acquire("A k 30 5");
    peer.say("A k 30 0 #1");
    for round in 2..100 {
        let other = peer.acquire(&format!("A other 30 5 #{round}"));
        assert_eq!(peer.ask(&format!("R other {other}")), "R other ok");
    }
    assert_eq!(peer.ask(&format!("K k {held} 60")), "K k ok");
}

#[test]
fn the_second_of_two_waits_may_end_first() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    peer.acquire("A k 30 5");
    peer.say("A k 30 0.3 #1\nA k 30 0.1 #2");
    assert_eq!(
        (peer.hear(), peer.hear()),
        ("T k #2".into(), "T k #1".into())
    );
}

#[test]
fn a_thousand_requests_in_one_write_are_answered_in_order() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let mut lines = String::new();
    for round in 0..1000 {
        lines.push_str(&format!("A k{round} 30 5 #{round}\nI k{round}\n"));
    }
    peer.send(lines.as_bytes());
    for round in 0..1000 {
        let reply = peer.hear();
        assert!(
            reply.starts_with(&format!("A k{round} ")) && reply.ends_with(&format!(" #{round}"))
        );
        assert!(peer.hear().starts_with(&format!("I k{round} held ")));
    }
}

#[test]
fn a_line_may_come_byte_by_byte() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    for byte in "A caf\u{e9} 30 5\nP #1\nP".as_bytes() {
        peer.send(&[*byte]);
    }
    token(&peer.hear());
    assert_eq!(peer.hear(), "P #1");
    assert_eq!(peer.ask(" #2"), "P #2");
}

#[test]
fn a_dead_waiter_is_never_granted() {
    let server = server();
    let mut holder = Peer::connect(server.address());
    let held = holder.acquire("A k 30 5");
    let mut dead = Peer::connect(server.address());
    dead.say("A k 30 0");
    until_waiting(&mut holder, "k", 1);
    let mut alive = Peer::connect(server.address());
    alive.say("A k 30 0");
    until_waiting(&mut holder, "k", 2);
    drop(dead);
    until_waiting(&mut holder, "k", 1);
    assert_eq!(holder.ask(&format!("R k {held}")), "R k ok");
    // The next token is the next number, so nobody was granted in between.
    assert_eq!(token(&alive.hear()), held + 1);
}

#[test]
fn a_waiter_that_can_be_recognised_keeps_its_place_and_its_answer_goes_to_the_new_connection() {
    let server = server_with(|settings| settings.reattach_grace = Duration::from_secs(60));
    let mut holder = Peer::connect(server.address());
    let held = holder.acquire("A k 30 5");
    let mut first = Peer::named(server.address(), 'a');
    first.say("A k 30 0 #7");
    until_waiting(&mut holder, "k", 1);
    let mut second = Peer::connect(server.address());
    second.say("A k 30 0");
    until_waiting(&mut holder, "k", 2);
    drop(first);
    let mut again = Peer::named(server.address(), 'a');
    again.say("A k 30 0 #7.1");
    again.hear_nothing();
    assert_eq!(holder.ask(&format!("R k {held}")), "R k ok");
    assert_eq!(again.hear(), format!("A k {} #7.1", held + 1));
    // Sent once more while it is held: the same token.
    assert_eq!(again.ask("A k 30 0 #7.2"), format!("A k {} #7.2", held + 1));
    // A late copy of an older attempt is dropped.
    again.say("A k 30 0 #7.1");
    again.hear_nothing();
    assert_eq!(again.ask(&format!("R k {}", held + 1)), "R k ok");
    assert_eq!(token(&second.hear()), held + 2);
    // Also when it is over.
    again.say("A k 30 0 #7.1");
    again.hear_nothing();
}

#[test]
fn a_detached_waiter_that_does_not_come_back_is_passed_over_after_its_grace() {
    let server = server_with(|settings| settings.reattach_grace = Duration::from_millis(100));
    let mut holder = Peer::connect(server.address());
    let held = holder.acquire("A k 30 5");
    let mut gone = Peer::named(server.address(), 'a');
    gone.say("A k 30 0 #7");
    until_waiting(&mut holder, "k", 1);
    let mut next = Peer::connect(server.address());
    next.say("A k 30 0");
    until_waiting(&mut holder, "k", 2);
    drop(gone);
    assert_eq!(holder.ask(&format!("R k {held}")), "R k ok");
    assert_eq!(token(&next.hear()), held + 1);
    until(&mut holder, "I k", |reply| {
        reply.contains(" held ") && reply.contains(" 0 - ")
    });
}
