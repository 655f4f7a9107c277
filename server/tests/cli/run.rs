//! `fairlock run` while all goes well, and when it does not get as far as that: what COMMAND is given,
//! who gets which signal, when the lock is released, and the exit code.

use crate::support::{Folder, Running, Server, clean, eventually, fairlock, outcome, pid, runs};
use rustix::process::{Pid, Signal};
use std::process::Stdio;

/// The words of a `run` of a shell script.
fn script(text: &str) -> [&str; 6] {
    ["run", "k", "--", "sh", "-c", text]
}

fn pid_of(text: &str) -> Pid {
    pid(text.trim().parse().expect("the id of a process"))
}

#[test]
fn the_exit_code_is_that_of_the_command_and_the_lock_is_released() {
    let server = Server::start();
    for (text, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        let outcome = server.does(&script(text));
        assert_eq!((outcome.code, outcome.err.as_str()), (code, ""), "{text}");
        assert_eq!(server.state("k"), (false, 0), "{text}");
    }
}

#[test]
fn the_command_has_key_and_token_and_the_lock_is_held_meanwhile() {
    let server = Server::start();
    let binary = env!("CARGO_BIN_EXE_fairlock");
    let text =
        format!("echo $FAIRLOCK_KEY $FAIRLOCK_TOKEN; {binary} inspect --json \"$FAIRLOCK_KEY\"");
    let outcome = server.does(&["run", "a key", "--", "sh", "-c", &text]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let mut lines = outcome.out.lines();
    let token = lines
        .next()
        .and_then(|line| line.strip_prefix("a key "))
        .expect("key and token");
    let state: serde_json::Value =
        serde_json::from_str(lines.next().expect("the state")).expect("JSON");
    assert_eq!(
        (&state["state"], &state["token"]),
        (&"held".into(), &token.into())
    );
}

#[test]
fn standard_input_goes_to_the_command() {
    let server = Server::start();
    let mut command = server.fairlock(["run", "k", "--", "cat"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    running.input("through\n");
    running.close_input();
    let outcome = running.end();
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "through\n"));
}

#[test]
fn a_command_that_cannot_run_is_127_or_126_and_the_lock_is_released() {
    let folder = Folder::new("not-executable");
    let file = folder.write("file", "no program");
    let server = Server::start();
    for (command, code) in [
        ("/no/such/command", 127),
        ("no-such-command-at-all", 127),
        (file.as_str(), 126),
        ("/", 126),
    ] {
        let outcome = server.does(&["run", "k", "--", command]);
        assert_eq!(outcome.code, code, "{outcome:?}");
        assert!(outcome.err.contains(command), "{outcome:?}");
        assert_eq!(outcome.err.lines().count(), 1, "{outcome:?}");
        assert_eq!(server.state("k"), (false, 0), "{command}");
    }
}

#[test]
fn a_lock_that_is_not_had_is_75_or_what_the_user_says() {
    let server = Server::start();
    server.takes("k");
    for (option, value) in [("--no-wait", None), ("--wait", Some("0.05"))] {
        for (code, own) in [(75, None), (3, Some("3")), (0, Some("0"))] {
            let mut words = vec!["run", option];
            words.extend(value);
            words.extend(own.iter().flat_map(|own| ["--timeout-code", own]));
            words.extend(["k", "--", "echo", "it ran"]);
            let outcome = server.does(&words);
            assert_eq!(
                (outcome.code, outcome.out.as_str()),
                (code, ""),
                "{words:?}: {outcome:?}"
            );
            assert_eq!(outcome.err.lines().count(), 1, "{outcome:?}");
        }
    }
    assert_eq!(server.state("k"), (true, 0));
}

/// Goal: one at a time, in the order of asking. Method: a file that only a holder writes to.
#[test]
fn commands_under_one_lock_never_run_at_once_and_keep_their_order() {
    let folder = Folder::new("order");
    let log = folder.file("log");
    let server = Server::start();
    let held = server.takes("k");
    let mut waiting = Vec::new();
    for number in 1..=5 {
        let text = format!("echo begin {number} >>{log}; echo end {number} >>{log}");
        waiting.push(Running::start(server.fairlock(script(&text))));
        eventually("it waits", || server.state("k") == (true, number));
    }
    assert_eq!(server.does(&["release", "k", &held]).code, 0);
    for running in waiting {
        assert_eq!(running.end().code, 0);
    }
    let expected: String = (1..=5)
        .map(|number| format!("begin {number}\nend {number}\n"))
        .collect();
    assert_eq!(
        std::fs::read_to_string(&log).expect("it was written"),
        expected
    );
}

/// Goal: each signal reaches the command, and the command decides what it means.
#[test]
fn signals_are_passed_on() {
    let server = Server::start();
    for (name, signal) in [
        ("INT", Signal::INT),
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("WINCH", Signal::WINCH),
    ] {
        let text = format!(
            "trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.01; done"
        );
        let mut running = Running::start(server.fairlock(script(&text)));
        assert_eq!(running.line(), "ready");
        running.signal(signal);
        let outcome = running.end();
        assert_eq!(
            (outcome.code, outcome.out.as_str()),
            (9, format!("got {name}\n").as_str()),
            "{outcome:?}"
        );
        assert_eq!(server.state("k"), (false, 0));
    }
}

/// Goal: what the command has started gets the signal too.
#[test]
fn the_whole_process_group_gets_the_signal() {
    let server = Server::start();
    let text = "trap 'wait; echo outer; exit 4' TERM; sh -c 'trap \"echo inner; exit\" TERM; echo ready; while :; do sleep 0.01; done' & wait";
    let mut running = Running::start(server.fairlock(script(text)));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::TERM);
    let outcome = running.end();
    assert_eq!(
        (outcome.code, outcome.out.as_str()),
        (4, "inner\nouter\n"),
        "{outcome:?}"
    );
}

