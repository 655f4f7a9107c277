//! The one background thread of a process: it waits on the sockets of all clients, makes their connections and
//! watches their deadlines. It ends with the last client, and never keeps the process from ending.

mod alarm;
pub(crate) mod clock;
pub(crate) mod dial;
pub(crate) mod fork;
pub(crate) mod look;
pub(crate) mod socket;
#[cfg(all(test, feature = "server"))]
mod tests;

use super::address::Address;
use super::instance::Instance;
use super::session::{ConnectionId, Micros};
use crate::background;
use crate::error::{Error, ErrorKind};
use alarm::Alarm;
use dial::Dials;
use mio::event::Event;
use mio::{Events, Poll, Token, Waker};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The token of the driver's own waker.
const WAKER: Token = Token(usize::MAX);
/// The token of the driver's own alarm.
const ALARM: Token = Token(usize::MAX - 1);
/// Tokens of dials have this bit.
const DIAL: usize = 1 << (usize::BITS - 2);
/// A client's token leaves this many bits for its connections.
const CONNECTION_BITS: u32 = 10;
/// The driver reads into this buffer, for all sockets in turn.
const READ_BUFFER: usize = 64 * 1024;
/// How long it rests after what must not happen, which may happen again at once.
const REST: Duration = Duration::from_millis(10);

/// What others ask of the driver's thread.
pub(crate) enum Command {
    Adopt(Arc<Instance>),
    Dismiss(usize),
    Connect {
        client: usize,
        connection: ConnectionId,
        address: Address,
    },
    Resolved {
        client: usize,
        connection: ConnectionId,
        address: Address,
        result: Result<Vec<SocketAddr>, String>,
    },
}

/// The side of the driver that other threads see.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) registry: mio::Registry,
    waker: Waker,
    /// Until when the thread sleeps; 0 while it is awake and will look at everything before it sleeps.
    sleeping_until: AtomicU64,
    inbox: Mutex<Inbox>,
    /// Clients that have not been dismissed. Rises only while the seat is locked.
    users: AtomicUsize,
}

type Inbox = Vec<Command>;

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}

/// The driver of this process, and behind it those of the children forked from it: each process
/// has its own and never touches that of another one.
struct Link {
    generation: u32,
    seat: Mutex<Seat>,
    next: OnceLock<Box<Link>>,
}

/// Who drives at present.
struct Seat {
    driver: Option<Arc<Driver>>,
    /// The thread of that driver, or of the one before, which may be ending.
    thread: Option<JoinHandle<()>>,
}

static FIRST: Link = Link::new(0);

impl Link {
    const fn new(generation: u32) -> Link {
        Link {
            generation,
            seat: Mutex::new(Seat {
                driver: None,
                thread: None,
            }),
            next: OnceLock::new(),
        }
    }

    fn of_this_process() -> &'static Link {
        fork::watch();
        let generation = fork::generation();
        let mut link = &FIRST;
        while link.generation != generation {
            link = link.next.get_or_init(|| Box::new(Link::new(generation)));
        }
        link
    }

    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the background thread has ended, where no client is left for it to serve; asks
