//! Nodes that speak TLS with each other, by the certificates that they show to clients.

use crate::support::{LIMIT, World, eventually};
use fairlock::node::Settings;
use fairlock::{Client, Role, Server};
use std::net::TcpListener;
use std::time::Duration;

/// Addresses of two nodes that were free a moment ago.
fn addresses() -> [String; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("it is bound").to_string())
}

/// A node of a cluster that wants certificates of everybody.
fn node(world: &World, addresses: &[String; 2], own: usize, identity: &str) -> Server {
    let mut settings = Settings::default();
    settings.peers = Some(addresses.join(","));
    settings.node = Some(addresses[own].clone());
    settings.ephemeral = true;
    settings.discovery_timeout = Duration::from_millis(500);
    settings.preempt_delay = Duration::from_millis(200);
    let [certificate, key] = world.identity(identity);
    Server::builder()
        .settings(settings)
        .tls(certificate, key)
        .tls_client_ca(world.folder.file("ca.pem"))
        .start_blocking()
        .expect("it starts")
}

fn client(world: &World, address: &str, ca: &str) -> Client {
    let [certificate, key] = world.identity("client");
    let client = Client::builder()
        .servers(address)
        .ca_file(world.folder.file(ca))
        .cert_file(certificate)
        .key_file(key);
    client.build().expect("options")
}

#[test]
fn a_lock_is_copied_and_handed_over_through_records() {
    let world = World::new();
    let addresses = addresses();
    let first = node(&world, &addresses, 0, "server");
    let second = node(&world, &addresses, 1, "server");
    let client = client(&world, &addresses.join(","), "ca.pem");
    let lock = client.acquire("k").wait(LIMIT).call().expect("free");
    let direct = self::client(&world, &addresses[0], "ca.pem");
    eventually("a complete standby", || {
        let status = direct.status().call().expect("an answer");
        status.standbys == [addresses[1].clone()]
    });
    first.stop_blocking().expect("it stops");
    eventually(
        "the second node serves",
        || matches!(client.status().call(), Ok(status) if status.role == Role::Active),
    );
    assert_eq!(lock.release().call(), Ok(true));
    second.stop_blocking().expect("it stops");
}

#[test]
fn a_node_of_another_ca_is_no_peer() {
    let world = World::new();
    let addresses = addresses();
    let _first = node(&world, &addresses, 0, "server");
    let _second = node(&world, &addresses, 1, "stranger");
    let ends = [
        client(&world, &addresses[0], "ca.pem"),
        client(&world, &addresses[1], "other-ca.pem"),
    ];
    for client in ends {
        eventually("it serves alone", || {
            matches!(client.status().call(), Ok(status)
                if status.role == Role::Active && status.standbys.is_empty())
        });
    }
}
