//! Many connections, many keys, few descriptors, clients that do not read.

use fairlock_processes::{LIMIT, Node, Peer, binary, drain, token, until};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn five_thousand_connections_are_served() {
    let node = Node::ephemeral(&[]);
    let idle = node.resident();
    let mut peers: Vec<Peer> = Vec::new();
    for _ in 0..5000 {
        peers.push(node.connect());
    }
    let mut watcher = node.connect();
    until(&mut watcher, "S", |reply| {
        reply.contains(" connections=5001 ")
    });
    let each = (node.resident() - idle) / 5001;
    println!("{each} bytes for an idle connection");
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.say(&format!("A k{number} 60 5\nA shared 60 0"));
    }
    for peer in &mut peers {
        token(&peer.hear());
    }
    until(&mut watcher, "S", |reply| reply.contains(" waiting=4999 "));
    let each = (node.resident() - idle) / 5001;
    println!("{each} bytes for a connection that holds one key and waits for another");
    assert!(each < 4096);
    drop(peers);
    until(&mut watcher, "S", |reply| reply.contains(" connections=1 "));
}

#[test]
fn memory_goes_back_after_two_hundred_thousand_keys() {
    let node = Node::ephemeral(&[]);
    let mut peer = node.connect();
    let mut once = || {
        let mut releases = Vec::new();
        for block in 0..200 {
            let lines: String = (0..1000)
                .map(|number| format!("A key-{block:04}-{number:010} 600 5\n"))
                .collect();
            peer.send(lines.as_bytes());
            let mut release = String::new();
            for number in 0..1000 {
                let token = token(&peer.hear());
                release.push_str(&format!("R key-{block:04}-{number:010} {token}\n"));
            }
            releases.push(release);
        }
        let full = node.resident();
        for release in releases {
            peer.send(release.as_bytes());
            for _ in 0..1000 {
                assert!(peer.hear().ends_with(" ok"));
            }
        }
        full
    };
    let before = node.resident();
    let full = once();
    let after = node.resident();
    println!(
        "{} bytes a key; {before} before, {full} with the keys, {after} after",
        (full - before) / 200_000
    );
    let again = once();
    let at_last = node.resident();
    println!("again {again}, then {at_last}");
    let mib = 1 << 20;
    assert!(after < before + 8 * mib, "{after} after {before}");
    assert!(at_last < after + 2 * mib, "{at_last} after {after}");
}

#[test]
fn with_forty_descriptors_it_serves_those_it_has_and_does_not_spin() {
    let mut command = Command::new("sh");
    let binary = binary();
    let binary = binary.to_str().expect("plain");
    command.args([
        "-c",
        "ulimit -n 40; exec \"$0\" serve --ephemeral --listen 127.0.0.1:0",
        binary,
    ]);
    let node = Node::spawn(command);
    let mut first = node.connect();
    first.acquire("A k 600 5");
    let mut others: Vec<Peer> = (0..100).map(|_| node.connect()).collect();
    // Of those that were taken none disturbs the first, and none makes the node busy.
    for _ in 0..100 {
        first.hear_nothing();
    }
    let before = node.processor_time();
    let begin = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    let (used, passed) = (node.processor_time() - before, begin.elapsed());
    println!("{used:?} of processor time in {passed:?}");
    assert!(used < passed / 5, "{used:?} in {passed:?}");
    let reply = first.ask("S");
    let taken: usize = reply
        .split(' ')
        .find_map(|field| field.strip_prefix("connections="))
        .and_then(|count| count.parse().ok())
        .expect("a number");
    println!("{taken} connections with 40 descriptors");
    assert!((10..40).contains(&taken), "{reply}");
    // When some go, others can come.
    others.clear();
    until(&mut first, "S", |reply| reply.contains(" connections=1 "));
    node.connect().hear_nothing();
}

#[test]
fn slow_readers_are_cut_off_and_others_are_served() {
    let node = Node::ephemeral(&[]);
    let mut holder = node.connect();
    let slow: Vec<Peer> = (0..3).map(|_| node.connect()).collect();
    let pad = "k".repeat(480);
    let count = 30_000;
    let mut releases = Vec::new();
    for (number, mut peer) in slow.iter().map(|peer| peer.socket()).enumerate() {
        for block in 0..count / 1000 {
            let key = |line: usize| format!("{pad}-{number}-{block}-{line}");
            let lines: String = (0..1000)
                .map(|line| format!("A {} 600 5\n", key(line)))
                .collect();
            holder.send(lines.as_bytes());
            let mut release = String::new();
            for line in 0..1000 {
                let token = token(&holder.hear());
                release.push_str(&format!("R {} {token}\n", key(line)));
            }
            releases.push(release);
            let lines: String = (0..1000)
                .map(|line| format!("A {} 600 0\n", key(line)))
                .collect();
            std::io::Write::write_all(&mut peer, lines.as_bytes()).expect("the node reads");
        }
    }
    until(&mut holder, "S", |reply| {
        reply.contains(&format!(" waiting={} ", 3 * count))
    });
    let before = node.resident();
    let mut bystander = node.connect();
    let mut slowest = Duration::ZERO;
    for release in releases {
        holder.send(release.as_bytes());
        for _ in 0..1000 {
            assert!(holder.hear().ends_with(" ok"));
        }
        let begin = Instant::now();
        bystander.hear_nothing();
        slowest = slowest.max(begin.elapsed());
    }
    let grown = node.resident().saturating_sub(before);
    println!("a bystander waited at most {slowest:?}, memory grew by {grown}");
    assert!(slowest < LIMIT);
    assert!(grown < 64 << 20);
    until(&mut holder, "S", |reply| reply.contains(" connections=2 "));
    for peer in &slow {
        drain(peer);
    }
}

#[test]
fn a_waiting_request_delays_nothing_else_on_its_connection() {
    let node = Node::ephemeral(&[]);
    let mut peer = node.connect();
    peer.acquire("A k 600 5");
    peer.say("A k 600 0 #1");
    let begin = Instant::now();
    for _ in 0..1000 {
        let held = peer.acquire("A other 600 5");
        assert_eq!(peer.ask(&format!("R other {held}")), "R other ok");
    }
    println!("{:?} a pair", begin.elapsed() / 1000);
    assert!(begin.elapsed() < LIMIT);
}
