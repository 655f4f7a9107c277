//! Far too much of what is all right by itself.

use crate::{MIB, USEFUL, memory_goes_back};
use fairlock_processes::bystander::Bystander;
use fairlock_processes::{Node, Peer, until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Two threads that do something again and again for three seconds, with a bystander beside them.
fn flood(what: &str, node: &Node, once: impl Fn(usize) + Sync) {
    // What a first connection takes is no part of it.
    once(usize::MAX);
    let before = node.resident();
    let bystander = Bystander::start(node);
    let stop = Instant::now() + Duration::from_secs(3);
    let mut most = before;
    let count: usize = std::thread::scope(|scope| {
        let flooding: Vec<_> = (0..2)
            .map(|thread| {
                let once = &once;
                scope.spawn(move || {
                    let mut count = 0;
                    while Instant::now() < stop {
                        once(2 * count + thread);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        while Instant::now() < stop {
            most = most.max(node.resident());
            std::thread::sleep(Duration::from_millis(20));
        }
        let counts = flooding.into_iter().map(|thread| thread.join());
        counts.map(|count| count.expect("it went on")).sum()
    });
    println!("{what}: {count} times");
    let waits = bystander.finish(what);
    assert!(waits.p99 < USEFUL, "{waits:?}");
    assert!(most < before + 32 * MIB, "{most} after {before}");
    let mut watcher = node.connect();
    until(&mut watcher, "S", |reply| reply.contains(" connections=1 "));
    memory_goes_back(node, what, before, most, 8 * MIB);
}

#[test]
fn connections_that_come_and_go() {
    let node = Node::ephemeral(&[]);
    flood("connects", &node, |_| {
        drop(TcpStream::connect(node.address()).expect("it listens"));
    });
}

#[test]
fn hellos_of_ever_new_clients() {
    let node = Node::ephemeral(&[]);
    flood("hellos", &node, |number| {
        let mut peer = Peer::connect(node.address());
        let name = "n".repeat(128);
        let reply = peer.ask(&format!("H 1 id={number:032x} name={name}"));
        assert!(reply.starts_with("H 1 role=active "), "{reply}");
    });
}

#[test]
fn a_hello_that_is_said_a_thousand_times() {
    let node = Node::ephemeral(&[]);
    flood("late hellos", &node, |number| {
        let mut peer = Peer::connect(node.address());
        let hello = format!("H 1 id={number:032x}\n");
        peer.send(hello.repeat(1000).as_bytes());
        assert!(peer.hear().starts_with("H 1 "));
        for _ in 1..1000 {
            assert!(peer.hear().starts_with("E H - syntax "));
        }
    });
}

#[test]
fn garbage() {
    let node = Node::ephemeral(&[]);
    flood("garbage", &node, |number| {
        let mut state = number as u64 | 1;
        let bytes: Vec<u8> = (0..64 << 10)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect();
        let socket = TcpStream::connect(node.address()).expect("it listens");
        let mut reader = socket.try_clone().expect("a socket can be shared");
        let reading = std::thread::spawn(move || {
            let mut rest = Vec::new();
            // Where a line was too long the connection is reset under what was sent behind it.
            let _ = reader.read_to_end(&mut rest);
        });
        let _ = (&socket).write_all(&bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        reading.join().expect("it has read to the end");
    });
}

/// Clients that name the highest term that counts: each makes the node go above it, once a second at most.
#[test]
fn clients_that_have_seen_a_higher_term() {
    let node = Node::ephemeral(&[]);
    let term = node.connect().acquire("A k 1 5") >> 32;
    flood("higher terms", &node, |number| {
        let mut peer = Peer::connect(node.address());
        let seen = (term + 1 + (number % 100_000) as u64) << 32 | 1;
        let reply = peer.ask(&format!("H 1 seen={seen}"));
        assert!(reply.starts_with("H 1 "), "{reply}");
    });
}
