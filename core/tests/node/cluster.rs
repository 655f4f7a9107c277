//! Three nodes in this process over real sockets, spoken to in raw lines: who serves, what the others
//! answer, what happens when one ends.

use crate::raw::{LIMIT, Peer, token};
use fairlock::node::{Secret, Settings};
use fairlock::{Client, FollowMoves, Role, Server};
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A cluster of nodes that can be ended and started again, each at its own address.
struct Cluster {
    addresses: Vec<SocketAddr>,
    nodes: Vec<Option<Server>>,
}

impl Cluster {
    fn start(size: usize) -> Cluster {
        let mut cluster = Cluster::planned(size);
        for index in 0..size {
            cluster.bring_up(index, |_| {});
        }
        cluster
    }

    fn planned(size: usize) -> Cluster {
        let address = |_| Server::free_address().expect("a free address");
        Cluster {
            addresses: (0..size).map(address).collect(),
            nodes: (0..size).map(|_| None).collect(),
        }
    }

    fn bring_up(&mut self, index: usize, change: impl FnOnce(&mut Settings)) {
        let mut settings = Settings::default();
        settings.peers = Some(self.list());
        settings.node = Some(self.addresses[index].to_string());
        settings.ephemeral = true;
        settings.preempt_delay = Duration::from_millis(200);
        change(&mut settings);
        let server = Server::builder().settings(settings).start_blocking();
        self.nodes[index] = Some(server.expect("it can start"));
    }

    fn list(&self) -> String {
        let names: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        names.join(",")
    }

    fn stop(&mut self, index: usize) {
        let node = self.nodes[index].take().expect("it runs");
        node.stop_blocking().expect("stopped in order");
    }

