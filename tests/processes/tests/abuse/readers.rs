//! Clients that ask and do not read.

use crate::{MIB, USEFUL, memory_goes_back, narrow, status};
use fairlock_processes::bystander::Bystander;
use fairlock_processes::{LIMIT, Node};
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Goal: what all clients together leave unread is bounded, not only what one of them does. Method: eighty that ask, one
/// after the other, for far more than their sockets take. Each leaves some 300 KiB, all of them would leave 24 MiB.
#[test]
fn clients_that_ask_and_never_read_fill_no_memory() {
    // So few that all is over before the system gives up the first of them by itself, which nobody counts: after ten seconds.
    const READERS: usize = 40;
    let node = Node::watched(&["--max-unread", "1MiB", "--max-unread-total", "4MiB"]);
    let mut watcher = node.connect();
    // A long name makes long replies to short requests.
    watcher.ask(&format!("H 1 name={}", "%01".repeat(128)));
    watcher.acquire("A k 600 5");
    let readers: Vec<TcpStream> = (0..READERS).map(|_| narrow(&node)).collect();
    while status(&mut watcher, "connections") <= READERS as u64 {}
    let before = node.resident();
    let bystander = Bystander::start(&node);
    let lines = "I k\n".repeat(20_000);
    let mut most = before;
    for mut reader in &readers {
        // That it is cut off meanwhile is what is expected.
        let _ = reader.write_all(lines.as_bytes());
        // Each answer to somebody else is a turn for this one; after some it does not take its replies any more.
        (0..25).for_each(|_| watcher.hear_nothing());
        most = most.max(node.resident());
    }
    let waits = bystander.finish("clients that do not read");
    let left = status(&mut watcher, "connections");
    println!("{left} connections are left");
    let counted = || node.reached("max_unread") + node.reached("max_unread_total");
    // Each that has been cut off is counted, once.
    let begin = Instant::now();
    while READERS as u64 + 1 - status(&mut watcher, "connections") != counted() {
        assert!(begin.elapsed() < LIMIT, "{} were counted", counted());
    }
    assert!(most < before + 12 * MIB, "{most} after {before}");
    assert!(waits.p99 < USEFUL);
    assert!((2..=READERS as u64).contains(&left));
    drop(readers);
    memory_goes_back(&node, "clients that do not read", before, most, 4 * MIB);
}

/// Goal: a thousand clients that keep the node busy with all they can send leave it time for one that asks for little.
#[test]
fn a_thousand_clients_that_flood_and_never_read_leave_time_for_others() {
    let node = Node::ephemeral(&[]);
    let mut watcher = node.connect();
    let mut readers: Vec<TcpStream> = (0..1000).map(|_| narrow(&node)).collect();
    for socket in &readers {
        socket.set_nonblocking(true).expect("an option");
    }
    while status(&mut watcher, "connections") < 1001 {}
    let before = node.resident();
    let bystander = Bystander::start(&node);
    let lines = "S\n".repeat(32 << 10);
    let mut most = 0;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        for reader in &mut readers {
            // What it does not take is what is expected.
            let _ = reader.write(lines.as_bytes());
        }
        most = most.max(node.resident());
    }
    let waits = bystander.finish("a thousand that flood");
    // A pair has to wait for a small turn of each of the thousand, twice.
    assert!(waits.p99 < Duration::from_secs(2));
    assert!(most < before + 400 * MIB, "{most} after {before}");
    drop(readers);
    memory_goes_back(&node, "a thousand that flood", before, most, 16 * MIB);
}

/// Goal: the same for what nobody asked for in that moment: grants to those who wait.
#[test]
fn clients_that_wait_and_never_read_their_grants_fill_no_memory() {
    let node = Node::ephemeral(&["--max-unread-total", "8MiB"]);
    let mut holder = node.connect();
    let pad = "k".repeat(480);
    let (clients, keys) = (100, 1000);
    let key = |client: usize, number: usize| format!("{pad}-{client}-{number}");
    let mut releases: Vec<String> = Vec::new();
    let mut slow = Vec::new();
    for client in 0..clients {
        let lines: String = (0..keys)
            .map(|number| format!("A {} 600 5\n", key(client, number)))
            .collect();
        holder.send(lines.as_bytes());
        let mut release = String::new();
        for number in 0..keys {
            let held = fairlock_processes::token(&holder.hear());
            release.push_str(&format!("R {} {held}\n", key(client, number)));
        }
        releases.push(release);
        let mut socket = narrow(&node);
        let lines: String = (0..keys)
            .map(|number| format!("A {} 600 0\n", key(client, number)))
            .collect();
        socket.write_all(lines.as_bytes()).expect("the node reads");
        slow.push(socket);
    }
    while status(&mut holder, "waiting") < (clients * keys) as u64 {}
    let before = node.resident();
    let bystander = Bystander::start(&node);
    let mut most = before;
    for release in releases {
        holder.send(release.as_bytes());
        for _ in 0..keys {
            assert!(holder.hear().ends_with(" ok"));
        }
        most = most.max(node.resident());
    }
    let waits = bystander.finish("grants that are not read");
    assert!(waits.p99 < USEFUL);
    assert!(most < before + 24 * MIB, "{most} after {before}");
    drop(slow);
    memory_goes_back(&node, "grants that are not read", before, most, 8 * MIB);
}

/// `L` again and again, by clients that take all of it.
#[test]
fn long_lists_in_a_loop_hold_up_nobody() {
    let node = Node::ephemeral(&[]);
    let mut holder = node.connect();
    for block in 0..50 {
        let lines: String = (0..1000)
            .map(|number| format!("A key-{block}-{number} 600 5\n"))
            .collect();
        holder.send(lines.as_bytes());
        for _ in 0..1000 {
            fairlock_processes::token(&holder.hear());
        }
    }
    let before = node.resident();
    let bystander = Bystander::start(&node);
    let stop = Instant::now() + Duration::from_secs(3);
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let mut peer = node.connect();
            std::thread::spawn(move || {
                let mut lists = 0;
                while Instant::now() < stop {
                    peer.say("L - 100000");
                    while !peer.hear().starts_with("L ") {}
                    lists += 1;
                }
                lists
            })
        })
        .collect();
    let mut most = before;
    while Instant::now() < stop {
        most = most.max(node.resident());
        std::thread::sleep(Duration::from_millis(20));
    }
    let lists: usize = readers
        .into_iter()
        .map(|reader| reader.join().expect("it got its lists"))
        .sum();
    println!("{lists} lists of 50,000 rows");
    let waits = bystander.finish("lists in a loop");
    assert!(waits.p99 < USEFUL);
    assert!(most < before + 16 * MIB);
    memory_goes_back(&node, "lists in a loop", before, most, 4 * MIB);
}
