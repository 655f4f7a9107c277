//! Orderly stops, and the return of better nodes: no client sees an error, and no rule is broken.

use fairlock_processes::cluster::{Cluster, field};
use fairlock_processes::history::check;
use fairlock_processes::load::{Line, Load};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(20);

#[test]
fn sigint_refuses_nothing_loses_nothing_and_keeps_the_line() {
    let mut cluster = Cluster::start(3);
    let servers = cluster.servers();
    let load = Load::start(&servers, 3, 4).and_python(&servers);
    let line = Line::behind(&servers, "line", LEASE);
    line.queue_up(20);
    load.record().until_more(300);
    for index in [0, 1] {
        let took = cluster.stop(index);
        println!("node {index} stopped in {took:?}");
        line.queue_up(10);
        load.record().until_more(300);
    }
    cluster.until(2, |status| field(status, "role") == "active");
    let mut history = line.move_on();
    history.extend(load.finish());
    check(&history, &[]).expect_clean(500);
}

#[test]
fn a_rolling_restart_under_load_is_not_noticed() {
    let mut cluster = Cluster::start_with(3, &["--preempt-delay", "0.5"]);
    let servers = cluster.servers();
    let load = Load::start(&servers, 3, 4).and_python(&servers);
    let line = Line::behind(&servers, "line", LEASE);
    line.queue_up(10);
    for index in [2, 1, 0] {
        load.record().until_more(150);
        cluster.stop(index);
        load.record().until_more(150);
        cluster.bring_up(index);
        line.queue_up(5);
        // The first is given its place back; the others become copies.
        cluster.settle(0);
    }
    load.record().until_more(150);
    let mut history = line.move_on();
    history.extend(load.finish());
    check(&history, &[]).expect_clean(800);
}

#[test]
fn a_better_node_that_comes_back_takes_over_in_order() {
    let mut cluster = Cluster::start_with(3, &["--preempt-delay", "0.5"]);
    let servers = cluster.servers();
    cluster.stop(0);
    cluster.settle(1);
    let load = Load::start(&servers, 3, 4);
    let line = Line::behind(&servers, "line", LEASE);
    line.queue_up(20);
    load.record().until_more(200);
    cluster.bring_up(0);
    cluster.settle(0);
    load.record().until_more(200);
    let mut history = line.move_on();
    history.extend(load.finish());
    check(&history, &[]).expect_clean(400);
}

#[test]
fn without_preempt_a_better_node_stays_a_standby_until_the_active_one_stops() {
    let mut cluster = Cluster::start_with(2, &["--preempt=false", "--preempt-delay", "0.2"]);
    cluster.stop(0);
    cluster.settle(1);
    cluster.bring_up(0);
    cluster.settle(1);
    std::thread::sleep(Duration::from_secs(1));
    cluster.settle(1);
    cluster.stop(1);
    cluster.until(0, |status| field(status, "role") == "active");
}
