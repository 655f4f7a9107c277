//! Tokens rise whatever a node has forgotten.

use crate::nodes::server;
use crate::raw::{LIMIT, Peer, token};
use fairlock::{Server, ServerError};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("fairlock-node-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    fn start(&self) -> Result<Server, ServerError> {
        Server::builder()
            .listen("127.0.0.1:0")
            .data_dir(&self.0)
            .start_blocking()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn tokens_rise_over_restarts() {
    let folder = Folder::new("rise");
    let mut last = 0;
    for round in 0..5 {
        let server = folder.start().expect("it starts");
        let mut peer = Peer::connect(server.address());
        let token = peer.acquire(&format!("A k{round} 30 5"));
        assert!(token > last, "{token} after {last}");
        last = peer.acquire(&format!("A l{round} 30 5"));
        server.stop_blocking().expect("it stops");
    }
}

#[test]
fn tokens_of_a_node_without_a_folder_rise_within_a_second() {
    let mut last = 0;
    for _ in 0..5 {
        let server = server();
        let token = Peer::connect(server.address()).acquire("A k 30 5");
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[test]
fn the_term_in_the_folder_counts_even_if_the_clock_is_behind_it() {
    let folder = Folder::new("ahead");
    drop(folder.start().expect("it starts"));
    let text = fs::read_to_string(folder.0.join("term")).expect("it was written");
    assert!(text.starts_with("fairlock term file"), "{text}");
    // Opened twice within a second, the term is one more than the one before.
    let terms: Vec<u64> = (0..3)
        .map(|round| {
            let server = folder.start().expect("it starts");
            Peer::connect(server.address()).acquire(&format!("A k{round} 30 5")) >> 32
        })
        .collect();
    assert!(terms[0] < terms[1] && terms[1] < terms[2], "{terms:?}");
}

#[test]
fn a_broken_term_file_is_named_and_left_alone() {
    let folder = Folder::new("broken");
    drop(folder.start().expect("it starts"));
    let path = folder.0.join("term");
    for content in [
        "",
        "fairlock term file, version 1\nterm 5\ncheck 00000000\n",
        "\0\0\0\0",
    ] {
        fs::write(&path, content).expect("a file");
        let error = folder.start().expect_err("broken");
        assert!(matches!(error, ServerError::TermFile { .. }), "{error}");
        assert!(
            error.to_string().contains(path.to_str().expect("plain")),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).expect("still there"), content);
    }
}

#[test]
fn two_nodes_do_not_share_a_folder() {
    let folder = Folder::new("shared");
    let first = folder.start().expect("it starts");
    let before = fs::read(folder.0.join("term")).expect("it was written");
    let error = folder.start().expect_err("in use");
    assert!(matches!(error, ServerError::DataDirInUse { .. }), "{error}");
    assert!(
        error.to_string().contains(&std::process::id().to_string()),
        "{error}"
    );
    assert_eq!(
        fs::read(folder.0.join("term")).expect("still there"),
        before
    );
    drop(first);
    drop(folder.start().expect("it is free again"));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = Folder::new("file");
    fs::write(&folder.0, "a file").expect("a file");
    let error = folder.start().expect_err("no folder");
    assert!(matches!(error, ServerError::DataDir { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains(folder.0.to_str().expect("plain")),
        "{error}"
    );
    fs::remove_file(&folder.0).expect("it was there");
}

#[test]
fn a_client_that_has_seen_a_higher_token_gets_one_above_it() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let token_now = peer.acquire("A k 30 5");
    let seen = token_now + (1000 << 32);
    let mut other = Peer::connect(server.address());
    other.send(format!("H 1 seen={seen}\nA l 30 5\n").as_bytes());
    assert!(other.hear().starts_with("H 1 "));
    assert!(token(&other.hear()) > seen);
    // More than a year beyond the wall clock does not count.
    let absurd = token_now + (40_000_000 << 32);
    let mut liar = Peer::connect(server.address());
    liar.send(format!("H 1 seen={absurd}\nA m 30 5\n").as_bytes());
    assert!(liar.hear().starts_with("H 1 "));
    assert!(token(&liar.hear()) < absurd);
}

#[test]
fn clients_raise_the_term_at_most_once_a_second_and_the_last_word_counts() {
    let folder = Folder::new("raise");
    let server = folder.start().expect("it starts");
    let mut peer = Peer::connect(server.address());
    let first = peer.acquire("A k 30 5");
    let begin = Instant::now();
    let mut terms = BTreeSet::new();
    for step in 1..=200 {
        let mut other = Peer::connect(server.address());
        other.ask(&format!("H 1 seen={}", first + ((step * 10) << 32)));
        terms.insert(other.acquire(&format!("A l{step} 30 5")) >> 32);
    }
    let last = (first >> 32) + 2001;
    for number in 0.. {
        let term = peer.acquire(&format!("A m{number} 30 5")) >> 32;
        terms.insert(term);
        if term == last {
            break;
        }
        assert!(begin.elapsed() < LIMIT, "{term} instead of {last}");
    }
    terms.remove(&(first >> 32));
    assert!(
        terms.len() as u64 <= begin.elapsed().as_secs() + 2,
        "{terms:?}"
    );
    let text = fs::read_to_string(folder.0.join("term")).expect("it was written");
    assert!(text.contains(&format!("\nterm {last}\n")), "{text}");
}
