//! What the disks of several nodes have when all were down, at whatever moment that happened.

use fairlock_processes::cluster::{Cluster, field};
use fairlock_processes::{LIMIT, Peer, skip, until};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Waits until some node serves.
fn active(cluster: &Cluster, nodes: &[usize]) -> usize {
    let begin = Instant::now();
    loop {
        for index in nodes {
            if field(&cluster.status(*index), "role") == "active" {
                return *index;
            }
        }
        assert!(begin.elapsed() < LIMIT, "no node serves");
    }
}

fn is_held(peer: &mut Peer, key: &str, token: u64) {
    let reply = peer.ask(&format!("I {key}"));
    let held = format!("I {key} held {token} ");
    assert!(reply.starts_with(&held), "{reply}, not {held}");
}

/// Goal: when all nodes were down, what the newest disk has is served, in whatever order they come back. Method:
/// the node of highest priority misses a part of the history; then the standby is killed and after it the active
/// node, and all come back. (The other way round the standby may have taken over before it is killed, and then its
/// state is the newest, without what the active node had not told it yet.)
#[test]
fn after_all_nodes_were_down_the_newest_state_wins_in_whatever_order_they_come_back() {
    for order in [
        [2, 1, 0],
        [2, 0, 1],
        [1, 0, 2],
        [1, 2, 0],
        [0, 2, 1],
        [0, 1, 2],
    ] {
        let mut cluster = Cluster::start(3);
        let mut peer = Peer::connect(cluster.address(0));
        let old = peer.acquire("A old 600 5");
        let ended = peer.acquire("A ended 600 5");
        cluster.settle_among(0, |index| index == 1);
        until(&mut Peer::connect(cluster.address(1)), "S", |status| {
            field(status, "held") == "2"
        });
        cluster.kill(0);
        cluster.settle_among(1, |index| index == 2);
        let mut peer = Peer::connect(cluster.address(1));
        let new = peer.acquire("A new 600 5");
        assert_eq!(peer.ask(&format!("R ended {ended}")), "R ended ok");
        cluster.kill(2);
        cluster.kill(1);
        for index in order {
            cluster.bring_up(index);
        }
        let mut peer = Peer::connect(cluster.address(active(&cluster, &[0, 1, 2])));
        for (key, token) in [("old", old), ("new", new)] {
            is_held(&mut peer, key, token);
        }
        let reply = peer.ask("I ended");
        assert!(reply.starts_with("I ended free "), "{order:?}: {reply}");
        assert!(peer.acquire("A next 600 5") > new);
    }
}

/// Goal: what a node that has just become active answers outlasts its kill at once, although its journal has not
/// got its name yet. Method: it is killed as soon as the first answer is there, many times.
#[test]
fn what_the_first_active_node_answers_outlasts_its_kill_at_once() {
    let mut nameless = 0;
    for _ in 0..20 {
        let mut cluster = Cluster::planned(2, &[]);
        cluster.bring_up(0);
        cluster.bring_up(1);
        let mut peer = Peer::connect(cluster.address(0));
        let released = peer.acquire("A released 600 5");
        let held = peer.acquire("A held 600 5");
        assert_eq!(peer.ask(&format!("R released {released}")), "R released ok");
        cluster.kill(0);
        // It may have taken over by then, without the last of this.
        cluster.kill(1);
        nameless += u32::from(cluster.data_dir(0).join("journal.new").exists());
        std::fs::remove_dir_all(cluster.data_dir(1)).expect("it is the test's");
        cluster.bring_up(0);
        cluster.bring_up(1);
        let mut peer = Peer::connect(cluster.address(active(&cluster, &[0, 1])));
        is_held(&mut peer, "held", held);
        assert!(peer.ask("I released").starts_with("I released free "));
        assert!(peer.acquire("A next 600 5") > held);
    }
    println!("in {nameless} of 20 rounds the journal had no name yet");
}

