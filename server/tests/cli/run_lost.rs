//! `fairlock run` when the lock is lost while COMMAND runs: COMMAND has to be gone before anybody else
//! can have the lock, whatever stands still — the server, COMMAND, or `fairlock run` itself.

use crate::support::{Folder, Running, Server, eventually, pid, runs};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// A command that tells what it is and when it is told to end, and ends then.
const OBEDIENT: &str = "trap 'echo told; exit 0' TERM; echo $$; while :; do sleep 0.01; done";

/// One that does not listen.
const STUBBORN: &str = "trap '' TERM; echo $$; while :; do sleep 0.01; done";

fn start(server: &Server, options: &[&str], script: &str) -> (Running, rustix::process::Pid) {
    let mut command = server.fairlock(["run"]);
    command.args(options).args(["k", "--", "sh", "-c", script]);
    let mut running = Running::start(command);
    let leader = pid(running.line().parse().expect("the id of the command"));
    (running, leader)
}

fn token(server: &Server) -> String {
    let outcome = server.does(&["inspect", "--json", "k"]);
    let state: serde_json::Value = serde_json::from_str(&outcome.out).expect("JSON");
    state["token"].as_str().expect("it is held").to_owned()
}

/// Goal: a lock that an operator frees stops the command, and the exit code tells it.
#[test]
fn a_lock_that_is_taken_away_stops_the_command() {
    let server = Server::start();
    for (options, code) in [
        (&["--lease", "3"][..], 74),
        (&["--lease", "3", "--lost-code", "7"], 7),
    ] {
        let (running, leader) = start(&server, options, OBEDIENT);
        assert_eq!(server.does(&["release", "k", &token(&server)]).code, 0);
        let outcome = running.end();
        assert_eq!(
            (outcome.code, outcome.out.as_str()),
            (code, "told\n"),
            "{outcome:?}"
        );
        assert!(outcome.err.contains("is lost"), "{outcome:?}");
        assert!(!runs(leader));
    }
}

#[test]
fn a_command_that_does_not_listen_is_killed() {
    let server = Server::start();
    let (running, leader) = start(&server, &["--lease", "3"], STUBBORN);
    assert_eq!(server.does(&["release", "k", &token(&server)]).code, 0);
    let outcome = running.end();
    assert_eq!(outcome.code, 74, "{outcome:?}");
    assert!(!runs(leader));
}

/// Goal: with `--on-lost ignore` the command goes on, and its own code counts.
#[test]
fn a_lost_lock_can_be_ignored() {
    let folder = Folder::new("ignore");
    let gate = folder.file("gate");
    let server = Server::start();
    let script = format!("echo $$; while ! [ -e {gate} ]; do sleep 0.01; done; exit 5");
    let (mut running, leader) = start(&server, &["--lease", "1", "--on-lost", "ignore"], &script);
    assert_eq!(server.does(&["release", "k", &token(&server)]).code, 0);
    running.error_with("goes on without the lock");
    // Longer than the lease: neither this process nor the guard may end it.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(runs(leader));
    folder.write("gate", "");
    assert_eq!(running.end().code, 5);
}

/// Goal: without keep-alive the command has the lease and no longer.
#[test]
fn without_keep_alive_the_command_has_to_be_done_within_the_lease() {
    let server = Server::start();
    let begun = Instant::now();
    let (running, leader) = start(&server, &["--lease", "1", "--no-keep-alive"], OBEDIENT);
    let outcome = running.end();
    assert_eq!(
        (outcome.code, outcome.out.as_str()),
        (74, "told\n"),
        "{outcome:?}"
    );
    assert!(
        begun.elapsed() > Duration::from_millis(800),
        "not before an eighth is left"
    );
    assert!(!runs(leader));
    let done = server.does(&[
        "run",
        "--lease",
        "0.9",
        "--no-keep-alive",
        "k",
        "--",
        "true",
    ]);
    assert_eq!(done.code, 0, "{done:?}");
}

