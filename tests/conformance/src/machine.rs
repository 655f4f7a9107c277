//! Watches whether the machine gives this process its time. A play that went wrong while it did not proves nothing and
//! is played again.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(10);

/// Plays allow for less than this.
const STOOD_STILL: Duration = Duration::from_millis(100);

/// The moments at which this process had stood still.
pub(crate) struct Machine {
    moments: Mutex<Vec<Instant>>,
}

impl Machine {
    /// Begins to watch, until the process ends.
    pub(crate) fn watch() -> &'static Machine {
        let machine: &Machine = Box::leak(Box::new(Machine {
            moments: Mutex::default(),
        }));
        thread::spawn(move || {
            loop {
                let begin = Instant::now();
                thread::sleep(EVERY);
                if begin.elapsed() > EVERY + STOOD_STILL {
                    let mut moments = machine.moments.lock().expect("no holder panics");
                    moments.push(Instant::now());
                }
            }
        });
        machine
    }

    /// Whether it stood still between then and now.
    pub(crate) fn stood_still_since(&self, begin: Instant) -> bool {
        let moments = self.moments.lock().expect("no holder panics");
        moments.last().is_some_and(|last| *last >= begin)
    }
}