    /// Waits until a node says so of itself.
    fn wait_for(&self, index: usize, what: &str) {
        let begin = Instant::now();
        let mut peer = Peer::connect(self.addresses[index]);
        loop {
            let status = peer.ask("S");
            if status.contains(what) {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "{status}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a node serves and all others have a copy.
    fn settle(&self, active: usize) {
        self.wait_for(active, "role=active");
        for (index, node) in self.nodes.iter().enumerate() {
            if index != active && node.is_some() {
                self.wait_for(active, &self.addresses[index].to_string());
                self.wait_for(index, "role=standby");
            }
        }
        let others = self.nodes.iter().flatten().count() - 1;
        let begin = Instant::now();
        let mut peer = Peer::connect(self.addresses[active]);
        loop {
            let status = peer.ask("S");
            let standbys = status.rsplit_once("standbys=").expect("a status").1;
            if standbys.split(',').filter(|name| *name != "-").count() == others {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "{status}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A connection whose hello names an id made of one digit, to whatever node.
fn named(address: SocketAddr, digit: char) -> Peer {
    let mut peer = Peer::connect(address);
    let id = digit.to_string().repeat(32);
    let reply = peer.ask(&format!("H 1 id={id}"));
    assert!(reply.starts_with("H 1 role="), "{reply}");
    peer
}

#[test]
fn the_first_of_the_list_serves_and_the_others_say_where() {
    let cluster = Cluster::start(3);
    cluster.settle(0);
    let first = cluster.addresses[0];
    for index in [1, 2] {
        let mut peer = Peer::connect(cluster.addresses[index]);
        let hello = peer.ask("H 1");
        let address = cluster.addresses[index];
        let list = cluster.list();
        let expected = format!("H 1 role=standby node={address} active={first} peers={list} ");
        assert!(hello.starts_with(&expected), "{hello}");
        for (line, reply) in [
            ("A k 30 5 #1", format!("M A k {first} #1")),
            ("A k 30 -", format!("M A k {first}")),
            ("R k 5 #2", format!("M R k {first} #2")),
            ("K k 5 30 #3", format!("M K k {first} #3")),
            ("C k #4", format!("M C k {first} #4")),
            ("I k #5", format!("M I k {first} #5")),
            ("W k 10 #6", format!("M W k {first} #6")),
            ("L - 10 #7", format!("M L - {first} #7")),
            ("P #8", "P #8".to_owned()),
        ] {
            assert_eq!(peer.ask(line), reply);
        }
    }
    token(&Peer::connect(first).ask("A k 30 5"));
}

#[test]
fn an_orderly_stop_hands_over_locks_queues_and_clients() {
    let mut cluster = Cluster::start(3);
    cluster.settle(0);
    let (first, second) = (cluster.addresses[0], cluster.addresses[1]);
    let mut holder = named(first, 'a');
    let mut waiter = named(first, 'b');
    let mut watcher = named(second, 'c');
    let held = token(&holder.ask("A k 30 5 #1"));
    waiter.say("A k 30 0 #1");
    waiter.hear_nothing();
    cluster.stop(0);
    assert_eq!(waiter.hear(), format!("M A k {second} #1"));
    assert_eq!(waiter.hear(), format!("N {second}"));
    waiter.hear_end();
    assert_eq!(watcher.hear(), format!("N {second}"));
    let mut waiter = named(second, 'b');
    waiter.say("A k 30 0 #1");
    let mut holder = named(second, 'a');
    assert_eq!(holder.ask(&format!("R k {held} #2")), "R k ok #2");
    let next = token(&waiter.hear());
    assert!(next > held);
    let shown = holder.ask("I k");
    assert!(shown.starts_with(&format!("I k held {next} ")), "{shown}");
}

/// Goal: what a user does in a test of his own. Method: a client of all three nodes through an orderly
/// stop and through a kill.
#[test]
fn a_client_of_three_nodes_keeps_its_lock_and_its_place_in_line() {
    let peers: Vec<String> = (0..3)
        .map(|_| Server::free_address().expect("a free address").to_string())
        .collect();
    let start = |node: &String| {
        let builder = Server::builder().cluster(&peers, node);
        Some(builder.start_blocking().expect("it can start"))
    };
    let mut nodes: Vec<Option<Server>> = peers.iter().map(start).collect();
    let cluster = Client::new(&peers).expect("a client");
    let copies = |count: usize| {
        let begin = Instant::now();
        loop {
            let mut statuses = peers.iter().filter_map(|peer| {
                let one = Client::builder().servers(peer);
                let one = one.follow_moves(FollowMoves::Listed);
                let one = one.connect_timeout(Duration::from_millis(100)).build();
                one.and_then(|one| one.status().call()).ok()
            });
            if statuses.any(|status| status.role == Role::Active && status.standbys.len() == count)
            {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "no {count} standbys have a copy");
        }
    };
    copies(2);
    let lock = cluster.acquire("k").call().expect("it is free");
    let next = |client: &Client| {
        let (sender, granted) = mpsc::channel();
        client
            .acquire("k")
            .submit(move |lock| drop(sender.send(lock)));
        granted
    };
    let [second, third] = [(); 2].map(|()| Client::new(&peers).expect("a client"));
    let second = (next(&second), second);
    while cluster.waiters("k", 1).call().expect("an answer").count < 1 {}
    let third = (next(&third), third);
    while cluster.waiters("k", 1).call().expect("an answer").count < 2 {}

    nodes[0]
        .take()
        .expect("it runs")
        .stop_blocking()
        .expect("stopped in order");
    copies(1);
    assert!(lock.is_held());
    assert!(
        lock.release().call().expect("an answer"),
        "it was still held"
    );
    let granted = second.0.recv_timeout(LIMIT).expect("in time");
    let granted = granted.expect("it was the next in line");
    assert!(granted.token() > lock.token());

    nodes[1]
        .take()
        .expect("it runs")
        .kill()
        .expect("it had not ended before");
    assert!(
        granted.release().call().expect("an answer"),
        "it was still held"
    );
    let last = third.0.recv_timeout(LIMIT).expect("in time");
    let last = last.expect("it was the last in line");
    assert!(last.token() > granted.token());
}

#[test]
fn a_free_address_is_nobodys_until_its_node_starts() {
    let addresses = [(); 100].map(|()| Server::free_address().expect("a free address"));
    for (index, address) in addresses.iter().enumerate() {
        assert!(!addresses[..index].contains(address));
        let refused = TcpStream::connect(address).expect_err("nobody is there");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
    for _ in 0..2 {
        let server = Server::builder().listen(addresses[0].to_string());
        let server = server.start_blocking().expect("it can start");
        assert_eq!(server.address(), addresses[0]);
        token(&Peer::connect(addresses[0]).ask("A k 30 5"));
        server.kill().expect("it had not ended before");
    }
}

#[test]
fn a_better_node_that_comes_back_is_given_its_place_with_all_locks() {
    let mut cluster = Cluster::start(2);
    cluster.settle(0);
    let held = token(&named(cluster.addresses[0], 'a').ask("A k 30 5 #1"));
    cluster.stop(0);
    cluster.wait_for(1, "role=active");
    let mut client = named(cluster.addresses[1], 'a');
    let shown = client.ask("I k");
    assert!(shown.starts_with(&format!("I k held {held} ")), "{shown}");
    cluster.bring_up(0, |_| {});
    assert_eq!(client.hear(), format!("N {}", cluster.addresses[0]));
    cluster.settle(0);
    let mut client = named(cluster.addresses[0], 'a');
    assert_eq!(client.ask(&format!("K k {held} 30 #2")), "K k ok #2");
    let next = token(&client.ask("A other 30 5 #3"));
    assert!(next > held);
}

#[test]
fn a_node_that_knows_of_nobody_parks_and_then_serves() {
    let mut cluster = Cluster::planned(2);
    // Takes connections and says nothing.
    let _silent = TcpListener::bind(cluster.addresses[0]).expect("it is still free");
    cluster.bring_up(1, |settings| {
        settings.discovery_timeout = Duration::from_millis(800);
    });
    let mut client = named(cluster.addresses[1], 'a');
    client.say("A k 30 5 #1");
    client.say("A k 30 0.001 #2");
    client.say("L - 10 #3");
    client.say("P #4");
    client.say("A k 30 - #5");
    assert_eq!(client.hear(), "P #4");
    assert_eq!(client.hear(), "T k #2");
    let refused = client.hear();
    assert!(refused.starts_with("E A k unavailable #5 "), "{refused}");
    let rest: Vec<String> = (0..4).map(|_| client.hear()).collect();
    token(&rest[0]);
    let own = cluster.addresses[1];
    assert!(rest.contains(&format!("N {own}")), "{rest:?}");
    assert!(rest.contains(&"L - 1 #3".to_owned()), "{rest:?}");
}

/// Goal: a client that does not tag can tell its answers apart. Method: more lists than are answered at once, of two kinds
/// with the same prefix in turn, and a queue of each.
#[test]
fn lists_that_were_parked_are_answered_in_the_order_in_which_they_came() {
    let mut cluster = Cluster::planned(2);
    // Takes connections and says nothing.
    let _silent = TcpListener::bind(cluster.addresses[0]).expect("it is still free");
    cluster.bring_up(1, |settings| {
        settings.discovery_timeout = Duration::from_millis(800);
    });
    let mut client = Peer::connect(cluster.addresses[1]);
    let lists = 1500;
    let mut lines = "A one 30 5\nA two 30 5\nP\n".to_owned();
    (0..lists).for_each(|number| lines += &format!("L - {}\n", 1 + number % 2));
    client.send(lines.as_bytes());
    assert_eq!(client.hear(), "P", "before anything that is parked");
    let mut answers = Vec::new();
    while answers.len() < lists {
        let reply = client.hear();
        if let Some(count) = reply.strip_prefix("L - ") {
            answers.push(count.to_owned());
        }
    }
    let expected = ["1", "2"].into_iter().cycle();
    assert!(answers.iter().eq(expected.take(lists)), "{answers:?}");
}

/// Goal: a copy is not served from, not even at the end. Method: a node that is told to stop while it
/// still looks for an active one.
#[test]
fn a_node_that_never_served_leaves_without_having_answered_from_what_it_has() {
    let mut cluster = Cluster::planned(2);
    // Takes connections and says nothing.
    let _silent = TcpListener::bind(cluster.addresses[0]).expect("it is still free");
    cluster.bring_up(1, |_| {});
    let mut client = named(cluster.addresses[1], 'a');
    client.say("R k 5 #1");
    client.say("I k #2");
    client.say("P #3");
    assert_eq!(client.hear(), "P #3");
    cluster.stop(1);
    for start in ["E R k unavailable #1 ", "E I k unavailable #2 "] {
        let heard = client.hear();
        assert!(heard.starts_with(start), "{heard}");
    }
    client.hear_end();
}

#[test]
fn peers_that_do_not_belong_together_are_refused_with_a_reason() {
    let cluster = Cluster::start(2);
    cluster.settle(0);
    let (first, second) = (cluster.addresses[0], cluster.addresses[1]);
    let list = cluster.list();
    for (line, reply) in [
        ("J 9 node=x", "E ? - version"),
        (
            &*format!("J 1 node=127.0.0.1:1 list={list},127.0.0.1:1 public=a:1"),
            "E ? - syntax",
        ),
        (
            &*format!("J 1 node={second} list={second},{first} public=a:1"),
            "E ? - syntax",
        ),
        (
            &*format!("J 1 node={first} list={list} public=a:1"),
            "E ? - syntax",
        ),
        ("J", "E ? - syntax"),
        ("J 1", "E ? - syntax"),
    ] {
        let mut peer = Peer::connect(first);
        let heard = peer.ask(line);
        assert!(heard.starts_with(reply), "{line}: {heard}");
    }
    let mut liar = Peer::connect(first);
    let answer = liar.ask(&format!("J 1 node={second} list={list} public={second}"));
    assert_eq!(answer, "J 1 ok");
    liar.send(&u32::MAX.to_le_bytes());
    liar.hear_end();
    let lone = Server::builder().listen("127.0.0.1:0").start_blocking();
    let lone = lone.expect("it can start");
    let heard =
        Peer::connect(lone.address()).ask(&format!("J 1 node={second} list={list} public=a:1"));
    assert_eq!(heard, "E ? - syntax this node has no peers");
    cluster.settle(0);
    token(&Peer::connect(first).ask("A k 30 5"));
}

/// Goal: a flood of connections beyond the limit keeps no peer out. Method: far more of them than there are places in
/// which peers are told from clients, all silent, and a peer that comes last.
#[test]
fn a_peer_is_let_in_however_many_silent_clients_there_are_beyond_the_limit() {
    let mut cluster = Cluster::planned(2);
    cluster.bring_up(0, |settings| settings.max_connections = 2);
    let address = cluster.addresses[0];
    let mut inside: Vec<Peer> = (0..2).map(|_| Peer::connect(address)).collect();
    inside.iter_mut().for_each(Peer::hear_nothing);
    for _ in 0..20 {
        let silent: Vec<Peer> = (0..200).map(|_| Peer::connect(address)).collect();
        let begin = Instant::now();
        let mut peer = Peer::connect(address);
        let greeting = format!(
            "J 1 node={} list={} public={}",
            cluster.addresses[1],
            cluster.list(),
            cluster.addresses[1]
        );
        assert_eq!(peer.ask(&greeting), "J 1 ok");
        println!("let in after {:?}", begin.elapsed());
        drop(silent);
    }
}

/// Goal: beyond the limit only who proves to be a peer is taken. Method: connections that begin like a peer's and stop there,
/// one with a wrong secret, and one with the right one, whose line comes in two parts.
#[test]
fn beyond_the_limit_nobody_is_let_in_who_only_begins_like_a_peer() {
    let mut cluster = Cluster::planned(2);
    cluster.bring_up(0, |settings| {
        settings.max_connections = 2;
        settings.cluster_secret = Some(Secret::new("open sesame"));
    });
    let address = cluster.addresses[0];
    let mut inside: Vec<Peer> = (0..2).map(|_| Peer::connect(address)).collect();
    inside.iter_mut().for_each(Peer::hear_nothing);
    let connect = |begin: &str| {
        let mut peer = Peer::connect(address);
        peer.send(begin.as_bytes());
        peer
    };
    let begun: Vec<Peer> = (0..20).map(|_| connect("J ")).collect();
    for peer in begun {
        let mut heard = String::new();
        match peer.socket().read_to_string(&mut heard) {
            Ok(_) => assert!(
                heard.is_empty() || heard.starts_with("E ? - busy "),
                "{heard}"
            ),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    assert!(inside[0].ask("S").contains(" connections=2 "));
    let greeting = format!(
        "J 1 node={} list={} public=a:1 secret=",
        cluster.addresses[1],
        cluster.list()
    );
    // The time for a line is short, and the machine may be busy.
    let eventually = |rest: &str, wanted: &str| {
        (0..20).any(|_| {
            let mut peer = connect(&greeting);
            peer.ask(rest) == wanted
        })
    };
    assert!(eventually(
        "wrong",
        "E ? - auth wrong or missing cluster secret"
    ));
    assert!(eventually("open%20sesame", "J 1 ok"));
    inside.iter_mut().for_each(Peer::hear_nothing);
}

#[test]
fn peers_without_the_secret_stay_outside() {
    let mut cluster = Cluster::planned(2);
    let with_secret = |settings: &mut Settings| {
        settings.cluster_secret = Some(Secret::new("open sesame"));
        settings.discovery_timeout = Duration::from_millis(300);
    };
    cluster.bring_up(0, with_secret);
    cluster.wait_for(0, "role=active");
    cluster.bring_up(1, |settings| {
        settings.cluster_secret = Some(Secret::new("wrong"));
        settings.discovery_timeout = Duration::from_millis(300);
    });
    let heard = Peer::connect(cluster.addresses[0]).ask(&format!(
        "J 1 node={} list={} public=a:1",
        cluster.addresses[1],
        cluster.list()
    ));
    assert_eq!(heard, "E ? - auth wrong or missing cluster secret");
    // As long as the other one is there, which may be active: for several times as long as it would wait alone.
    let begun = Instant::now();
    let mut outside = Peer::connect(cluster.addresses[1]);
    while begun.elapsed() < Duration::from_millis(1500) {
        let status = outside.ask("S");
        assert!(status.contains("role=starting"), "{status}");
        std::thread::sleep(Duration::from_millis(20));
    }
    cluster.stop(1);
    cluster.bring_up(1, with_secret);
    cluster.settle(0);
}

/// A change of the settings that makes replies wait for one standby.
fn waits_for_one(settings: &mut Settings) {
    settings.sync_standbys = 1;
}

#[test]
fn a_grant_that_waits_for_a_standby_is_known_there_when_the_client_hears_of_it() {
    let mut cluster = Cluster::planned(2);
    (0..2).for_each(|index| cluster.bring_up(index, waits_for_one));
    cluster.settle(0);
    let mut client = named(cluster.addresses[0], 'a');
    let tokens: Vec<u64> = (0..100)
        .map(|number| token(&client.ask(&format!("A k{number} 30 5 #{number}"))))
        .collect();
    assert!(tokens.is_sorted());
    // A waiter's grant waits for the standby as well.
    let mut waiter = named(cluster.addresses[0], 'b');
    waiter.say("A k0 30 0 #1");
    waiter.hear_nothing();
    assert_eq!(
        client.ask(&format!("R k0 {} #900", tokens[0])),
        "R k0 ok #900"
    );
    token(&waiter.hear());
    // The same request again is answered with the same token.
    assert_eq!(
        client.ask("A k1 30 5 #1.1"),
        format!("A k1 {} #1.1", tokens[1])
    );
}

#[test]
fn without_enough_standbys_a_node_goes_on_or_refuses_as_it_was_told() {
    for (strict, start) in [(false, "A k "), (true, "E A k unavailable ")] {
        let mut cluster = Cluster::planned(2);
        cluster.bring_up(0, |settings| {
            waits_for_one(settings);
            settings.sync_strict = strict;
        });
        cluster.wait_for(0, "role=active");
        let mut client = named(cluster.addresses[0], 'a');
        let reply = client.ask("A k 30 5 #1");
        assert!(reply.starts_with(start), "{reply}");
        let held = client.ask("I k");
        assert_eq!(held.starts_with("I k held"), !strict, "{held}");
        cluster.bring_up(1, waits_for_one);
        cluster.settle(0);
        token(&client.ask("A other 30 5 #2"));
    }
}

#[test]
fn a_standby_that_goes_and_comes_back_holds_up_nobody() {
    let mut cluster = Cluster::planned(2);
    cluster.bring_up(0, |settings| {
        waits_for_one(settings);
        settings.failure_timeout = Duration::from_millis(800);
    });
    cluster.bring_up(1, waits_for_one);
    cluster.settle(0);
    let mut client = named(cluster.addresses[0], 'a');
    token(&client.ask("A first 30 5 #1"));
    cluster.stop(1);
    token(&client.ask("A second 30 5 #2"));
    cluster.bring_up(1, waits_for_one);
    cluster.settle(0);
    token(&client.ask("A third 30 5 #3"));
}