/// Goal: a command that says no to a signal keeps its lock.
#[test]
fn a_command_that_ignores_a_signal_goes_on_under_the_lock() {
    let folder = Folder::new("ignores");
    let gate = folder.file("gate");
    let server = Server::start();
    let text =
        format!("trap '' TERM; echo ready; while ! [ -e {gate} ]; do sleep 0.01; done; exit 6");
    let mut running = Running::start(server.fairlock(script(&text)));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::TERM);
    running.signal(Signal::TERM);
    assert_eq!(server.state("k"), (true, 0));
    assert!(!running.has_ended());
    folder.write("gate", "");
    assert_eq!(running.end().code, 6);
}

/// Goal: Ctrl+C while waiting leaves nothing in the queue, and the command never runs.
#[test]
fn signals_while_waiting_end_the_wait_and_cancel_it_on_the_server() {
    let server = Server::start();
    let token = server.takes("k");
    for (signal, code) in [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
    ] {
        let running = Running::start(server.fairlock(script("echo it ran")));
        eventually("it waits", || server.state("k") == (true, 1));
        running.signal(Signal::WINCH);
        running.signal(signal);
        let outcome = running.end();
        assert_eq!(
            (outcome.code, outcome.out.as_str()),
            (code, ""),
            "{outcome:?}"
        );
        assert_eq!(server.state("k"), (true, 0));
    }
    assert_eq!(server.does(&["release", "k", &token]).code, 0);
}

/// Goal: the lock is held until everything in the command's process group has ended, since what is
/// left may still write.
#[test]
fn what_the_command_leaves_in_its_group_keeps_the_lock() {
    let folder = Folder::new("left-behind");
    let gate = folder.file("gate");
    let server = Server::start();
    let text =
        format!("(while ! [ -e {gate} ]; do sleep 0.01; done) >/dev/null 2>&1 & echo $$; exit 5");
    let mut running = Running::start(server.fairlock(script(&text)));
    let leader = pid_of(&running.line());
    eventually("the command itself has ended", || !runs(leader));
    let note = running.error_with("COMMAND has ended");
    assert!(note.contains("the lock is held"), "{note}");
    assert_eq!(server.state("k"), (true, 0));
    folder.write("gate", "");
    assert_eq!(running.end().code, 5);
    assert_eq!(server.state("k"), (false, 0));
}

/// Goal: who puts something into a session of its own means to leave it behind.
#[test]
fn what_the_command_puts_into_a_session_of_its_own_is_not_waited_for() {
    let folder = Folder::new("session");
    let gate = folder.file("gate");
    let server = Server::start();
    let text = format!(
        "setsid sh -c 'while ! [ -e {gate} ]; do sleep 0.01; done; echo free > {gate}.done' >/dev/null 2>&1 </dev/null & sleep 0.2; exit 0"
    );
    let outcome = server.does(&script(&text));
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""));
    assert_eq!(server.state("k"), (false, 0));
    folder.write("gate", "");
    eventually("it lives on", || folder.path().join("gate.done").exists());
}

/// Goal: `kill -9` on `fairlock run` leaves nothing of the command running, grandchildren included.
#[test]
fn the_whole_group_dies_with_a_killed_run() {
    let server = Server::start();
    let text = "sh -c 'echo $$; while :; do sleep 0.01; done' & echo $$; wait";
    let mut running = Running::start(server.fairlock(script(text)));
    let members = [pid_of(&running.line()), pid_of(&running.line())];
    assert!(members.iter().all(|member| runs(*member)));
    running.signal(Signal::KILL);
    assert_eq!(running.end().code, -9);
    eventually("all have ended", || {
        !members.iter().any(|member| runs(*member))
    });
}

/// Goal: the guard is no weak point: if it is killed, the command goes on under its lock, and still
/// dies with `run`.
#[test]
fn run_goes_on_without_its_guard() {
    let server = Server::start();
    let mut running = Running::start(server.fairlock(script("echo $$ $PPID; exec sleep 1000")));
    let line = running.line();
    let command = pid_of(line.split(' ').next().expect("two ids"));
    let guard = children(running.pid())
        .into_iter()
        .find(|child| *child != command)
        .expect("run has a guard");
    rustix::process::kill_process(guard, Signal::KILL).expect("it is there");
    eventually("the guard has ended", || !runs(guard));
    assert_eq!(server.state("k"), (true, 0));
    assert!(runs(command));
    running.signal(Signal::KILL);
    eventually("the command has ended", || !runs(command));
}

