//! The event loop of a host language as a reader of sockets. A loop that is about to sleep anyway can wait for the sockets of
//! its clients too: no other thread has to be woken to read, and none has to wake the loop with the answer.
//!
//! The loop is lent the sockets only when it has just turned, and the driver takes them back when it has not turned for a while, whatever
//! is started meanwhile: so a loop that is blocked holds up neither renewals nor anything else. A socket may be watched by both; who comes first
//! reads.

use super::driver::{Driver, clock, fork};
use super::instance::Instance;
use super::session::Micros;
use mio::{Events, Poll, Token, Waker};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

/// The token of the loop's own waker.
const WAKER: Token = Token(usize::MAX);
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
    /// How many turns have begun, when the last of them did, and on which thread.
    turns: AtomicU64,
    turned_at: AtomicU64,
    thread: AtomicUsize,
    waker: Waker,
    /// It has been called, and has not turned since.
    called: AtomicBool,
    retired: AtomicBool,
}

struct Reading {
    poll: Poll,
    events: Events,
    buffer: Box<[u8]>,
}

/// What is started during a turn, on its thread, is written at its end, all that goes to one socket at once.
#[derive(Default)]
struct Writing {
    /// The thread of the turn that goes on.
    turning: Option<usize>,
    clients: Vec<Weak<Instance>>,
}

/// A number that no other thread has, as long as this one lives; never zero. Cheaper than what the standard library calls a thread.
fn this_thread() -> usize {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    PLACE.with(|place| std::ptr::from_ref(place).addr())
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
            waker: Waker::new(poll.registry(), WAKER)?,
            called: AtomicBool::new(false),
            reading: Mutex::new(Reading {
                poll,
                events: Events::with_capacity(256),
                buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            }),
            writing: Mutex::default(),
            clients: Mutex::default(),
            turns: AtomicU64::new(0),
            turned_at: AtomicU64::new(0),
            thread: AtomicUsize::new(0),
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
            locked(&self.writing).turning = Some(this_thread());
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
            writing.turning = None;
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

    /// The number of the latest turn, if this is the thread of the loop and it is to turn again.
    pub(super) fn turn_of_this_thread(&self) -> Option<u64> {
        let here = self.reads() && self.thread.load(Ordering::SeqCst) == this_thread();
        here.then(|| self.turns.load(Ordering::SeqCst))
    }

    /// Has the loop turn once, so that it shows that it does.
    pub(super) fn call(&self) {
        if !self.called.load(Ordering::SeqCst) && !self.called.swap(true, Ordering::SeqCst) {
            // It fails only if the descriptor is gone, and then the driver reads.
            let _ = self.waker.wake();
        }
    }

    /// When the latest turn began.
    pub(super) fn turned_at(&self) -> Micros {
        self.turned_at.load(Ordering::SeqCst)
    }

    /// Whether the loop still turns.
    fn reads(&self) -> bool {
        !self.retired.load(Ordering::SeqCst)
    }

    fn read(&self) {
        let mut reading = match self.reading.try_lock() {
            Ok(reading) => reading,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            // A turn within a callback of another turn, which reads on when that returns.
            Err(TryLockError::WouldBlock) => return,
        };
        self.thread.store(this_thread(), Ordering::SeqCst);
        self.turned_at.store(clock::now(), Ordering::SeqCst);
        self.turns.fetch_add(1, Ordering::SeqCst);
        self.called.store(false, Ordering::SeqCst);
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
            if event.token() == WAKER {
                continue;
            }
            let (number, index) = Driver::client_and_connection(event.token());
            let client = locked(&self.clients).get(&number).and_then(Weak::upgrade);
            if let Some(client) = client {
                let ended = event.is_read_closed() || event.is_error();
                client.handle_readable_by_loop(index, buffer, ended);
            }
            if !self.is_of_this_process() {
                // A callback has forked, and this is the child.
                return;
            }
        }
    }

    /// Whether this is the process in which it was made; elsewhere the descriptor belongs to the parent.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.generation == fork::generation()
    }

    pub(super) fn adopt(&self, client: &Arc<Instance>) {
        locked(&self.clients).insert(client.number(), Arc::downgrade(client));
        self.call();
    }

    pub(super) fn dismiss(&self, client: usize) {
        locked(&self.clients).remove(&client);
    }

    /// Leaves what `client` has to write to the end of the turn. False if this thread is in none.
    pub(super) fn defer(&self, client: usize) -> bool {
        let mut writing = locked(&self.writing);
        if writing.turning != Some(this_thread()) {
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
