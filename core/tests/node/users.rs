//! Users over real sockets: who is let in, what each may do, and what a change of the file does to those who are
//! connected.

use crate::nodes::server_with;
use crate::raw::{LIMIT, Peer, until};
use fairlock::Server;
use fairlock::node::{Limit, hash_secret};
use fairlock::protocol::Code;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// A users file that is removed at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let name = format!("fairlock-users-{}-{name}.toml", std::process::id());
        let file = File(std::env::temp_dir().join(name));
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).expect("the folder for temporary files can be written");
    }

    fn server(&self, secret: Option<&str>) -> Server {
        server_with(|settings| {
            settings.users_file = Some(self.0.clone());
            settings.secret = secret.map(fairlock::node::Secret::new);
        })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn user(name: &str, keys: &str, rights: &str) -> String {
    format!(
        "[[user]]\nname = \"{name}\"\nsecret = \"of-{name}\"\nkeys = [{keys}]\nrights = [{rights}]\n"
    )
}

fn hello(server: &Server, name: &str, digit: char) -> Peer {
    let mut peer = Peer::connect(server.address());
    let id = digit.to_string().repeat(32);
    let reply = peer.ask(&format!("H 1 id={id} name={name} auth={name}:of-{name}"));
    assert!(reply.starts_with("H 1 role=active"), "{reply}");
    peer
}

/// Method: each request on a key that is free, as each kind of user; `may` holds the letters that are not denied.
#[test]
fn a_right_allows_what_it_says_and_nothing_else() {
    let all = "\"lock\", \"inspect\", \"list\", \"release_others\"";
    let text = user("lock", "\"ci:\"", "\"lock\"")
        + &user("inspect", "\"ci:\"", "\"inspect\"")
        + &user("list", "\"ci:\"", "\"list\"")
        + &user("operator", "\"ci:\"", "\"release_others\"")
        + &user("nothing", "\"ci:\"", "")
        + &user("no-key", "", all)
        + &user("all", "\"ci:\"", all)
        + &user("root", "\"\"", all);
    let file = File::new("rights", &text);
    let server = file.server(Some("plain"));
    let requests = [
        ('A', "A {k} 30 -"),
        ('A', "A {k} 1.5 0.001 #1"),
        ('R', "R {k} 5"),
        ('K', "K {k} 5 30"),
        ('C', "C {k} #7"),
        ('I', "I {k}"),
        ('W', "W {k} 1"),
        ('P', "P"),
        ('S', "S"),
    ];
    for (name, on_its_keys, on_others) in [
        ("lock", "ARKC", "C"),
        ("inspect", "CIW", "C"),
        ("list", "CL", "CL"),
        ("operator", "RKC", "C"),
        ("nothing", "C", "C"),
        ("no-key", "CL", "CL"),
        ("all", "ARKCIWL", "CL"),
        ("root", "ARKCIWL", "ARKCIWL"),
    ] {
        for (key, may) in [("ci:1", on_its_keys), ("c%20i:1", on_others)] {
            let mut peer = hello(&server, name, '1');
            for (letter, request) in requests.into_iter().chain([('L', "L {k} 5")]) {
                let line = request.replace("{k}", key);
                let reply = peer.ask(&line);
                let denied = reply.starts_with(&format!("E {letter} {key} denied "));
                let allowed = may.contains(letter) || "PS".contains(letter);
                assert_eq!(denied, !allowed, "{name}: {line}: {reply}");
                assert_eq!(reply.starts_with('E'), denied, "{name}: {line}: {reply}");
                if line.ends_with("#1") && denied {
                    assert!(reply.contains(" denied #1 "), "{reply}");
                }
                if let Some(token) = reply.strip_prefix(&format!("A {key} ")) {
                    let token = token.trim_end_matches(" #1");
                    assert_eq!(peer.ask(&format!("R {key} {token}")), format!("R {key} ok"));
                }
            }
        }
    }
    let mut peer = Peer::connect(server.address());
    peer.ask("H 1 auth=plain");
    assert!(peer.ask("A anything 30 -").starts_with("A anything "));
}

/// Goal: a lock is its client's, over whatever connection; others need a right of their own.
#[test]
fn who_holds_a_lock_may_give_it_back_and_others_need_the_right() {
    let text = user("a", "\"k\"", "\"lock\"")
        + &user("b", "\"k\"", "\"lock\"")
        + &user("operator", "\"k\"", "\"release_others\"");
    let file = File::new("others", &text);
    let server = file.server(None);
    let mut holder = hello(&server, "a", '1');
    let token = holder.acquire("A k 30 - #1");
    let mut other = hello(&server, "b", '2');
    let (release, keep) = (format!("R k {token}"), format!("K k {token} 60"));
    for line in [&release, &keep] {
        let letter = &line[..1];
        let reply = other.ask(line);
        assert!(
            reply.starts_with(&format!("E {letter} k denied ")),
            "{reply}"
        );
    }
    let mut same_user = hello(&server, "a", '3');
    assert!(same_user.ask(&release).starts_with("E R k denied "));
    let mut same_client = hello(&server, "a", '1');
    assert_eq!(same_client.ask(&keep), "K k ok");
    assert_eq!(same_client.ask(&release), "R k ok");
    assert_eq!(other.ask(&release), "R k stale");

    let token = holder.acquire("A k 30 - #2");
    let mut operator = hello(&server, "operator", '4');
    assert_eq!(operator.ask(&format!("K k {token} 60")), "K k ok");
    assert_eq!(operator.ask(&format!("R k {token}")), "R k ok");
    assert!(operator.ask("A k 30 -").starts_with("E A k denied "));

    // Without an id a client is its connection.
    let mut nameless = Peer::connect(server.address());
    nameless.ask("H 1 auth=a:of-a");
    let token = nameless.acquire("A k 30 -");
    let mut another = Peer::connect(server.address());
    another.ask("H 1 auth=a:of-a");
    assert!(
        another
            .ask(&format!("R k {token}"))
            .starts_with("E R k denied ")
    );
    assert_eq!(nameless.ask(&format!("R k {token}")), "R k ok");
}

#[test]
fn a_list_has_only_the_rows_that_its_reader_may_see() {
    let text = user("some", "\"a:\", \"b:\"", "\"list\"")
        + &user("none", "", "\"list\"")
        + &user("root", "\"\"", "\"lock\"");
    let file = File::new("list", &text);
    let server = file.server(None);
    let mut root = hello(&server, "root", '1');
    for key in ["a:1", "a:2", "b:1", "c:1", "a%20:", "a"] {
        root.acquire(&format!("A {key} 30 -"));
    }
    for (name, prefix, keys) in [
        ("some", "-", &["a:1", "a:2", "b:1"][..]),
        ("some", "a", &["a:1", "a:2"]),
        ("some", "c", &[]),
        ("none", "-", &[]),
    ] {
        let mut reader = hello(&server, name, '2');
        reader.say(&format!("L {prefix} 100"));
        let mut found = Vec::new();
        let last = loop {
            let line = reader.hear();
            match line.strip_prefix("l ") {
                Some(row) => found.push(row.split(' ').next().unwrap_or_default().to_owned()),
                None => break line,
            }
        };
        found.sort();
        assert_eq!(found, keys, "{name} {prefix}");
        assert_eq!(last, format!("L {prefix} {}", keys.len()));
    }
}

/// Goal: nothing is done for who has not proven yet who it is. Method: everything in one packet, also in two pieces of
/// the hello, and a secret that takes a hash to check.
#[test]
fn what_comes_behind_a_hello_waits_for_its_check_and_ends_with_it() {
    let hash = hash_secret(b"of-h").expect("random numbers");
    let text = format!("[[user]]\nname = \"h\"\nsecret_hash = \"{hash}\"\nkeys = [\"\"]\n");
    let file = File::new(
        "behind",
        &(text + &user("root", "\"\"", "\"inspect\", \"lock\"")),
    );
    let server = file.server(None);
    let behind = "A k 30 - #1\nA l 30 - #2\nP #3\n";
    for wrong in ["h:wrong", "nobody:of-h", "root:of-h"] {
        let mut peer = Peer::connect(server.address());
        peer.send(format!("H 1 auth={wrong}\n{behind}").as_bytes());
        assert_eq!(peer.hear(), "E H - auth wrong or missing secret");
        peer.hear_end();
    }
    let mut root = hello(&server, "root", '1');
    assert_eq!(root.ask("I k"), "I k free 0");
    for (begin, rest) in [("H 1 auth=h:", "of-h\n"), ("", "H 1 auth=h:of-h\n")] {
        let mut peer = Peer::connect(server.address());
        peer.send(begin.as_bytes());
        peer.send(format!("{rest}{behind}").as_bytes());
        assert!(peer.hear().starts_with("H 1 role=active"));
        let tokens = [("k", 1), ("l", 2)].map(|(key, tag)| {
            let reply = peer.hear();
            let token = reply.strip_prefix(&format!("A {key} "));
            let token = token.and_then(|rest| rest.strip_suffix(&format!(" #{tag}")));
            token.unwrap_or_else(|| panic!("{reply}")).to_owned()
        });
        assert_eq!(peer.hear(), "P #3");
        for (key, token) in ["k", "l"].into_iter().zip(tokens) {
            assert_eq!(peer.ask(&format!("R {key} {token}")), format!("R {key} ok"));
        }
    }
    let mut silent = Peer::connect(server.address());
    assert!(silent.ask("A k 30 -").starts_with("E A k auth "));
    silent.hear_end();
}

/// Goal: many wrong secrets keep nobody out who is known, and those beyond the limit hear so.
#[test]
fn a_flood_of_hellos_is_bounded_and_leaves_the_others_alone() {
    let hash = hash_secret(b"of-h").expect("random numbers");
    let text = format!("[[user]]\nname = \"h\"\nsecret_hash = \"{hash}\"\nkeys = [\"\"]\n");
    let file = File::new("flood", &(text + &user("root", "\"\"", "\"lock\"")));
    let server = file.server(None);
    let known = |begun: Instant| {
        let mut peer = Peer::connect(server.address());
        let reply = peer.ask("H 1 auth=h:of-h");
        assert!(reply.starts_with("H 1 role=active"), "{reply}");
        begun.elapsed()
    };
    println!(
        "first hello of a user with a hash: {:?}",
        known(Instant::now())
    );
    let mut flood: Vec<Peer> = (0..400)
        .map(|number| {
            let mut peer = Peer::connect(server.address());
            peer.say(&format!("H 1 auth=h:{number}"));
            peer
        })
        .collect();
    let last = flood.last_mut().expect("there are some");
    assert!(last.hear().starts_with("E H - busy "));
    last.hear_end();
    let node = server.view().snapshot().expect("it runs");
    let busy = node
        .counters
        .refusals()
        .find(|(code, _)| *code == Code::Busy);
    let busy = busy.expect("every code is there").1;
    assert!(busy > 0);
    assert_eq!(node.counters.limit(Limit::SecretChecks), busy);
    println!("the next one, under a flood: {:?}", known(Instant::now()));
    let mut root = hello(&server, "root", '1');
    root.acquire("A k 30 -");
    assert_eq!(flood[0].hear(), "E H - auth wrong or missing secret");
}

/// Goal: rights are what the file says now, at once, and nobody is cut off for them. Method: a connection that holds two
/// locks and waits for two more, of each of which the user loses one.
#[test]
fn who_may_do_less_keeps_its_connection_its_locks_and_its_places_that_are_still_its_own() {
    let all = "\"lock\", \"inspect\", \"list\"";
    let root = user("root", "\"\"", all);
    let file = File::new("less", &(user("a", "\"k\", \"l\"", "\"lock\"") + &root));
    let server = file.server(None);
    let mut root_peer = hello(&server, "root", '3');
    let k2 = root_peer.acquire("A k2 30 -");
    let l2 = root_peer.acquire("A l2 30 -");
    let mut a = hello(&server, "a", '1');
    let (k, l) = (a.acquire("A k 30 - #1"), a.acquire("A l 30 - #2"));
    a.say("A k2 30 0 #3");
    a.say("A l2 30 0 #4");
    let waits = |reply: &str| reply.split(' ').nth(5) == Some("1");
    until(&mut root_peer, "I k2", waits);
    until(&mut root_peer, "I l2", waits);

    file.write("[[user]]\nname = \"a\"\n");
    server.reload();
    file.write(&(user("a", "\"l\"", "\"lock\", \"inspect\"") + &root));
    server.reload();
    assert_eq!(a.hear(), "E A k2 denied #3 this user may not lock this key");
    until(&mut root_peer, "I k2", |reply| {
        reply.split(' ').nth(5) == Some("0")
    });
    assert_eq!(root_peer.ask(&format!("R l2 {l2}")), "R l2 ok");
    let granted = a.hear();
    assert!(
        granted.starts_with("A l2 ") && granted.ends_with(" #4"),
        "the place that it may keep: {granted}"
    );
    assert!(a.ask("A k 30 -").starts_with("E A k denied "));
    assert!(
        a.ask("I l").starts_with("I l held "),
        "and what it may do now"
    );
    assert!(a.ask(&format!("K k {k} 30")).starts_with("E K k denied "));
    assert_eq!(a.ask(&format!("K l {l} 30")), "K l ok");
    assert_eq!(
        a.ask(&format!("R k {k}")),
        "R k ok",
        "what it holds it may give back"
    );
    assert_eq!(root_peer.ask(&format!("R k2 {k2}")), "R k2 ok");

    // Who may do everything, and less from now on, is no exception.
    file.write(&(user("a", "\"l\"", "\"lock\"") + &user("root", "\"l\"", all)));
    server.reload();
    until(&mut root_peer, "I k", |reply| {
        reply.starts_with("E I k denied ")
    });
    assert!(root_peer.ask("I l").starts_with("I l held "));
}

/// Method: a user that is gone, one with another secret, and a waiting request of each.
#[test]
fn who_would_not_be_let_in_any_more_is_let_go_and_loses_its_places_but_not_its_locks() {
    let root = user("root", "\"\"", "\"lock\", \"inspect\"");
    let a = user("a", "\"\"", "\"lock\"");
    let before = a.clone() + &user("gone", "\"\"", "\"lock\"") + &root;
    let file = File::new("gone", &before);
    let server = file.server(None);
    let mut root_peer = hello(&server, "root", '3');
    let mut peers = [("a", '1'), ("gone", '2')].map(|(name, digit)| {
        let mut peer = hello(&server, name, digit);
        let token = peer.acquire(&format!("A of-{name} 30 - #1"));
        (name, peer, token)
    });
    root_peer.acquire("A k 30 -");
    for (_, peer, _) in &mut peers {
        peer.say("A k 30 0 #2");
    }
    until(&mut root_peer, "I k", |reply| {
        reply.split(' ').nth(5) == Some("2")
    });
    file.write(&(a.replace("of-a", "another") + &root));
    server.reload();
    for (_, peer, _) in &mut peers {
        assert!(peer.hear().starts_with("E ? - auth "));
        peer.hear_end();
    }
    until(&mut root_peer, "I k", |reply| {
        reply.split(' ').nth(5) == Some("0")
    });
    for (name, _, token) in &peers {
        let held = root_peer.ask(&format!("I of-{name}"));
        assert!(
            held.starts_with(&format!("I of-{name} held {token} ")),
            "{held}"
        );
    }
    for said in ["gone:of-gone", "a:of-a"] {
        let mut peer = Peer::connect(server.address());
        assert_eq!(
            peer.ask(&format!("H 1 auth={said}")),
            "E H - auth wrong or missing secret"
        );
    }
    let mut a = Peer::connect(server.address());
    let id = "1".repeat(32);
    assert!(
        a.ask(&format!("H 1 id={id} auth=a:another"))
            .starts_with("H 1 ")
    );
    let token = &peers[0].2;
    assert_eq!(a.ask(&format!("R of-a {token}")), "R of-a ok");
}

/// Goal: not to read is no way to stay. Method: a client that waits for a key, has asked for more than its socket takes and reads
/// nothing of it, while its user is removed and the key becomes free.
#[test]
fn a_user_that_is_removed_and_does_not_read_loses_its_place_and_is_granted_nothing() {
    let root = user("root", "\"\"", "\"lock\", \"inspect\"");
    let gone = user("gone", "\"\"", "\"lock\", \"inspect\"");
    let file = File::new("unread", &(gone + &root));
    let server = file.server(None);
    let mut root_peer = hello(&server, "root", '3');
    let token = root_peer.acquire("A k 30 -");
    let mut gone = Peer::connect(server.address());
    assert!(gone.ask("H 1 auth=gone:of-gone").starts_with("H 1 "));
    gone.say("A k 30 0");
    let waiting = |count: &'static str| move |reply: &str| reply.split(' ').nth(5) == Some(count);
    until(&mut root_peer, "I k", waiting("1"));
    let lines = "S\n".repeat(1 << 10);
    gone.socket().set_nonblocking(true).expect("an option");
    let mut full = 0;
    while full < 100 {
        // It is read only while it takes its replies, so in the end its own socket takes nothing any more.
        full = match gone.socket().write(lines.as_bytes()) {
            Ok(count) if count > 0 => 0,
            _ => full + 1,
        };
        root_peer.hear_nothing();
    }
    file.write(&root);
    server.reload();
    until(&mut root_peer, "I k", waiting("0"));
    assert_eq!(root_peer.ask(&format!("R k {token}")), "R k ok");
    assert_eq!(root_peer.ask("I k"), "I k free 0");
    let node = server.view().snapshot().expect("it runs");
    assert_eq!(node.counters.users_gone, 1);
}

#[test]
fn a_changed_file_is_seen_without_being_told_and_a_broken_one_changes_nothing() {
    let file = File::new("seen", &user("a", "\"\"", "\"lock\""));
    let server = file.server(None);
    let mut a = hello(&server, "a", '1');
    a.acquire("A k 30 -");
    file.write("nonsense");
    server.reload();
    let mut still = hello(&server, "a", '2');
    still.hear_nothing();
    file.write(&(user("a", "\"\"", "\"lock\"") + &user("b", "\"\"", "\"lock\"")));
    let begin = Instant::now();
    loop {
        let mut peer = Peer::connect(server.address());
        if peer.ask("H 1 auth=b:of-b").starts_with("H 1 ") {
            break;
        }
        assert!(begin.elapsed() < LIMIT, "the new user is still unknown");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    a.hear_nothing();
}
