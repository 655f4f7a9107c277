//! A node of the test's own, and clients of it.
#![allow(dead_code, unreachable_pub, reason = "several test programs use it")]

use fairlock::{Client, Server};

/// A node on a free port that keeps nothing.
pub fn server() -> Server {
    Server::builder()
        .listen("127.0.0.1:0")
        .ephemeral()
        .start_blocking()
        .expect("a free port")
}

/// A client that is connected to it.
pub fn client(server: &Server) -> Client {
    let client = Client::new(server.address().to_string()).expect("an address");
    client.connected().call().expect("the server is there");
    client
}
