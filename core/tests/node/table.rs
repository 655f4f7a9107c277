//! Every row of the tables of the protocol page: requests with each of their replies, refusals with
//! their codes and what they do to the connection.

use crate::nodes::{server, server_with};
use crate::raw::{LIMIT, Peer, token, until_waiting};
use fairlock::node::{Limit, Secret};
use std::time::{Duration, Instant};

#[test]
fn acquire_release_and_stale() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let token = peer.acquire("A order:42 30 5");
    assert_eq!(peer.ask(&format!("R order:42 {token}")), "R order:42 ok");
    assert_eq!(peer.ask(&format!("R order:42 {token}")), "R order:42 stale");
    assert_eq!(peer.ask(&format!("R never {token} #9")), "R never stale #9");
    assert!(peer.acquire("A order:42 30 5") > token);
}

#[test]
fn tokens_rise_by_one_over_all_keys() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let first = peer.acquire("A a 30 5");
    assert_eq!(peer.acquire("A b 30 0"), first + 1);
    assert_eq!(peer.acquire("A c 30 -"), first + 2);
}

#[test]
fn the_tag_comes_back() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let reply = peer.ask("A k 30 5 #18446744073709551615");
    let token = token(&reply);
    assert!(reply.ends_with(" #18446744073709551615"), "{reply}");
    assert_eq!(peer.ask("A k 30 - #2.1"), "T k #2.1");
    assert_eq!(peer.ask(&format!("K k {token} 5 #3")), "K k ok #3");
    assert_eq!(peer.ask(&format!("R k {token} #4")), "R k ok #4");
    assert_eq!(peer.ask("I k #5"), "I k free 0 #5");
    assert_eq!(peer.ask("W k 5 #6"), "W k 0 #6");
    assert_eq!(peer.ask("L - 5 #7"), "L - 0 #7");
    assert_eq!(peer.ask("P #8"), "P #8");
    assert_eq!(peer.ask("P"), "P");
}

#[test]
fn a_try_of_a_held_key_is_answered_at_once() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    peer.acquire("A k 30 5");
    assert_eq!(peer.ask("A k 30 -"), "T k");
    peer.hear_nothing();
}

#[test]
fn a_wait_ends_with_t_never_early_and_with_no_grant() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let token = peer.acquire("A k 30 5");
    let begin = Instant::now();
    assert_eq!(peer.ask("A k 30 0.2"), "T k");
    assert!(begin.elapsed() >= Duration::from_millis(200));
    assert!(begin.elapsed() < LIMIT);
    assert_eq!(peer.ask(&format!("R k {token}")), "R k ok");
    assert_eq!(peer.ask("I k"), "I k free 0");
}

#[test]
fn a_lease_ends_never_early_and_the_key_goes_on() {
    let server = server();
    let mut holder = Peer::connect(server.address());
    let mut waiter = Peer::connect(server.address());
    let begin = Instant::now();
    let old = holder.acquire("A k 0.2 5");
    let new = waiter.acquire("A k 30 0");
    assert!(begin.elapsed() >= Duration::from_millis(200));
    assert!(new > old);
    assert_eq!(holder.ask(&format!("R k {old}")), "R k stale");
    assert_eq!(holder.ask(&format!("K k {old} 5")), "K k stale");
    assert_eq!(waiter.ask(&format!("R k {new}")), "R k ok");
}

#[test]
fn a_keep_makes_a_lease_longer_and_never_shorter() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let token = peer.acquire("A k 100 5");
    assert_eq!(peer.ask(&format!("K k {token} 0.001")), "K k ok");
    let remaining = |reply: String| -> f64 {
        reply
            .split(' ')
            .nth(4)
            .expect("held")
            .parse()
            .expect("seconds")
    };
    assert!(remaining(peer.ask("I k")) > 50.0);
    assert_eq!(peer.ask(&format!("K k {token} 1000")), "K k ok");
    assert!(remaining(peer.ask("I k")) > 900.0);
    assert_eq!(peer.ask(&format!("K other {token} 1000")), "K other stale");
}

#[test]
fn a_cancel_ends_a_wait_without_a_reply_to_it() {
    let server = server();
    let mut peer = Peer::named(server.address(), 'a');
    let token = peer.acquire("A k 30 5 #1");
    peer.say("A k 30 0 #2");
    assert_eq!(peer.ask("C k #2"), "C k ok #2");
    assert_eq!(peer.ask("C k #2"), "C k none #2");
    assert_eq!(peer.ask(&format!("R k {token}")), "R k ok");
    peer.hear_nothing();
    assert_eq!(peer.ask("I k"), "I k free 0");
}

#[test]
fn a_cancel_frees_a_grant_of_its_tag() {
    let server = server();
    let mut peer = Peer::named(server.address(), 'a');
    let token = peer.acquire("A k 30 5 #1");
    assert_eq!(peer.ask("C k #1.3"), "C k ok #1.3");
    assert_eq!(peer.ask(&format!("R k {token}")), "R k stale");
}

