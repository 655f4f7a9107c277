//! Handshakes that come about, and those that must not.

use crate::support::{LIMIT, World, refused, start};
use fairlock::node::ClientAuth;
use fairlock::{Client, ErrorKind, Server};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Goal: handshakes that stall keep nobody out. Method: as many as there are places for, and then some; those that came
/// first are ended, and a client that means it is served at once.
#[test]
fn a_handshake_beyond_the_limit_pushes_out_the_oldest_and_a_real_client_gets_in() {
    let world = World::new();
    let [certificate, key] = world.identity("server");
    let mut settings = fairlock::node::Settings::default();
    settings.listen = Some("127.0.0.1:0".to_owned());
    (settings.tls_cert, settings.tls_key) = (Some(certificate), Some(key));
    settings.max_handshakes = 3;
    settings.max_connections = 5;
    let server = start(Server::builder().settings(settings)).expect("it starts");
    let stalled = |_| {
        let mut socket = TcpStream::connect(server.address()).expect("it listens");
        socket.set_read_timeout(Some(LIMIT)).expect("an option");
        socket.write_all(&[0x16, 3]).expect("it listens");
        socket
    };
    let begin = Instant::now();
    let mut first: Vec<TcpStream> = (0..3).map(stalled).collect();
    let mut fourth = stalled(3);
    let ends = |socket: &mut TcpStream| match socket.read(&mut [0; 10]) {
        Ok(count) => assert_eq!(count, 0),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    };
    ends(&mut first[0]);
    // Its place went to the fourth, long before its own time was over; the others still have theirs.
    assert!(begin.elapsed() < Duration::from_secs(3));
    for socket in first[1..].iter_mut().chain([&mut fourth]) {
        socket.set_nonblocking(true).expect("an option");
        let error = socket.read(&mut [0; 10]).expect_err("it is open");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
    let _flood: Vec<TcpStream> = (0..200).map(stalled).collect();
    let mut peer = world.peer(&server, "ca.pem").expect("let in");
    assert!(peer.ask("A k 30 5").starts_with("A k "));
}

fn says(error: &fairlock::Error, words: &str) {
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn a_server_of_another_ca_is_not_trusted() {
    let world = World::new();
    let server = start(world.builder("stranger")).expect("it starts");
    let error = refused(world.options(&server));
    assert_eq!(error.kind(), &ErrorKind::ConnectionFailed);
    says(&error, "no CA that is known here has signed it");
    let stranger = Client::builder()
        .servers(server.address().to_string())
        .ca_file(world.folder.file("other-ca.pem"));
    stranger
        .build()
        .expect("options")
        .connected()
        .call()
        .expect("trusted");
}

#[test]
fn a_certificate_for_another_host_is_not_accepted_unless_that_name_is_expected() {
    let world = World::new();
    let server = start(world.builder("elsewhere")).expect("it starts");
    says(
        &refused(world.options(&server)),
        "it is for db.example and not for 127.0.0.1",
    );
    let expected = world.options(&server).server_name("db.example");
    expected
        .build()
        .expect("options")
        .connected()
        .call()
        .expect("expected");
}

#[test]
fn a_certificate_that_expires_while_the_server_runs_is_not_accepted() {
    // The node itself would not start with it, so another server shows it.
    let world = World::new();
    let address = foreign_server(&world, "expired");
    let client = Client::builder()
        .servers(&address)
        .ca_file(world.folder.file("ca.pem"));
    says(&refused(client), "it expired");
}

/// A TLS server that does the handshake and no more.
fn foreign_server(world: &World, identity: &str) -> String {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let [certificate, key] = world.identity(identity);
    let chain = vec![CertificateDer::from_pem_file(certificate).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("they match");
    let config = std::sync::Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let connection = rustls::ServerConnection::new(config.clone()).expect("a channel");
            let mut stream = rustls::StreamOwned::new(connection, socket);
            let _ = stream.read(&mut [0; 100]);
        }
    });
    address
}

#[test]
fn client_certificates_are_off_optional_or_required() {
    let world = World::new();
    let with = |auth| {
        let builder = world.builder("server").tls_client_auth(auth);
        start(builder.tls_client_ca(world.folder.file("ca.pem"))).expect("it starts")
    };
    let [certificate, key] = world.identity("client");
    let [stranger, stranger_key] = world.identity("stranger");
    let connects = |server: &Server, identity: Option<(&std::path::Path, &std::path::Path)>| {
        let mut options = world.options(server);
        if let Some((certificate, key)) = identity {
            options = options.cert_file(certificate).key_file(key);
        }
        let client = options.build().expect("options");
        client.connected().call()
    };
    let good = Some((&*certificate, &*key));
    let wrong = Some((&*stranger, &*stranger_key));

    let off = with(ClientAuth::Off);
    for identity in [None, good, wrong] {
        connects(&off, identity).expect("nobody asks");
    }
    let optional = with(ClientAuth::Optional);
    connects(&optional, None).expect("none is needed");
    connects(&optional, good).expect("a good one");
    let error = connects(&optional, wrong).expect_err("a wrong one");
    says(
        &error,
        "the server does not accept this client's certificate",
    );
    let required = with(ClientAuth::Required);
    connects(&required, good).expect("a good one");
    says(
        &connects(&required, None).expect_err("none"),
        "the server wants a certificate of this client (cert_file, key_file)",
    );
    says(
        &connects(&required, wrong).expect_err("a wrong one"),
        "the server does not accept this client's certificate",
    );
    // Without a word on it they are required.
    let unsaid = world
        .builder("server")
        .tls_client_ca(world.folder.file("ca.pem"));
    let unsaid = start(unsaid).expect("it starts");
    connects(&unsaid, None).expect_err("none");
    connects(&unsaid, good).expect("a good one");
}

