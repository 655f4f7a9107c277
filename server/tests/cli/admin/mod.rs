//! The admin page as scripts, Prometheus, orchestrators and attackers meet it. What people see of it is tested in
//! a browser, in tests/admin.

mod exposition;
mod http;
mod limits;
mod numbers;
mod rules;

use crate::support::{Folder, Running, Server, eventually, fairlock, outcome};
use exposition::Scrape;
use fairlock::protocol::Key;
use http::{Answer, ask, connect, exchange, get, read_answer};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// A server with an admin page.
struct Watched {
    process: Running,
    /// Where clients connect.
    address: String,
    /// Where the page is.
    admin: String,
}

impl Watched {
    fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Watched {
        let mut command = fairlock(["--listen", "127.0.0.1:0", "--ephemeral"]);
        command.args(arguments).envs(environment.iter().copied());
        Watched::of(Running::start(command))
    }

    fn of(mut process: Running) -> Watched {
        let mut line = |begin: &str| {
            let line = process.line();
            let rest = line.strip_prefix(begin);
            rest.unwrap_or_else(|| panic!("{line:?} does not begin with {begin:?}"))
                .to_owned()
        };
        let (address, admin) = (line("listening on "), line("admin on "));
        Watched {
            process,
            address,
            admin,
        }
    }

    fn alone() -> Watched {
        Watched::start(&["--admin", "127.0.0.1:0"], &[])
    }

    fn get(&self, path: &str) -> Answer {
        get(&self.admin, path)
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// The metrics, as Prometheus asks for them.
    fn scrape(&self) -> Scrape {
        let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
        let answer = ask(&self.admin, "GET", "/metrics", &[accept]);
        assert_eq!(
            answer.header("content-type"),
            Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
        );
        Scrape::read(answer.text())
    }

    fn client(&self) -> Client {
        Client::new(&self.address)
    }
}

/// A client that speaks the protocol by hand.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new(address: &str) -> Client {
        Client(BufReader::new(connect(address)))
    }

    fn send(&mut self, line: &str) {
        self.send_bytes(line.as_bytes());
    }

    fn send_bytes(&mut self, line: &[u8]) {
        let line = [line, b"\n"].concat();
        self.0.get_mut().write_all(&line).expect("it reads");
    }

    fn hear(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).expect("it answers");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    fn says(&mut self, line: &str) -> String {
        self.send(line);
        self.hear()
    }

    /// Takes a lock and gives its token.
    fn takes(&mut self, key: &[u8]) -> String {
        let key = Key::encode(key).expect("a key");
        let mut line = b"A ".to_vec();
        line.extend_from_slice(key.spelling());
        line.extend_from_slice(b" 600 -");
        self.send_bytes(&line);
        let answer = self.hear();
        assert!(answer.starts_with("A "), "{answer}");
        answer.rsplit(' ').next().expect("a token").to_owned()
    }
}

#[test]
fn it_is_off_unless_it_is_asked_for_and_says_where_it_is() {
    let mut plain = Server::start().process();
    assert!(plain.line().starts_with("try it: "), "no line about it");
    let mut watched = Watched::alone();
    assert!(!watched.admin.ends_with(":0"), "{}", watched.admin);
    assert!(watched.process.line().starts_with("try it: "));
}

#[test]
fn a_port_in_use_keeps_the_server_from_starting() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = holder.local_addr().expect("bound").to_string();
    let ended = outcome(fairlock([
        "--listen",
        "127.0.0.1:0",
        "--ephemeral",
        "--admin",
        &address,
    ]));
    assert_eq!((ended.code, &*ended.out), (1, ""), "{ended:?}");
    let expected = format!("cannot listen on {address} for the admin page: the address is in use");
    assert!(ended.err.contains(&expected), "{ended:?}");
}

