//! Secrets stay secret: nothing that the server or a client command prints, logs, answers or shows to other processes holds
//! one of them, whether it was right or wrong.

use crate::support::{Folder, LIMIT, Running, eventually, fairlock, outcome};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

/// Stands in every secret of this test and nowhere else.
const NEEDLE: &str = "needle";

/// What was shown, by whom.
#[derive(Default)]
struct Shown(Vec<(String, String)>);

impl Shown {
    fn add(&mut self, by: &str, text: impl Into<String>) {
        self.0.push((by.to_owned(), text.into()));
    }

    fn run(&mut self, by: &str, command: Command) -> i32 {
        let outcome = outcome(command);
        self.add(by, outcome.out + &outcome.err);
        outcome.code
    }
}

/// One line to the server, and all that it answers.
fn answer(address: &str, line: &str) -> String {
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket
        .set_read_timeout(Some(LIMIT))
        .expect("it has this option");
    writeln!(socket, "{line}\nP").expect("it reads");
    let mut lines = BufReader::new(socket).lines();
    let mut text = String::new();
    while let Some(Ok(line)) = lines.next() {
        text += &line;
        if line == "P" {
            break;
        }
    }
    text
}

#[test]
fn no_secret_is_shown_by_anything_that_the_server_and_its_commands_print() {
    let folder = Folder::new("hidden");
    let mut shown = Shown::default();
    let mut hash = fairlock(["hash-secret"]);
    hash.stdin(Stdio::piped());
    let mut process = Running::start(hash);
    process.input("needle-hashed");
    process.close_input();
    let hash = process.end().out;
    shown.add("hash-secret", hash.as_str());
    let users = |secret: &str| {
        format!(
            "[[user]]\nname = \"plain\"\nsecret = \"{secret}\"\nkeys = [\"k\"]\n\
             [[user]]\nname = \"hashed\"\n{hash}keys = [\"\"]\nrights = [\"inspect\"]\n"
        )
    };
    let users_file = folder.write("users.toml", &users("needle-plain"));
    let peers_secret = folder.write("cluster", "needle-cluster\n");
    let config = folder.write("fairlock.toml", "secret = \"needle-server\"\n");
    let port = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("it is bound").to_string()
    };
    let (one, two) = (port(), port());
    let list = format!("{one},{two}");
    let arguments = [
        "--config",
        &config,
        "--users-file",
        &users_file,
        "--cluster-secret-file",
        &peers_secret,
        "--ephemeral",
        "--peers",
        &list,
        "--discovery-timeout",
        "0.2",
        "--log-level",
        "info",
    ];
    let logs = [folder.file("log-1"), folder.file("log-2")];
    let start = |node: &str, log: &str| {
        let mut command = fairlock(arguments);
        command
            .args(["--node", node])
            .env("FAIRLOCK_SECRE", "needle-misspelled")
            .stderr(std::fs::File::create(log).expect("the folder can be written"));
        Running::start(command)
    };
    let log = |index: usize| std::fs::read_to_string(&logs[index]).expect("it is text");
    let mut server = start(&one, &logs[0]);
    shown.add("server", server.line());
    let mut standby = start(&two, &logs[1]);
    shown.add("server", standby.line());

    let client = |secret: &str, arguments: &[&str]| {
        let mut command = fairlock(arguments);
        command
            .env("FAIRLOCK_SERVERS", &one)
            .env("FAIRLOCK_SECRET", secret);
        command
    };
    eventually("the server is active", || {
        outcome(client("needle-server", &["inspect", "k"])).code == 0
    });
    for (secret, arguments, code) in [
        ("needle-server", &["run", "k", "--", "true"][..], 0),
        ("needle-server", &["status"], 0),
        ("plain:needle-plain", &["acquire", "k"], 0),
        ("plain:needle-plain", &["acquire", "x"], 77),
        ("hashed:needle-hashed", &["inspect", "k"], 0),
        ("hashed:needle-wrong", &["inspect", "k"], 77),
        ("needle-cluster", &["inspect", "k"], 77),
        ("needle", &["status"], 77),
    ] {
        let command = client(secret, arguments);
        assert_eq!(shown.run("client", command), code, "{secret} {arguments:?}");
    }
    for line in [
        "H 1 auth=needle-wrong",
        "H 1 auth=plain:needle-wrong",
        "H 1 auth=hashed:needle-wrong",
        "H 1 auth=needle wrong",
        "H 1 auth=%6Eneedle",
        "H 1 auth=needle auth=needle",
        "H 2 auth=needle",
        "J 1 node=a:1 list=a:1 public=a:1 secret=needle",
        "J 1 secret=needle",
        &format!("J 1 node={two} list={list} public={two} secret=plain:needle-plain"),
        &format!("J 1 node={two} list={list} public={two} secret=needle-server"),
    ] {
        let reply = answer(&one, line);
        assert!(reply.starts_with('E'), "{line}: {reply}");
        shown.add("reply", reply);
    }
    let broken = [
        &users("needle-plain")[10..],
        "secret = needle",
        "[[user]]\nnonsense = \"needle\"\n",
    ];
    for (index, text) in broken.into_iter().enumerate() {
        folder.write("users.toml", text);
        server.signal(Signal::HUP);
        eventually("the broken file is told", || {
            log(0).matches("stay as they were").count() > index
        });
    }
    for process in [&server, &standby] {
        let of = format!("/proc/{}", process.pid().as_raw_nonzero());
        let arguments = std::fs::read(format!("{of}/cmdline")).expect("it lives");
        shown.add("process list", String::from_utf8_lossy(&arguments));
    }
    for process in [server, standby] {
        process.signal(Signal::TERM);
        let end = process.end();
        assert_eq!(end.code, 0, "{end:?}");
        shown.add("server", end.out);
    }
    for index in [0, 1] {
        assert!(log(index).contains("FAIRLOCK_SECRE "), "{}", log(index));
        shown.add("log", log(index));
    }

    // What cannot be used is named, and not shown.
    let long = format!("secret = \"needle{}\"\n", "x".repeat(600));
    let both = "secret = \"needle\"\nsecret_file = \"/none\"\n";
    for text in [
        &long,
        both,
        "secret = needle\n",
        "cluster_secret = [\"needle\"]\n",
        "secret = \"needle",
    ] {
        let config = folder.write("broken.toml", text);
        let code = shown.run("config", fairlock(["--config", &config, "--ephemeral"]));
        assert_eq!(code, 64, "{text}");
    }
    let mut help = fairlock(["serve", "--help"]);
    help.env("FAIRLOCK_SECRET", "needle")
        .env("FAIRLOCK_CLUSTER_SECRET", "needle");
    assert_eq!(shown.run("help", help), 0);
    for (by, text) in &shown.0 {
        let found = text.lines().find(|line| line.contains(NEEDLE));
        assert_eq!(found, None, "shown by: {by}");
    }
    let all: usize = shown.0.iter().map(|(_, text)| text.len()).sum();
    assert!(all > 5000, "something was shown: {all}");
}