#[test]
fn a_client_with_tls_hears_at_once_that_a_server_has_none() {
    let world = World::new();
    let plain = Server::builder().listen("127.0.0.1:0").start_blocking();
    let plain = plain.expect("it starts");
    let begin = Instant::now();
    let client = world
        .options(&plain)
        .connect_timeout(Duration::from_secs(3));
    let error = refused(client);
    says(&error, "the server does not speak TLS on this port");
    assert!(
        begin.elapsed() < Duration::from_secs(4),
        "{:?}",
        begin.elapsed()
    );
    // The node serves on.
    let client = Client::new(plain.address().to_string()).expect("an address");
    client.connected().call().expect("it serves");
}

#[test]
fn a_client_without_tls_hears_at_once_that_a_server_wants_it() {
    let world = World::new();
    let server = world.server();
    let begin = Instant::now();
    let error = refused(Client::builder().servers(server.address().to_string()));
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
    says(&error, "this port speaks TLS");
    // In raw lines, too.
    let mut socket = TcpStream::connect(server.address()).expect("it listens");
    socket.set_read_timeout(Some(LIMIT)).expect("a socket");
    socket.write_all(b"A k 30 5\n").expect("it reads");
    let mut answer = String::new();
    socket
        .read_to_string(&mut answer)
        .expect("an answer and the end");
    assert_eq!(
        answer,
        "E ? - syntax this port speaks TLS; set ca_file (or tls) of the client\n"
    );
    world.client(&server).connected().call().expect("it serves");
}

/// The end of a connection that says nothing more.
fn ends_after(mut socket: TcpStream) -> Duration {
    let begin = Instant::now();
    socket.set_read_timeout(Some(LIMIT)).expect("a socket");
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    begin.elapsed()
}

#[test]
fn half_a_handshake_and_silence_end_after_three_seconds() {
    let world = World::new();
    let server = world.server();
    for beginning in [
        &b""[..],
        b"\x16",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let mut socket = TcpStream::connect(server.address()).expect("it listens");
        socket.write_all(beginning).expect("it reads");
        let after = ends_after(socket);
        assert!(after >= Duration::from_millis(2800), "{after:?}");
        assert!(after < Duration::from_secs(6), "{after:?}");
    }
    world.client(&server).connected().call().expect("it serves");
}

#[test]
fn garbage_behind_the_first_byte_ends_at_once() {
    let world = World::new();
    let server = world.server();
    let mut socket = TcpStream::connect(server.address()).expect("it listens");
    socket
        .write_all(b"\x16\x03\x01\x00\x05hello, hello, hello")
        .expect("it reads");
    let after = ends_after(socket);
    assert!(after < Duration::from_secs(2), "{after:?}");
    world.client(&server).connected().call().expect("it serves");
}

#[test]
fn handshakes_count_as_connections() {
    let world = World::new();
    let mut settings = fairlock::node::Settings::default();
    settings.listen = Some("127.0.0.1:0".into());
    settings.max_connections = 3;
    let [certificate, key] = world.identity("server");
    let server = Server::builder().settings(settings).tls(certificate, key);
    let server = start(server).expect("it starts");
    let silent: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(server.address()).expect("it listens"))
        .collect();
    // What is too much hears so, through records.
    let mut peer = world.peer(&server, "ca.pem").expect("a handshake");
    assert_eq!(peer.hear(), "E ? - busy max_connections is reached: 3");
    drop(silent);
    crate::support::eventually("room", || {
        let mut peer = world.peer(&server, "ca.pem").expect("a handshake");
        peer.send(b"P\n");
        peer.hear() == "P"
    });
}

#[test]
fn a_server_that_is_silent_in_the_handshake_is_named() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = Client::builder()
        .servers(listener.local_addr().expect("bound"))
        .ca_file(world.folder.file("ca.pem"))
        .connect_timeout(Duration::from_secs(1));
    says(&refused(client), "no answer to the TLS handshake");
}

#[test]
fn a_server_that_ends_the_handshake_is_named() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let _ = socket.read(&mut [0; 4096]);
        }
    });
    let client = Client::builder()
        .servers(address)
        .ca_file(world.folder.file("ca.pem"));
    says(
        &refused(client),
        "ended the connection in the TLS handshake",
    );
}
