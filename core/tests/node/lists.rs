//! Answers of many rows.

use crate::nodes::server;
use crate::raw::{Peer, token, until_waiting};
use std::collections::BTreeSet;

/// Hears rows of `L` until its last line; the keys.
fn rows(peer: &mut Peer, line: &str) -> Vec<String> {
    peer.say(line);
    let mut keys = Vec::new();
    loop {
        let reply = peer.hear();
        let fields: Vec<&str> = reply.split(' ').collect();
        match fields[0] {
            "l" => {
                assert_eq!(fields.len(), 7, "{reply}");
                keys.push(fields[1].to_owned());
            }
            "L" => {
                assert_eq!(fields[2], keys.len().to_string());
                return keys;
            }
            _ => panic!("{reply}"),
        }
    }
}

#[test]
fn a_list_holds_what_begins_with_the_prefix() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    for key in ["a", "ab", "abc", "b", "-", "-x", "%20"] {
        peer.acquire(&format!("A {key} 30 5"));
    }
    let set = |keys: Vec<String>| keys.into_iter().collect::<BTreeSet<_>>();
    let of = |keys: &[&str]| {
        keys.iter()
            .map(|key| (*key).to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(set(rows(&mut peer, "L ab 100")), of(&["ab", "abc"]));
    assert_eq!(set(rows(&mut peer, "L %2D 100")), of(&["-", "-x"]));
    assert_eq!(rows(&mut peer, "L - 100").len(), 7);
    assert_eq!(rows(&mut peer, "L - 2").len(), 2);
    assert_eq!(rows(&mut peer, "L zzz 2").len(), 0);
}

#[test]
fn pages_cover_every_key_once() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let mut lines = String::new();
    for number in 0..1000 {
        lines.push_str(&format!("A key{number} 30 5\n"));
    }
    peer.send(lines.as_bytes());
    for _ in 0..1000 {
        token(&peer.hear());
    }
    let mut seen = BTreeSet::new();
    let mut after = String::new();
    loop {
        let page = rows(&mut peer, &format!("L key 77{after}"));
        let Some(last) = page.last() else { break };
        after = format!(" after={last}");
        for key in page {
            assert!(seen.insert(key.clone()), "{key} twice");
        }
    }
    assert_eq!(seen.len(), 1000);
}

#[test]
fn a_long_list_reaches_a_slow_reader_whole_and_requests_behind_it_are_answered() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let count = 30_000;
    let pad = "x".repeat(400);
    for block in 0..count / 1000 {
        let mut lines = String::new();
        for number in 0..1000 {
            lines.push_str(&format!("A {pad}{block}-{number} 60 5\n"));
        }
        peer.send(lines.as_bytes());
        for _ in 0..1000 {
            token(&peer.hear());
        }
    }
    // Far more than the sockets between us hold, three times.
    let mut reader = Peer::connect(server.address());
    reader.send(b"L - 100000 #1\nP #2\nL - 100000 #3\nL x 100000\n");
    // Others are served while the reader does not read.
    for _ in 0..100 {
        peer.hear_nothing();
    }
    let mut rows = 0;
    for last in ["L - 30000 #1", "P #2", "L - 30000 #3", "L x 30000"] {
        loop {
            let reply = reader.hear();
            if reply == last {
                break;
            }
            assert!(reply.starts_with("l "), "{reply}");
            rows += 1;
        }
    }
    assert_eq!(rows, 3 * count);
}

#[test]
fn the_queue_of_a_key_is_shown_in_order() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    peer.acquire("A k 30 5");
    let mut waiters = Vec::new();
    for number in 1..=5 {
        let mut waiter = Peer::connect(server.address());
        waiter.ask(&format!("H 1 name=n{number}"));
        waiter.say("A k 30 0");
        until_waiting(&mut peer, "k", number);
        waiters.push(waiter);
    }
    peer.say("W k 3 #9");
    for number in 1..=3 {
        let reply = peer.hear();
        let fields: Vec<&str> = reply.split(' ').collect();
        let (position, name) = (number.to_string(), format!("n{number}"));
        let address = waiters[number - 1].local().to_string();
        assert_eq!(fields[..3], ["w", "k", &position]);
        assert!(fields[3].parse::<f64>().is_ok(), "{reply}");
        assert_eq!(fields[4..], [&name, &address, "#9"]);
    }
    assert_eq!(peer.hear(), "W k 5 #9");
}

#[test]
fn a_long_queue_is_shown_whole() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    peer.acquire("A k 60 5");
    let count = 5000;
    let mut waiter = Peer::connect(server.address());
    let lines: String = (0..count)
        .map(|number| format!("A k 60 0 #{number}\n"))
        .collect();
    waiter.send(lines.as_bytes());
    until_waiting(&mut peer, "k", count);
    peer.say("W k 100000");
    for number in 1..=count {
        let reply = peer.hear();
        assert!(reply.starts_with(&format!("w k {number} ")), "{reply}");
    }
    assert_eq!(peer.hear(), format!("W k {count}"));
}

#[test]
fn a_list_that_was_asked_for_is_written_although_the_client_has_ended_its_side() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let count = 5000;
    let pad = "x".repeat(400);
    for number in 0..count {
        peer.say(&format!("A {pad}{number} 60 5"));
    }
    for _ in 0..count {
        token(&peer.hear());
    }
    let mut reader = Peer::connect(server.address());
    reader.say("L - 100000");
    reader.end_sending();
    for _ in 0..count {
        assert!(reader.hear().starts_with("l "));
    }
    assert_eq!(reader.hear(), format!("L - {count}"));
    reader.hear_end();
}
