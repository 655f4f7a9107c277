//! Many clients at once that do everything at random and break off anywhere: every token is granted
//! once, and when they are gone nothing of them is left.

use crate::nodes::server_with;
use crate::raw::{Peer, until};
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

/// The same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// One client: connects again and again, and returns the tokens it was granted with the tags.
fn client(address: SocketAddr, number: u64) -> Vec<(u64, String)> {
    let mut random = Random(number + 1);
    let mut grants = Vec::new();
    let mut tag = 0;
    let mut held: HashMap<String, u64> = HashMap::new();
    for _ in 0..30 {
        let mut peer = Peer::connect(address);
        let named = random.below(3) > 0;
        if named {
            peer.ask(&format!("H 1 id={number:032x} name=storm"));
        }
        let mut lines = String::new();
        let mut unanswered = BTreeSet::new();
        for _ in 0..random.below(60) {
            let key = format!("k{}", random.below(8));
            match random.below(10) {
                0..=3 => {
                    tag += 1;
                    let lease = ["0.02", "0.05", "0.2"][random.below(3) as usize];
                    let wait = ["-", "0.01", "0.05", "0.2"][random.below(4) as usize];
                    lines.push_str(&format!("A {key} {lease} {wait} #{tag}\n"));
                    unanswered.insert(format!("#{tag}"));
                }
                4 if tag > 0 => {
                    let again = 1 + random.below(tag);
                    let attempt = 1 + random.below(3);
                    lines.push_str(&format!("A {key} 0.05 0.05 #{again}.{attempt}\n"));
                }
                5 => {
                    let which = 1 + random.below(tag + 1);
                    lines.push_str(&format!("C {key} #{which}\n"));
                }
                6 => lines.push_str(&format!("I {key}\nW {key} 3\nL - 5\n")),
                7 => {
                    let token = held.get(&key).copied().unwrap_or(1);
                    lines.push_str(&format!("K {key} {token} 0.05\n"));
                }
                _ => {
                    let token = held.remove(&key).unwrap_or(1);
                    lines.push_str(&format!("R {key} {token}\n"));
                }
            }
        }
        peer.send(lines.as_bytes());
        if random.below(4) == 0 {
            // Breaks off with replies on the way.
            continue;
        }
        while !unanswered.is_empty() {
            let reply = peer.hear();
            let fields: Vec<&str> = reply.split(' ').collect();
            let tag = fields
                .last()
                .and_then(|tag| tag.split('.').next())
                .unwrap_or_default();
            if matches!(fields[0], "A" | "T") || (fields[0] == "C" && fields[2] == "ok") {
                unanswered.remove(tag);
            }
            match fields[0] {
                "A" => {
                    let token = fields[2].parse().expect("a token");
                    let whose = if named {
                        format!("{number}{tag}")
                    } else {
                        format!("{token}")
                    };
                    grants.push((token, whose));
                    held.insert(fields[1].to_owned(), token);
                }
                "E" => panic!("{reply}"),
                _ => {}
            }
        }
        if random.below(3) == 0 {
            peer.end_sending();
        }
    }
    grants
}

#[test]
fn a_storm_of_clients_leaves_nothing_behind() {
    let server = server_with(|settings| settings.reattach_grace = Duration::from_millis(50));
    let address = server.address();
    let clients: Vec<_> = (0..16)
        .map(|number| thread::spawn(move || client(address, number)))
        .collect();
    let mut owners: HashMap<u64, String> = HashMap::new();
    let mut count = 0;
    for client in clients {
        for (token, whose) in client.join().expect("no client met an error") {
            count += 1;
            let owner = owners.entry(token).or_insert_with(|| whose.clone());
            assert_eq!(*owner, whose, "token {token} was granted twice");
        }
    }
    println!("{count} grants were heard of");
    assert!(count > 100);
    let mut watcher = Peer::connect(address);
    until(&mut watcher, "S", |reply| {
        reply.contains(" held=0 waiting=0 connections=1 ")
    });
    assert_eq!(watcher.ask("L - 10"), "L - 0");
}
