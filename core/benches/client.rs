//! How fast the client is against a bare socket, in pairs of acquire and release a second, and what a pair
//! costs it in processor time, which is the same on a busy machine. The server runs in a process of its
//! own, so that only the network is shared:
//! `cargo bench -p fairlock --features server --bench client [-- SECONDS [ROUNDS]] [--pin CORE,CORE] [--only TEXT]`.
//!
//! Everything takes turns; printed are medians of the rounds, and of the ratios within each round. `--pin` puts
//! the client on the first of two cores and the server on the second, which may be the same. `--only` takes only those whose
//! names have this in them, for profilers.

use fairlock::{Client, Server};
use std::env;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const UNDER_WAY: usize = 256;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "serve") {
        return serve();
    }
    let mut numbers = arguments.iter().filter_map(|text| text.parse::<f64>().ok());
    let time = Duration::from_secs_f64(numbers.next().unwrap_or(1.0));
    let rounds = numbers.next().unwrap_or(5.0) as usize;
    let mut server = Command::new(env::current_exe().expect("this program has a path"))
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program runs");
    let mut address = String::new();
    let output = server.stdout.take().expect("it is piped");
    BufReader::new(output)
        .read_line(&mut address)
        .expect("the server says where it is");
    let address = address.trim();
    if let Some(place) = arguments.iter().position(|argument| argument == "--pin") {
        let cores = arguments
            .get(place + 1)
            .and_then(|text| text.split_once(','));
        let (own, other) = cores.expect("--pin takes two cores, as in 0,1");
        pin(std::process::id(), own);
        pin(server.id(), other);
    }
    let place = arguments.iter().position(|argument| argument == "--only");
    let only = place.map_or("", |place| {
        arguments.get(place + 1).map_or("", String::as_str)
    });

    compare(
        rounds,
        time,
        only,
        &[
            ("bare socket, one at a time", &|| bare(address, time)),
            ("blocking, one at a time", &|| blocking(address, time)),
            ("future, one at a time", &|| futures(address, 1, time)),
            ("callback, one at a time", &|| callbacks(address, 1, time)),
            ("threads, 16 blocking", &|| threads(address, 16, time)),
        ],
    );
    compare(
        rounds,
        time,
        only,
        &[
            ("bare socket, 256 under way", &|| {
                bare_pipelined(address, time)
            }),
            ("futures, 64 under way", &|| futures(address, 64, time)),
            ("futures, 256 under way", &|| {
                futures(address, UNDER_WAY, time)
            }),
            ("callbacks, 256 under way", &|| {
                callbacks(address, UNDER_WAY, time)
            }),
        ],
    );
    drop(server.stdin.take());
    server.wait().expect("it ends with its input");
}

