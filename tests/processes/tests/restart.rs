//! A node that is alone, killed and started again on the same folder: what was held is held, who waited
//! keeps the place, and what cannot be kept is said.

use fairlock_processes::history::{Allowance, Outcome, check, moment};
use fairlock_processes::load::{Line, Load};
use fairlock_processes::{Folder, LIMIT, Node, Peer, run, serve, token, until, until_waiting};
use rustix::process::{Resource, Rlimit, Signal, prlimit};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A node that can be started again at the same address.
struct Alone {
    folder: Folder,
    address: String,
    arguments: Vec<&'static str>,
}

impl Alone {
    fn new(name: &str, arguments: &[&'static str]) -> Alone {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        Alone {
            folder: Folder::new(name),
            address: listener.local_addr().expect("it is bound").to_string(),
            arguments: arguments.to_vec(),
        }
    }

    fn command(&self) -> Command {
        let mut command = serve();
        command
            .args(["--listen", &self.address, "--data-dir"])
            .arg(&self.folder.0)
            .args(&self.arguments);
        command
    }

    fn start(&self) -> Node {
        Node::spawn(self.command())
    }

    fn journal(&self) -> PathBuf {
        self.folder.0.join("journal")
    }
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[test]
fn what_clients_were_told_holds_after_every_kill_under_load() {
    let alone = Alone::new("restart-load", &[]);
    let mut node = alone.start();
    let servers = [alone.address.clone()];
    let patience = Duration::from_secs(30);
    let load = Load::start_as(&servers, 3, 4, patience);
    let line = Line::behind_as(&servers, "line", Duration::from_secs(20), patience);
    for place in 1..=10 {
        // A client of one node has two connections, so each waits until the one before stands in line.
        line.queue_up(1);
        until_waiting(&mut node.connect(), "line", place);
    }
    let mut crashes = Vec::new();
    for _ in 0..5 {
        load.record().until_each_has_more(3, 50);
        crashes.push(Allowance::crash(moment()));
        node.kill();
        node = alone.start();
    }
    load.record().until_each_has_more(3, 50);
    // All of these had their places before the first kill, so nothing excuses them.
    check(&line.move_on(), &[]).expect_clean(10);
    let mut history = load.finish();
    // Who has not the time to wait for the restart hears that there was no node.
    history.retain(|attempt| {
        !matches!(&attempt.outcome, Outcome::Failed(text) if text.starts_with("ConnectionFailed"))
    });
    let report = check(&history, &crashes);
    // A request that was on its way when the node was killed comes again behind others; nothing else is
    // excused by a crash here.
    let excused: Vec<_> = report.excused.keys().copied().collect();
    assert!(
        excused.is_empty() || excused == ["who waits is served in order"],
        "{report:?}"
    );
    report.expect_clean(600);
}

#[test]
fn a_journal_that_is_begun_anew_under_load_keeps_what_is_held() {
    let alone = Alone::new("restart-anew", &[]);
    let mut node = alone.start();
    let mut holder = Peer::named(node.address(), '1');
    let held = holder.acquire("A held 600 5");
    let mut waiter = Peer::named(node.address(), '2');
    waiter.say("A held 600 0 #1");
    until_waiting(&mut holder, "held", 1);
    let mut peer = node.connect();
    let pad = "k".repeat(480);
    let (mut anew, mut before, mut slowest) = (0, 0, Duration::ZERO);
    let begin = Instant::now();
    while anew < 2 {
        assert!(begin.elapsed() < 4 * LIMIT, "begun anew {anew} times");
        let lines: String = (0..1000)
            .map(|number| format!("A {pad}-{number} 600 5\n"))
            .collect();
        peer.send(lines.as_bytes());
        let mut release = String::new();
        for number in 0..1000 {
            let token = token(&peer.hear());
            release.push_str(&format!("R {pad}-{number} {token}\n"));
        }
        peer.send(release.as_bytes());
        (0..1000).for_each(|_| assert!(peer.hear().ends_with(" ok")));
        let asked = Instant::now();
        holder.ask("P");
        slowest = slowest.max(asked.elapsed());
        let now = length(&alone.journal());
        anew += usize::from(now < before);
        before = now;
    }
    println!("the slowest answer to another client took {slowest:?}");
    let last = peer.acquire("A last 600 5");
    node.kill();
    node = alone.start();
    let mut peer = node.connect();
    assert!(
        peer.ask("I held")
            .starts_with(&format!("I held held {held} "))
    );
    assert!(
        peer.ask("I last")
            .starts_with(&format!("I last held {last} "))
    );
    let mut waiter = Peer::named(node.address(), '2');
    waiter.say("A held 600 0 #1.2");
    assert_eq!(peer.ask(&format!("R held {held}")), "R held ok");
    assert!(token(&waiter.hear()) > last);
}

#[test]
fn queued_requests_keep_their_places_for_the_grace_and_no_longer() {
    let alone = Alone::new("restart-grace", &["--restart-grace", "1"]);
    let mut node = alone.start();
    let mut holder = node.connect();
    let held = holder.acquire("A k 600 5");
    for (place, digit) in ['1', '2', '3'].into_iter().enumerate() {
        let mut waiter = Peer::named(node.address(), digit);
        waiter.say("A k 600 0 #1");
        until_waiting(&mut holder, "k", place + 1);
        std::mem::forget(waiter);
    }
    node.signal(Signal::KILL);
    node.wait();
    node = alone.start();
    // The last comes back first, the first does not come back.
    let mut third = Peer::named(node.address(), '3');
    third.say("A k 600 0 #1.2");
    let mut second = Peer::named(node.address(), '2');
    second.say("A k 600 0 #1.2");
    let mut peer = node.connect();
    until_waiting(&mut peer, "k", 3);
    until(&mut peer, "W k 10", |reply| {
        reply == "W k 2" || reply.starts_with("w k 1")
    });
    let mut rows = 1;
    while !peer.hear().starts_with("W ") {
        rows += 1;
    }
    assert!((2..=3).contains(&rows));
    until_waiting(&mut peer, "k", 2);
    assert_eq!(peer.ask(&format!("R k {held}")), "R k ok");
    let next = token(&second.hear());
    assert_eq!(peer.ask(&format!("R k {next}")), "R k ok");
    assert!(token(&third.hear()) > next);
}

#[test]
fn an_orderly_stop_keeps_locks_and_places_too() {
    let alone = Alone::new("restart-orderly", &["--journal-sync", "batch"]);
    let mut node = alone.start();
    let mut holder = Peer::named(node.address(), '1');
    let held = holder.acquire("A k 600 5 #1");
    let mut waiter = Peer::named(node.address(), '2');
    waiter.say("A k 600 0 #1");
    until_waiting(&mut holder, "k", 1);
    node.signal(Signal::INT);
    assert!(waiter.hear().starts_with("E A k unavailable #1"));
    drop((holder, waiter));
    assert!(node.wait().success());
    let node = alone.start();
    let mut late = Peer::named(node.address(), '3');
    late.say("A k 600 0 #1");
    let mut peer = node.connect();
    until_waiting(&mut peer, "k", 2);
    let mut waiter = Peer::named(node.address(), '2');
    waiter.say("A k 600 0 #1.2");
    assert_eq!(peer.ask(&format!("R k {held}")), "R k ok");
    token(&waiter.hear());
    late.hear_nothing();
}

/// What the admin page of a node answers.
fn look(admin: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(admin).expect("it is served");
    let request = format!("GET {path} HTTP/1.0\r\nhost: {admin}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("it answers with text");
    assert!(
        answer.starts_with("HTTP/1.0 200 ") || answer.starts_with("HTTP/1.1 200 "),
        "{answer}"
    );
    answer
}

/// Goal: a node that cannot write its journal says so and goes on, what it missed is never believed, and it
/// keeps its state again once it can. Method: a limit on the size of files, as of a full disk.
#[test]
fn a_full_disk_is_survived_said_and_never_lied_about() {
    let alone = Alone::new("restart-full", &[]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let admin = listener.local_addr().expect("it is bound").to_string();
    drop(listener);
    let log = alone.folder.0.with_extension("log");
    let start = || {
        let own = alone.command();
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap '' XFSZ; ulimit -S -f 64; exec \"$0\" \"$@\""])
            .arg(own.get_program())
            .args(own.get_args())
            .args(["--admin", &admin])
            .stderr(fs::File::create(&log).expect("a file can be made"));
        Node::spawn(command)
    };
    let mut node = start();
    let mut peer = node.connect();
    let before = peer.acquire("A before 600 5");
    assert!(length(&alone.journal()) > 0);
    for number in 0..3000 {
        let token = peer.acquire(&format!("A key-{number} 600 5"));
        assert_eq!(
            peer.ask(&format!("R key-{number} {token}")),
            format!("R key-{number} ok")
        );
    }
    assert!(!alone.journal().exists(), "it has missed a change");
    let said = fs::read_to_string(&log).expect("it was made");
    assert_eq!(said.matches("cannot write journal").count(), 1, "{said}");
    let metrics = look(&admin, "/metrics");
    assert!(metrics.contains("\nfairlock_state_kept 0\n"), "{metrics}");
    assert!(
        metrics.contains("\nfairlock_journal_failures_total "),
        "{metrics}"
    );
    assert!(
        !metrics.contains("\nfairlock_journal_failures_total 0\n"),
        "{metrics}"
    );
    let ready = look(&admin, "/readyz");
    assert!(
        ready.contains("ready: active, but the journal cannot be written"),
        "{ready}"
    );
    let after = peer.acquire("A after 600 5");
    // There is room again.
    prlimit(
        Some(node.pid()),
        Resource::Fsize,
        Rlimit {
            current: None,
            maximum: None,
        },
    )
    .expect("the limit was a soft one");
    let begin = Instant::now();
    while !alone.journal().exists() {
        assert!(begin.elapsed() < LIMIT, "it is not tried again");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(look(&admin, "/metrics").contains("\nfairlock_state_kept 1\n"));
    assert!(look(&admin, "/readyz").ends_with("ready: active\n"));
    let last = peer.acquire("A last 600 5");
    node.kill();
    let node = alone.start();
    let mut peer = node.connect();
    for (key, token) in [("before", before), ("after", after), ("last", last)] {
        let reply = peer.ask(&format!("I {key}"));
        assert!(
            reply.starts_with(&format!("I {key} held {token} ")),
            "{reply}"
        );
    }
    let _ = fs::remove_file(log);
}

#[test]
fn a_last_write_that_was_not_finished_is_cut_off_and_said() {
    let alone = Alone::new("restart-torn", &[]);
    let mut node = alone.start();
    let held = node.connect().acquire("A k 600 5");
    node.connect().acquire("A torn 600 5");
    node.kill();
    let whole = fs::read(alone.journal()).expect("there is one");
    fs::write(alone.journal(), &whole[..whole.len() - 5]).expect("it is ours");
    let log = alone.folder.0.with_extension("log");
    let mut command = alone.command();
    command.stderr(fs::File::create(&log).expect("a file can be made"));
    let node = Node::spawn(command);
    let mut peer = node.connect();
    assert!(peer.ask("I k").starts_with(&format!("I k held {held} ")));
    assert!(peer.ask("I torn").starts_with("I torn free "));
    let said = fs::read_to_string(&log).expect("it was made");
    assert!(said.contains("the last write was not finished; "), "{said}");
    let _ = fs::remove_file(log);
}

/// What the node says that does not start on this folder.
fn refused(alone: &Alone, arguments: &[&str]) -> String {
    let mut command = alone.command();
    command.args(arguments);
    let output = run(command);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let path = alone.journal();
    assert!(said.contains(path.to_str().expect("plain")), "{said}");
    said
}

#[test]
fn a_journal_that_cannot_be_believed_is_refused_named_and_left_untouched() {
    let alone = Alone::new("restart-refused", &[]);
    let mut node = alone.start();
    let mut peer = node.connect();
    for number in 0..20 {
        peer.acquire(&format!("A k{number} 600 5"));
    }
    node.kill();
    let good = fs::read(alone.journal()).expect("there is one");
    let term = fs::read(alone.folder.0.join("term")).expect("there is one");
    let mut damaged = good.clone();
    let middle = good.len() / 2;
    damaged[middle] ^= 1;
    let text = |bytes: &[u8]| bytes.to_vec();
    let newer = text(b"fairlock journal, version 9\nwho knows\n");
    for (bytes, why) in [
        (damaged, "good ones stand behind it"),
        (newer, "version 9"),
        (text(b""), "does not begin as a journal does"),
        (text(b"dear diary\n"), "does not begin as a journal does"),
    ] {
        fs::write(alone.journal(), &bytes).expect("it is ours");
        let said = refused(&alone, &[]);
        assert!(
            said.contains(why) && said.contains("move the file away"),
            "{said}"
        );
        assert_eq!(fs::read(alone.journal()).expect("still there"), bytes);
        assert_eq!(
            fs::read(alone.folder.0.join("term")).expect("still there"),
            term
        );
    }
    fs::write(alone.journal(), &good).expect("it is ours");
    assert!(
        alone
            .start()
            .connect()
            .ask("I k19")
            .starts_with("I k19 held ")
    );
}

#[test]
fn a_journal_of_another_node_is_refused() {
    let alone = Alone::new("restart-other", &[]);
    let cluster = fairlock_processes::cluster::Cluster::start(1);
    Peer::connect(cluster.address(0)).acquire("A k 600 5");
    fs::create_dir_all(&alone.folder.0).expect("it is ours");
    let theirs = cluster.data_dir(0).join("journal");
    let begin = Instant::now();
    while fs::copy(&theirs, alone.journal()).is_err() {
        assert!(begin.elapsed() < LIMIT, "there is no journal");
    }
    let said = refused(&alone, &[]);
    let owner = cluster.address(0).to_string();
    assert!(said.contains(&owner), "{said}");
}

#[test]
fn without_keep_state_a_restart_frees_every_lock_and_leaves_no_journal() {
    let alone = Alone::new("restart-forget", &[]);
    let mut node = alone.start();
    node.connect().acquire("A k 600 5");
    node.kill();
    let mut command = alone.command();
    command.arg("--keep-state=false");
    let mut node = Node::spawn(command);
    let mut peer = node.connect();
    assert!(peer.ask("I k").starts_with("I k free "));
    let held = peer.acquire("A k 600 5");
    assert_eq!(peer.ask(&format!("R k {held}")), "R k ok");
    assert!(!alone.journal().exists());
    node.kill();
    // What the journal would have said is not true any more.
    let reply = alone.start().connect().ask("I k");
    assert!(reply.starts_with("I k free "), "{reply}");
}