/// Method: one port for the page and for clients, said in each way in which one can say it; the second of two addresses of
/// this machine is another port.
#[test]
fn the_port_of_clients_and_peers_cannot_be_that_of_the_page() {
    let free = {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        free.local_addr().expect("bound").port()
    };
    let (address, other) = (format!("127.0.0.1:{free}"), format!("127.0.0.2:{free}"));
    let everywhere = format!("0.0.0.0:{free}");
    let peers = format!("{address},127.0.0.1:1");
    for (arguments, clients) in [
        (
            &["--listen", &address, "--admin", &address][..],
            ["`listen`", &*address],
        ),
        (
            &["--listen", &address, "--admin", &everywhere, "--insecure"],
            ["`listen`", &address],
        ),
        (
            &["--listen", &everywhere, "--admin", &address, "--insecure"],
            ["`listen`", &everywhere],
        ),
        (
            &["--peers", &peers, "--node", &address, "--admin", &address],
            ["`node`", &address],
        ),
        (
            &["--admin", "127.0.0.1:7420"],
            ["`listen`", "127.0.0.1:7420"],
        ),
    ] {
        let mut command = fairlock(["serve", "--ephemeral"]);
        command.args(arguments);
        let ended = outcome(command);
        assert_eq!((ended.code, &*ended.out), (64, ""), "{ended:?}");
        for words in [&["--admin"][..], &clients[..], &["port of its own"]].concat() {
            assert!(ended.err.contains(words), "{words}: {ended:?}");
        }
    }
    let both = ["--listen", &address, "--admin", &other, "--insecure"];
    let mut command = fairlock(["serve", "--ephemeral"]);
    command.args(both);
    assert_eq!(Watched::of(Running::start(command)).admin, other);
}

#[test]
fn beyond_loopback_it_needs_a_secret_of_its_own() {
    let words = |more: &[&str]| {
        let mut command = fairlock([
            "--listen",
            "127.0.0.1:0",
            "--ephemeral",
            "--admin",
            "0.0.0.0:0",
        ]);
        command.args(more);
        outcome(command)
    };
    let refused = words(&[]);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(
        refused
            .err
            .contains("--admin is `0.0.0.0:0`: beyond loopback a secret is needed"),
        "{refused:?}"
    );
    let missing = words(&["--admin-secret-file", "/nowhere/secret"]);
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.err.contains("/nowhere/secret"), "{missing:?}");
    let folder = Folder::new("admin-secret");
    let file = folder.write("secret", "open sesame\n");
    let watched = Watched::start(&["--admin", "0.0.0.0:0", "--admin-secret-file", &file], &[]);
    let port = watched.admin.rsplit(':').next().expect("a port");
    let address = format!("127.0.0.1:{port}");
    assert_eq!(get(&address, "/status.json").status, 401);
    let bearer = ask(
        &address,
        "GET",
        "/status.json",
        &["Authorization: Bearer open sesame"],
    );
    assert_eq!(bearer.status, 200, "{bearer:?}");
}

