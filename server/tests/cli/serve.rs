//! The server as a process: what it prints, how it stops, and how it refuses to start.

use crate::support::{Folder, Running, Server, fairlock, outcome};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Goal: scripts can rely on the first line; people get a line to try. Method: run that line.
#[test]
fn the_first_line_says_where_it_listens_and_the_second_what_to_try() {
    let mut server = Running::start(fairlock([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--ephemeral",
    ]));
    let address = server.line();
    let address = address
        .strip_prefix("listening on ")
        .expect("the stable line");
    assert!(
        address.starts_with("127.0.0.1:") && !address.ends_with(":0"),
        "{address}"
    );
    let hint = server.line();
    let command = hint
        .strip_prefix("try it: fairlock ")
        .expect("the line to try");
    let script = format!("{} {command}", env!("CARGO_BIN_EXE_fairlock"));
    let tried = outcome(crate::support::clean("sh", ["-c", &script]));
    assert_eq!(
        (tried.code, tried.out.as_str()),
        (0, "I hold the lock\n"),
        "{tried:?}"
    );
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, 0);
}

#[test]
fn sigint_and_sigterm_stop_it_in_good_order() {
    for signal in [Signal::INT, Signal::TERM] {
        let server = Server::start().process();
        server.signal(signal);
        let outcome = server.end();
        assert_eq!(outcome.code, 0, "{outcome:?}");
    }
}

/// Goal: who says it twice does not want to wait. Method: a client that stays makes the orderly stop
/// take a second; on a machine that is too busy for that it is tried again.
#[test]
fn a_second_signal_stops_it_at_once() {
    for _ in 0..10 {
        let server = Server::start_with(&["--drain-timeout", "60"], &[]);
        let mut client = TcpStream::connect(&server.address).expect("it listens");
        client.write_all(b"H 1\n").expect("it reads");
        let mut answer = [0; 3];
        client.read_exact(&mut answer).expect("it answers");
        let mut process = server.process();
        process.signal(Signal::TERM);
        process.error_with("leaving");
        process.signal(Signal::INT);
        let outcome = process.end();
        if outcome.code == 130 {
            assert!(outcome.err.contains("at once"), "{outcome:?}");
            return;
        }
        assert_eq!(outcome.code, 0, "{outcome:?}");
    }
    panic!("every orderly stop was over before the second signal");
}

/// Goal: a script that reads one line and closes the pipe does not stop the server.
#[test]
fn nobody_has_to_read_what_it_prints() {
    let server = Server::start();
    let key = server.takes("a");
    assert!(!key.is_empty());
    server.signal(Signal::TERM);
    assert_eq!(server.process().end().code, 0);
}

#[test]
fn an_address_in_use_is_named() {
    let first = Server::start();
    let outcome = outcome(fairlock(["--ephemeral", "--listen", &first.address]));
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(
        outcome.err.contains(&first.address) && outcome.err.contains("in use"),
        "{outcome:?}"
    );
    assert_eq!(outcome.out, "");
}

#[test]
fn a_data_dir_in_use_is_named_and_tokens_rise_over_a_restart() {
    let folder = Folder::new("data");
    let data = folder.file("data");
    let start = || {
        let mut server = Running::start(fairlock(["--listen", "127.0.0.1:0", "--data-dir", &data]));
        let line = server.line();
        let address = line
            .strip_prefix("listening on ")
            .expect("the stable line")
            .to_owned();
        (server, address)
    };
    let acquire = |address: &str, key: &str| {
        let outcome = outcome(fairlock(["acquire", "--servers", address, key]));
        assert_eq!(outcome.code, 0, "{outcome:?}");
        outcome.out.trim_end().parse::<u64>().expect("a token")
    };
    let (mut first, address) = start();
    let token = acquire(&address, "a");
    let second = outcome(fairlock(["--listen", "127.0.0.1:0", "--data-dir", &data]));
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.err.contains(&data), "{second:?}");
    first.signal(Signal::KILL);
    first.status();
    let (_server, address) = start();
    assert!(acquire(&address, "a") > token);
}

#[test]
fn without_arguments_its_data_goes_to_the_state_folder_of_the_user() {
    let folder = Folder::new("state");
    let mut command = fairlock(["--listen", "127.0.0.1:0"]);
    command
        .env_remove("STATE_DIRECTORY")
        .env("XDG_STATE_HOME", folder.path())
        .env("HOME", "/nonexistent");
    let mut server = Running::start(command);
    assert!(server.line().starts_with("listening on "));
    assert!(folder.path().join("fairlock").is_dir());
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, 0);
}

/// Goal: a setting that needs a data dir has the one that is taken where nobody names one. Method: with an argument, and with
/// a file under a service manager; a node that keeps nothing is refused all the same.
#[test]
fn a_setting_that_needs_a_data_dir_has_the_default_one() {
    let folder = Folder::new("default-dir");
    let file = folder.write("f.toml", "journal_sync = \"batch\"\n");
    let state = folder.file("service");
    let by_argument = ["--journal-sync", "batch"];
    let by_file = ["--config", &file];
    for (more, name, value, data) in [
        (
            by_argument,
            "XDG_STATE_HOME",
            folder.file(""),
            folder.file("fairlock"),
        ),
        (by_file, "STATE_DIRECTORY", state.clone(), state),
    ] {
        let mut command = fairlock(["--listen", "127.0.0.1:0"]);
        command
            .args(more)
            .env_remove("STATE_DIRECTORY")
            .env(name, value)
            .env("HOME", "/nonexistent");
        let mut server = Running::start(command);
        assert!(server.line().starts_with("listening on "));
        assert!(std::path::Path::new(&data).is_dir());
        server.signal(Signal::TERM);
        assert_eq!(server.end().code, 0);
    }
    let refused = outcome(fairlock(["--ephemeral", "--journal-sync", "batch"]));
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.err.contains("needs a `data_dir`"), "{refused:?}");
}

