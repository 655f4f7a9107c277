//! The client commands, each with what it prints and every exit code that it has.

use crate::support::{Folder, Running, Server, eventually, fairlock, outcome};
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Goal: the way of a script: take, keep, give back; each token is worth something once.
#[test]
fn acquire_keep_and_release() {
    let server = Server::start();
    let token = server.takes("order:42");
    assert!(
        token.parse::<u64>().is_ok_and(|token| token > 1 << 53),
        "{token}"
    );
    assert_eq!(server.state("order:42"), (true, 0));

    let kept = server.does(&["keep", "--lease", "100", "order:42", &token]);
    assert_eq!(
        (kept.code, kept.out.as_str(), kept.err.as_str()),
        (0, "", "")
    );
    let state = json(&server.does(&["inspect", "--json", "order:42"]).out);
    assert!(
        state["remaining"].as_f64().is_some_and(|left| left > 90.0),
        "{state}"
    );
    assert_eq!(state["token"], Value::String(token.clone()));

    let released = server.does(&["release", "order:42", &token]);
    assert_eq!(
        (released.code, released.out.as_str(), released.err.as_str()),
        (0, "", "")
    );
    assert_eq!(server.state("order:42"), (false, 0));

    for command in ["release", "keep"] {
        let stale = server.does(&[command, "order:42", &token]);
        assert_eq!(stale.code, 74, "{stale:?}");
        assert!(
            stale.err.contains(&token) && stale.err.contains("order:42"),
            "{stale:?}"
        );
    }
}

#[test]
fn a_lock_that_is_held_is_not_had() {
    let server = Server::start();
    server.takes("k");
    for words in [
        &["acquire", "--no-wait", "k"][..],
        &["acquire", "--wait", "0.05", "k"],
    ] {
        let outcome = server.does(words);
        assert_eq!(
            (outcome.code, outcome.out.as_str()),
            (75, ""),
            "{words:?}: {outcome:?}"
        );
        assert_eq!(outcome.err.lines().count(), 1, "{words:?}: {outcome:?}");
    }
    assert_eq!(server.state("k"), (true, 0));
}

/// Goal: an acquire that waits gets the lock when it is released, with a higher token.
#[test]
fn a_waiting_acquire_is_next() {
    let server = Server::start();
    let first = server.takes("k");
    let waiting = Running::start(server.fairlock(["acquire", "k"]));
    eventually("it waits", || server.state("k") == (true, 1));
    assert_eq!(server.does(&["release", "k", &first]).code, 0);
    let outcome = waiting.end();
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let tokens = [first.as_str(), outcome.out.trim_end()]
        .map(|token| token.parse::<u64>().expect("a token"));
    assert!(tokens[1] > tokens[0]);
}

/// Goal: Ctrl+C leaves nothing in the queue.
#[test]
fn signals_end_a_waiting_acquire_and_cancel_it_on_the_server() {
    let server = Server::start();
    server.takes("k");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let waiting = Running::start(server.fairlock(["acquire", "k"]));
        eventually("it waits", || server.state("k") == (true, 1));
        waiting.signal(signal);
        assert_eq!(waiting.end().code, code);
        assert_eq!(server.state("k"), (true, 0));
    }
}

/// Goal: a token that nobody can read leaves no lock behind.
#[test]
fn a_token_that_cannot_be_printed_is_released() {
    let server = Server::start();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("Linux has it");
    let mut command = server.fairlock(["acquire", "k"]);
    command.stdout(full);
    let outcome = outcome(command);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert_eq!(server.state("k"), (false, 0));
}

