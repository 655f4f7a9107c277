//! Waits and leases: never early, and how late. A busy machine may be late, so lateness is printed and
//! only bounded generously; being early is wrong on any machine.

use fairlock_processes::{LIMIT, Node, Peer, token, until};
use std::time::{Duration, Instant};

/// Late by this much is wrong even on a busy machine.
const GENEROUS: Duration = Duration::from_secs(2);

fn report(what: &str, mut late: Vec<Duration>) {
    late.sort();
    let worst = late.last().copied().expect("something was measured");
    println!(
        "{what}: late by {:?} in the middle, {worst:?} at worst",
        late[late.len() / 2]
    );
    assert!(worst < GENEROUS, "{what}: late by {worst:?}");
}

#[test]
fn waits_end_never_early() {
    let node = Node::ephemeral(&[]);
    let mut holder = node.connect();
    holder.acquire("A k 60 5");
    let mut peer = node.connect();
    let mut late = Vec::new();
    for wait_ms in (1..60).map(|step| step * 3) {
        let wait = Duration::from_millis(wait_ms);
        let begin = Instant::now();
        assert_eq!(peer.ask(&format!("A k 60 0.{wait_ms:03}")), "T k");
        let waited = begin.elapsed();
        late.push(waited.checked_sub(wait).expect("a wait ended early"));
    }
    report("waits", late);
}

#[test]
fn leases_end_never_early() {
    let node = Node::ephemeral(&[]);
    let mut holder = node.connect();
    let mut waiter = node.connect();
    let mut late = Vec::new();
    for lease_ms in (1..60).map(|step| step * 3) {
        let lease = Duration::from_millis(lease_ms);
        let key = format!("k{lease_ms}");
        let begin = Instant::now();
        holder.acquire(&format!("A {key} 0.{lease_ms:03} 5"));
        let granted = Instant::now();
        waiter.acquire(&format!("A {key} 60 0"));
        assert!(begin.elapsed() >= lease, "a lease of {lease:?} ended early");
        late.push(granted.elapsed().saturating_sub(lease));
    }
    report("leases", late);
}

#[test]
fn ten_thousand_leases_that_end_together_are_all_handed_over() {
    let node = Node::ephemeral(&[]);
    let count = 10_000;
    let mut holder = node.connect();
    let mut waiter = node.connect();
    let begin = Instant::now();
    for block in 0..count / 100 {
        let lines: String = (0..100)
            .map(|number| format!("A {block}.{number} 1.5 5\n"))
            .collect();
        holder.send(lines.as_bytes());
        for _ in 0..100 {
            token(&holder.hear());
        }
        let lines: String = (0..100)
            .map(|number| format!("A {block}.{number} 60 0\n"))
            .collect();
        waiter.send(lines.as_bytes());
    }
    let mut bystander = node.connect();
    let mut slowest = Duration::ZERO;
    let first = token(&waiter.hear());
    assert!(begin.elapsed() >= Duration::from_millis(1500));
    let handed = std::thread::spawn(move || {
        for _ in 1..count {
            token(&waiter.hear());
        }
    });
    while !handed.is_finished() {
        let begin = Instant::now();
        bystander.hear_nothing();
        slowest = slowest.max(begin.elapsed());
    }
    handed.join().expect("all were handed over");
    println!("after the first hand-over ({first}) a bystander waited at most {slowest:?}");
    assert!(slowest < GENEROUS);
}

/// A node that was frozen reads what came in meanwhile before it ends what has been over meanwhile.
#[test]
fn a_keep_that_came_while_the_node_was_frozen_counts() {
    let node = Node::ephemeral(&[]);
    let mut holder = node.connect();
    let mut waiter = node.connect();
    let held = holder.acquire("A k 1 5");
    waiter.say("A k 60 30");
    until(&mut holder, "S", |reply| reply.contains(" waiting=1 "));
    node.freeze();
    holder.say(&format!("K k {held} 60"));
    // The lease has to end while the node stands still.
    std::thread::sleep(Duration::from_millis(1800));
    node.thaw();
    assert_eq!(holder.hear(), "K k ok");
    waiter.hear_nothing();
}

#[test]
fn a_client_that_spoke_while_the_node_was_frozen_is_not_taken_for_silent() {
    let node = Node::ephemeral(&["--idle-timeout", "1"]);
    let mut peer = Peer::named(node.address(), 'a');
    node.freeze();
    peer.say("P #1");
    std::thread::sleep(Duration::from_millis(1500));
    node.thaw();
    assert_eq!(peer.hear(), "P #1");
    assert_eq!(peer.ask("P #2"), "P #2");
}

#[test]
fn an_idle_node_uses_no_processor() {
    let node = Node::ephemeral(&[]);
    let mut peer = node.connect();
    for block in 0..100 {
        let lines: String = (0..1000)
            .map(|number| format!("A {block}.{number} 3600 5\n"))
            .collect();
        peer.send(lines.as_bytes());
        for _ in 0..1000 {
            token(&peer.hear());
        }
    }
    // Whatever follows the last request has to be over first.
    let begin = Instant::now();
    loop {
        let before = node.processor_time();
        std::thread::sleep(Duration::from_secs(1));
        let used = node.processor_time() - before;
        println!("{used:?} in a second with 100,000 held keys");
        if used <= Duration::from_millis(10) {
            break;
        }
        assert!(begin.elapsed() < LIMIT, "still {used:?} a second");
    }
}