/// Goal: a frozen server hands the lock to the next one as soon as it wakes; by then the command has
/// to be gone. Method: the server stands still; the command has to end although nobody answers.
#[test]
fn a_frozen_server_stops_the_command_before_the_lease_ends() {
    let server = Server::start();
    for script in [OBEDIENT, STUBBORN] {
        let (running, leader) = start(&server, &["--lease", "2"], script);
        server.signal(Signal::STOP);
        let frozen = Instant::now();
        eventually("the command has ended", || !runs(leader));
        let passed = frozen.elapsed();
        server.signal(Signal::CONT);
        let outcome = running.end();
        assert_eq!(outcome.code, 74, "{outcome:?}");
        // The lease began before the server froze, so it cannot end later than this.
        assert!(
            passed < Duration::from_secs(2),
            "the command lived for {passed:?}"
        );
        eventually("the lock is free", || server.state("k") == (false, 0));
    }
}

/// Goal: a frozen server keeps nobody waiting for longer than the wait, and Ctrl+C ends it before.
#[test]
fn waiting_for_a_frozen_server_has_an_end() {
    let server = Server::start();
    server.signal(Signal::STOP);
    let begun = Instant::now();
    let outcome = server.does(&["run", "--wait", "0.5", "k", "--", "echo", "it ran"]);
    assert!(matches!(outcome.code, 69 | 75), "{outcome:?}");
    assert_eq!(outcome.out, "");
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    server.signal(Signal::CONT);

    server.takes("k");
    let waiting = Running::start(server.fairlock(["run", "k", "--", "echo", "it ran"]));
    eventually("it waits", || server.state("k") == (true, 1));
    server.signal(Signal::STOP);
    let begun = Instant::now();
    waiting.signal(Signal::INT);
    let outcome = waiting.end();
    server.signal(Signal::CONT);
    assert_eq!(
        (outcome.code, outcome.out.as_str()),
        (130, ""),
        "{outcome:?}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    eventually("nobody waits", || server.state("k") == (true, 0));
}

/// Goal: a `run` that is stopped renews nothing, so the guard has to end the command in time.
#[test]
fn a_stopped_run_stops_the_command_before_the_lease_ends() {
    let server = Server::start();
    for script in [OBEDIENT, STUBBORN] {
        let (running, leader) = start(&server, &["--lease", "2"], script);
        running.signal(Signal::STOP);
        let stopped = Instant::now();
        eventually("the command has ended", || !runs(leader));
        let passed = stopped.elapsed();
        running.signal(Signal::CONT);
        let outcome = running.end();
        assert_eq!(outcome.code, 74, "{outcome:?}");
        assert!(
            passed < Duration::from_secs(2),
            "the command lived for {passed:?}"
        );
    }
}

/// Goal: a `run` that is stopped for a moment renews in time, and nobody notices.
#[test]
fn a_run_that_is_stopped_for_a_moment_goes_on() {
    let folder = Folder::new("moment");
    let gate = folder.file("gate");
    let server = Server::start();
    let script = format!("echo $$; while ! [ -e {gate} ]; do sleep 0.01; done; exit 5");
    let (running, leader) = start(&server, &["--lease", "20"], &script);
    running.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(200));
    running.signal(Signal::CONT);
    assert!(runs(leader));
    folder.write("gate", "");
    let outcome = running.end();
    assert_eq!((outcome.code, outcome.err.as_str()), (5, ""), "{outcome:?}");
}

/// Goal: a command that was stopped still hears that the lock is lost.
#[test]
fn a_stopped_command_is_awakened_to_hear_that_the_lock_is_lost() {
    let server = Server::start();
    let (running, leader) = start(&server, &["--lease", "3"], OBEDIENT);
    rustix::process::kill_process(leader, Signal::STOP).expect("it is there");
    assert_eq!(server.does(&["release", "k", &token(&server)]).code, 0);
    let outcome = running.end();
    assert_eq!(
        (outcome.code, outcome.out.as_str()),
        (74, "told\n"),
        "{outcome:?}"
    );
}

/// Goal: a server that is gone for good: the command is ended, and `run` does not hang on the release.
#[test]
fn a_server_that_is_gone_ends_the_command_too() {
    let server = Server::start();
    let (running, leader) = start(&server, &["--lease", "2"], OBEDIENT);
    drop(server);
    let outcome = running.end();
    assert_eq!(outcome.code, 74, "{outcome:?}");
    assert!(!runs(leader));
}