#[test]
fn inspect_speaks_to_people_and_to_programs() {
    let server = Server::start();
    assert_eq!(server.does(&["inspect", "k"]).out, "k is free\n");
    assert_eq!(
        json(&server.does(&["inspect", "--json", "k"]).out),
        serde_json::json!({"state": "free", "key": "k", "waiters": 0})
    );
    let token = server.takes("k");
    let text = server.does(&["inspect", "k"]).out;
    assert!(
        text.starts_with("k is held\n") && text.contains(&token),
        "{text}"
    );
    let state = json(&server.does(&["inspect", "--json", "k"]).out);
    for field in [
        "state",
        "key",
        "token",
        "remaining",
        "waiters",
        "name",
        "address",
    ] {
        assert!(!state[field].is_null(), "{field} is missing: {state}");
    }
}

#[test]
fn waiters_are_listed_in_order() {
    let server = Server::start();
    assert_eq!(server.does(&["waiters", "k"]).out, "nobody waits for k\n");
    server.takes("k");
    let mut waiting = Vec::new();
    for count in 1..=3 {
        waiting.push(Running::start(server.fairlock(["acquire", "k"])));
        eventually("it waits", || server.state("k") == (true, count));
    }
    let queue = json(&server.does(&["waiters", "--json", "k"]).out);
    assert_eq!(queue["count"], 3);
    assert_eq!(queue["key"], "k");
    for (place, process) in (1..).zip(&waiting) {
        let row = &queue["waiters"][place - 1];
        let id = format!(":{}", process.pid().as_raw_nonzero());
        assert_eq!(row["position"], place);
        assert!(
            row["name"].as_str().is_some_and(|name| name.ends_with(&id)),
            "{row}"
        );
    }
    let table = server.does(&["waiters", "k"]).out;
    assert_eq!(table.lines().count(), 4, "{table}");
}

/// Goal: keys of any bytes stay on their line in the table, and are exact in JSON.
#[test]
fn locks_are_listed_whatever_their_keys_are() {
    let server = Server::start();
    assert_eq!(
        server
            .does(&["locks", "--json"])
            .out
            .split_whitespace()
            .collect::<String>(),
        r#"{"locks":[],"count":0}"#
    );
    for key in [
        &b"a/plain"[..],
        b"a/with blank",
        b"a/\x1b[31m\n",
        b"a/\xff",
        "b/caf\u{e9}".as_bytes(),
    ] {
        let mut command = server.fairlock(["acquire"]);
        command.arg(OsStr::from_bytes(key));
        assert_eq!(outcome(command).code, 0);
    }
    let list = json(&server.does(&["locks", "--json"]).out);
    assert_eq!(list["count"], 5);
    let rows = list["locks"].as_array().expect("rows");
    let has = |field: &str, value: &str| rows.iter().any(|row| row[field] == value);
    assert!(
        has("key", "a/with blank") && has("key", "a/\u{1b}[31m\n") && has("key", "b/caf\u{e9}")
    );
    assert!(has("key_hex", "612fff"));
    assert!(rows.iter().all(|row| row["token"].is_string()));

    let table = server.does(&["locks", "--prefix", "a/"]).out;
    assert_eq!(table.lines().count(), 5, "{table}");
    for shown in ["a/plain", "'a/with blank'", "a/%1B[31m%0A", "a/%FF"] {
        assert!(
            table.lines().any(|line| line.ends_with(shown)),
            "{shown}: {table}"
        );
    }
    assert!(!table.contains('\u{1b}'));
    assert_eq!(
        json(&server.does(&["locks", "--json", "--prefix", "-"]).out)["count"],
        0
    );
}