#[test]
fn inspect_shows_the_holder_and_the_queue() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    assert!(
        peer.ask("H 1 name=worker%201")
            .starts_with("H 1 role=active")
    );
    let token = peer.acquire("A k 30 5");
    peer.say("A k 30 0");
    let reply = peer.ask("I k");
    let fields: Vec<&str> = reply.split(' ').collect();
    let (token, local) = (token.to_string(), peer.local().to_string());
    assert_eq!(fields[..4], ["I", "k", "held", &token]);
    let remaining: f64 = fields[4].parse().expect("seconds");
    assert!((1.0..=30.0).contains(&remaining), "{reply}");
    assert_eq!(fields[5..], ["1", "worker%201", &local]);
}

#[test]
fn a_holder_without_a_name_is_shown_as_a_dash() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    peer.acquire("A k 30 5");
    let reply = peer.ask("I k");
    assert!(
        reply.ends_with(&format!(" 0 - {}", peer.local())),
        "{reply}"
    );
}

#[test]
fn hello_says_who_answers() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let address = server.address();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        peer.ask("H 1 id=00112233445566778899aabbccddeeff name=x seen=1 auth=ignored"),
        format!("H 1 role=active node={address} active={address} peers={address} server={version}")
    );
}

#[test]
fn hello_names_the_advertised_address() {
    let server = server_with(|settings| settings.advertise = Some("lock.example:7000".into()));
    let mut peer = Peer::connect(server.address());
    let reply = peer.ask("H 1");
    assert!(
        reply.contains("node=lock.example:7000 active=lock.example:7000"),
        "{reply}"
    );
}

#[test]
fn a_node_on_all_addresses_calls_itself_what_the_client_reached() {
    let server = server_with(|settings| {
        settings.listen = Some("0.0.0.0:0".to_owned());
        settings.insecure = true;
    });
    let mut reached = server.address();
    reached.set_ip([127, 0, 0, 1].into());
    let mut peer = Peer::connect(reached);
    let reply = peer.ask("H 1");
    assert!(reply.contains(&format!("node={reached} ")), "{reply}");
}

#[test]
fn status_counts() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let address = server.address();
    let token = peer.acquire("A k 30 5");
    peer.acquire("A l 30 5");
    peer.say("A k 30 0");
    let reply = peer.ask("S");
    let term = token >> 32;
    assert_eq!(
        reply,
        format!(
            "S role=active node={address} active={address} term={term} held=2 waiting=1 connections=1 standbys=-"
        )
    );
}

#[test]
fn refusals_have_their_code_and_leave_the_connection_open() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let long = "x".repeat(513);
    for (line, start) in [
        ("", "E ? - syntax "),
        ("X k", "E ? - syntax "),
        ("a k 30 5", "E ? - syntax "),
        ("A", "E A - syntax "),
        ("A k", "E A k syntax "),
        ("A k 30", "E A k syntax "),
        ("A k 30 5 extra", "E A k syntax "),
        ("A k 30 5 #1 #2", "E A k syntax #2 "),
        ("A  k 30 5", "E A - key "),
        ("A a%41 30 5", "E A - key "),
        ("A a%zz 30 5", "E A - key "),
        ("A k -1 5", "E A k lease "),
        ("A k 0 5", "E A k lease "),
        ("A k 1e3 5", "E A k lease "),
        ("A k 0.0001 5", "E A k lease "),
        ("A k 86401 5 #7", "E A k lease #7 "),
        ("A k 30 31536001", "E A k wait "),
        ("A k 30 0.0", "E A k wait "),
        ("A k 30 NaN #7", "E A k wait #7 "),
        ("R k", "E R k syntax "),
        ("R k 0", "E R k syntax "),
        ("R k 9223372036854775808", "E R k syntax "),
        ("K k 1 86401 #8", "E K k lease #8 "),
        ("C k", "E C k syntax "),
        ("I", "E I - syntax "),
        ("W k 0", "E W k syntax "),
        ("L - 100001", "E L - syntax "),
        ("P 5", "E P - syntax "),
        ("S 5", "E S - syntax "),
        ("H 1", "E H - syntax "),
        ("H 1 id=00112233445566778899aabbccddeeff", "E H - syntax "),
    ] {
        let reply = peer.ask(line);
        assert!(reply.starts_with(start), "{line} → {reply}");
    }
    let reply = peer.ask(&format!("A {long} 30 5"));
    assert!(reply.starts_with("E A - key "), "{reply}");
    peer.acquire("A k 86400 31536000");
}

#[test]
fn a_carriage_return_before_the_end_is_ignored() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    peer.send(b"P #1\r\nP #2\n");
    assert_eq!((peer.hear(), peer.hear()), ("P #1".into(), "P #2".into()));
}

