//! One connection that waits a hundred thousand times, and goes away.

use crate::{MIB, USEFUL, memory_goes_back, status};
use fairlock_processes::bystander::Bystander;
use fairlock_processes::{Node, Peer};
use std::time::{Duration, Instant};

const DEEP: usize = 100_000;

/// Lets one connection wait as often as it may, break, and the lock go on to somebody who waited behind, at once or after
/// the grace.
fn deep_queue(what: &str, hello: &str, grace: Duration) {
    let node = Node::watched(&["--max-waiters-per-key", "200000"]);
    let mut holder = node.connect();
    let held = holder.acquire("A k 600 5");
    let before = node.resident();
    let mut deep = node.connect();
    if !hello.is_empty() {
        deep.ask(hello);
    }
    for block in 0..DEEP / 1000 {
        let lines: String = (0..1000)
            .map(|number| format!("A k 600 0 #{}\n", block * 1000 + number + 1))
            .collect();
        deep.send(lines.as_bytes());
    }
    while status(&mut holder, "waiting") < DEEP as u64 {}
    let mut last = Peer::named(node.address(), 'b');
    last.say("A k 600 0 #1");
    while status(&mut holder, "waiting") <= DEEP as u64 {}
    let most = node.resident();
    let bystander = Bystander::start(&node);
    std::thread::sleep(Duration::from_millis(100));
    let begin = Instant::now();
    drop(deep);
    while status(&mut holder, "connections") > 3 {}
    let hand_overs = || node.metric("fairlock_hand_overs_total");
    let before_it = hand_overs();
    assert_eq!(holder.ask(&format!("R k {held}")), "R k ok");
    let next = fairlock_processes::token(&last.hear());
    let took = begin.elapsed();
    println!("{what}: the one behind had the lock after {took:?}");
    assert!(next > held);
    assert_eq!(hand_overs(), before_it + 1, "nobody had it in between");
    assert!(took >= grace, "{took:?}");
    while status(&mut holder, "waiting") > 0 {}
    let waits = bystander.finish(what);
    assert!(waits.p99 < USEFUL);
    memory_goes_back(&node, what, before, most, 8 * MIB);
}

#[test]
fn a_deep_queue_of_one_connection_leaves_without_holding_up_others() {
    deep_queue("a deep queue", "", Duration::ZERO);
}

#[test]
fn a_deep_queue_that_can_be_recognised_keeps_its_places_for_the_grace_alone() {
    let id = "a".repeat(32);
    deep_queue(
        "a deep queue that can be recognised",
        &format!("H 1 id={id}"),
        // The default of `reattach_grace`.
        Duration::from_millis(500),
    );
}
