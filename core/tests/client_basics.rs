#![cfg(all(feature = "client", feature = "server"))]
//! The client against a real server in the same process: what users do every day.

use fairlock::{Client, Server};
use std::sync::mpsc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

fn server() -> Server {
    Server::builder()
        .listen("127.0.0.1:0")
        .ephemeral()
        .start_blocking()
        .expect("a free port")
}

fn client(server: &Server) -> Client {
    Client::new(server.address().to_string()).expect("an address")
}

#[test]
fn a_lock_is_had_and_released_in_every_face() {
    let server = server();
    let client = client(&server);
    // Blocking.
    let lock = client.acquire("a").call().expect("free");
    assert_eq!(lock.key(), b"a");
    assert!(lock.is_held() && lock.remaining() > Duration::from_secs(25));
    let first = lock.token();
    assert!(client.try_acquire("a").call().expect("an answer").is_none());
    assert_eq!(lock.release().call(), Ok(true));
    assert!(!lock.is_held());
    assert_eq!(lock.release().call(), Ok(true), "released already");
    // A future, under an executor that knows nothing of it.
    let lock = pollster::block_on(async { client.acquire("a").await }).expect("free");
    assert!(lock.token() > first);
    assert_eq!(pollster::block_on(async { lock.release().await }), Ok(true));
    // A callback.
    let (told, done) = mpsc::channel();
    let _pending = client.acquire("a b%").submit(move |result| {
        told.send(result).expect("the test waits");
    });
    let lock = done.recv_timeout(LIMIT).expect("in time").expect("free");
    assert_eq!(lock.key(), b"a b%");
    drop(lock);
    // Dropping releases in the background.
    client.acquire("a b%").wait(LIMIT).call().expect("released");
}
