//! Behaviour 5.2 as an operator sees it: at each limit nothing is counted, and one above it is refused or let go, and counted once.

use super::Watched;
use super::http::connect;
use crate::certificates;
use crate::support::{Folder, LIMIT, eventually};
use fairlock::{Client, Error};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

impl Watched {
    /// The limits that have been met, and how often.
    fn reached(&self) -> Vec<(String, f64)> {
        let scrape = self.scrape();
        let begin = "fairlock_limits_reached_total{limit=\"";
        let limits = scrape.samples.iter().filter_map(|(series, count)| {
            let name = series.strip_prefix(begin)?.strip_suffix("\"}")?;
            (*count > 0.0).then(|| (name.to_owned(), *count))
        });
        limits.collect()
    }

    fn limited(limit: &str, value: &str) -> Watched {
        let argument = format!("--{}", limit.replace('_', "-"));
        Watched::start(&["--admin", "127.0.0.1:0", &argument, value], &[])
    }

    fn reached_once(&self, limit: &str) {
        assert_eq!(self.reached(), [(limit.to_owned(), 1.0)]);
    }
}

/// Method: two of each are allowed; the third is refused with the name of the setting, and nobody else is disturbed.
#[test]
fn a_request_above_a_limit_is_refused_by_name_and_counted_once() {
    for (limit, held, fill, above) in [
        ("max_keys", "", "A a 30 -\nA b 30 -", "A c 30 -"),
        (
            "max_waiters_per_key",
            "A a 30 -",
            "A a 30 0\nA a 30 0",
            "A a 30 0",
        ),
        (
            "max_waiters",
            "A a 30 -\nA b 30 -\nA c 30 -",
            "A a 30 0\nA b 30 0",
            "A c 30 0",
        ),
        (
            "max_waiting_per_connection",
            "A a 30 -\nA b 30 -",
            "A a 30 0\nA b 30 0",
            "A b 30 0",
        ),
    ] {
        let watched = Watched::limited(limit, "2");
        let (mut holder, mut client) = (watched.client(), watched.client());
        for line in held.lines() {
            assert!(holder.says(line).starts_with("A "), "{limit}");
        }
        client.send(fill);
        if limit == "max_keys" {
            assert!((0..2).all(|_| client.hear().starts_with("A ")));
        }
        assert_eq!(
            client.says("P"),
            "P",
            "{limit}: all that is allowed is taken"
        );
        assert_eq!(watched.reached(), [], "{limit}");
        let key = above.split(' ').nth(1).expect("a key");
        assert_eq!(
            client.says(above),
            format!("E A {key} busy {limit} is reached")
        );
        watched.reached_once(limit);
        assert_eq!(client.says("P"), "P");
    }
}

#[test]
fn a_connection_above_the_limit_is_told_so_and_counted_once() {
    let watched = Watched::limited("max_connections", "2");
    let mut clients = [watched.client(), watched.client()];
    for client in &mut clients {
        assert_eq!(client.says("P"), "P");
    }
    assert_eq!(watched.reached(), []);
    let mut third = watched.client();
    assert_eq!(third.hear(), "E ? - busy max_connections is reached: 2");
    assert_eq!(third.hear(), "", "the end");
    watched.reached_once("max_connections");
    assert!(clients.iter_mut().all(|client| client.says("P") == "P"));
}

#[test]
fn who_is_silent_for_too_long_is_let_go_and_counted_once() {
    let watched = Watched::start(
        &["--admin", "127.0.0.1:0", "--hello-timeout", "0.1"],
        &[("FAIRLOCK_SECRET", "x")],
    );
    let mut silent = watched.client();
    assert_eq!(silent.hear(), "", "the end");
    watched.reached_once("hello_timeout");

    let watched = Watched::limited("idle_timeout", "0.1");
    let mut nameless = watched.client();
    let mut silent = watched.client();
    assert!(
        silent
            .says(&format!("H 1 id={:032x}", 1))
            .starts_with("H 1 ")
    );
    assert_eq!(silent.hear(), "", "the end");
    watched.reached_once("idle_timeout");
    assert_eq!(nameless.says("P"), "P");
}