/// Goal: the secret is asked for everywhere but where orchestrators look, and never shown.
#[test]
fn with_a_secret_only_probes_are_open() {
    let watched = Watched::start(
        &["--admin", "127.0.0.1:0"],
        &[("FAIRLOCK_ADMIN_SECRET", "s3same")],
    );
    for path in [
        "/",
        "/metrics",
        "/status.json",
        "/locks.json",
        "/waiters.json?key=a",
        "/nowhere",
    ] {
        let answer = watched.get(path);
        assert_eq!(answer.status, 401, "{path}");
        assert!(
            answer
                .header("www-authenticate")
                .is_some_and(|ask| ask.starts_with("Basic ")),
            "{path}"
        );
        let wrong = ask(
            &watched.admin,
            "GET",
            path,
            &["Authorization: Bearer s3sam"],
        );
        assert_eq!(wrong.status, 401, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(watched.get(path).status, 200, "{path}");
    }
    // x:s3same
    for line in [
        "Authorization: Basic eDpzM3NhbWU=",
        "Authorization: Bearer s3same",
    ] {
        for path in ["/", "/metrics", "/status.json"] {
            let answer = ask(&watched.admin, "GET", path, &[line]);
            assert_eq!(answer.status, 200, "{path}");
            assert!(!answer.text().contains("s3same"), "{path}");
        }
    }
}

#[test]
fn a_name_that_is_not_its_own_is_turned_away() {
    let watched = Watched::alone();
    let with_host = |host: &str| {
        exchange(
            &watched.admin,
            &format!("GET /status.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        )
        .status
    };
    assert_eq!(with_host("localhost:1"), 200);
    assert_eq!(with_host("rebound.example"), 421);
    assert_eq!(
        exchange(&watched.admin, "GET / HTTP/1.0\r\n\r\n").status,
        421
    );
}

#[test]
fn it_only_looks_and_says_what_there_is() {
    let watched = Watched::alone();
    for path in ["/", "/status.json", "/metrics", "/healthz"] {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let answer = ask(&watched.admin, method, path, &["Content-Length: 0"]);
            assert_eq!(
                (answer.status, answer.header("allow")),
                (405, Some("GET,HEAD")),
                "{method} {path}"
            );
        }
        let head = ask(&watched.admin, "HEAD", path, &[]);
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
    }
    let unknown = watched.get("/admin.php");
    assert_eq!(unknown.status, 404);
    assert!(
        unknown.json()["error"]
            .as_str()
            .is_some_and(|error| error.contains("/status.json"))
    );
    for path in [
        "/locks.json?limit=0",
        "/locks.json?prefx=a",
        "/waiters.json",
        "/waiters.json?key_hex=1",
    ] {
        let answer = watched.get(path);
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.json()["error"].is_string(), "{path}");
    }
}

#[test]
fn every_answer_forbids_what_a_browser_could_make_of_it() {
    let watched = Watched::alone();
    for path in [
        "/",
        "/status.json",
        "/metrics",
        "/readyz",
        "/nowhere",
        "/locks.json?limit=no",
    ] {
        let answer = watched.get(path);
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(
            answer.header("x-content-type-options"),
            Some("nosniff"),
            "{path}"
        );
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(
            policy.starts_with("default-src 'none'; "),
            "{path}: {policy}"
        );
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{path}: {policy}"
        );
    }
    let nonce = |answer: &Answer| {
        let policy = answer.header("content-security-policy").expect("a policy");
        let (_, rest) = policy.split_once("script-src 'nonce-").expect("a nonce");
        let nonce = rest.split_once('\'').expect("its end").0.to_owned();
        assert_eq!(
            answer.text().matches(&format!("nonce=\"{nonce}\"")).count(),
            2,
            "the style and the script"
        );
        assert!(!answer.text().contains("{{nonce}}"));
        nonce
    };
    assert_ne!(
        nonce(&watched.get("/")),
        nonce(&watched.get("/")),
        "nobody can guess it"
    );
}

/// Goal: whoever does nothing keeps nobody out. Method: more idle connections than there may be, then a request.
#[test]
fn too_many_connections_cost_the_oldest_one() {
    let watched = Watched::alone();
    let mut idle: Vec<TcpStream> = (0..64).map(|_| connect(&watched.admin)).collect();
    assert_eq!(watched.get("/healthz").status, 200);
    let mut byte = [0];
    let ended = idle[0].read(&mut byte);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    // The others are served still.
    let mut last = idle.pop().expect("one of them");
    last.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("it lives");
    assert_eq!(read_answer(&mut last).status, 200);
}

#[test]
fn a_head_that_is_too_long_or_takes_too_long_is_cut_off() {
    let watched = Watched::alone();
    let long = format!(
        "GET /?{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "x".repeat(64 << 10)
    );
    let mut socket = connect(&watched.admin);
    // It may be refused before all of it is written.
    let _ = socket.write_all(long.as_bytes());
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
    let many: String = (0..100)
        .map(|number| format!("x-{number}: y\r\n"))
        .collect();
    let many = exchange(
        &watched.admin,
        &format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"),
    );
    assert_eq!(many.status, 431);
    let mut slow = connect(&watched.admin);
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost:")
        .expect("it reads");
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest)
        .expect("it is closed within the limit");
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"));
}