/// Goal: whoever has a key as the wire spells it, and looks at nothing, hears which one is meant.
#[test]
fn a_free_key_that_is_the_spelling_of_a_held_one_is_told() {
    let server = Server::start();
    server.takes("key with spaces");
    server.takes("line\nend");
    server.takes("100%");
    for (arguments, code, meant) in [
        (
            &["inspect", "key%20with%20spaces"][..],
            0,
            "'key with spaces'",
        ),
        (&["waiters", "key%20with%20spaces"], 0, "'key with spaces'"),
        (
            &["release", "key%20with%20spaces", "1"],
            74,
            "'key with spaces'",
        ),
        (&["inspect", "line%0Aend"], 0, "$'line\\012end'"),
        (&["inspect", "100%25"], 0, "100%"),
    ] {
        let said = server.does(arguments);
        assert_eq!(said.code, code, "{said:?}");
        let told = format!("is also how the held key {meant} is spelled\n");
        assert!(said.err.contains(&told), "{said:?}");
    }
    for silent in ["key%20without", "100%", "key with spaces"] {
        assert_eq!(server.does(&["inspect", silent]).err, "", "{silent}");
    }
    let held = server.does(&["inspect", "key with spaces"]).out;
    assert!(held.starts_with("'key with spaces' is held\n"), "{held}");
}

/// Goal: a list that is longer than a page has every key once.
#[test]
fn a_long_list_comes_page_by_page() {
    let server = Server::start();
    let client = fairlock::Client::new(server.address.as_str()).expect("an address");
    let (sender, granted) = std::sync::mpsc::channel();
    for number in 0..2500 {
        let sender = sender.clone();
        client.acquire(format!("key-{number}")).submit(move |lock| {
            sender.send(lock).expect("the test waits");
        });
    }
    let locks: Vec<_> = granted
        .iter()
        .take(2500)
        .collect::<Result<_, _>>()
        .expect("all are free");
    let list = json(&server.does(&["locks", "--json"]).out);
    let keys: std::collections::BTreeSet<&str> = list["locks"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["key"].as_str())
        .collect();
    assert_eq!((list["count"].as_u64(), keys.len()), (Some(2500), 2500));
    assert_eq!(server.does(&["locks"]).out.lines().count(), 2501);
    drop(locks);
}

#[test]
fn status_names_each_server_and_one_that_is_down() {
    let server = Server::start();
    server.takes("k");
    let status = json(&server.does(&["status", "--json"]).out);
    let node = &status["nodes"][0];
    assert_eq!(
        (&node["role"], &node["held"]),
        (&Value::from("active"), &Value::from(1)),
        "{status}"
    );
    let both = format!("{},127.0.0.1:1", server.address);
    let table = outcome(fairlock(["status", "--servers", &both]));
    assert_eq!(table.code, 0, "{table:?}");
    assert_eq!(table.out.lines().count(), 3, "{table:?}");
    assert!(
        table.out.contains("active") && table.out.contains("down"),
        "{table:?}"
    );
}

#[test]
fn status_names_every_server_where_none_answers() {
    let said = outcome(fairlock(["status", "--servers", "127.0.0.1:1,127.0.0.1:2"]));
    assert_eq!(said.code, 69, "{said:?}");
    for server in ["127.0.0.1:1: ", "127.0.0.1:2: "] {
        assert_eq!(said.err.matches(server).count(), 1, "{said:?}");
    }
}

#[test]
fn status_warns_of_nodes_that_are_active_at_once() {
    let (one, other) = (Server::start(), Server::start());
    let both = format!("{},{}", one.address, other.address);
    for more in [&[][..], &["--json"]] {
        let said = outcome(fairlock([&["status", "--servers", &both], more].concat()));
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.out.contains(&one.address), "{said:?}");
        let begin = "fairlock: more than one node is active: ";
        assert!(said.err.starts_with(begin), "{said:?}");
    }
    let alone = outcome(fairlock(["status", "--servers", &one.address]));
    assert_eq!((alone.code, alone.err.as_str()), (0, ""), "{alone:?}");
}

#[test]
fn status_watches_until_it_is_ended() {
    let server = Server::start();
    let mut watching = Running::start(server.fairlock(["status", "--json", "--watch"]));
    for _ in 0..2 {
        assert_eq!(json(&watching.line())["nodes"][0]["role"], "active");
    }
    watching.signal(Signal::INT);
    assert_eq!(watching.end().code, -2);
}

