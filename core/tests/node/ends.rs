//! How a node ends, and what cannot start.

use crate::nodes::{server, server_with};
use crate::raw::{LIMIT, Peer, token};
use fairlock::Server;
use fairlock::ServerError;
use std::time::Instant;

#[test]
fn a_stop_tells_who_waits_to_look_elsewhere_and_answers_what_has_come_in() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    peer.acquire("A k 30 5");
    peer.say("A k 30 0 #1");
    peer.hear_nothing();
    let mut idle = Peer::connect(server.address());
    idle.hear_nothing();
    let begin = Instant::now();
    let stopping = std::thread::spawn(move || server.stop_blocking());
    let reply = peer.hear();
    assert!(reply.starts_with("E A k unavailable #1 "), "{reply}");
    peer.hear_end();
    idle.hear_end();
    drop((peer, idle));
    stopping
        .join()
        .expect("no panic")
        .expect("stopped in order");
    assert!(begin.elapsed() < LIMIT);
}

#[test]
fn a_stop_does_not_wait_for_a_client_that_does_not_read() {
    let server = server_with(|settings| {
        settings.drain_timeout = std::time::Duration::from_millis(300);
    });
    let mut peer = Peer::connect(server.address());
    let pad = "k".repeat(500);
    for number in 0..2000 {
        peer.say(&format!("A {pad}{number} 60 5"));
    }
    for _ in 0..2000 {
        token(&peer.hear());
    }
    peer.send("L - 100000\n".repeat(20).as_bytes());
    peer.hear();
    let begin = Instant::now();
    server.stop_blocking().expect("stopped in order");
    assert!(begin.elapsed() < LIMIT);
}

#[test]
fn dropping_a_server_frees_its_address() {
    let server = server();
    let address = server.address();
    drop(server);
    let again = Server::builder()
        .listen(address.to_string())
        .start_blocking();
    drop(again.expect("the address is free again"));
}

#[test]
fn an_address_in_use_is_named() {
    let server = server();
    let address = server.address();
    let error = Server::builder()
        .listen(address.to_string())
        .start_blocking()
        .expect_err("in use");
    assert!(matches!(error, ServerError::AddressInUse { .. }), "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn a_server_starts_and_stops_from_an_async_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let server = Server::builder()
            .listen("127.0.0.1:0")
            .start()
            .await
            .expect("it starts");
        let address = server.address();
        Peer::connect(address).hear_nothing();
        server.stop().await.expect("it stops");
        std::net::TcpStream::connect(address).expect_err("nobody listens any more");
    });
}

#[test]
fn a_secret_file_is_read_without_its_line_end_and_a_useless_one_is_named() {
    let path = std::env::temp_dir().join(format!("fairlock-secret-{}", std::process::id()));
    std::fs::write(&path, "sesame\r\n").expect("a file");
    let file = path.clone();
    let server = server_with(move |settings| settings.secret_file = Some(file));
    assert!(
        Peer::connect(server.address())
            .ask("H 1 auth=sesame")
            .starts_with("H 1 ")
    );
    drop(server);
    for content in ["", "\n"] {
        std::fs::write(&path, content).expect("a file");
        let builder = Server::builder().listen("127.0.0.1:0").secret_file(&path);
        let error = builder.start_blocking().expect_err("no secret").to_string();
        assert!(error.contains(path.to_str().expect("plain")), "{error}");
    }
    std::fs::remove_file(&path).expect("it was there");
    let builder = Server::builder().listen("127.0.0.1:0").secret_file(&path);
    let error = builder.start_blocking().expect_err("no file");
    assert!(matches!(error, ServerError::SecretFile { .. }), "{error}");
}
