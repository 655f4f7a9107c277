//! Watches whether the machine gives this process and the drivers their time. A play that went wrong while it did not proves nothing and
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

    /// Whether this process stood still since then, or the machine has been so busy that a driver may have.
    pub(crate) fn was_busy_since(&self, begin: Instant) -> bool {
        let moments = self.moments.lock().expect("no holder panics");
        moments.last().is_some_and(|last| *last >= begin) || processes_wait()
    }
}

/// Whether somebody had to wait for a processor for more than half of the last ten seconds, where the system tells.
fn processes_wait() -> bool {
    let pressure = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let share = pressure
        .split_whitespace()
        .find_map(|field| field.strip_prefix("avg10=")?.parse::<f64>().ok());
    share.is_some_and(|percent| percent > 50.0)
}
