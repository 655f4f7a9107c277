//! A client that does nothing wrong while others do: it acquires and releases a key of its own, once a millisecond, and
//! knows how long each pair took.

use crate::{Node, Peer, token};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// See the [module](self).
pub struct Bystander {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

/// What a bystander had to wait for a pair.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// How many pairs there were.
    pub pairs: usize,
    /// The middle one.
    pub median: Duration,
    /// One in a hundred took longer.
    pub p99: Duration,
    /// The longest.
    pub worst: Duration,
}

impl Bystander {
    /// Begins.
    #[must_use]
    pub fn start(node: &Node) -> Bystander {
        Bystander::over(node.connect())
    }

    /// Begins on a connection that is there already.
    #[must_use]
    pub fn over(mut peer: Peer) -> Bystander {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut waits = Vec::new();
            while !stopped.load(Ordering::Relaxed) || waits.is_empty() {
                let begin = Instant::now();
                let held = token(&peer.ask("A bystander 600 5"));
                assert_eq!(peer.ask(&format!("R bystander {held}")), "R bystander ok");
                waits.push(begin.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
            waits
        });
        Bystander { stop, thread }
    }

    /// Ends it, and says what it saw under the name of what the others did.
    #[must_use]
    pub fn finish(self, what: &str) -> Waits {
        self.stop.store(true, Ordering::Relaxed);
        let mut waits = self.thread.join().expect("the bystander was served");
        waits.sort_unstable();
        let at = |hundredths: usize| waits[(waits.len() - 1) * hundredths / 100];
        let waits = Waits {
            pairs: waits.len(),
            median: at(50),
            p99: at(99),
            worst: at(100),
        };
        println!("{what}: a bystander saw {waits:?}");
        waits
    }
}
