//! What `bench.c` does, through the Rust client: the measure for the C interface.

use fairlock::{Client, Error, Lock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const UNDER_WAY: usize = 256;

fn one_at_a_time(client: &Client, time: Duration) -> Result<f64, Error> {
    let begun = Instant::now();
    let mut pairs = 0u64;
    while begun.elapsed() < time {
        client.acquire("bench:one").call()?.release().call()?;
        pairs += 1;
    }
    Ok(pairs as f64 / begun.elapsed().as_secs_f64())
}

struct Crowd {
    client: Client,
    begun: Instant,
    time: Duration,
    over: AtomicBool,
    pairs: AtomicU64,
    left: mpsc::Sender<()>,
}

/// One pair, and then the next one.
fn ask(crowd: Arc<Crowd>, key: String) {
    let acquire = crowd.client.acquire(&key);
    acquire.submit(move |lock: Result<Lock, Error>| {
        let lock = lock.expect("the server grants every free key");
        lock.release().submit(move |released| {
            released.expect("the server confirms every release");
            let pairs = crowd.pairs.fetch_add(1, Relaxed) + 1;
            if pairs.is_multiple_of(64) && crowd.begun.elapsed() >= crowd.time {
                crowd.over.store(true, Relaxed);
            }
            if crowd.over.load(Relaxed) {
                // The main thread has gone only if it has failed.
                let _ = crowd.left.send(());
            } else {
                ask(crowd, key);
            }
        });
    });
}

fn callbacks(client: &Client, time: Duration) -> f64 {
    let (sender, left) = mpsc::channel();
    let crowd = Arc::new(Crowd {
        client: client.clone(),
        begun: Instant::now(),
        time,
        over: AtomicBool::new(false),
        pairs: AtomicU64::new(0),
        left: sender,
    });
    for slot in 0..UNDER_WAY {
        ask(crowd.clone(), format!("bench:{slot}"));
    }
    for _ in 0..UNDER_WAY {
        left.recv().expect("a sender is in the crowd");
    }
    crowd.pairs.load(Relaxed) as f64 / crowd.begun.elapsed().as_secs_f64()
}

fn main() -> Result<(), Error> {
    let seconds = std::env::args()
        .nth(2)
        .and_then(|text| text.parse().ok())
        .unwrap_or(1.0);
    let time = Duration::from_secs_f64(seconds);
    let client = Client::builder().build()?;
    client.connected().call()?;
    println!("one_at_a_time {:.0}", one_at_a_time(&client, time)?);
    println!("callbacks {:.0}", callbacks(&client, time));
    client.close().call()
}
