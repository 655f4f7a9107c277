//! `bench` and `demo`: that they end, what they print, and that nothing is left behind.

use crate::support::{Running, Server, fairlock, outcome};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn bench_runs_all_workloads_and_leaves_nothing_held() {
    let server = Server::start();
    let outcome = server.does(&["bench", "--seconds", "0.2", "--count", "2000", "--json"]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.out).expect("JSON");
    let workloads = report["workloads"].as_array().expect("workloads");
    let names: Vec<&str> = workloads
        .iter()
        .filter_map(|row| row["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "single",
            "connections",
            "pipelined",
            "hot-key",
            "held",
            "queue",
            "expiry"
        ]
    );
    for workload in workloads {
        assert!(
            workload["pairs"].as_u64().is_some_and(|pairs| pairs > 0),
            "{workload}"
        );
        assert!(workload["noise"]["trustworthy"].is_boolean());
        if workload["name"] == "held" {
            continue;
        }
        let latency = |name: &str| workload["latency_us"][name].as_f64().expect("a latency");
        // How late a lease ends counts from when its grant came, and on a busy machine that may come later than the lease began.
        let may_be_none = workload["name"] == "expiry";
        assert!(may_be_none || latency("p50") > 0.0, "{workload}");
        assert!(
            latency("p50") <= latency("p99") && latency("p99") <= latency("max"),
            "{workload}"
        );
    }
    let fairness = &workloads[3]["fairness"];
    assert_eq!(fairness["workers"], 16);
    let grants =
        ["least_grants", "most_grants"].map(|name| fairness[name].as_u64().expect("a number"));
    assert!(
        grants[1] - grants[0] <= 1,
        "the hot key goes round in order: {fairness}"
    );
    let sizes: Vec<_> = workloads[4..].iter().map(|row| &row["pairs"]).collect();
    assert_eq!(sizes, [2000, 2000, 2000]);
    let list: Value = serde_json::from_str(&server.does(&["locks", "--json"]).out).expect("JSON");
    assert_eq!(list["count"], 0);
}

#[test]
fn bench_says_what_a_key_and_a_waiting_request_cost_a_server_on_this_machine() {
    let server = Server::start();
    let outcome = server.does(&[
        "bench",
        "--workload",
        "held,queue",
        "--count",
        "20000",
        "--json",
    ]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.out).expect("JSON");
    for workload in report["workloads"].as_array().expect("workloads") {
        let bytes = workload["bytes_each"].as_f64().expect("a number");
        assert!((20.0..1000.0).contains(&bytes), "{workload}");
    }
}

#[test]
fn bench_says_when_other_processes_spoil_its_figures() {
    let server = Server::start();
    let busy = std::sync::atomic::AtomicBool::new(true);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            // This test is another process than the bench.
            while busy.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let outcome = server.does(&["bench", "--workload", "single", "--seconds", "1"]);
        busy.store(false, std::sync::atomic::Ordering::Relaxed);
        outcome
    });
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(
        outcome
            .out
            .contains("do not trust the figures of `single`: other processes used"),
        "{outcome:?}"
    );
}

#[test]
fn bench_runs_the_load_that_it_is_asked_for() {
    let server = Server::start();
    let outcome = server.does(&[
        "bench",
        "--seconds",
        "0.2",
        "--connections",
        "20",
        "--depth",
        "50",
    ]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let line = outcome.out.lines().nth(1).expect("one workload");
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells[..3], ["load", "20", "50"], "{outcome:?}");
    assert_eq!(
        outcome.err, "",
        "without a terminal there is no progress line"
    );
}

#[test]
fn ctrl_c_ends_bench_with_the_figures_so_far() {
    let server = Server::start();
    let bench = Running::start(server.fairlock(["bench", "--seconds", "1000", "--json"]));
    crate::support::eventually("it works", || {
        let status: Value =
            serde_json::from_str(&server.does(&["status", "--json"]).out).expect("JSON");
        status["nodes"][0]["held"] == 1
    });
    bench.signal(Signal::INT);
    let outcome = bench.end();
    assert_eq!(outcome.code, 130, "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.out).expect("JSON");
    assert_eq!(report["interrupted"], true);
    assert_eq!(report["workloads"].as_array().map(Vec::len), Some(1));
}

/// Goal: a server that stops answering does not hold bench for ever.
#[test]
fn bench_is_bounded_in_time_against_a_frozen_server() {
    let server = Server::start();
    server.signal(Signal::STOP);
    let outcome = server.does(&["bench", "--seconds", "0.2"]);
    server.signal(Signal::CONT);
    assert_eq!(outcome.code, 69, "{outcome:?}");
}

/// Goal: the tour tells what happens. Method: its order, its rising tokens and the refused one.
#[test]
fn demo_tells_a_queue_a_lease_a_fence_and_a_cluster() {
    let mut command = fairlock(["demo", "--fast"]);
    command.env("FAIRLOCK_SERVERS", "127.0.0.1:1");
    let outcome = outcome(command);
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{outcome:?}");
    let mut rest = outcome.out.as_str();
    for part in [
        "a server runs in this process",
        "anna asks",
        "1. ben",
        "2. chloe",
        "3. dan",
        "ben has it",
        "chloe has it",
        "dan has it",
        "ben is told",
        "eve takes the lock",
        "frank has the lock",
        "accepted",
        "refused",
        "the others have a copy",
        "is killed",
        "anna's lock is still held",
        "ben, next in line",
        "told to stop",
        "ben's lock is still held",
        "chloe, next in line",
        "the servers stop",
    ] {
        let at = rest
            .find(part)
            .unwrap_or_else(|| panic!("{part} is missing, or too early: {}", outcome.out));
        rest = &rest[at..];
    }
}
