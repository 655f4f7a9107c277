//! How the process begins and ends: restarts, kills, signals, and what keeps it from starting.

use fairlock_processes::{Folder, LIMIT, Node, run, serve};
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::time::Instant;

#[test]
fn tokens_rise_over_kills_and_restarts() {
    let folder = Folder::new("rise");
    let mut last = 0;
    for round in 0..10 {
        let mut node = Node::on(&folder.0);
        let mut peer = node.connect();
        let token = peer.acquire(&format!("A k{round} 30 5"));
        assert!(token > last, "{token} after {last}");
        for number in 0..100 {
            last = peer.acquire(&format!("A other{round}-{number} 30 5"));
        }
        if round % 2 == 0 {
            node.kill();
        } else {
            node.signal(Signal::TERM);
            assert!(node.wait().success());
        }
    }
}

#[test]
fn tokens_rise_over_kills_while_clients_raise_the_term() {
    let folder = Folder::new("raise");
    let mut last = 0_u64;
    for round in 0..5 {
        let mut node = Node::on(&folder.0);
        let mut peer = node.connect();
        let reply = peer.ask(&format!("H 1 seen={}", last.max(1 << 32) + (1000 << 32)));
        assert!(reply.starts_with("H 1 "), "{reply}");
        let token = peer.acquire(&format!("A k{round} 30 5"));
        assert!(token > last + (999 << 32), "{token} after {last}");
        last = token;
        node.kill();
    }
}

#[test]
fn a_signal_ends_it_in_order_and_who_waits_is_told() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = Folder::new("signal");
        let mut node = Node::on(&folder.0);
        let mut peer = node.connect();
        peer.acquire("A k 30 5");
        peer.say("A k 30 0 #1");
        peer.hear_nothing();
        let begin = Instant::now();
        node.signal(signal);
        let reply = peer.hear();
        assert!(reply.starts_with("E A k unavailable #1 "), "{reply}");
        peer.hear_end();
        drop(peer);
        assert!(node.wait().success());
        assert!(begin.elapsed() < LIMIT);
    }
}

/// It cannot start: a sentence that names what is wrong, an exit code, and no panic.
fn refused(arguments: &[&str], named: &[&str]) {
    let mut command = serve();
    command.args(arguments);
    let output = run(command);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{text}");
    assert!(output.status.code().is_some(), "ended by a signal: {text}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert!(!text.contains("panicked"), "{text}");
    for name in named {
        assert!(text.contains(name), "{name} is not named: {text}");
    }
}

#[test]
fn an_address_in_use_is_named() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = other.local_addr().expect("it is bound").to_string();
    let folder = Folder::new("address");
    let path = folder.0.to_str().expect("plain");
    refused(
        &["--data-dir", path, "--listen", &address],
        &[&address, "in use"],
    );
    assert!(
        !folder.0.join("term").exists(),
        "a node that cannot start changes nothing"
    );
}

#[test]
fn a_folder_in_use_is_named_with_its_holder() {
    let folder = Folder::new("held");
    let path = folder.0.to_str().expect("plain").to_owned();
    let node = Node::on(&folder.0);
    let before = fs::read(folder.0.join("term")).expect("it was written");
    refused(
        &["--data-dir", &path, "--listen", "127.0.0.1:0"],
        &[&path, "in use by process "],
    );
    assert_eq!(
        fs::read(folder.0.join("term")).expect("still there"),
        before
    );
    node.connect().hear_nothing();
}

#[test]
fn a_broken_term_file_is_named_and_left_alone() {
    let folder = Folder::new("broken");
    let path = folder.0.to_str().expect("plain").to_owned();
    Node::on(&folder.0).kill();
    let file = folder.0.join("term");
    let good = fs::read(&file).expect("it was written");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    for content in [
        Vec::new(),
        vec![0; good.len()],
        good[..good.len() - 1].to_vec(),
        flipped,
    ] {
        fs::write(&file, &content).expect("it is ours");
        let name = file.to_str().expect("plain");
        refused(&["--data-dir", &path, "--listen", "127.0.0.1:0"], &[name]);
        assert_eq!(fs::read(&file).expect("still there"), content);
    }
    fs::write(&file, &good).expect("it is ours");
    Node::on(&folder.0).connect().hear_nothing();
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = Folder::new("file");
    fs::write(&folder.0, "a file").expect("it is ours");
    let below = folder.0.join("below");
    let path = below.to_str().expect("plain");
    refused(&["--data-dir", path, "--listen", "127.0.0.1:0"], &[path]);
    fs::remove_file(&folder.0).expect("it is ours");
}

#[test]
fn listening_beyond_loopback_without_a_secret_is_refused() {
    refused(
        &["--ephemeral", "--listen", "0.0.0.0:0"],
        &["listen", "0.0.0.0:0", "secret"],
    );
}
