//! Users through the real binary: the file of the README, what each may do on the command line, `hash-secret`, SIGHUP.

use crate::support::{
    Folder, LIMIT, Outcome, Running, Server, clean, eventually, fairlock, outcome,
};
use fairlock::{Client, Error, ErrorKind};
use nix::pty::openpty;
use rustix::process::Signal;
use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

const README: &str = include_str!("../../../README.md");

/// The first block of this kind in a chapter of the README.
fn block(chapter: &str, kind: &str) -> &'static str {
    let chapter = README
        .split_once(&format!("\n## {chapter}\n"))
        .expect("the chapter is there")
        .1;
    let block = chapter
        .split_once(&format!("```{kind}\n"))
        .expect("the block is there")
        .1;
    block.split_once("\n```").expect("it ends").0
}

fn user(name: &str, secret: &str, keys: &str, rights: &str) -> String {
    format!("[[user]]\nname = \"{name}\"\n{secret}\nkeys = [{keys}]\nrights = [{rights}]\n")
}

fn hash(secret: &str) -> Outcome {
    let mut command = fairlock(["hash-secret"]);
    command.stdin(Stdio::piped());
    let mut process = Running::start(command);
    process.input(secret);
    process.close_input();
    process.end()
}

/// A client command as a user.
fn as_user(server: &Server, secret: &str, arguments: &[&str]) -> Outcome {
    let mut command = server.fairlock(arguments);
    command.env("FAIRLOCK_SECRET", secret);
    outcome(command)
}

#[test]
fn the_file_of_the_readme_does_what_the_readme_says() {
    let folder = Folder::new("users-readme");
    let file = folder.write("users.toml", block("Users and rights", "toml"));
    let server = Server::start_with(&["--users-file", &file], &[]);
    let billing = "billing:open sesame";
    let on_call = "on-call:correct horse battery staple";
    for (secret, arguments, code) in [
        (billing, &["run", "order:42", "--", "true"][..], 0),
        (billing, &["run", "report", "--", "true"], 77),
        (billing, &["inspect", "order:42"], 0),
        (billing, &["locks"], 77),
        (billing, &["status"], 0),
        (on_call, &["locks"], 0),
        (on_call, &["waiters", "order:42"], 0),
        (billing, &["waiters", "order:42"], 0),
        (billing, &["waiters", "report"], 77),
        (billing, &["inspect", "report"], 77),
        (on_call, &["run", "order:42", "--", "true"], 77),
        ("billing:open", &["status"], 77),
        ("open sesame", &["status"], 77),
    ] {
        let outcome = as_user(&server, secret, arguments);
        assert_eq!(outcome.code, code, "{secret} {arguments:?}: {outcome:?}");
        if code == 77 && !secret.ends_with("open") && secret.contains(':') {
            assert!(
                outcome.err.contains("denied: this user may not"),
                "{outcome:?}"
            );
        }
    }
    let taken = as_user(&server, billing, &["acquire", "order:42"]);
    let token = taken.out.trim();
    let other = as_user(&server, billing, &["release", "order:42", token]);
    assert_eq!(other.code, 77, "another client of the same user: {other:?}");
    let freed = as_user(&server, on_call, &["release", "order:42", token]);
    assert_eq!(freed.code, 0, "{freed:?}");
    assert_eq!(server.does(&["status"]).code, 77, "without a secret");
}

#[test]
fn beyond_loopback_users_are_protection_enough() {
    let folder = Folder::new("users-beyond");
    let file = folder.write("users.toml", &user("a", "secret = \"x\"", "\"\"", ""));
    let mut command = fairlock(["--listen", "0.0.0.0:0", "--ephemeral"]);
    assert_eq!(outcome(command).code, 64);
    command = fairlock([
        "--listen",
        "0.0.0.0:0",
        "--ephemeral",
        "--users-file",
        &file,
    ]);
    let mut server = Running::start(command);
    assert!(server.line().starts_with("listening on 0.0.0.0:"));
}

