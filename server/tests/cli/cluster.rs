//! Three servers as one: what an operator types and what he is told, from a list that is wrong to a
//! node that is killed.

use crate::support::{Folder, Running, eventually, fairlock, outcome};
use rustix::process::Signal;
use serde_json::Value;
use std::net::TcpListener;

/// Servers of one list, each with a data dir.
struct Cluster {
    addresses: Vec<String>,
    nodes: Vec<Option<Running>>,
    folder: Folder,
}

impl Cluster {
    fn start(name: &str) -> Cluster {
        // Free a moment ago; all at once, so that they differ.
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let address = |listener: &TcpListener| listener.local_addr().expect("it is bound");
        let mut cluster = Cluster {
            addresses: listeners
                .iter()
                .map(|one| address(one).to_string())
                .collect(),
            nodes: [(); 3].map(|()| None).into(),
            folder: Folder::new(name),
        };
        drop(listeners);
        for index in 0..3 {
            cluster.bring_up(index);
        }
        cluster.settle(0);
        cluster
    }

    fn list(&self) -> String {
        self.addresses.join(",")
    }

    fn bring_up(&mut self, index: usize) {
        let node = &self.addresses[index];
        let data = self.folder.file(&index.to_string());
        let words = ["--peers", &self.list(), "--node", node, "--data-dir", &data];
        let mut process = Running::start(fairlock(words));
        assert_eq!(process.line(), format!("listening on {node}"));
        self.nodes[index] = Some(process);
    }

    fn node(&mut self, index: usize) -> &mut Running {
        self.nodes[index].as_mut().expect("it runs")
    }

    /// What `fairlock status` says when it is given the address of one node alone.
    fn seen_by(&self, index: usize) -> Vec<Value> {
        let servers = &self.addresses[index];
        let status = outcome(fairlock(["status", "--json", "--servers", servers]));
        assert_eq!(status.code, 0, "{status:?}");
        let status: Value = serde_json::from_str(&status.out).expect("JSON");
        status["nodes"].as_array().expect("a list").clone()
    }

    /// Waits until one node is active and all others that run have a copy.
    fn settle(&self, active: usize) {
        eventually("the cluster has settled", || {
            let nodes = self.seen_by(active);
            let copies = nodes[active]["standbys"].as_array().map_or(0, Vec::len);
            nodes[active]["role"] == "active" && copies + 1 == self.nodes.iter().flatten().count()
        });
    }

    fn does(&self, words: &[&str]) -> String {
        let mut command = fairlock(words);
        command.env("FAIRLOCK_SERVERS", self.list());
        let outcome = outcome(command);
        assert_eq!(outcome.code, 0, "{words:?}: {outcome:?}");
        outcome.out.trim_end().to_owned()
    }
}

#[test]
fn a_list_that_cannot_be_used_is_refused_with_one_line_that_says_which_and_why() {
    let many: Vec<String> = (1..=17).map(|port| format!("a:{port}")).collect();
    for (words, expected) in [
        (
            "--peers a:1,b:2 --node c:3",
            "--node is `c:3`: that is none of `peers`, which are a:1,b:2",
        ),
        (
            "--peers a:1,b:2,a:1 --node b:2",
            "--peers is `a:1,b:2,a:1`: a:1 stands twice",
        ),
        (
            &*format!("--peers {} --node a:1", many.join(",")),
            "17 peers are too many: a cluster has at most 16",
        ),
        (
            "--peers a:1,b --node a:1",
            "\"b\" in the list of peers is not an address",
        ),
        ("--peers a:1,b:2", "--node is missing: say which of `peers`"),
        ("--node a:1", "--node is `a:1`: `peers` is missing"),
        (
            "--peers 192.0.2.1:1,b:2 --node 192.0.2.1:1",
            "--node is `192.0.2.1:1`: beyond loopback a secret is needed",
        ),
        (
            "--peers 127.0.0.1:1,b:2 --node 127.0.0.1:1 --sync-standbys 2",
            "--sync-standbys is `2`: this cluster has only 1 other",
        ),
    ] {
        let mut command = fairlock(["serve", "--ephemeral"]);
        command.args(words.split(' '));
        let outcome = outcome(command);
        assert_eq!(
            (outcome.code, outcome.out.as_str()),
            (64, ""),
            "{outcome:?}"
        );
        assert_eq!(outcome.err.lines().count(), 1, "{outcome:?}");
        assert!(outcome.err.contains(expected), "{words}: {outcome:?}");
    }
}