/// Goal: a service manager tries again, as it does not where the exit code says that a setting is wrong.
#[test]
fn a_name_that_is_not_known_yet_is_no_wrong_setting() {
    for place in ["--listen", "--admin"] {
        let outcome = outcome(fairlock([
            "--ephemeral",
            "--insecure",
            place,
            "no-such-host.invalid:7420",
        ]));
        assert_eq!(outcome.code, 1, "{outcome:?}");
        let begin = "fairlock: cannot find the address of no-such-host.invalid:7420";
        assert!(outcome.err.starts_with(begin), "{outcome:?}");
    }
}

#[test]
fn an_empty_secret_is_refused_and_does_not_open_the_server() {
    for name in [
        "FAIRLOCK_SECRET",
        "FAIRLOCK_CLUSTER_SECRET",
        "FAIRLOCK_ADMIN_SECRET",
    ] {
        let mut command = fairlock(["--listen", "127.0.0.1:0", "--ephemeral"]);
        command.env(name, "");
        let outcome = outcome(command);
        assert_eq!(outcome.code, 64, "{name}: {outcome:?}");
        assert!(
            outcome
                .err
                .starts_with(&format!("fairlock: {name} is empty: ")),
            "{outcome:?}"
        );
    }
}

#[test]
fn what_the_settings_file_says_in_vain_is_in_the_log() {
    let folder = Folder::new("overruled");
    let file = folder.write("f.toml", "max_keys = 5\nlisten = \"127.0.0.1:1\"\n");
    let mut command = fairlock(["--config", &file, "--ephemeral"]);
    command.env("FAIRLOCK_LISTEN", "127.0.0.1:0");
    let mut server = Running::start(command);
    let line = server.error_with(" counts and not ");
    assert!(
        line.ends_with(&format!(
            "FAIRLOCK_LISTEN counts and not {file}, line 2: listen"
        )),
        "{line}"
    );
}

/// Goal: a server cannot move the cursor of who asks it. Method: one that refuses in colours.
#[test]
fn what_a_server_says_does_nothing_to_a_terminal() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("it calls");
            let _ = socket.write_all(b"E H - auth go \x1b[31maway \xe2\x80\xae!\n");
            let _ = socket.read(&mut [0; 256]);
        }
    });
    for arguments in [&["inspect", "k"][..], &["status"], &["acquire", "k"]] {
        let mut command = fairlock(arguments);
        command.env("FAIRLOCK_SERVERS", &address);
        let outcome = outcome(command);
        assert_ne!(outcome.code, 0, "{outcome:?}");
        assert!(
            outcome.err.contains(r"go \u{1b}[31maway \u{202e}!") && !outcome.err.contains('\x1b'),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_data_dir_that_cannot_be_written_is_named() {
    let folder = Folder::new("unwritable");
    let file = folder.write("file", "");
    let outcome = outcome(fairlock([
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        &format!("{file}/data"),
    ]));
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(outcome.err.contains(&file), "{outcome:?}");
}

/// Goal: all three places of a setting work, and the stronger one wins.
#[test]
fn settings_come_from_file_environment_and_arguments() {
    let folder = Folder::new("places");
    let file = folder.write(
        "fairlock.toml",
        "listen = \"127.0.0.1:0\"\nephemeral = true\nmax_lease = 5\n",
    );
    let lease_of = |environment: &[(&str, &str)], arguments: &[&str], lease: &str| {
        let mut command = fairlock(["--config", &file]);
        command.args(arguments).envs(environment.iter().copied());
        let mut server = Running::start(command);
        let line = server.line();
        let address = line.strip_prefix("listening on ").expect("the stable line");
        outcome(fairlock([
            "acquire",
            "--servers",
            address,
            "--lease",
            lease,
            "k",
        ]))
        .code
    };
    assert_eq!(lease_of(&[], &[], "5"), 0);
    assert_eq!(lease_of(&[], &[], "6"), 64);
    assert_eq!(lease_of(&[("FAIRLOCK_MAX_LEASE", "6")], &[], "6"), 0);
    assert_eq!(
        lease_of(&[("FAIRLOCK_MAX_LEASE", "6")], &["--max-lease", "7"], "7"),
        0
    );
    assert_eq!(
        lease_of(&[("FAIRLOCK_MAX_LEASE", "9")], &["--max-lease", "7"], "8"),
        64
    );
}

#[test]
fn a_misspelled_variable_is_told_and_those_of_platforms_are_not() {
    let mut command = fairlock(["--listen", "127.0.0.1:0", "--ephemeral"]);
    command
        .env("FAIRLOCK_MAX_KEY", "5")
        .env("FAIRLOCK_PORT_7420_TCP", "tcp://10.0.0.1:7420");
    let mut server = Running::start(command);
    let warning = server.error_with("FAIRLOCK_MAX_KEY ");
    assert!(warning.contains("perhaps FAIRLOCK_MAX_KEYS"), "{warning}");
    server.signal(Signal::TERM);
    let rest = server.end();
    assert!(!rest.err.contains("FAIRLOCK_PORT"), "{rest:?}");
}
