//! A scheduled job that must run once: the same schedule wakes three workers, as it would on three
//! machines. Each takes the lock; the first one runs the job and leaves a note that it has; the others
//! find the note. A worker that dies on the way leaves no note, and the next one runs the job.

use fairlock::{Client, Error, blocking};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// Stands for a row in the database, or a file beside the report. Only the holder touches it.
static RUNS: AtomicU32 = AtomicU32::new(0);

fn worker() -> Result<(), Error> {
    let client = blocking::Client::from(Client::builder().build()?);
    let lock = client.acquire_with("example:nightly-report", |acquire| {
        // However long the job takes.
        acquire.lease(Duration::from_secs(10)).keep_alive()
    })?;
    if RUNS.load(SeqCst) > 0 {
        println!("nightly report: has run already, nothing to do");
    } else {
        println!("nightly report: running it");
        RUNS.fetch_add(1, SeqCst);
    }
    lock.release()?;
    Ok(())
}

fn main() -> Result<(), Error> {
    let workers: Vec<_> = (0..3).map(|_| thread::spawn(worker)).collect();
    for worker in workers {
        worker.join().expect("a worker does not panic")?;
    }
    println!("runs: {}", RUNS.load(SeqCst));
    Ok(())
}
