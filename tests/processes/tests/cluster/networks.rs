//! Networks that are cut, on both ways or on one, between hosts of their own.

use fairlock_processes::cluster::{Cluster, field};
use fairlock_processes::history::{Allowance, check, moment};
use fairlock_processes::load::{Line, Load};
use fairlock_processes::network::Host::{Clients, Node};
use fairlock_processes::network::Network;
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(30);
/// What clients lack after a cut until their system sends again.
const RESUME: u64 = 5_000_000_000;

/// Three nodes, each on a host of its own.
fn spread(network: &Network) -> Cluster {
    let arguments = ["--insecure", "--preempt-delay", "0.5"];
    let mut cluster = Cluster::at(network.addresses(), &arguments, network.prefix());
    for index in 0..3 {
        cluster.bring_up(index);
    }
    cluster.settle(0);
    cluster
}

#[test]
fn an_active_node_that_is_cut_off_from_all_is_replaced_and_gives_way_in_order() {
    let Some(network) = Network::lay(3) else {
        return;
    };
    let cluster = spread(&network);
    let servers = cluster.servers();
    let load = Load::start(&servers, 2, 4).and_python(&servers);
    let line = Line::behind(&servers, "line", LEASE);
    line.queue_up(10);
    load.record().until_more(200);
    let from = moment();
    for other in [Node(1), Node(2), Clients] {
        network.cut(Node(0), other);
    }
    cluster.until(1, |status| field(status, "role") == "active");
    load.record().until_more(200);
    network.heal();
    cluster.settle(0);
    let cut = Allowance::cut(from, moment() + RESUME);
    load.record().until_more(200);
    let mut history = line.move_on();
    history.extend(load.finish());
    check(&history, &[cut]).expect_clean(500);
}

#[test]
fn two_active_nodes_that_meet_become_one_with_the_locks_of_both() {
    let Some(network) = Network::lay(3) else {
        return;
    };
    let cluster = spread(&network);
    let servers = cluster.servers();
    let load = Load::start(&servers, 2, 4);
    let before = Line::behind(&servers, "before", LEASE);
    before.queue_up(5);
    load.record().until_more(200);
    let from = moment();
    network.cut(Node(0), Node(1));
    network.cut(Node(0), Node(2));
    cluster.until(1, |status| field(status, "role") == "active");
    assert_eq!(field(&cluster.status(0), "role"), "active");
    let here = Line::behind(&servers[..1], "here", LEASE);
    let there = Line::behind(&servers[1..2], "there", LEASE);
    here.queue_up(5);
    there.queue_up(5);
    before.queue_up(5);
    load.record().until_more(200);
    network.heal();
    cluster.settle(0);
    let cut = Allowance::cut(from, moment() + RESUME);
    load.record().until_more(200);
    let mut history = here.move_on();
    history.extend(there.move_on());
    history.extend(before.move_on());
    history.extend(load.finish());
    check(&history, &[cut]).expect_clean(500);
}

#[test]
fn a_standby_that_cannot_hear_the_active_node_does_not_take_over_while_another_can() {
    let Some(network) = Network::lay(3) else {
        return;
    };
    let cluster = spread(&network);
    let servers = cluster.servers();
    let load = Load::start(&servers, 2, 4);
    let term = field(&cluster.status(0), "term").to_owned();
    for both_ways in [false, true] {
        load.record().until_more(100);
        if both_ways {
            network.cut(Node(0), Node(1));
        } else {
            network.cut_one_way(Node(0), Node(1));
        }
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(3) {
            assert_ne!(field(&cluster.status(1), "role"), "active");
            std::thread::sleep(Duration::from_millis(20));
        }
        network.heal();
        cluster.settle(0);
    }
    load.record().until_more(100);
    assert_eq!(field(&cluster.status(0), "term"), term);
    check(&load.finish(), &[]).expect_clean(300);
}

#[test]
fn an_active_node_that_hears_nobody_and_one_that_is_not_heard_end_as_one() {
    let Some(network) = Network::lay(3) else {
        return;
    };
    let cluster = spread(&network);
    let servers = cluster.servers();
    let load = Load::start(&servers, 2, 4);
    load.record().until_more(100);
    let mut cuts = Vec::new();
    for deaf in [true, false] {
        let from = moment();
        for other in [Node(1), Node(2)] {
            if deaf {
                network.cut_one_way(other, Node(0));
            } else {
                network.cut_one_way(Node(0), other);
            }
        }
        std::thread::sleep(Duration::from_secs(2));
        load.record().until_more(50);
        network.heal();
        cluster.settle(0);
        cuts.push(Allowance::cut(from, moment() + RESUME));
        load.record().until_more(50);
    }
    check(&load.finish(), &cuts).expect_clean(300);
}

#[test]
fn clients_that_are_cut_off_from_the_active_node_alone_go_on_when_they_reach_it_again() {
    let Some(network) = Network::lay(3) else {
        return;
    };
    let cluster = spread(&network);
    let servers = cluster.servers();
    let load = Load::start(&servers, 2, 4);
    load.record().until_more(100);
    let term = field(&cluster.status(0), "term").to_owned();
    network.cut(Node(0), Clients);
    std::thread::sleep(Duration::from_millis(1500));
    network.heal();
    load.record().until_more(200);
    cluster.settle(0);
    assert_eq!(field(&cluster.status(0), "term"), term);
    check(&load.finish(), &[]).expect_clean(300);
}

#[test]
fn with_every_tenth_packet_lost_all_rules_are_kept() {
    let Some(network) = Network::lay(3) else {
        return;
    };
    let cluster = spread(&network);
    let servers = cluster.servers();
    let load = Load::start(&servers, 2, 4);
    load.record().until_more(50);
    let from = moment();
    for index in 0..3 {
        network.lose(index, 10);
    }
    std::thread::sleep(Duration::from_secs(4));
    network.heal();
    cluster.settle(0);
    let cut = Allowance::cut(from, moment() + RESUME);
    load.record().until_more(50);
    check(&load.finish(), &[cut]).expect_clean(100);
}