#[test]
fn sighup_reads_the_users_again() {
    let folder = Folder::new("users-hup");
    let all = "\"lock\", \"inspect\"";
    let file = folder.write("users.toml", &user("a", "secret = \"x\"", "\"\"", all));
    let server = Server::start_with(&["--users-file", &file], &[]);
    assert_eq!(as_user(&server, "a:x", &["inspect", "k"]).code, 0);
    let hashed = hash("y\n");
    assert_eq!(hashed.code, 0, "{hashed:?}");
    folder.write("users.toml", &user("a", hashed.out.trim(), "\"\"", all));
    server.signal(Signal::HUP);
    eventually("the new secret", || {
        as_user(&server, "a:y", &["inspect", "k"]).code == 0
    });
    assert_eq!(as_user(&server, "a:x", &["inspect", "k"]).code, 77);
    folder.write("users.toml", "\n[[user]]\nnam = \"a\"\n");
    server.signal(Signal::HUP);
    let address = server.address.clone();
    let mut process = server.process();
    process.error_with("the users have been read again: 1");
    let line = process.error_with("stay as they were");
    assert!(
        line.contains(&format!("users file {file}, line 3: a user has no nam")),
        "{line}"
    );
    let mut inspect = fairlock(["inspect", "k"]);
    inspect
        .env("FAIRLOCK_SERVERS", address)
        .env("FAIRLOCK_SECRET", "a:y");
    assert_eq!(outcome(inspect).code, 0);
}

fn client(server: &Server, secret: &str) -> Client {
    let client = Client::builder().servers(&server.address).secret(secret);
    let client = client.build().expect("options");
    client.connected().call().expect("it is let in");
    client
}

fn is_denied<T: std::fmt::Debug>(what: &str, result: Result<T, Error>) {
    let error = result.expect_err(what);
    let denied = ErrorKind::Refused {
        code: "denied".into(),
    };
    assert_eq!(error.kind(), &denied, "{what}: {error}");
}

/// Method: every operation that only looks, as a user that may only lock and as one that may look at some keys.
#[test]
fn who_may_not_look_is_denied_whatever_it_asks_and_goes_on() {
    let folder = Folder::new("users-look");
    let text = user("locks", "secret = \"x\"", "\"\"", "\"lock\"")
        + &user("looks", "secret = \"y\"", "\"a:\"", "\"inspect\"")
        + &user("lists", "secret = \"z\"", "\"a:\"", "\"list\"");
    let file = folder.write("users.toml", &text);
    let server = Server::start_with(&["--users-file", &file], &[]);
    let locks = client(&server, "locks:x");
    let lock = locks.acquire("a:k").call().expect("it may");
    let (looks, lists) = (client(&server, "looks:y"), client(&server, "lists:z"));
    for (name, client, key) in [
        ("locks", &locks, "a:k"),
        ("looks", &looks, "b:k"),
        ("lists", &lists, "a:k"),
    ] {
        is_denied(name, client.inspect(key).call());
        is_denied(name, client.waiters(key, 10).call());
    }
    for client in [&locks, &looks] {
        is_denied("locks", client.locks("", None, 10).call());
    }
    is_denied(
        "acquire",
        looks.acquire("a:k").call().map(|lock| lock.token()),
    );
    assert_eq!(looks.waiters("a:k", 10).call().expect("it may").count, 0);
    assert!(looks.inspect("a:k").call().is_ok());
    assert_eq!(
        lists
            .locks("", None, 10)
            .call()
            .expect("it may")
            .locks
            .len(),
        1
    );
    assert!(lock.release().call().expect("an answer"));
}

