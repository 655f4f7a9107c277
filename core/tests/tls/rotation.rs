//! Certificates that change while the node runs, and clients' files that change while they run.

use crate::certificates::{Authority, Wish};
use crate::support::{LIMIT, World, eventually, start};
use fairlock::{Client, Server};
use std::fs;
use std::time::Duration;

/// Puts the files of one identity in the place of another's.
fn put(world: &World, from: &str, to: &str) {
    for (from, to) in world.identity(from).iter().zip(world.identity(to)) {
        // As tools do it: the new file takes the place at once.
        let beside = to.with_extension("new");
        fs::copy(from, &beside).expect("copied");
        fs::rename(&beside, to).expect("renamed");
    }
}

fn trusts(world: &World, server: &Server, ca: &str) -> bool {
    world.peer(server, ca).is_ok()
}

/// A client with a lock and one that waits for it, whose connections must not break.
struct Watch {
    holder: Client,
    lock: fairlock::Lock,
    waiting: std::sync::mpsc::Receiver<fairlock::Lock>,
    connections: u64,
}

impl Watch {
    fn new(world: &World, server: &Server) -> Watch {
        let holder = world.client(server);
        let lock = holder.acquire("watched").call().expect("free");
        let (told, waiting) = std::sync::mpsc::channel();
        let _pending = holder.acquire("watched").wait(LIMIT).submit(move |lock| {
            let _ = told.send(lock.expect("in time"));
        });
        eventually("the waiter", || {
            holder
                .waiters("watched", 1)
                .call()
                .expect("an answer")
                .count
                == 1
        });
        let mut watch = Watch {
            holder,
            lock,
            waiting,
            connections: 0,
        };
        eventually("both connections", || {
            watch.connections = watch.connections();
            watch.connections == 2
        });
        watch
    }

    fn connections(&self) -> u64 {
        self.holder.status().call().expect("an answer").connections
    }

    /// The waiter has kept its place on its connection, and gets the lock.
    fn end(self) {
        assert_eq!(self.lock.release().call(), Ok(true));
        let lock = self.waiting.recv_timeout(LIMIT).expect("it has waited on");
        assert_eq!(lock.release().call(), Ok(true));
    }
}

#[test]
fn new_files_are_used_for_new_connections_and_old_ones_stay() {
    let world = World::new();
    let server = world.server();
    let watch = Watch::new(&world, &server);
    assert!(trusts(&world, &server, "ca.pem") && !trusts(&world, &server, "other-ca.pem"));
    put(&world, "stranger", "server");
    server.reload();
    eventually("the new certificate", || {
        trusts(&world, &server, "other-ca.pem")
    });
    assert!(!trusts(&world, &server, "ca.pem"));
    watch.end();
}

/// Goal: an operator is warned in time. Method: certificates with known ends, the second in the place of the first.
#[test]
fn a_node_says_when_the_certificate_ends_that_it_shows() {
    let world = World::new();
    let server = world.server();
    let end = || {
        server
            .view()
            .snapshot()
            .and_then(|node| node.certificate_ends)
    };
    assert_eq!(end(), Some(67_090_118_400), "the year 4096");
    let [certificate, key] = world.identity("server");
    let wish = Wish {
        until: 2040,
        ..Wish::default()
    };
    Authority::new("another").issue(wish, &certificate, &key);
    server.reload();
    eventually("the new certificate", || end() == Some(2_208_988_800));
}

#[test]
fn files_that_change_are_read_again_without_being_told() {
    let world = World::new();
    let server = world.server();
    let watch = Watch::new(&world, &server);
    put(&world, "stranger", "server");
    eventually("the new certificate", || {
        trusts(&world, &server, "other-ca.pem")
    });
    watch.end();
}

#[test]
fn bad_new_files_leave_the_old_in_use_until_good_ones_come() {
    let world = World::new();
    let server = world.server();
    let [certificate, key] = world.identity("server");
    let good = (
        fs::read(&certificate).expect("there"),
        fs::read(&key).expect("there"),
    );
    let bad: [&dyn Fn(); 5] = [
        &|| fs::write(&certificate, "no certificate").expect("written"),
        &|| fs::remove_file(&certificate).expect("removed"),
        &|| put(&world, "expired", "server"),
        &|| {
            let [other, _] = world.identity("stranger");
            fs::copy(other, &certificate).expect("copied");
        },
        &|| fs::remove_file(&key).expect("removed"),
    ];
    for spoil in bad {
        spoil();
        server.reload();
        // The look at the files has surely been when a second one has been asked for and answered.
        std::thread::sleep(Duration::from_millis(100));
        assert!(trusts(&world, &server, "ca.pem"), "the old one stays");
        fs::write(&certificate, &good.0).expect("written");
        fs::write(&key, &good.1).expect("written");
    }
    put(&world, "stranger", "server");
    server.reload();
    eventually("the new certificate", || {
        trusts(&world, &server, "other-ca.pem")
    });
}

#[test]
fn the_ca_of_clients_changes_too() {
    let world = World::new();
    let clients = world.folder.file("clients.pem");
    fs::copy(world.folder.file("ca.pem"), &clients).expect("copied");
    let server = start(world.builder("server").tls_client_ca(&clients)).expect("it starts");
    let connects = |identity: &str| {
        let [certificate, key] = world.identity(identity);
        let options = world.options(&server).cert_file(certificate).key_file(key);
        options.build().expect("options").connected().call().is_ok()
    };
    assert!(connects("client"));
    fs::copy(world.folder.file("other-ca.pem"), &clients).expect("copied");
    server.reload();
    eventually("the new CA", || connects("stranger"));
    assert!(!connects("client"));
}

/// Method: a node is stopped and another one takes its port, with a certificate of a CA that the client's file names only then.
#[test]
fn a_client_reads_its_files_again_for_new_connections() {
    let world = World::new();
    let server = world.server();
    let address = server.address().to_string();
    let trusted = world.folder.file("trusted.pem");
    fs::copy(world.folder.file("ca.pem"), &trusted).expect("copied");
    let client = Client::builder().servers(&address).ca_file(&trusted);
    let client = client.build().expect("options");
    client.connected().call().expect("trusted");
    server.stop_blocking().expect("it stops");
    fs::write(&trusted, "no certificate").expect("written");
    let again = start(world.builder("server").listen(&address)).expect("it starts");
    // What cannot be used leaves the old in use.
    eventually("a connection", || client.inspect("k").call().is_ok());
    again.stop_blocking().expect("it stops");
    fs::copy(world.folder.file("other-ca.pem"), &trusted).expect("copied");
    let _other = start(world.builder("stranger").listen(&address)).expect("it starts");
    eventually("a connection", || client.inspect("k").call().is_ok());
}