/// Method: one client that asks for far more than its socket takes, and reads nothing.
#[test]
fn who_leaves_too_much_unread_is_cut_off_and_counted_once() {
    let watched = Watched::limited("max_unread", "64KiB");
    let mut holder = watched.client();
    holder.says(&format!("H 1 name={}", "n".repeat(128)));
    let keys: Vec<String> = (0..60_000)
        .map(|number| format!("{number}-{}", "k".repeat(200)))
        .collect();
    let mut releases = Vec::new();
    let mut slow = connect(&watched.address);
    for some in keys.chunks(500) {
        let lines = |wait| {
            some.iter()
                .map(|key| format!("A {key} 60 {wait}\n"))
                .collect::<String>()
        };
        holder.send_bytes(lines("-").trim_end().as_bytes());
        for key in some {
            let granted = holder.hear();
            let token = granted.rsplit(' ').next().expect("a token");
            releases.push(format!("R {key} {token}"));
        }
        slow.write_all(lines("0").as_bytes()).expect("it reads");
    }
    assert_eq!(watched.reached(), []);
    for some in releases.chunks(500) {
        holder.send(&some.join("\n"));
        assert!(some.iter().all(|_| holder.hear().ends_with(" ok")));
    }
    eventually("it is cut off", || !watched.reached().is_empty());
    watched.reached_once("max_unread");
}

/// A socket that has begun a TLS handshake and does not go on: half of what a ClientHello of 512 bytes begins with.
fn stalled(watched: &Watched) -> TcpStream {
    let mut socket = connect(&watched.address);
    let mut half = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec();
    half.resize(256, 7);
    socket.write_all(&half).expect("it listens");
    socket
}

fn until_the_end(mut socket: TcpStream) {
    match socket.read(&mut [0; 16]) {
        Ok(count) => assert_eq!(count, 0),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

fn with_tls(folder: &Folder, more: &[&str]) -> Watched {
    certificates::write_all(|name| Path::new(&folder.file(name)).to_owned());
    let [certificate, key] = ["server.pem", "server.key"].map(|name| folder.file(name));
    let tls = ["--tls-cert", &certificate, "--tls-key", &key];
    Watched::start(&[&["--admin", "127.0.0.1:0"], &tls[..], more].concat(), &[])
}

#[test]
fn a_handshake_above_the_limit_ends_the_oldest_and_is_counted_once() {
    let folder = Folder::new("limit-handshake");
    let watched = with_tls(&folder, &["--max-handshakes", "1"]);
    let begin = Instant::now();
    let first = stalled(&watched);
    assert_eq!(watched.reached(), []);
    let second = stalled(&watched);
    until_the_end(first);
    watched.reached_once("max_handshakes");
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "its own time was not over"
    );
    until_the_end(second);
    let scrape = watched.scrape();
    let cut_off = |reason: &str| {
        scrape.value(&format!(
            "fairlock_connections_cut_off_total{{reason=\"{reason}\"}}"
        ))
    };
    assert_eq!((cut_off("handshake"), cut_off("not_secured")), (1.0, 1.0));
}

/// Goal: handshakes that stall cost others nothing, are bounded in number and in time, and are all accounted for. Method: ten
/// times as many as there is room for, again and again, while one client works and others come. A client has two connections:
/// both are awaited before more stalled ones come, or the second one's handshake would be among those that are ended.
#[test]
fn stalled_handshakes_hold_up_nobody() {
    let folder = Folder::new("limit-stalled");
    let watched = with_tls(&folder, &["--max-handshakes", "10"]);
    let client = || {
        let client = Client::builder()
            .servers(&watched.address)
            .ca_file(folder.file("ca.pem"));
        let client = client.build().expect("options");
        client.connected().call().map(|()| client)
    };
    let all_open = |clients: u32| {
        eventually("both connections of each client are open", || {
            watched.scrape().value("fairlock_connections_open") == f64::from(2 * clients)
        });
    };
    let early = client().expect("it is let in");
    all_open(1);
    let (mut longest, mut sockets) = (Duration::ZERO, Vec::new());
    let pair = |client: &Client| -> Result<(), Error> {
        client.acquire("k").call()?.release().call().map(|_| ())
    };
    for round in 0..5 {
        sockets.extend((0..100).map(|_| stalled(&watched)));
        let begin = Instant::now();
        pair(&early).expect("it is served");
        longest = longest.max(begin.elapsed());
        let late = client().unwrap_or_else(|error| panic!("round {round}: {error}"));
        pair(&late).expect("it is served");
        all_open(2);
    }
    println!(
        "longest pair of a client under {} stalled handshakes: {longest:?}",
        sockets.len()
    );
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    let begin = Instant::now();
    let many = sockets.len() as f64;
    sockets.into_iter().for_each(until_the_end);
    println!("all had ended after {:?} more", begin.elapsed());
    assert!(begin.elapsed() < LIMIT / 2);
    let scrape = watched.scrape();
    let cut_off = |reason: &str| {
        scrape.value(&format!(
            "fairlock_connections_cut_off_total{{reason=\"{reason}\"}}"
        ))
    };
    assert_eq!(cut_off("handshake") + cut_off("not_secured"), many);
    assert!(cut_off("handshake") >= many - 5.0 * 10.0 - 10.0);
    assert_eq!(
        cut_off("handshake"),
        scrape.value("fairlock_limits_reached_total{limit=\"max_handshakes\"}")
    );
}
