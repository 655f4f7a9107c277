//! How fast the client is against a bare socket, in pairs of acquire and release a second, and what a pair
//! costs it in processor time, which is the same on a busy machine. The server runs in a process of its
//! own, so that only the network is shared:
//! `cargo bench -p fairlock --features server --bench client [-- SECONDS]`.

use fairlock::{Client, Server};
use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn main() {
    if env::args().any(|argument| argument == "serve") {
        return serve();
    }
    let seconds = env::args()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(2.0);
    let time = Duration::from_secs_f64(seconds);
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

    for round in 1..=3 {
        println!("round {round}");
        let one = measure("bare socket, one at a time", None, || bare(address, time));
        let one = Some(one);
        measure("blocking, one at a time", one, || blocking(address, time));
        measure("future, one at a time", one, || futures(address, 1, time));
        measure("callback, one at a time", one, || {
            callbacks(address, 1, time)
        });
        for depth in [64, 256] {
            let name = format!("futures, {depth} under way");
            measure(&name, one, || futures(address, depth, time));
            let name = format!("callbacks, {depth} under way");
            measure(&name, one, || callbacks(address, depth, time));
        }
        measure("threads, 16 blocking", one, || threads(address, 16, time));
    }
    drop(server.stdin.take());
    server.wait().expect("it ends with its input");
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

/// Pairs a second, each of which has cost the client so many microseconds.
fn measure(name: &str, bare: Option<f64>, run: impl FnOnce() -> f64) -> f64 {
    let start = Instant::now();
    let before = processor_time();
    let rate = run();
    let cost = processor_time() - before;
    let pair = cost / (rate * start.elapsed().as_secs_f64());
    println!(
        "  {name:28} {rate:>9.0} pairs/s {:>9.0} requests/s {:>6.2} of bare {:>7.2} µs a pair",
        2.0 * rate,
        rate / bare.unwrap_or(rate),
        pair * 1e6
    );
    rate
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