#[test]
fn without_a_server_every_command_says_so() {
    for words in [
        &["acquire", "k"][..],
        &["inspect", "k"],
        &["waiters", "k"],
        &["locks"],
        &["status"],
        &["keep", "k", "1"],
        &["release", "k", "1"],
        &["bench"],
        &["run", "k", "--", "true"],
    ] {
        let mut command = fairlock(words);
        command.env("FAIRLOCK_SERVERS", "127.0.0.1:1");
        let outcome = outcome(command);
        assert_eq!(
            (outcome.code, outcome.out.as_str()),
            (69, ""),
            "{words:?}: {outcome:?}"
        );
        assert_eq!(outcome.err.lines().count(), 1, "{words:?}: {outcome:?}");
    }
}

/// Goal: who forgets a letter of a variable hears of it, and does not wonder which server that was.
#[test]
fn a_misspelled_variable_of_a_client_is_told_and_those_of_a_server_are_not() {
    let server = Server::start();
    let mut command = server.fairlock(["inspect", "k"]);
    command
        .env("FAIRLOCK_SERVER", "127.0.0.1:1")
        .env("FAIRLOCK_PORT_7420_TCP", "tcp://10.0.0.1:7420")
        .env("FAIRLOCK_SECRET_FILES", "x");
    let outcome = outcome(command);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let told: Vec<&str> = outcome.err.lines().collect();
    assert_eq!(told.len(), 2, "{outcome:?}");
    assert!(
        outcome.err.contains(
            "the variable FAIRLOCK_SERVER is not read; perhaps FAIRLOCK_SERVERS is meant"
        ),
        "{outcome:?}"
    );
}

/// Goal: who does not know the secret is refused; all three ways to say it work, and none is shown.
#[test]
fn a_server_with_a_secret_refuses_those_who_do_not_know_it() {
    let folder = Folder::new("secret");
    let right = folder.write("right", "open sesame\n");
    let wrong = folder.write("wrong", "open barley\n");
    let server = Server::start_with(&[], &[("FAIRLOCK_SECRET", "open sesame")]);
    let with = |environment: &[(&str, &str)], words: &[&str]| {
        let mut command = server.fairlock(words);
        command.envs(environment.iter().copied());
        outcome(command)
    };
    for words in [
        &["acquire", "--no-wait", "k"][..],
        &["inspect", "k"],
        &["locks"],
        &["status"],
        &["bench", "--seconds", "0.1"],
        &["run", "k", "--", "true"],
    ] {
        for environment in [
            &[][..],
            &[("FAIRLOCK_SECRET", "open barley")],
            &[("FAIRLOCK_SECRET_FILE", &wrong)],
        ] {
            let outcome = with(environment, words);
            assert_eq!(
                (outcome.code, outcome.out.as_str()),
                (77, ""),
                "{words:?}: {outcome:?}"
            );
            assert!(!outcome.err.contains("barley"), "{words:?}: {outcome:?}");
        }
    }
    for environment in [
        &[("FAIRLOCK_SECRET", "open sesame")][..],
        &[("FAIRLOCK_SECRET_FILE", &right)],
        &[
            ("FAIRLOCK_SECRET", "open sesame"),
            ("FAIRLOCK_SECRET_FILE", &wrong),
        ],
    ] {
        let outcome = with(environment, &["status"]);
        assert_eq!(outcome.code, 0, "{environment:?}: {outcome:?}");
    }
    let argument = with(
        &[("FAIRLOCK_SECRET", "open barley")],
        &["status", "--secret-file", &right],
    );
    assert_eq!(
        argument.code, 0,
        "an argument beats the environment: {argument:?}"
    );
}

/// Goal: `fairlock locks | head -1` ends without a word.
#[test]
fn output_that_nobody_reads_is_no_failure() {
    let server = Server::start();
    server.takes("k");
    let mut command = server.fairlock(["locks"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command.stdout(writer);
    let outcome = outcome(command);
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""));
}