#[test]
fn an_unknown_version_is_refused_and_the_connection_closed() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    peer.send(b"H 2\nP\n");
    let reply = peer.hear();
    assert!(
        reply.starts_with("E H - version ") && reply.contains('1'),
        "{reply}"
    );
    peer.hear_end();
}

#[test]
fn a_line_of_4096_bytes_is_read_and_a_longer_one_closes_the_connection() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    let longest = format!("P{}\n", " ".repeat(4094));
    assert_eq!(longest.len(), 4096);
    peer.send(longest.as_bytes());
    assert!(peer.hear().starts_with("E P - syntax "));
    peer.send(format!("P #1\nP{}\nP #2\n", " ".repeat(4095)).as_bytes());
    assert_eq!(peer.hear(), "P #1");
    assert!(peer.hear().starts_with("E ? - toolong "));
    peer.hear_end();
}

#[test]
fn the_reply_before_a_close_arrives_although_the_client_goes_on_sending() {
    let server = server();
    let mut peer = Peer::connect(server.address());
    peer.send(&vec![b'x'; 300_000]);
    assert!(peer.hear().starts_with("E ? - toolong "));
    peer.hear_end();
}

#[test]
fn where_a_secret_is_needed_the_first_line_is_a_hello_that_knows_it() {
    let server = server_with(|settings| settings.secret = Some(Secret::new("open sesame")));
    for (line, start) in [
        ("A k 30 5", "E A k auth "),
        ("A k 30 5 #7", "E A k auth #7 "),
        ("P", "E P - auth "),
        ("what", "E ? - auth "),
        ("H 1", "E H - auth "),
        ("H 1 auth=open", "E H - auth "),
        ("H 1 auth=open%20sesam", "E H - auth "),
        ("H 1 auth=open%20sesame2", "E H - auth "),
    ] {
        let mut peer = Peer::connect(server.address());
        peer.send(format!("{line}\nA k 30 5\n").as_bytes());
        let reply = peer.hear();
        assert!(reply.starts_with(start), "{line} → {reply}");
        peer.hear_end();
    }
    let mut peer = Peer::connect(server.address());
    assert!(
        peer.ask("H 1 auth=open%20sesame")
            .starts_with("H 1 role=active")
    );
    assert_eq!(peer.ask("I k"), "I k free 0");
}

#[test]
fn who_does_not_say_the_secret_in_time_is_closed() {
    let server = server_with(|settings| {
        settings.secret = Some(Secret::new("x"));
        settings.hello_timeout = Duration::from_millis(50);
    });
    let mut silent = Peer::connect(server.address());
    let mut slow = Peer::connect(server.address());
    slow.send(b"H 1 auth=");
    silent.hear_end();
    slow.hear_end();
    let node = server.view().snapshot().expect("it runs");
    assert_eq!(node.counters.limit(Limit::HelloTimeout), 2);
}

#[test]
fn limits_are_refused_by_name_and_hold_exactly() {
    let server = server_with(|settings| {
        settings.max_keys = 3;
        settings.max_waiters_per_key = 2;
        settings.max_waiters = 5;
        settings.max_waiting_per_connection = 4;
    });
    let mut peer = Peer::connect(server.address());
    let token = peer.acquire("A a 30 5");
    peer.acquire("A b 30 5");
    peer.acquire("A c 30 5");
    let reached = || {
        let node = server.view().snapshot().expect("it runs");
        let reached = node.counters.limits().filter(|(_, count)| *count > 0);
        reached.collect::<Vec<_>>()
    };
    let mut met = Vec::new();
    let mut refused = |reply: String, start: &str, limit: Limit| {
        let name = format!("{} is reached", limit.as_str());
        assert!(
            reply.starts_with(start) && reply.ends_with(&name),
            "{reply}"
        );
        met.push((limit, 1));
        met.sort_by_key(|(limit, _)| *limit as usize);
        assert_eq!(reached(), met);
    };
    refused(peer.ask("A d 30 5 #1"), "E A d busy #1 ", Limit::Keys);
    peer.say("A a 30 0\nA a 30 0");
    refused(peer.ask("A a 30 0"), "E A a busy ", Limit::WaitersOfKey);
    peer.say("A b 30 0\nA b 30 0");
    refused(
        peer.ask("A c 30 0"),
        "E A c busy ",
        Limit::WaitingOfConnection,
    );
    let mut other = Peer::connect(server.address());
    other.say("A c 30 0");
    refused(other.ask("A c 30 0"), "E A c busy ", Limit::Waiters);
    until_waiting(&mut other, "c", 1);
    // A place that becomes free can be taken.
    peer.say(&format!("R a {token}"));
    let next = crate::raw::token(&peer.hear());
    assert_eq!(peer.hear(), "R a ok");
    assert_eq!(peer.ask("A a 30 -"), "T a");
    assert!(next > token);
}