#[test]
fn probes_follow_a_lone_node_to_its_end() {
    let watched = Watched::start(&["--admin", "127.0.0.1:0", "--drain-timeout", "60"], &[]);
    let ready = watched.get("/readyz");
    assert_eq!((ready.status, ready.text()), (200, "ready: active\n"));
    assert_eq!(
        (
            watched.get("/healthz").status,
            watched.get("/healthz").text()
        ),
        (200, "ok\n")
    );
    // A client that stays, so that the node has to wait for it.
    let mut client = watched.client();
    assert!(client.says("H 1").starts_with("H "));
    client.says("A k 600 -");
    watched.process.signal(Signal::TERM);
    eventually("it says that it leaves", || {
        let answer = watched.get("/readyz");
        (answer.status, answer.text()) == (503, "not ready: leaving: it has been told to stop\n")
    });
    assert_eq!(watched.get("/healthz").status, 200);
    assert_eq!(watched.json("/status.json")["role"], "leaving");
}

/// Goal: an orchestrator sends clients only where they are served or would be. Method: a node whose better peer is
/// silent, then two real nodes.
#[test]
fn probes_of_a_cluster_say_starting_standby_and_active() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let free = || {
        TcpListener::bind("127.0.0.1:0")
            .and_then(|one| one.local_addr())
            .expect("a free port")
            .to_string()
    };
    let first = silent.local_addr().expect("bound").to_string();
    let node = |list: &str, own: &str, more: &[&str]| {
        let mut command = fairlock([
            "--peers",
            list,
            "--node",
            own,
            "--ephemeral",
            "--admin",
            "127.0.0.1:0",
        ]);
        command.args(more);
        Watched::of(Running::start(command))
    };
    let own = free();
    let starting = node(
        &format!("{first},{own}"),
        &own,
        &["--discovery-timeout", "600"],
    );
    let answer = starting.get("/readyz");
    assert_eq!(
        (answer.status, answer.text()),
        (
            503,
            "not ready: starting: it does not know yet who is active\n"
        )
    );
    assert_eq!(starting.get("/healthz").status, 200);
    assert_eq!(starting.json("/status.json")["ready"], false);

    let (first, second) = (free(), free());
    let list = format!("{first},{second}");
    let active = node(&list, &first, &[]);
    let standby = node(&list, &second, &[]);
    eventually("both are ready", || {
        [&active, &standby]
            .iter()
            .all(|node| node.get("/readyz").status == 200)
    });
    assert_eq!(active.get("/readyz").text(), "ready: active\n");
    assert_eq!(standby.get("/readyz").text(), "ready: standby\n");
    Client::new(&first).takes(b"k");
    eventually("the standby has confirmed all", || {
        let status = active.json("/status.json");
        let seen = status["nodes"].as_array().expect("nodes");
        assert_eq!(
            (&seen[0]["address"], &seen[0]["own"], &seen[0]["active"]),
            (&json!(first), &json!(true), &json!(true))
        );
        assert_eq!(
            (&seen[1]["address"], &seen[1]["own"], &seen[1]["active"]),
            (&json!(second), &json!(false), &json!(false))
        );
        (&seen[1]["role"], &seen[1]["complete"], &seen[1]["lag"])
            == (&json!("standby"), &json!(true), &json!(0))
    });
    let metrics = active.scrape();
    for (series, value) in [
        (format!("fairlock_peer_up{{peer=\"{second}\"}}"), 1.0),
        (format!("fairlock_peer_complete{{peer=\"{second}\"}}"), 1.0),
        (
            format!("fairlock_replication_lag_changes{{peer=\"{second}\"}}"),
            0.0,
        ),
        ("fairlock_role{role=\"active\"}".to_owned(), 1.0),
    ] {
        assert_eq!(metrics.value(&series), value, "{series}");
    }
    let status = standby.json("/status.json");
    assert_eq!(
        (&status["role"], &status["active"], &status["held"]),
        (&json!("standby"), &json!(first), &json!(1))
    );
    assert_eq!(
        standby.json("/locks.json")["locks"][0]["key"],
        "k",
        "a look at the copy"
    );
}
