//! Clients that write slowly, halfway, for ever, or nothing at all.

use crate::{MIB, USEFUL, memory_goes_back, narrow, status};
use fairlock_processes::bystander::Bystander;
use fairlock_processes::{LIMIT, Node, Peer, serve, until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn a_thousand_clients_that_write_a_byte_now_and_then_cost_little() {
    let node = Node::ephemeral(&[]);
    let mut watcher = node.connect();
    let mut writers: Vec<TcpStream> = (0..1000).map(|_| narrow(&node)).collect();
    while status(&mut watcher, "connections") < 1001 {}
    let before = node.resident();
    let used = node.processor_time();
    let bystander = Bystander::start(&node);
    let line = b"A a-key-that-takes-its-time 30 5 #1";
    let mut most = before;
    for byte in line.iter().take(10) {
        let begin = Instant::now();
        for writer in &mut writers {
            writer.write_all(&[*byte]).expect("the node reads");
        }
        most = most.max(node.resident());
        std::thread::sleep(Duration::from_millis(300).saturating_sub(begin.elapsed()));
    }
    println!(
        "{:?} of processor time for 10,000 bytes that came one by one",
        node.processor_time() - used
    );
    let waits = bystander.finish("slow writers");
    assert!(waits.p99 < USEFUL);
    assert!(most < before + 8 * MIB);
    drop(writers);
    memory_goes_back(&node, "slow writers", before, most, 4 * MIB);
}

#[test]
fn lines_without_an_end_are_cut_off_and_keep_nothing() {
    let node = Node::watched(&[]);
    let before = node.resident();
    let bystander = Bystander::start(&node);
    let endless = vec![b'A'; 64 << 10];
    let mut most = before;
    for _ in 0..20 {
        let mut sockets: Vec<TcpStream> = (0..100).map(|_| narrow(&node)).collect();
        for socket in &mut sockets {
            // It may be closed before all has been written.
            let _ = socket.write_all(&endless);
        }
        most = most.max(node.resident());
        for socket in &mut sockets {
            let mut answer = Vec::new();
            // A reset takes the answer with it, as it may where so much was sent behind it.
            let _ = socket.read_to_end(&mut answer);
            assert!(answer.is_empty() || answer.starts_with(b"E ? - toolong "));
        }
    }
    let series = "fairlock_connections_cut_off_total{reason=\"too_long\"}";
    assert_eq!(node.metric(series), 2000);
    let waits = bystander.finish("lines without an end");
    assert!(waits.p99 < USEFUL);
    assert!(most < before + 16 * MIB);
    memory_goes_back(&node, "lines without an end", before, most, 4 * MIB);
}

/// Half a line each, short enough to be waited for.
#[test]
fn half_lines_take_what_they_are_long() {
    let node = Node::ephemeral(&[]);
    let mut watcher = node.connect();
    let half = vec![b'A'; 4000];
    let mut before = node.resident();
    // The first time leaves what it set up, such as code that had not run before, and the second one next to nothing.
    for slack in [3, 1] {
        let mut sockets: Vec<TcpStream> = (0..2000).map(|_| narrow(&node)).collect();
        for socket in &mut sockets {
            socket.write_all(&half).expect("the node reads");
        }
        while status(&mut watcher, "connections") < 2001 {}
        watcher.hear_nothing();
        let most = node.resident();
        println!("{} bytes for half a line of 4000", (most - before) / 2000);
        assert!(most < before + 2000 * 8192 + MIB);
        drop(sockets);
        until(&mut watcher, "S", |reply| reply.contains(" connections=1 "));
        memory_goes_back(&node, "half lines", before, most, slack * MIB);
        before = node.resident();
    }
}

/// Goal: where a secret is asked for, who says nothing does not keep a place for long.
#[test]
fn silent_connections_lose_their_places_where_a_secret_is_asked_for() {
    let mut command = serve();
    command.args([
        "--ephemeral",
        "--listen",
        "127.0.0.1:0",
        "--hello-timeout",
        "1",
    ]);
    command.env("FAIRLOCK_SECRET", "sesame");
    let node = Node::spawn_watched(command);
    let mut watcher = Peer::connect(node.address());
    watcher.ask("H 1 auth=sesame");
    let before = node.resident();
    let mut good = Peer::connect(node.address());
    good.ask("H 1 auth=sesame");
    let bystander = Bystander::over(good);
    let silent: Vec<TcpStream> = (0..3000).map(|_| narrow(&node)).collect();
    let most = node.resident();
    let begin = Instant::now();
    until(&mut watcher, "S", |reply| reply.contains(" connections=2 "));
    println!("all were closed after {:?}", begin.elapsed());
    assert!(begin.elapsed() < LIMIT / 2);
    assert_eq!(node.reached("hello_timeout"), 3000);
    let waits = bystander.finish("silent connections");
    assert!(waits.p99 < USEFUL);
    drop(silent);
    memory_goes_back(&node, "silent connections", before, most, 4 * MIB);
}

/// Goal: where no secret is asked for, connections that say nothing keep others out for `hello_timeout` at most, and nobody is
/// closed who has spoken, or while there is room. Method: silence in every place that is left, and clients that come one after
/// the other, again where they are turned away, as ours do.
#[test]
fn silent_connections_keep_nobody_out_where_no_secret_is_asked_for() {
    let node = Node::watched(&["--max-connections", "500", "--hello-timeout", "1"]);
    let mut watcher = node.connect();
    watcher.hear_nothing();
    let bystander = Bystander::start(&node);
    let mut early: Vec<Peer> = (0..10).map(|_| node.connect()).collect();
    early.iter_mut().for_each(Peer::hear_nothing);
    let silent: Vec<TcpStream> = (0..488).map(|_| narrow(&node)).collect();
    while status(&mut watcher, "connections") < 500 {}
    assert_eq!(node.reached("hello_timeout"), 0, "there was room");
    let begin = Instant::now();
    let mut turned_away = 0;
    let mut late: Vec<Peer> = Vec::new();
    while late.len() < 50 {
        let mut peer = node.connect();
        if peer.ask("P #1") == "P #1" {
            late.push(peer);
        } else {
            turned_away += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(begin.elapsed() < LIMIT, "{} got in", late.len());
    }
    println!(
        "fifty got in within {:?}; {turned_away} were told to come again",
        begin.elapsed()
    );
    assert_eq!(node.reached("hello_timeout"), 50);
    assert_eq!(node.reached("max_connections"), turned_away);
    early
        .iter_mut()
        .chain(&mut late)
        .for_each(Peer::hear_nothing);
    let waits = bystander.finish("silence without a secret");
    assert!(waits.p99 < USEFUL);
    drop(silent);
}
