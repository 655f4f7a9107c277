//! Connections that end halfway, do not read, fall silent or are too many.

use crate::nodes::{server, server_with};
use crate::raw::{LIMIT, Peer, token, until, until_waiting};
use fairlock::node::{Bytes, Limit};
use std::io::Read;
use std::time::{Duration, Instant};

#[test]
fn replies_that_are_due_are_written_after_the_client_has_ended_its_side() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    peer.send(b"A k 30 5\nP #1\nA k 30 0\nhalf a li");
    peer.end_sending();
    token(&peer.hear());
    assert_eq!(peer.hear(), "P #1");
    peer.hear_end();
    let mut other = Peer::connect(server.address());
    // The lock outlives the connection, the waiting request does not.
    until_waiting(&mut other, "k", 0);
    assert!(other.ask("I k").starts_with("I k held "));
}

#[test]
fn a_lock_can_be_released_over_another_connection() {
    let server = server();
    let mut first = Peer::connect(server.address());
    let held = first.acquire("A k 30 5");
    drop(first);
    let mut second = Peer::connect(server.address());
    assert_eq!(second.ask(&format!("R k {held}")), "R k ok");
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_disturbs_nobody() {
    let server = server();
    let mut holder = Peer::connect(server.address());
    let mut slow = Peer::connect(server.address());
    let pad = "k".repeat(480);
    let count = 40_000;
    let mut releases = Vec::new();
    for block in 0..count / 1000 {
        let lines: String = (0..1000)
            .map(|number| format!("A {pad}{block}-{number} 60 5\n"))
            .collect();
        holder.send(lines.as_bytes());
        for number in 0..1000 {
            let token = token(&holder.hear());
            releases.push(format!("R {pad}{block}-{number} {token}\n"));
        }
        let lines: String = (0..1000)
            .map(|number| format!("A {pad}{block}-{number} 60 0\n"))
            .collect();
        slow.send(lines.as_bytes());
    }
    until(&mut holder, "S", |reply| {
        reply.contains(&format!(" waiting={count} "))
    });
    // Every release is a grant to the client that does not read: more than the sockets and 8 MiB hold.
    let mut bystander = Peer::connect(server.address());
    let mut worst = Duration::ZERO;
    for block in releases.chunks(1000) {
        holder.send(block.concat().as_bytes());
        for _ in block {
            assert!(holder.hear().ends_with(" ok"));
        }
        let begin = Instant::now();
        bystander.hear_nothing();
        worst = worst.max(begin.elapsed());
    }
    println!("slowest answer to a bystander: {worst:?}");
    until(&mut holder, "S", |reply| reply.contains(" connections=2 "));
    let node = server.view().snapshot().expect("it runs");
    assert_eq!(node.counters.limit(Limit::Unread), 1);
    // What had not left the node is taken back; who is cut off hears of it at the end.
    let mut sink = vec![0; 1 << 20];
    let begin = Instant::now();
    while slow.socket().read(&mut sink).is_ok_and(|count| count > 0) {
        assert!(begin.elapsed() < LIMIT);
    }
    until(&mut holder, "S", |reply| reply.contains(" waiting=0 "));
    let reply = holder.ask("S");
    let held: usize = reply
        .split(' ')
        .find_map(|field| field.strip_prefix("held="))
        .and_then(|held| held.parse().ok())
        .expect("a number");
    assert!(
        held < count * 9 / 10,
        "grants that never left are still held: {reply}"
    );
}

#[test]
fn replies_of_a_client_that_reads_late_all_come() {
    let server = server_with(|settings| settings.max_unread = Bytes(64 << 10));
    let mut peer = Peer::connect(server.address());
    let key = "k".repeat(500);
    let held = peer.acquire(&format!("A {key} 60 5"));
    let mut writer = peer.socket().try_clone().expect("a socket can be shared");
    let count = 30_000;
    let sender = std::thread::spawn(move || {
        let line = format!("I {key}\n");
        for _ in 0..count {
            std::io::Write::write_all(&mut writer, line.as_bytes()).expect("the node reads on");
        }
    });
    // The node stops reading when its replies are not taken, so the sender cannot have finished.
    let mut other = Peer::connect(server.address());
    for _ in 0..1000 {
        other.hear_nothing();
    }
    for _ in 0..count {
        assert!(peer.hear().contains(&format!(" held {held} ")));
    }
    sender.join().expect("it has sent all");
}

#[test]
fn a_silent_client_that_gave_an_id_is_closed_and_others_are_not() {
    let server = server_with(|settings| settings.idle_timeout = Duration::from_millis(200));
    let mut nameless = Peer::connect(server.address());
    nameless.hear_nothing();
    // The node counts from the hello, which comes later.
    let begin = Instant::now();
    let mut silent = Peer::named(server.address(), 'a');
    let mut alive = Peer::named(server.address(), 'b');
    let mut writer = alive.socket().try_clone().expect("a socket can be shared");
    let probes = std::thread::spawn(move || {
        for _ in 0..30 {
            std::io::Write::write_all(&mut writer, b"P\n").expect("it is alive");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    silent.hear_end();
    assert!(begin.elapsed() >= Duration::from_millis(200));
    let node = server.view().snapshot().expect("it runs");
    assert_eq!(node.counters.limit(Limit::IdleTimeout), 1);
    probes.join().expect("all were written");
    for _ in 0..30 {
        assert_eq!(alive.hear(), "P");
    }
    nameless.hear_nothing();
}

#[test]
fn connections_beyond_the_limit_are_told_so_and_closed() {
    let server = server_with(|settings| settings.max_connections = 3);
    let mut peers: Vec<Peer> = (0..3).map(|_| Peer::connect(server.address())).collect();
    for peer in &mut peers {
        peer.hear_nothing();
    }
    let mut fourth = Peer::connect(server.address());
    let reply = fourth.hear();
    assert!(
        reply.starts_with("E ? - busy ") && reply.contains("max_connections"),
        "{reply}"
    );
    fourth.hear_end();
    let node = server.view().snapshot().expect("it runs");
    assert_eq!(node.counters.limit(Limit::Connections), 1);
    peers.pop();
    until(&mut peers[0], "S", |reply| {
        reply.contains(" connections=2 ")
    });
    Peer::connect(server.address()).hear_nothing();
}

/// Goal: connections that say nothing keep nobody out for ever, and nobody is cut off who has said anything, or while there
/// is room. Method: as many as there may be, one silent, one with half a line and one that has spoken; then one more each time.
#[test]
fn where_there_is_no_room_who_has_said_nothing_for_longest_gives_its_place_to_who_comes() {
    let patience = Duration::from_millis(1500);
    let server = server_with(|settings| {
        settings.max_connections = 3;
        settings.hello_timeout = patience;
    });
    let reached = |limit| {
        let node = server.view().snapshot().expect("it runs");
        node.counters.limit(limit)
    };
    let mut silent = Peer::connect(server.address());
    let mut typing = Peer::connect(server.address());
    typing.send(b"P #1");
    std::thread::sleep(2 * patience);
    let mut speaker = Peer::connect(server.address());
    speaker.hear_nothing();
    // There was room, so all this time nobody had to speak. The first one now gives way, to a fourth that says nothing either.
    let mut fourth = Peer::connect(server.address());
    silent.hear_end();
    assert_eq!(reached(Limit::HelloTimeout), 1);
    // So does the second, although it has begun to say something.
    let mut fifth = Peer::connect(server.address());
    fifth.hear_nothing();
    typing.hear_end();
    // The fourth has not had its time yet.
    let mut sixth = Peer::connect(server.address());
    let reply = sixth.hear();
    assert!(reply.starts_with("E ? - busy max_connections "), "{reply}");
    sixth.hear_end();
    assert_eq!(
        (reached(Limit::HelloTimeout), reached(Limit::Connections)),
        (2, 1)
    );
    std::thread::sleep(patience);
    let mut seventh = Peer::connect(server.address());
    seventh.hear_nothing();
    fourth.hear_end();
    for peer in [&mut speaker, &mut fifth, &mut seventh] {
        peer.hear_nothing();
    }
    // Of those that have spoken none has to go.
    let mut eighth = Peer::connect(server.address());
    assert!(eighth.hear().starts_with("E ? - busy max_connections "));
    assert_eq!(
        (reached(Limit::HelloTimeout), reached(Limit::Connections)),
        (3, 2)
    );
}

#[test]
fn a_thousand_connections_come_and_go() {
    let server = server();
    let mut watcher = Peer::connect(server.address());
    for _ in 0..2 {
        let mut peers: Vec<Peer> = (0..1000).map(|_| Peer::connect(server.address())).collect();
        for (number, peer) in peers.iter_mut().enumerate() {
            peer.say(&format!("A own{number} 60 5\nA shared 60 0"));
        }
        for peer in &mut peers {
            token(&peer.hear());
        }
        until(&mut watcher, "S", |reply| {
            reply.contains(" connections=1001 ")
        });
        drop(peers);
        until(&mut watcher, "S", |reply| {
            reply.contains(" connections=1 ") && reply.contains(" waiting=0 ")
        });
        let reply = watcher.ask("I shared");
        if let Some(held) = reply.strip_prefix("I shared held ") {
            let token = held.split(' ').next().expect("a token");
            watcher.ask(&format!("R shared {token}"));
        }
        watcher.say("L own 100000");
        let mut releases = Vec::new();
        loop {
            let reply = watcher.hear();
            let fields: Vec<&str> = reply.split(' ').collect();
            if fields[0] == "L" {
                break;
            }
            releases.push(format!("R {} {}", fields[1], fields[2]));
        }
        for release in releases {
            assert!(watcher.ask(&release).ends_with(" ok"));
        }
    }
}
