//! Those who do not belong to the cluster, or say that they do and are wrong.

use fairlock_processes::cluster::{Cluster, field};
use fairlock_processes::{Folder, Peer, run, serve, token};
use std::fs;
use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

/// The command line with another list.
fn with_list(command: &Command, list: &str) -> Command {
    let mut changed = Command::new(command.get_program());
    let mut arguments = command.get_args();
    while let Some(argument) = arguments.next() {
        changed.arg(argument);
        if argument == "--peers" {
            arguments.next();
            changed.arg(list);
        }
    }
    changed
}

/// While others that do not take it for their peer are there, it does not serve: for several times the half second after
/// which it would, alone.
fn stays_starting(cluster: &Cluster, index: usize) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        let status = cluster.status(index);
        assert_eq!(field(&status, "role"), "starting", "{status}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_node_with_the_wrong_cluster_secret_stays_outside_and_both_say_why() {
    let folder = Folder::new("secrets");
    fs::create_dir_all(&folder.0).expect("a folder");
    let (right, wrong) = (folder.0.join("right"), folder.0.join("wrong"));
    fs::write(&right, "open sesame\n").expect("a file");
    fs::write(&wrong, "open says me\n").expect("a file");
    let right = right.to_str().expect("plain");
    let secret = ["--cluster-secret-file", right, "--discovery-timeout", "0.5"];
    let mut cluster = Cluster::planned(3, &secret);
    cluster.bring_up(0);
    cluster.bring_up(1);
    cluster.settle(0);
    let held = token(&Peer::connect(cluster.address(0)).ask("A k 600 5"));
    let mut command = cluster.command(2);
    command.arg("--cluster-secret-file").arg(&wrong);
    let mut replaced = Command::new(command.get_program());
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    // The first of the two secrets goes.
    let place = arguments
        .iter()
        .position(|argument| argument == "--cluster-secret-file");
    let place = place.expect("it is there");
    replaced
        .args(&arguments[..place])
        .args(&arguments[place + 2..]);
    cluster.bring_up_as(2, replaced);
    cluster.until_logged(0, "wrong or missing cluster secret");
    cluster.until_logged(2, "wrong or missing cluster secret");
    stays_starting(&cluster, 2);
    cluster.settle_among(0, |index| index != 2);
    let shown = Peer::connect(cluster.address(0)).ask("I k");
    assert!(shown.starts_with(&format!("I k held {held} ")), "{shown}");
    cluster.kill(2);
    cluster.bring_up(2);
    cluster.settle(0);
}

#[test]
fn lists_that_contradict_each_other_are_refused_and_shown() {
    let mut cluster = Cluster::planned(3, &["--discovery-timeout", "0.5"]);
    cluster.bring_up(0);
    cluster.bring_up(1);
    cluster.settle(0);
    let servers = cluster.servers();
    let turned = [&*servers[1], &*servers[0], &*servers[2]].join(",");
    let command = with_list(&cluster.command(2), &turned);
    cluster.bring_up_as(2, command);
    cluster.until_logged(2, "does not accept this node as its peer");
    cluster.until_logged(0, "refused a link from");
    stays_starting(&cluster, 2);
    cluster.settle_among(0, |index| index != 2);
    cluster.kill(2);
    // One that knows of a further node at the end is welcome, and both lists are logged.
    let longer = format!("{},127.0.0.1:1", cluster.list());
    let command = with_list(&cluster.command(2), &longer);
    cluster.bring_up_as(2, command);
    cluster.until_logged(0, "the lists of nodes differ");
    assert!(cluster.log(0).contains(&longer));
    cluster.settle(0);
}

#[test]
fn wrong_lists_are_refused_before_anything_starts() {
    let many: Vec<String> = (1..=17).map(|port| format!("127.0.0.1:{port}")).collect();
    for (peers, node, says) in [
        ("127.0.0.1:1,127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:3"),
        ("127.0.0.1:1,127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"),
        (&*many.join(","), "127.0.0.1:1", "16"),
        ("127.0.0.1:1,,127.0.0.1:2", "127.0.0.1:1", "peers"),
        ("127.0.0.1:1,127.0.0.1", "127.0.0.1:1", "127.0.0.1"),
    ] {
        let mut command = serve();
        command.args(["--ephemeral", "--peers", peers, "--node", node]);
        let output = run(command);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{peers}: {text}");
        assert!(text.contains(says), "{peers}: {text}");
    }
}

#[test]
fn garbage_at_the_door_of_peers_moves_nobody() {
    let cluster = Cluster::start(3);
    let term = field(&cluster.status(0), "term").to_owned();
    let held = token(&Peer::connect(cluster.address(0)).ask("A k 600 5"));
    let list = cluster.list();
    let welcome = |number: usize| {
        let node = cluster.address(number);
        format!("J 1 node={node} list={list} public={node}\n")
    };
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for round in 0..60 {
        let target = round % 3;
        let socket = Peer::connect(cluster.address(target));
        let mut socket = socket.socket().try_clone().expect("a descriptor");
        let mut bytes = match round % 4 {
            0 => Vec::new(),
            // An impostor, who gives up the link of a real node.
            1 => welcome((target + 1) % 3).into_bytes(),
            2 => welcome((target + 2) % 3).into_bytes(),
            _ => b"J 1 ".to_vec(),
        };
        if round % 8 == 1 {
            bytes.extend_from_slice(&u32::MAX.to_le_bytes());
        }
        for _ in 0..100 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            bytes.extend_from_slice(&random.to_le_bytes()[..1 + round % 8]);
        }
        // The node may have closed it before all was written.
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    }
    cluster.settle(0);
    assert_eq!(field(&cluster.status(0), "term"), term);
    let shown = Peer::connect(cluster.address(0)).ask("I k");
    assert!(shown.starts_with(&format!("I k held {held} ")), "{shown}");
    for index in 0..3 {
        assert!(
            !cluster.log(index).contains("panic"),
            "{}",
            cluster.log(index)
        );
    }
}

#[test]
fn a_node_alone_in_its_list_that_nobody_asked_for_a_while_has_not_stood_still() {
    let cluster = Cluster::start_with(1, &["--failure-timeout", "0.2", "--heartbeat", "0.05"]);
    let mut client = Peer::connect(cluster.address(0));
    for _ in 0..3 {
        assert!(client.ask("S").starts_with("S "));
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(
        !cluster.log(0).contains("stood still"),
        "{}",
        cluster.log(0)
    );
}