/// Goal: a client with one address whose user may do other things from now on loses nothing but what it may not do any more.
/// Method: two requests that wait, of which one may go on, and a lock with keep-alive.
#[test]
fn a_change_of_rights_denies_what_waits_for_lost_keys_and_leaves_the_rest_alone() {
    let folder = Folder::new("users-rights");
    let root = user("root", "secret = \"x\"", "\"\"", "\"lock\", \"inspect\"");
    let a = |keys: &str| user("a", "secret = \"y\"", keys, "\"lock\"") + &root;
    let file = folder.write("users.toml", &a("\"old:\", \"both:\""));
    let server = Server::start_with(&["--users-file", &file], &[]);
    let root = client(&server, "root:x");
    let held = ["old:k", "both:k"].map(|key| root.acquire(key).call().expect("it may"));
    let a_client = client(&server, "a:y");
    let kept = a_client
        .acquire("both:kept")
        .lease(Duration::from_secs(5))
        .keep_alive();
    let kept = kept.call().expect("it may");
    let waiting = ["old:k", "both:k"].map(|key| {
        let client = a_client.clone();
        std::thread::spawn(move || client.acquire(key).call())
    });
    eventually("both wait", || {
        ["old:k", "both:k"]
            .iter()
            .all(|key| root.waiters(key, 1).call().expect("it may").count == 1)
    });
    folder.write("users.toml", &a("\"both:\", \"new:\""));
    server.signal(Signal::HUP);
    let [lost, goes_on] = waiting;
    is_denied(
        "a lost key",
        lost.join().expect("no panic").map(|lock| lock.token()),
    );
    assert!(!goes_on.is_finished());
    let [_, both] = held;
    assert!(both.release().call().expect("an answer"));
    let lock = goes_on
        .join()
        .expect("no panic")
        .expect("its place was kept");
    assert!(lock.release().call().expect("an answer"));
    assert!(
        a_client
            .acquire("new:k")
            .call()
            .expect("it may by now")
            .release()
            .call()
            .expect("an answer")
    );
    is_denied(
        "a lost key",
        a_client.try_acquire("old:other").call().map(|_| ()),
    );
    kept.keep().call().expect("it is held");
    assert!(kept.is_held());
    let mut process = server.process();
    process.error_with("connections with other rights from now on: ");
}

/// Goal: who is not in the file any more, or not with this secret, is told so.
#[test]
fn a_user_that_is_gone_loses_its_connection_and_hears_why() {
    let folder = Folder::new("users-gone");
    let root = user("root", "secret = \"x\"", "\"\"", "\"lock\", \"inspect\"");
    let text = user("a", "secret = \"y\"", "\"\"", "\"lock\"")
        + &user("b", "secret = \"v\"", "\"\"", "\"lock\"")
        + &root;
    let file = folder.write("users.toml", &text);
    let server = Server::start_with(&["--users-file", &file], &[]);
    let root_client = client(&server, "root:x");
    let held = root_client.acquire("k").call().expect("it may");
    let waiting = ["a:y", "b:v"].map(|secret| {
        let client = client(&server, secret);
        std::thread::spawn(move || client.acquire("k").call().map(|lock| lock.token()))
    });
    eventually("both wait", || {
        root_client.waiters("k", 1).call().expect("it may").count == 2
    });
    folder.write(
        "users.toml",
        &(user("b", "secret = \"z\"", "\"\"", "\"lock\"") + &root),
    );
    server.signal(Signal::HUP);
    for waiting in waiting {
        let error = waiting.join().expect("no panic").expect_err("it is gone");
        let auth = ErrorKind::Refused {
            code: "auth".into(),
        };
        assert_eq!(error.kind(), &auth, "{error}");
    }
    assert!(held.release().call().expect("an answer"));
}