/// `go_on` in between. For hosts that want to see nothing in use after they have closed their clients.
pub fn wait_for_background_thread(mut go_on: impl FnMut() -> bool) {
    let link = Link::of_this_process();
    let Some(thread) = link.seat().thread.take() else {
        return;
    };
    while !thread.is_finished() {
        if !go_on() {
            // Unless a new driver has brought its own.
            link.seat().thread.get_or_insert(thread);
            return;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    // It catches every panic.
    let _ = thread.join();
}

impl Driver {
    /// The driver of this process, started if need be. It drives on at least until this client is
    /// [dismissed](Command::Dismiss).
    pub(crate) fn of_this_process() -> Result<Arc<Driver>, Error> {
        let link = Link::of_this_process();
        let mut seat = link.seat();
        if let Some(driver) = &seat.driver {
            driver.users.fetch_add(1, Ordering::SeqCst);
            return Ok(driver.clone());
        }
        let (driver, thread) = Driver::start(link).map_err(|error| {
            let text = format!("the client's background thread cannot start: {error}");
            Error::new(ErrorKind::ConnectionFailed, text)
        })?;
        seat.driver = Some(driver.clone());
        seat.thread = Some(thread);
        Ok(driver)
    }

    fn start(link: &'static Link) -> io::Result<(Arc<Driver>, JoinHandle<()>)> {
        let poll = Poll::new()?;
        let driver = Arc::new(Driver {
            registry: poll.registry().try_clone()?,
            waker: Waker::new(poll.registry(), WAKER)?,
            sleeping_until: AtomicU64::new(0),
            inbox: Mutex::default(),
            users: AtomicUsize::new(1),
        });
        let thread = Thread {
            link,
            alarm: Alarm::new(poll.registry(), ALARM)?,
            poll,
            driver: driver.clone(),
            clients: BTreeMap::new(),
            dials: Dials::default(),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            panicked: false,
        };
        let thread = background::spawn("fairlock", move || thread.run())?;
        Ok((driver, thread))
    }

    /// A number that no client of this process has had, whichever driver it had.
    pub(crate) fn new_client(&self) -> usize {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        LAST.fetch_add(1, Ordering::Relaxed)
    }

    /// The token of a client's connection.
    pub(crate) fn token(client: usize, connection: u32) -> Token {
        Token(client << CONNECTION_BITS | connection as usize)
    }

    /// The client and the place of the connection that a token stands for.
    pub(crate) fn client_and_connection(token: Token) -> (usize, u32) {
        let connection = token.0 & ((1 << CONNECTION_BITS) - 1);
        (token.0 >> CONNECTION_BITS, connection as u32)
    }

    pub(crate) fn send(&self, command: Command) {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.push(command);
        drop(inbox);
        self.wake();
    }

    /// Sees to it that the thread looks at everything before it sleeps on.
    pub(crate) fn wake(&self) {
        if self.sleeping_until.swap(0, Ordering::SeqCst) != 0 {
            // It fails only if the descriptor is gone, and that is the process's end.
            let _ = self.waker.wake();
        }
    }

    /// The same, unless the thread wakes by itself by then.
    pub(crate) fn wake_by(&self, deadline: Micros) {
        if deadline < self.sleeping_until.load(Ordering::SeqCst) {
            self.wake();
        }
    }
}

/// What only the thread has.
struct Thread {
    link: &'static Link,
    poll: Poll,
    alarm: Alarm,
    driver: Arc<Driver>,
    clients: BTreeMap<usize, Arc<Instance>>,
    dials: Dials,
    buffer: Box<[u8]>,
    /// Something has panicked in this step.
    panicked: bool,
}

thread_local! {
    static DRIVES: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is the driver's thread, on which nothing may wait for the driver.
pub(crate) fn is_this_thread() -> bool {
    DRIVES.get()
}

/// Unwinds the driver's thread in a child that one of its callbacks has forked.
struct LeftInChild;

/// A callback has forked and returned in the child. If that was the driver's thread it ends there: what it would go on with are its
/// parent's sockets, and whatever it took from them the parent would miss.
pub(crate) fn leave_in_child() {
    if is_this_thread() {
        resume_unwind(Box::new(LeftInChild));
    }
}

impl Thread {
    fn run(mut self) {
        DRIVES.set(true);
        let driven = catch_unwind(AssertUnwindSafe(|| self.drive()));
        if driven.is_err() {
            std::mem::forget(self);
        }
    }

    fn drive(&mut self) {
        let mut events = Events::with_capacity(1024);
        while !self.is_done() {
            let failed = self.step(&mut events).is_err();
            if std::mem::take(&mut self.panicked) || failed {
                std::thread::sleep(REST);
            }
        }
    }

    /// Does one thing for one client. A panic is a bug; what comes after it, and the other clients of the process, need not pay for it.
    fn apart(&mut self, what: impl FnOnce(&mut Thread)) {
        let done = catch_unwind(AssertUnwindSafe(|| what(self)));
        self.panicked |= has_panicked(done);
    }

    /// Whether the last client has gone. Then the next one starts a new driver.
    fn is_done(&self) -> bool {
        if self.has_users() {
            return false;
        }
        let mut seat = self.link.seat();
        if self.has_users() {
            return false;
        }
        seat.driver = None;
        true
    }

    fn has_users(&self) -> bool {
        self.driver.users.load(Ordering::SeqCst) > 0
    }

    fn step(&mut self, events: &mut Events) -> io::Result<()> {
        let mut timeout = self.look_around();
        if !self.has_users() {
            return Ok(());
        }
        while let Err(error) = self.poll.poll(events, timeout) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            // Perhaps the process was stopped until now: the sockets come first all the same.
            timeout = Some(Duration::ZERO);
        }
        self.driver.sleeping_until.store(0, Ordering::SeqCst);
        // Sockets before deadlines: after a standstill what has come counts before what has not.
        for event in events.iter() {
            let token = event.token();
            if token != WAKER && token != ALARM {
                self.apart(|this| this.handle_event(token, event));
            }
        }
        Ok(())
    }

    fn handle_event(&mut self, token: Token, event: &Event) {
        if token.0 & DIAL != 0 {
            return self.dials.handle_event(token, &self.driver);
        }
        let (client, index) = Driver::client_and_connection(token);
        let Some(client) = self.clients.get(&client).cloned() else {
            return;
        };
        if event.is_writable() {
            client.handle_writable(index);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            let ended = event.is_read_closed() || event.is_error();
            client.handle_readable(index, &mut self.buffer, ended);
        }
    }

    /// Does what has come up meanwhile, and says how long there is nothing to do.
    fn look_around(&mut self) -> Option<Duration> {
        loop {
            self.handle_commands();
            let now = clock::now();
            self.apart(|this| this.dials.handle_due(now, &this.driver));
            for client in self.clients.values() {
                let attended = catch_unwind(AssertUnwindSafe(|| client.attend(now)));
                self.panicked |= has_panicked(attended);
            }
            let until = self.next_deadline();
            self.driver.sleeping_until.store(until, Ordering::SeqCst);
            // What others did before they saw this is seen here; what they do now wakes the poll.
            let asked = self.clients.values().any(|client| client.wants_attention());
            let commands = !self.lock_inbox().is_empty();
            if !asked && !commands && self.next_deadline() >= until {
                if until == Micros::MAX {
                    return None;
                }
                let now = clock::now();
                self.alarm.set(until, now);
                return Some(Duration::from_micros(until.saturating_sub(now)));
            }
            self.driver.sleeping_until.store(0, Ordering::SeqCst);
        }
    }

    fn next_deadline(&self) -> Micros {
        let clients = self.clients.values().map(|client| client.deadline());
        clients
            .chain(self.dials.next_deadline())
            .min()
            .unwrap_or(Micros::MAX)
    }

    fn lock_inbox(&self) -> MutexGuard<'_, Inbox> {
        self.driver
            .inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn handle_commands(&mut self) {
        loop {
            let commands = std::mem::take(&mut *self.lock_inbox());
            if commands.is_empty() {
                return;
            }
            for command in commands {
                self.apart(|this| this.handle_command(command));
            }
        }
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Adopt(client) => {
                self.clients.insert(client.number(), client);
            }
            Command::Dismiss(client) => {
                let gone = self.clients.remove(&client);
                if gone.is_some() {
                    self.driver.users.fetch_sub(1, Ordering::SeqCst);
                }
            }
            Command::Connect {
                client,
                connection,
                address,
            } => {
                if let Some(client) = self.clients.get(&client) {
                    let client = client.clone();
                    self.dials.start(client, connection, &address, &self.driver);
                }
            }
            Command::Resolved {
                client,
                connection,
                address,
                result,
            } => {
                if let Some(client) = self.clients.get(&client) {
                    let client = client.clone();
                    self.dials
                        .resolved(client, connection, address, result, &self.driver);
                }
            }
        }
    }
}

/// Whether it was a panic, which the panic hook has already reported. What leaves this thread goes on.
fn has_panicked(ended: std::thread::Result<()>) -> bool {
    match ended {
        Ok(()) => false,
        Err(leaving) if leaving.is::<LeftInChild>() => resume_unwind(leaving),
        Err(_) => true,
    }
}
