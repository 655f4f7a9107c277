//! What of all this is logged.

use fairlock_processes::{Folder, LIMIT, Node, Peer, serve, until};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

/// A cluster whose other node never runs.
const PEERS: &str = "127.0.0.1:1,127.0.0.1:2";

/// A node whose log goes to a file.
struct Logged {
    node: Node,
    folder: Folder,
}

impl Logged {
    fn start(name: &str, arguments: &[&str]) -> Logged {
        let folder = Folder::new(name);
        std::fs::create_dir_all(&folder.0).expect("the folder can be made");
        let log = File::create(folder.0.join("log")).expect("the folder can be written");
        let mut command: Command = serve();
        command
            .args(["--ephemeral", "--listen", "127.0.0.1:0"])
            .args(["--peers", PEERS, "--node", "127.0.0.1:1"])
            .args(arguments)
            .stderr(log);
        let node = Node::spawn(command);
        until(&mut node.connect(), "S", |reply| {
            reply.starts_with("S role=active ")
        });
        Logged { node, folder }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.0.join("log")).expect("the log is text")
    }
}

/// Does one thing many times, from several connections.
fn often(count: usize, mut once: impl FnMut()) {
    (0..count).for_each(|_| once());
}

/// Everything that a stranger can make the node speak of.
fn abuse(node: &Node, count: usize) {
    let speak = |bytes: &[u8]| {
        let mut socket = TcpStream::connect(node.address()).expect("it listens");
        socket.set_read_timeout(Some(LIMIT)).expect("an option");
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
    };
    // TLS on a port without it; the line of a peer, with what would colour a terminal; a term that cannot be.
    often(count, || {
        speak(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    });
    often(count, || {
        speak(b"J \x1b[31m\rroot node=a:1 list=a:1 public=a:1\n")
    });
    often(count, || speak(b"J 1 node=a:1 list=a:1,b:1 public=a:1\n"));
    // Somebody who says that it is the peer, and goes.
    let peer = format!("J 1 node=127.0.0.1:2 list={PEERS},a:1 public=a:1\n");
    often(count, || speak(peer.as_bytes()));
    often(count, || speak(b"H 1 seen=9223372036854775807\n"));
    // What is wrong, and nothing to speak of.
    often(count, || speak(b"A \xff\x1b]0;x\x07 30 5\nnonsense\n\0\n"));
    often(count, || speak(&[b'x'; 5000]));
    often(count, || speak(b"H 1 name=%1B[2J%0A\nA k%0A 30 5\n"));
    often(count, || speak(b""));
}

#[test]
fn whatever_clients_do_the_log_stays_short() {
    let logged = Logged::start("short", &["--max-connections", "50"]);
    abuse(&logged.node, 300);
    // More than there may be.
    let many: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(logged.node.address()).expect("it listens"))
        .collect();
    drop(many);
    let begin = Instant::now();
    while !logged.log().contains("max_connections") {
        assert!(begin.elapsed() < LIMIT);
    }
    let log = logged.log();
    println!("{log}");
    let lines = log.lines().count();
    println!("{lines} lines for 3,000 offences");
    assert!(lines <= 40, "{log}");
    for said in [
        "no connection with",
        "refused a link from",
        "more than a year beyond",
    ] {
        assert!(log.contains(said), "{said} is missing: {log}");
    }
    let odd = log
        .chars()
        .find(|letter| letter.is_control() && *letter != '\n');
    assert_eq!(odd, None, "{log:?}");
}

#[test]
fn on_request_the_log_is_json_a_valid_object_a_line() {
    let logged = Logged::start("json", &["--log-format", "json"]);
    abuse(&logged.node, 5);
    until(&mut Peer::connect(logged.node.address()), "S", |reply| {
        reply.contains(" connections=1 ")
    });
    let log = logged.log();
    let mut messages = Vec::new();
    for line in log.lines() {
        let event: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "message"] {
            assert!(event[field].is_string(), "{field} in {line}");
        }
        messages.push(event["message"].as_str().unwrap_or_default().to_owned());
    }
    assert!(
        messages
            .iter()
            .any(|message| message.starts_with("starting → active, term ")),
        "{messages:?}"
    );
    assert!(
        messages
            .iter()
            .any(|message| message.contains("\\u{1b}[31m\\rroot")),
        "{messages:?}"
    );
}

#[test]
fn the_level_says_how_much_is_logged() {
    let quiet = Logged::start("level", &["--log-level", "error"]);
    abuse(&quiet.node, 5);
    let log = quiet.log();
    assert!(log.contains("refused a link from"), "{log}");
    assert!(log.lines().all(|line| line.contains(" ERROR ")), "{log}");
}