fn pin(process: u32, core: &str) {
    let pinned = Command::new("taskset")
        .args(["-a", "-c", "-p", core, &process.to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(pinned.expect("taskset is there").success());
}

fn serve() {
    let server = Server::builder()
        .listen("127.0.0.1:0")
        .ephemeral()
        .start_blocking()
        .expect("a free port");
    println!("{}", server.address());
    let _ = std::io::stdin().read(&mut [0]);
}

type Target<'a> = (&'a str, &'a dyn Fn() -> f64);

/// Pairs a second of each target, in turns; the first is what the others are measured by.
fn compare(rounds: usize, time: Duration, only: &str, targets: &[Target<'_>]) {
    let wanted = targets.iter().filter(|(name, _)| name.contains(only));
    let targets: Vec<_> = wanted.collect();
    if targets.is_empty() {
        return;
    }
    let mut figures = vec![Vec::new(); targets.len()];
    for _ in 0..rounds {
        for (target, figures) in targets.iter().zip(&mut figures) {
            let before = processor_time();
            let rate = (target.1)();
            let cost = (processor_time() - before) / (rate * time.as_secs_f64());
            figures.push((rate, cost));
        }
    }
    let first = figures[0].clone();
    for ((name, _), figures) in targets.iter().zip(figures) {
        let rate = median(figures.iter().map(|(rate, _)| *rate));
        let cost = median(figures.iter().map(|(_, cost)| *cost));
        let beside = figures.iter().zip(&first);
        let ratio = median(beside.map(|((rate, _), (bare, _))| rate / bare));
        println!(
            "{name:28} {rate:>9.0} pairs/s  {ratio:>5.2} of bare {:>7.2} µs a pair",
            cost * 1e6
        );
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn bare(address: &str, time: Duration) -> f64 {
    let mut stream = TcpStream::connect(address).expect("the server is there");
    stream.set_nodelay(true).expect("a socket");
    let mut buffer = [0; 256];
    let mut ask = |line: &[u8]| {
        stream.write_all(line).expect("the server is there");
        let read = stream.read(&mut buffer).expect("an answer");
        String::from_utf8_lossy(&buffer[..read]).into_owned()
    };
    let start = Instant::now();
    let mut pairs = 0;
    while start.elapsed() < time {
        let granted = ask(b"A bench 30 0 #1\n");
        let token = granted.split(' ').nth(2).expect("a token");
        ask(format!("R bench {token} #1\n").as_bytes());
        pairs += 1;
    }
    f64::from(pairs) / start.elapsed().as_secs_f64()
}

/// What one would write by hand: one socket, and one write for all that one read asks for.
fn bare_pipelined(address: &str, time: Duration) -> f64 {
    let mut stream = TcpStream::connect(address).expect("the server is there");
    stream.set_nodelay(true).expect("a socket");
    let mut out = String::new();
    for nth in 0..UNDER_WAY {
        let _ = writeln!(out, "A bench:{nth} 30 0 #{nth}");
    }
    let mut incoming = vec![0; 64 << 10];
    let (mut held, mut pairs) = (0, 0);
    // What is under way at the end is still released: the next target finds the keys free.
    let mut under_way = UNDER_WAY;
    let start = Instant::now();
    while under_way > 0 {
        let goes_on = start.elapsed() < time;
        let sent = stream.write_all(out.as_bytes());
        sent.expect("the server is there");
        out.clear();
        held += stream.read(&mut incoming[held..]).expect("answers");
        let whole = incoming[..held].iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |last| last + 1);
        let lines = std::str::from_utf8(&incoming[..whole]).expect("they are ASCII");
        for line in lines.lines() {
            let mut fields = line.split(' ');
            let operation = fields.next().expect("a line has fields");
            let key = fields.next().expect("a key");
            let token = fields.next().expect("a token, or ok");
            let tag = fields.next().expect("the tag");
            if operation == "A" {
                let _ = writeln!(out, "R {key} {token} {tag}");
                continue;
            }
            pairs += 1;
            if goes_on {
                let _ = writeln!(out, "A {key} 30 0 {tag}");
            } else {
                under_way -= 1;
            }
        }
        incoming.copy_within(whole..held, 0);
        held -= whole;
    }
    f64::from(pairs) / start.elapsed().as_secs_f64()
}

fn blocking(address: &str, time: Duration) -> f64 {
    let client = Client::new(address).expect("an address");
    client.connected().call().expect("the server is there");
    let start = Instant::now();
    let mut pairs = 0;
    while start.elapsed() < time {
        let lock = client.acquire("bench").call().expect("free");
        lock.release().call().expect("held");
        pairs += 1;
    }
    f64::from(pairs) / start.elapsed().as_secs_f64()
}

fn threads(address: &str, count: usize, time: Duration) -> f64 {
    let client = Client::new(address).expect("an address");
    client.connected().call().expect("the server is there");
    let start = Instant::now();
    let threads: Vec<_> = (0..count)
        .map(|nth| {
            let client = client.clone();
            std::thread::spawn(move || {
                let key = format!("bench:{nth}");
                let mut pairs = 0;
                while start.elapsed() < time {
                    let lock = client.acquire(&key).call().expect("free");
                    lock.release().call().expect("held");
                    pairs += 1;
                }
                pairs
            })
        })
        .collect();
    let pairs: u32 = threads
        .into_iter()
        .map(|thread| thread.join().expect("it does not panic"))
        .sum();
    f64::from(pairs) / start.elapsed().as_secs_f64()
}

fn futures(address: &str, depth: usize, time: Duration) -> f64 {
    let client = Client::new(address).expect("an address");
    client.connected().call().expect("the server is there");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let start = Instant::now();
    let pairs: u32 = runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for nth in 0..depth {
            let client = client.clone();
            tasks.spawn(async move {
                let key = format!("bench:{nth}");
                let mut pairs = 0;
                while start.elapsed() < time {
                    let lock = client.acquire(&key).await.expect("free");
                    lock.release().await.expect("held");
                    pairs += 1;
                }
                pairs
            });
        }
        tasks.join_all().await.into_iter().sum()
    });
    f64::from(pairs) / start.elapsed().as_secs_f64()
}

fn callbacks(address: &str, depth: usize, time: Duration) -> f64 {
    let client = Client::new(address).expect("an address");
    client.connected().call().expect("the server is there");
    let start = Instant::now();
    let (told, done) = std::sync::mpsc::channel();
    for nth in 0..depth {
        again(client.clone(), nth, 0, start, time, told.clone());
    }
    drop(told);
    let pairs: u32 = done.iter().sum();
    f64::from(pairs) / start.elapsed().as_secs_f64()
}

fn again(
    client: Client,
    nth: usize,
    pairs: u32,
    start: Instant,
    time: Duration,
    told: std::sync::mpsc::Sender<u32>,
) {
    if start.elapsed() >= time {
        told.send(pairs).expect("the bench waits");
        return;
    }
    let next = client.clone();
    let acquire = client.acquire(format!("bench:{nth}"));
    acquire.submit(move |lock| {
        let lock = lock.expect("free");
        lock.release().submit(move |released| {
            released.expect("held");
            again(next, nth, pairs + 1, start, time, told);
        });
    });
}