/// Lets the new journals of a node wait for their name from now on; `None` where that cannot be done.
fn withhold_names(cluster: &Cluster, index: usize) -> Option<Child> {
    let path = cluster.data_dir(index).join("journal.new");
    let mut strace = Command::new("strace")
        .args([
            "-f",
            "-o",
            "/dev/null",
            "-e",
            "inject=/^rename:delay_enter=60000000",
        ])
        .arg("-P")
        .arg(path)
        .args([
            "-p",
            &cluster.node(index).pid().as_raw_nonzero().to_string(),
        ])
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut said = BufReader::new(strace.stderr.take().expect("it is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it writes text");
    if !line.contains("attached") {
        strace
            .kill()
            .and_then(|()| strace.wait())
            .expect("it is ours");
        return None;
    }
    // Whatever else it says, nobody reads.
    std::thread::spawn(move || said.read_to_string(&mut String::new()));
    Some(strace)
}

/// Goal: what a node answers that has taken over right behind a whole copy outlasts its kill, although its journal
/// has not got its name. Method: the names are withheld; the node becomes a standby, copies, takes over, answers,
/// and is killed.
#[test]
fn what_a_node_answers_after_a_copy_outlasts_its_kill_before_the_journal_has_its_name() {
    let mut cluster = Cluster::planned(2, &["--preempt-delay", "0.1"]);
    cluster.bring_up(1);
    cluster.until(1, |status| field(status, "role") == "active");
    let mut peer = Peer::connect(cluster.address(1));
    let released = peer.acquire("A released 600 5");
    // From its start it has one already.
    let begin = Instant::now();
    while !cluster.data_dir(1).join("journal").exists() {
        assert!(begin.elapsed() < LIMIT, "there is no journal");
    }
    let Some(mut strace) = withhold_names(&cluster, 1) else {
        return skip("a journal without its name: needs strace");
    };
    cluster.bring_up(0);
    cluster.settle(0);
    let mut peer = Peer::connect(cluster.address(0));
    let copied = peer.acquire("A copied 600 5");
    until(&mut Peer::connect(cluster.address(1)), "S", |status| {
        field(status, "held") == "2"
    });
    cluster.kill(0);
    cluster.until(1, |status| field(status, "role") == "active");
    let mut peer = Peer::connect(cluster.address(1));
    let held = peer.acquire("A held 600 5");
    assert_eq!(peer.ask(&format!("R released {released}")), "R released ok");
    // It does not end before the one that holds it lets go.
    cluster.node(1).signal(Signal::KILL);
    strace
        .kill()
        .and_then(|()| strace.wait())
        .expect("it is ours");
    cluster.kill(1);
    assert!(cluster.data_dir(1).join("journal.new").exists());
    for order in [[0, 1], [1, 0]] {
        for index in order {
            cluster.bring_up(index);
        }
        let mut peer = Peer::connect(cluster.address(active(&cluster, &[0, 1])));
        is_held(&mut peer, "copied", copied);
        is_held(&mut peer, "held", held);
        assert!(peer.ask("I released").starts_with("I released free "));
        for index in order {
            cluster.kill(index);
        }
    }
}

/// Goal: tokens rise although the node with the newest disk comes when another one serves already. Method: the
/// one with the older disk is started alone, and serves; then the other one comes, and takes over in its turn.
#[test]
fn tokens_rise_when_the_newest_disk_comes_too_late() {
    let mut cluster =
        Cluster::start_with(2, &["--preempt-delay", "0.2", "--discovery-timeout", "0.5"]);
    let mut peer = Peer::connect(cluster.address(0));
    peer.acquire("A old 600 5");
    until(&mut Peer::connect(cluster.address(1)), "S", |status| {
        field(status, "held") == "1"
    });
    cluster.kill(1);
    let newest = peer.acquire("A newest 600 5");
    cluster.kill(0);
    cluster.bring_up(1);
    cluster.until(1, |status| field(status, "role") == "active");
    let mut peer = Peer::connect(cluster.address(1));
    let first = peer.acquire("A first 600 5");
    assert!(first > newest, "{first} after {newest}");
    cluster.bring_up(0);
    cluster.settle(0);
    let mut peer = Peer::connect(cluster.address(0));
    is_held(&mut peer, "first", first);
    let last = peer.acquire("A last 600 5");
    assert!(last > first, "{last} after {first}");
}