/// Goal: an operator who is careless hears of it. Method: the same files with other modes.
#[test]
fn a_file_with_secrets_that_everybody_may_read_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("users-mode");
    let users = folder.write("users.toml", &user("a", "secret = \"x\"", "\"\"", ""));
    let secret = folder.write("secret", "y\n");
    let start = |mode: u32| {
        for file in [&users, &secret] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(file, permissions).expect("it is ours");
        }
        let arguments = ["--users-file", &users, "--secret-file", &secret];
        let process = Server::start_with(&arguments, &[]).process();
        process.signal(Signal::TERM);
        process.end().err
    };
    let log = start(0o644);
    for file in [&users, &secret] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(file)).collect();
        assert!(
            matches!(lines[..], [line] if line.contains("WARN") && line.contains("mode 644")),
            "{log}"
        );
    }
    assert!(!start(0o640).contains("everybody"));
}

/// Goal: a pattern of another program, which would fit nothing, is told. Method: one user with it and one without.
#[test]
fn a_star_in_the_keys_of_a_user_is_told_to_be_an_ordinary_character() {
    let folder = Folder::new("users-star");
    let text = user("starry", "secret = \"x\"", "\"order:*\"", "")
        + &user("plain", "secret = \"y\"", "\"order:\"", "");
    let users = folder.write("users.toml", &text);
    let process = Server::start_with(&["--users-file", &users], &[]).process();
    process.signal(Signal::TERM);
    let log = process.end().err;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("`*`")).collect();
    assert!(
        matches!(lines[..], [line] if line.contains("WARN") && line.contains("user starry") && line.contains("order:*")),
        "{log}"
    );
}

#[test]
fn hash_secret_takes_one_secret_from_a_pipe() {
    for (input, secret) in [
        ("sesame\n", "sesame"),
        ("a b\r\n", "a b"),
        ("two\nlines", "two\nlines"),
    ] {
        let hashed = hash(input);
        assert_eq!((hashed.code, hashed.err.as_str()), (0, ""));
        assert!(
            hashed
                .out
                .starts_with("secret_hash = \"$argon2id$v=19$m=19456,t=2,p=1$"),
            "{hashed:?}"
        );
        assert!(!hashed.out.contains(secret));
    }
    for input in ["", "\n", &"x".repeat(600)] {
        let refused = hash(input);
        assert_eq!(
            (refused.code, refused.out.as_str()),
            (64, ""),
            "{refused:?}"
        );
    }
    assert_eq!(outcome(fairlock(["hash-secret", "sesame"])).code, 64);
}

/// Goal: what is typed is not shown, and can be corrected. Method: a terminal whose other end is read.
#[test]
fn hash_secret_asks_twice_on_a_terminal_and_shows_nothing() {
    for (first, second, code) in [
        ("sesamx\x7fe\n", "wrong\x15sesame\n", 0),
        ("sesame\n", "sesamE\n", 64),
        ("ses\x03", "", 130),
    ] {
        let terminal = openpty(None, None).expect("a terminal");
        let copy = || terminal.slave.try_clone().expect("a descriptor");
        let mut command = clean(env!("CARGO_BIN_EXE_fairlock"), ["hash-secret"]);
        command.stdin(copy()).stderr(copy());
        let process = Running::start(command);
        let mut master = File::from(terminal.master);
        let mut seen = String::new();
        for (prompt, typed) in [("secret: ", first), ("the same again: ", second)] {
            if typed.is_empty() {
                continue;
            }
            let begin = Instant::now();
            while !seen.ends_with(prompt) {
                let mut bytes = [0; 256];
                let count = master.read(&mut bytes).expect("it writes");
                seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
                assert!(begin.elapsed() < LIMIT, "{seen}");
            }
            master.write_all(typed.as_bytes()).expect("it reads");
        }
        let outcome = process.end();
        assert_eq!(outcome.code, code, "{outcome:?} {seen}");
        assert_eq!(
            outcome.out.starts_with("secret_hash = \"$argon2id$"),
            code == 0
        );
        let mut rest = [0; 1024];
        let count = master.read(&mut rest).expect("it has written");
        seen.push_str(&String::from_utf8_lossy(&rest[..count]));
        assert!(!seen.to_lowercase().contains("ses"), "{seen}");
    }
}
