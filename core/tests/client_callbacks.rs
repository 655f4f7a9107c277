//! Goal: a callback may begin whatever it likes, as often as it likes. Method: callbacks that try again when they are told at once that it
//! was in vain, on a thread with little stack.

#![cfg(all(feature = "client", feature = "server"))]

#[path = "support/node.rs"]
mod node;

use fairlock::{Client, ErrorKind};
use node::{client, server};
use std::cell::Cell;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
const TRIES: u32 = 20_000;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Asks for `key`, and again in the callback, until it was in vain often enough.
fn ask(client: Client, key: &'static str, tries: u32, over: Sender<ErrorKind>) {
    let again = client.clone();
    let _pending = client.acquire(key).submit(move |result| {
        assert!(!INSIDE.replace(true), "inside another callback");
        let error = result.expect_err("it is in vain");
        if tries > 1 {
            ask(again, key, tries - 1, over);
        } else {
            over.send(error.kind().clone()).expect("the test waits");
        }
        INSIDE.set(false);
    });
}

/// What the last of many tries was told.
fn ask_often(client: &Client, key: &'static str) -> ErrorKind {
    let client = client.clone();
    let (over, is_over) = channel();
    std::thread::Builder::new()
        .stack_size(256 * 1024)
        .spawn(move || ask(client, key, TRIES, over))
        .expect("a thread")
        .join()
        .expect("callbacks one after the other");
    is_over.recv_timeout(LIMIT).expect("each try is told")
}

#[test]
fn a_callback_that_tries_again_what_fails_at_once_needs_no_more_of_the_stack() {
    let server = server();
    let client = client(&server);
    assert_eq!(ask_often(&client, ""), ErrorKind::InvalidArgument);
    client.close().call().expect("closing works");
    assert_eq!(ask_often(&client, "k"), ErrorKind::Closed);
}