fn children(parent: Pid) -> Vec<Pid> {
    let id = parent.as_raw_nonzero();
    let list =
        std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("Linux tells");
    list.split_whitespace().map(pid_of).collect()
}

/// Goal: the lock outlives its lease as long as the command runs.
#[test]
fn the_lease_is_renewed_while_the_command_runs() {
    let server = Server::start();
    let token = server.does(&[
        "run",
        "--lease",
        "1",
        "k",
        "--",
        "sh",
        "-c",
        "sleep 2.5; echo $FAIRLOCK_TOKEN",
    ]);
    assert_eq!((token.code, token.err.as_str()), (0, ""), "{token:?}");
    assert_eq!(server.state("k"), (false, 0));
}

/// Goal: `nohup fairlock run …` and scripts that ignore SIGINT mean the command too.
#[test]
fn a_signal_that_run_was_started_to_ignore_stays_ignored() {
    let server = Server::start();
    let binary = env!("CARGO_BIN_EXE_fairlock");
    let text = format!("trap '' HUP; exec {binary} run k -- sh -c 'kill -HUP $$; echo alive'");
    let mut command = clean("sh", ["-c", &text]);
    command.env("FAIRLOCK_SERVERS", &server.address);
    let outcome = outcome(command);
    assert_eq!(
        (outcome.code, outcome.out.as_str()),
        (0, "alive\n"),
        "{outcome:?}"
    );
}

/// Goal: a careless parent that ignores the ends of its children does not make `run` miss that of its
/// command.
#[test]
fn ignored_child_signals_do_not_confuse_it() {
    let server = Server::start();
    let binary = env!("CARGO_BIN_EXE_fairlock");
    let mut command = clean(
        "bash",
        [
            "-c",
            &format!("trap '' CHLD; exec {binary} run k -- sh -c 'exit 8'"),
        ],
    );
    command.env("FAIRLOCK_SERVERS", &server.address);
    let outcome = outcome(command);
    assert_eq!(outcome.code, 8, "{outcome:?}");
}

/// Goal: a pipe of the caller is closed as soon as the command has ended; no helper holds it open.
#[test]
fn output_ends_with_the_command() {
    let server = Server::start();
    let binary = env!("CARGO_BIN_EXE_fairlock");
    let mut command = clean(
        "sh",
        ["-c", &format!("echo \"<$({binary} run k -- echo inner)>\"")],
    );
    command.env("FAIRLOCK_SERVERS", &server.address);
    assert_eq!(outcome(command).out, "<inner>\n");
}

#[test]
fn locks_can_be_nested() {
    let server = Server::start();
    let binary = env!("CARGO_BIN_EXE_fairlock");
    let text = format!(
        "echo $FAIRLOCK_KEY; {binary} run inner -- sh -c 'echo $FAIRLOCK_KEY; exit 4'; echo $? $FAIRLOCK_KEY"
    );
    let outcome = server.does(&["run", "outer", "--", "sh", "-c", &text]);
    assert_eq!(
        (outcome.code, outcome.out.as_str()),
        (0, "outer\ninner\n4 outer\n"),
        "{outcome:?}"
    );
}

/// Goal: nobody waits for itself in silence. Method: the inner command has no limit to its wait; those that have one wait
/// as they would anywhere, and so does one that another lock of this key is around.
#[test]
fn a_run_inside_a_run_of_the_same_key_is_refused_unless_its_wait_is_limited() {
    let server = Server::start();
    let binary = env!("CARGO_BIN_EXE_fairlock");
    let inside = |inner: &str| {
        let text = format!("{binary} {inner}; echo $?");
        server.does(&["run", "k", "--", "sh", "-c", &text])
    };
    for inner in ["run k -- true", "acquire k"] {
        let refused = inside(inner);
        assert_eq!(refused.out, "64\n", "{refused:?}");
        assert!(refused.err.contains("would wait for itself"), "{refused:?}");
    }
    for inner in [
        "run --no-wait k -- true",
        "run --wait 0.05 k -- true",
        "acquire --wait 0.05 k",
    ] {
        let not_had = inside(inner);
        assert_eq!(not_had.out, "75\n", "{not_had:?}");
    }
    let mut other = server.fairlock(["run", "k", "--", "true"]);
    other.env("FAIRLOCK_KEY", "k").env("FAIRLOCK_TOKEN", "1");
    assert_eq!(outcome(other).code, 0);
}

#[test]
fn a_lease_beyond_what_the_server_allows_is_a_wrong_argument() {
    let server = Server::start_with(&["--max-lease", "5"], &[]);
    let outcome = server.does(&["run", "--lease", "6", "k", "--", "true"]);
    assert_eq!(outcome.code, 64, "{outcome:?}");
    assert_eq!(
        fairlock(["--version"])
            .output()
            .map(|output| output.status.success())
            .ok(),
        Some(true)
    );
}
