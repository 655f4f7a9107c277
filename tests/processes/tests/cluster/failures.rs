//! Nodes that die, freeze, or are all gone at once.

use fairlock_processes::cluster::{Cluster, field};
use fairlock_processes::history::{Allowance, check, moment};
use fairlock_processes::load::{Line, Load};
use fairlock_processes::{LIMIT, Peer, token};
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(20);

#[test]
fn after_kill_9_of_the_active_node_clients_notice_a_pause_and_nothing_else() {
    let mut cluster = Cluster::start(3);
    let servers = cluster.servers();
    let load = Load::start(&servers, 3, 4).and_python(&servers);
    let line = Line::behind(&servers, "line", LEASE);
    line.queue_up(20);
    load.record().until_more(300);
    let mut crashes = Vec::new();
    for index in [0, 1] {
        crashes.push(Allowance::crash(moment()));
        cluster.kill(index);
        load.record().until_more(300);
    }
    cluster.until(2, |status| field(status, "role") == "active");
    let mut history = line.move_on();
    history.extend(load.finish());
    check(&history, &crashes).expect_clean(500);
}

#[test]
fn killing_standbys_disturbs_nobody() {
    let mut cluster = Cluster::start(3);
    let servers = cluster.servers();
    let load = Load::start(&servers, 3, 4);
    load.record().until_more(100);
    for index in [1, 2] {
        cluster.kill(index);
        load.record().until_more(200);
    }
    for index in [2, 1] {
        cluster.bring_up(index);
        load.record().until_more(200);
    }
    cluster.settle(0);
    check(&load.finish(), &[]).expect_clean(500);
}

#[test]
fn a_frozen_active_node_is_replaced_and_steps_down_when_it_thaws() {
    let cluster = Cluster::start_with(3, &["--preempt-delay", "0.5"]);
    let servers = cluster.servers();
    let load = Load::start(&servers, 3, 4).and_python(&servers);
    let line = Line::behind(&servers, "line", LEASE);
    line.queue_up(20);
    load.record().until_more(300);
    let frozen = moment();
    cluster.node(0).freeze();
    cluster.until(1, |status| field(status, "role") == "active");
    let taken = moment();
    println!("taken over after {} ms", (taken - frozen) / 1_000_000);
    load.record().until_more(300);
    cluster.node(0).thaw();
    cluster.until_logged(0, "this node stood still");
    cluster.until_logged(0, "standby of");
    load.record().until_more(100);
    // It comes back to its place as any better node does.
    cluster.settle(0);
    load.record().until_more(100);
    let mut history = line.move_on();
    history.extend(load.finish());
    check(&history, &[Allowance::crash(frozen)]).expect_clean(500);
}

#[test]
fn an_active_node_that_stood_still_for_less_than_the_timeout_goes_on() {
    let cluster = Cluster::start(3);
    let servers = cluster.servers();
    let load = Load::start(&servers, 2, 4);
    load.record().until_more(100);
    let term = field(&cluster.status(0), "term").to_owned();
    for _ in 0..3 {
        cluster.node(0).freeze();
        std::thread::sleep(Duration::from_millis(300));
        cluster.node(0).thaw();
        load.record().until_more(100);
    }
    // On a busy machine a short sleep can become a long one.
    if field(&cluster.status(1), "role") == "standby" && field(&cluster.status(0), "term") == term {
        check(&load.finish(), &[]).expect_clean(400);
    } else {
        println!("the machine was too busy for a short sleep");
    }
}

#[test]
fn when_all_nodes_were_down_tokens_go_on_rising_and_waiting_clients_are_served() {
    let mut cluster = Cluster::start(3);
    let servers = cluster.servers();
    let before = token(&Peer::connect(cluster.address(0)).ask("A k 0.05 5"));
    let client = fairlock::Client::builder()
        .servers(servers)
        .retry_for(Duration::from_secs(60))
        .build()
        .expect("plain addresses");
    client.status().call().expect("a node runs");
    for index in 0..3 {
        cluster.kill(index);
    }
    let (send, receive) = std::sync::mpsc::channel();
    client.acquire("k").submit(move |result| {
        let _ = send.send(result);
    });
    // The order of coming up is not that of priority.
    for index in [2, 0, 1] {
        cluster.bring_up(index);
    }
    let lock = receive.recv_timeout(3 * LIMIT).expect("it is served");
    let lock = lock.expect("with a lock");
    assert!(lock.token().get() > before);
    cluster.settle(0);
    assert!(lock.release().call().expect("it is confirmed"));
}

#[test]
fn a_frozen_standby_costs_the_active_node_bounded_memory_and_catches_up() {
    let cluster = Cluster::start(3);
    let mut peer = cluster.node(0).connect();
    cluster.node(2).freeze();
    let before = cluster.node(0).resident();
    let (mut most, mut pairs) = (0, 0_u64);
    let lines: String = (0..1000)
        .map(|number| format!("A busy-{number} 60 5\n"))
        .collect();
    let begin = Instant::now();
    let mut kept = Vec::new();
    while begin.elapsed() < Duration::from_secs(4) {
        peer.send(lines.as_bytes());
        let mut releases = String::new();
        for number in 0..1000 {
            releases.push_str(&format!("R busy-{number} {}\n", token(&peer.hear())));
        }
        peer.send(releases.as_bytes());
        for _ in 0..1000 {
            assert!(peer.hear().ends_with(" ok"));
        }
        pairs += 1000;
        kept.push(token(&peer.ask(&format!("A kept-{pairs} 600 5"))));
        most = most.max(cluster.node(0).resident());
    }
    let grown = most.saturating_sub(before) >> 20;
    println!("{pairs} pairs past a frozen standby, the active node grew by {grown} MiB");
    assert!(grown < 96, "it keeps changes without end");
    cluster.node(2).thaw();
    cluster.settle(0);
    // What it has caught up with is what it serves when it has to.
    let held = field(&cluster.status(0), "held").to_owned();
    assert_eq!(held, kept.len().to_string());
    cluster.until(2, |status| field(status, "held") == held);
}

#[test]
fn a_standby_that_stops_and_goes_all_the_time_slows_nobody_and_ends_complete() {
    let cluster = Cluster::start(3);
    let servers = cluster.servers();
    let load = Load::start(&servers, 2, 8);
    for _ in 0..10 {
        cluster.node(1).freeze();
        std::thread::sleep(Duration::from_millis(250));
        cluster.node(1).thaw();
        std::thread::sleep(Duration::from_millis(50));
    }
    load.record().until_more(100);
    cluster.settle(0);
    check(&load.finish(), &[]).expect_clean(300);
}
