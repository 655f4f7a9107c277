//! The event loop of a host language as a reader of sockets. A loop that is about to sleep anyway can wait for the sockets of
//! its clients too: no other thread has to be woken to read, and none has to wake the loop with the answer.
//!
//! The driver takes the sockets back when the loop has not come by for a while, so a loop that is blocked holds up neither renewals nor
//! anything else. A socket may be watched by both; who comes first reads.

use super::driver::{Driver, fork};
use super::instance::Instance;
use mio::{Events, Poll};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

/// One turn of the loop reads so much of a socket at a time.
const READ_BUFFER: usize = 64 * 1024;

/// Lets an event loop read for its clients: for bindings of languages that have one.
///
/// Give it to [`ClientBuilder::event_loop`](super::ClientBuilder::event_loop), let the loop watch the descriptor, and
/// call [`turn`](Self::turn) whenever that is readable. Callbacks of operations then come on the loop's thread; they come on the client's own
/// thread where the loop was late.
pub struct EventLoop {
    generation: u32,
    descriptor: RawFd,
    pub(super) registry: mio::Registry,
    reading: Mutex<Reading>,
    writing: Mutex<Writing>,
    clients: Mutex<BTreeMap<usize, Weak<Instance>>>,
    retired: AtomicBool,
}

struct Reading {
    poll: Poll,
    events: Events,
    buffer: Box<[u8]>,
}

/// What is started during a turn is written at its end, all that goes to one socket at once.
#[derive(Default)]
struct Writing {
    turning: bool,
    clients: Vec<Weak<Instance>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EventLoop {
    /// A descriptor to watch, and nothing behind it yet.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<EventLoop> {
        fork::watch();
        let poll = Poll::new()?;
        Ok(EventLoop {
            generation: fork::generation(),
            descriptor: poll.as_raw_fd(),
            registry: poll.registry().try_clone()?,
            reading: Mutex::new(Reading {
                poll,
                events: Events::with_capacity(256),
                buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            }),
            writing: Mutex::default(),
            clients: Mutex::default(),
            retired: AtomicBool::new(false),
        })
    }

    /// Reads what has come and runs the callbacks of what is done by it, runs `then`, and writes what was started meanwhile.
    pub fn turn(&self, then: impl FnOnce()) {
        let end = EndOfTurn(self);
        self.begin_turn();
        then();
        drop(end);
    }

    /// The first half of a [`turn`](Self::turn), for loops that run what follows from the callbacks only after they have returned.
    /// What is started from now on is written by [`end_turn`](Self::end_turn), or by the client's own thread if that is late.
    pub fn begin_turn(&self) {
        if self.is_of_this_process() && self.reads() {
            // What the descriptor of another process tells of belongs to that one, and is left to it.
            locked(&self.writing).turning = true;
            self.read();
        }
    }

    /// The second half of a turn.
    pub fn end_turn(&self) {
        if !self.is_of_this_process() {
            return;
        }
        let clients = {
            let mut writing = locked(&self.writing);
            writing.turning = false;
            std::mem::take(&mut writing.clients)
        };
        for client in clients.iter().filter_map(Weak::upgrade) {
            client.write_lines();
        }
    }

    /// The loop turns no more: from now on the clients' own thread reads for them alone.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
        self.end_turn();
    }

    /// Whether the loop still turns.
    pub(super) fn reads(&self) -> bool {
        !self.retired.load(Ordering::SeqCst)
    }

    fn read(&self) {
        let mut reading = match self.reading.try_lock() {
            Ok(reading) => reading,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            // A turn within a callback of another turn, which reads on when that returns.
            Err(TryLockError::WouldBlock) => return,
        };
        let Reading {
            poll,
            events,
            buffer,
        } = &mut *reading;
        if poll.poll(events, Some(Duration::ZERO)).is_err() {
            // Interrupted: what is readable still is at the next turn.
            return;
        }
        for event in events.iter() {
            let (number, index) = Driver::client_and_connection(event.token());
            let client = locked(&self.clients).get(&number).and_then(Weak::upgrade);
            if let Some(client) = client {
                let ended = event.is_read_closed() || event.is_error();
                client.handle_readable_by_loop(index, buffer, ended);
            }
        }
    }

    /// Whether this is the process in which it was made; elsewhere the descriptor belongs to the parent.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.generation == fork::generation()
    }

    pub(super) fn adopt(&self, client: &Arc<Instance>) {
        locked(&self.clients).insert(client.number(), Arc::downgrade(client));
    }

    pub(super) fn dismiss(&self, client: usize) {
        locked(&self.clients).remove(&client);
    }

    /// Leaves what `client` has to write to the end of the turn. False if there is none.
    pub(super) fn defer(&self, client: usize) -> bool {
        let mut writing = locked(&self.writing);
        if !writing.turning {
            return false;
        }
        let clients = locked(&self.clients);
        let Some(client) = clients.get(&client) else {
            return false;
        };
        if !writing.clients.iter().any(|known| known.ptr_eq(client)) {
            writing.clients.push(client.clone());
        }
        true
    }
}

/// Ends a turn, also one that unwinds.
struct EndOfTurn<'a>(&'a EventLoop);

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        self.0.end_turn();
    }
}

impl AsRawFd for EventLoop {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor
    }
}

impl fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop")
            .field("descriptor", &self.descriptor)
            .finish_non_exhaustive()
    }
}