/// Goal: who knows one node sees all of them, through the end of one. Method: the status by way of the
/// last node, and the log of each change of role.
#[test]
fn status_finds_all_nodes_from_one_and_the_log_says_why_roles_change() {
    let mut cluster = Cluster::start("found");
    let [first, second, third] = [0, 1, 2].map(|index| cluster.addresses[index].clone());
    let token = cluster.does(&["acquire", "--lease", "600", "k"]);
    let nodes = cluster.seen_by(2);
    let servers: Vec<&Value> = nodes.iter().map(|node| &node["server"]).collect();
    assert_eq!(servers, [&first, &second, &third]);
    let roles: Vec<&Value> = nodes.iter().map(|node| &node["role"]).collect();
    assert_eq!(roles, ["active", "standby", "standby"]);
    assert_eq!(nodes[0]["term"], nodes[2]["term"], "{nodes:?}");
    cluster.node(0).error_with("starting → active, term ");
    let follows = format!("starting → standby of {first}: that node is active");
    cluster.node(2).error_with(&follows);

    cluster.node(0).signal(Signal::KILL);
    cluster.nodes[0] = None;
    cluster.settle(1);
    let nodes = cluster.seen_by(2);
    let down = serde_json::json!({"server": first, "error": "connection refused"});
    assert_eq!(nodes[0], down);
    assert_eq!(
        (&nodes[1]["role"], &nodes[1]["held"]),
        (&"active".into(), &1.into())
    );
    let took = format!("standby of {first} → active, term ");
    let line = cluster.node(1).error_with(&took);
    assert!(
        line.ends_with("the active node is gone, and this is the best standby"),
        "{line}"
    );
    let follows = format!("standby of {first} → standby of {second}: that node is active");
    cluster.node(2).error_with(&follows);
    let table = outcome(fairlock(["status", "--servers", &third]));
    let rows: Vec<Vec<&str>> = table
        .out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[1][..2], [&*first, "down"], "{table:?}");
    assert!(table.out.contains("-  connection refused\n"), "{table:?}");
    assert_eq!(rows[2][..2], [&*second, "active"], "{table:?}");
    assert_eq!(rows[2].last(), Some(&&*third), "{table:?}");
    cluster.does(&["release", "k", &token]);
}

/// Goal: an upgrade without a gap. Method: every node is stopped in order and started again while a
/// lock is held and a command waits for it.
#[test]
fn all_nodes_restarted_one_after_the_other_lose_no_lock_and_no_place_in_line() {
    let mut cluster = Cluster::start("upgrade");
    let held = cluster.does(&["acquire", "--lease", "600", "k"]);
    let mut waiting = fairlock(["acquire", "--lease", "600", "k"]);
    waiting.env("FAIRLOCK_SERVERS", cluster.list());
    let mut waiting = Running::start(waiting);
    let waits = |cluster: &Cluster, active: usize| {
        eventually("it waits in line", || {
            let node = &cluster.seen_by(active)[active];
            (&node["role"], &node["waiting"]) == (&"active".into(), &1.into())
        });
    };
    waits(&cluster, 0);
    for index in [2, 1, 0] {
        cluster.node(index).signal(Signal::TERM);
        let ended = cluster.nodes[index].take().expect("it ran").end();
        assert_eq!(ended.code, 0, "{ended:?}");
        let gone = ended.err.contains(": asked to stop");
        assert!(gone, "{ended:?}");
        if index == 0 {
            let to = format!("leaving, {} is active: asked to stop", cluster.addresses[1]);
            assert!(ended.err.contains(&to), "{ended:?}");
            waits(&cluster, 1);
        }
        cluster.bring_up(index);
        cluster.settle(0);
    }
    waits(&cluster, 0);
    assert!(!waiting.has_ended());
    cluster.does(&["release", "k", &held]);
    let next: u64 = waiting.line().parse().expect("a token");
    assert!(next > held.parse().expect("a token"));
}

/// Goal: a frozen node holds up no look at the others.
#[test]
fn status_names_a_frozen_node_and_goes_on() {
    let mut cluster = Cluster::start("frozen");
    let last = cluster.addresses[2].clone();
    cluster.node(2).signal(Signal::STOP);
    let nodes = cluster.seen_by(0);
    cluster.node(2).signal(Signal::CONT);
    assert_eq!(nodes[0]["role"], "active");
    assert_eq!(nodes[2]["server"], last.as_str());
    assert!(
        nodes[2]["error"]
            .as_str()
            .is_some_and(|error| !error.is_empty()),
        "{nodes:?}"
    );
}
