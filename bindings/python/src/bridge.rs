//! What connects one event loop with the background thread of the core.
//!
//! A finished operation puts its outcome into a list and, if the list was empty, writes one byte to a socket
//! that the loop watches; the loop then settles all futures of the list in one go. The background thread never
//! takes the GIL, so it cannot be held up by Python, nor stand in the way of an interpreter that ends.
//!
//! Clients that are made on a running loop are read by that loop itself: their sockets wake it, and no thread is between
//! them. Only if the loop is late, or for clients made elsewhere, the background thread reads.
//!
//! ```text
//!   start_*() ──▶ core ──▶ background thread ──▶ Reply::send ──▶ list ──▶ drain() ──▶ future.set_result()
//!   (loop)                                                  └─▶ byte ──▶ loop's reader ─┘
//! ```
//!
//! A bridge is owned by the loop's reader alone and knows its loop only through the futures under way, which the
//! garbage collector can see. So a loop that is closed or forgotten takes its bridge, its waiting tasks and
//! thereby their requests with it.

use crate::arguments::KeyObject;
use crate::border::{guard, lock};
use crate::error;
use crate::lock::OnLost;
use crate::outward;
use fairlock::EventLoop;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Makes the Python value of an outcome, on the loop's thread.
type Outcome = Box<dyn FnOnce(Settling<'_, '_>) -> PyResult<Py<PyAny>> + Send>;

/// What is at hand when an outcome becomes a value. No outcome brings a bridge along: one that is never fetched
/// would keep its own bridge, and whatever lock it holds, for ever.
pub(crate) struct Settling<'a, 'py> {
    pub(crate) py: Python<'py>,
    pub(crate) bridge: &'a Bridge,
    wish: Option<Wish>,
}

impl Settling<'_, '_> {
    /// What the acquire left here when it was started.
    pub(crate) fn into_wish(self) -> Wish {
        self.wish
            .expect("an acquire leaves its wish with its future")
    }
}

/// What the lock to come is to know.
pub(crate) struct Wish {
    pub(crate) key: KeyObject,
    pub(crate) on_lost: Option<OnLost>,
}

/// A future under way. All its Python objects stay here, where the GIL is, and none travels to another thread.
struct Expected {
    future: Py<PyAny>,
    wish: Option<Wish>,
}

/// What the loop has to do for one operation.
enum Event {
    /// Settle its future.
    Done(usize, Outcome),
    /// Call something that is not awaited, such as `on_lost`.
    Call(Box<dyn FnOnce(Python<'_>) + Send>),
}

/// The part of a bridge that the background thread sees. No Python object is in it.
struct Shared {
    inbox: Mutex<Inbox>,
    bell: UnixStream,
}

#[derive(Default)]
struct Inbox {
    events: Vec<Event>,
    /// The loop is about to look anyway.
    awaited: bool,
    /// The bridge is gone: what comes is dropped, and a lock in it thereby released.
    closed: bool,
}

impl Shared {
    fn push(&self, event: Event) {
        let mut inbox = lock(&self.inbox);
        if inbox.closed {
            // Out of the lock before the event is dropped, which may make more of them.
            drop(inbox);
            return;
        }
        let first = inbox.events.is_empty() && !inbox.awaited;
        inbox.events.push(event);
        drop(inbox);
        if first {
            // It can only fail for want of a reader, and then nobody waits, or for want of room, and then a byte is there.
            let _ = (&self.bell).write(&[1]);
        }
    }
}

/// One event loop's end of the asynchronous calls.
#[pyclass(frozen, weakref, module = "fairlock._fairlock")]
pub(crate) struct Bridge {
    shared: Arc<Shared>,
    ear: UnixStream,
    waiting: Mutex<Waiting>,
    event_loop: OnceLock<Arc<EventLoop>>,
    /// The process that it was made in.
    generation: u32,
    /// The next turn panics, for the tests.
    #[cfg(debug_assertions)]
    panics: AtomicBool,
}

/// The futures under way. A place is used again once its reply has come, and each reply comes exactly once.
#[derive(Default)]
struct Waiting {
    places: Vec<Option<Expected>>,
    free: Vec<usize>,
}

impl Waiting {
    fn insert(&mut self, expected: Expected) -> usize {
        let place = self.free.pop().unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(None);
        }
        self.places[place] = Some(expected);
        place
    }

    fn remove(&mut self, place: usize) -> Option<Expected> {
        self.free.push(place);
        self.places.get_mut(place)?.take()
    }
}

#[pymethods]
impl Bridge {
    #[new]
    fn new() -> io::Result<Bridge> {
        let (bell, ear) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ear.set_nonblocking(true)?;
        Ok(Bridge {
            shared: Arc::new(Shared {
                inbox: Mutex::default(),
                bell,
            }),
            ear,
            waiting: Mutex::default(),
            event_loop: OnceLock::new(),
            generation: fairlock::fork_generation(),
            #[cfg(debug_assertions)]
            panics: AtomicBool::new(false),
        })
    }

    /// What the loop watches; when it is readable, `drain` is due.
    fn fileno(&self) -> i32 {
        self.ear.as_raw_fd()
    }

    /// Settles the futures of all operations that have ended.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        // First the byte, then the list: what comes in between is in the list, or rings again.
        let _ = (&self.ear).read(&mut [0; 16]);
        self.settle_all(py).map(drop)
    }

    /// A descriptor of the sockets of clients that this loop reads for: when it is readable, `turn` is due. `None` if the
    /// loop watches it already.
    fn watch(&self) -> PyResult<Option<i32>> {
        if self.event_loop.get().is_some() {
            return Ok(None);
        }
        let event_loop = self.event_loop.get_or_init({
            let event_loop = Arc::new(EventLoop::new()?);
            || event_loop
        });
        Ok(Some(event_loop.as_raw_fd()))
    }

    /// Reads for the clients of this loop, and settles the futures of what has ended. The tasks that go on then, and what they
    /// ask for, come before `end_turn`, which writes all of that at once.
    fn turn(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, bridge) = (slf.py(), slf.get());
        guard(py, || {
            let Some(event_loop) = bridge.event_loop.get() else {
                return Ok(());
            };
            // Nothing that goes wrong here may leave the turn open.
            let end = EndOfTurn(event_loop);
            let read = bridge.read(py, event_loop);
            let settled = bridge.settle_all(py);
            if !matches!(settled, Ok(0)) {
                let end_turn = slf.getattr(intern!(py, "end_turn"))?;
                outward::call_method(
                    &running_loop(py)?,
                    intern!(py, "call_soon"),
                    Some(&end_turn),
                )?;
                std::mem::forget(end);
            }
            read.and(settled.map(drop))
        })
    }

    /// Writes what the clients of this loop were asked for since the turn began.
    fn end_turn(&self, py: Python<'_>) -> PyResult<()> {
        guard(py, || {
            if let Some(event_loop) = self.event_loop.get() {
                event_loop.end_turn();
            }
            Ok(())
        })
    }

    /// For the tests: the next turn panics.
    #[cfg(debug_assertions)]
    fn _panic(&self) {
        self.panics.store(true, Ordering::SeqCst);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Held by somebody else only without the GIL's protection, and then the next round of collection will see it.
        if let Ok(waiting) = self.waiting.try_lock() {
            for Expected { future, wish } in waiting.places.iter().flatten() {
                visit.call(future)?;
                if let Some(Wish {
                    on_lost: Some(OnLost(callback)),
                    ..
                }) = wish
                {
                    visit.call(callback)?;
                }
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        // Out of the lock before they are dropped: that can run any code, this bridge's included.
        let dropped: Vec<_> = lock(&self.waiting)
            .places
            .iter_mut()
            .map(Option::take)
            .collect();
        drop(dropped);
    }
}

impl Bridge {
    /// Keeps `future` until the reply is sent.
    pub(crate) fn expect(&self, future: Py<PyAny>, wish: Option<Wish>) -> Reply {
        Reply {
            shared: self.shared.clone(),
            place: Some(lock(&self.waiting).insert(Expected { future, wish })),
            unsent: |py| Err(error::internal(py, "an operation ended without an answer")),
        }
    }

    /// Begins a turn. What ends in it rings no bell: whoever calls this looks at the list afterwards, also after a panic.
    fn read(&self, py: Python<'_>, event_loop: &EventLoop) -> PyResult<()> {
        lock(&self.shared.inbox).awaited = true;
        let read = guard(py, || {
            event_loop.begin_turn();
            #[cfg(debug_assertions)]
            assert!(!self.panics.swap(false, Ordering::SeqCst), "on purpose");
            Ok(())
        });
        lock(&self.shared.inbox).awaited = false;
        read
    }

    /// Settles one future. Who had given up its future by then gets nothing: the value is dropped, and a lock in it
    /// thereby released.
    fn settle(&self, py: Python<'_>, expected: Expected, outcome: Outcome) -> PyResult<()> {
        let future = expected.future.bind(py);
        if outward::call_method(future, intern!(py, "done"), None)?.is_truthy()? {
            return Ok(());
        }
        let wish = expected.wish;
        match outcome(Settling {
            py,
            bridge: self,
            wish,
        }) {
            Ok(value) => {
                outward::call_method(future, intern!(py, "set_result"), Some(value.bind(py)))?
            }
            Err(error) => outward::call_method(
                future,
                intern!(py, "set_exception"),
                Some(error.value(py).as_any()),
            )?,
        };
        Ok(())
    }

    /// What reads for clients that are made on this loop, if it does.
    pub(crate) fn event_loop(&self) -> Option<Arc<EventLoop>> {
        self.event_loop.get().cloned()
    }

    /// Settles what has ended, and says how much that was.
    fn settle_all(&self, py: Python<'_>) -> PyResult<usize> {
        let events = std::mem::take(&mut lock(&self.shared.inbox).events);
        let mut settled = Ok(events.len());
        for event in events {
            match event {
                Event::Call(call) => {
                    if let Err(error) = guard(py, || {
                        call(py);
                        Ok(())
                    }) {
                        settled = Err(error);
                    }
                }
                Event::Done(place, outcome) => {
                    let expected = lock(&self.waiting).remove(place);
                    if let Some(expected) = expected
                        && let Err(error) = guard(py, || self.settle(py, expected, outcome))
                    {
                        // A future that cannot be settled must not keep the others from it.
                        settled = Err(error);
                    }
                }
            }
        }
        settled
    }

    /// A way to have something called on the loop's thread, from any thread.
    pub(crate) fn caller(&self) -> Caller {
        Caller(self.shared.clone())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if self.generation != fairlock::fork_generation() {
            // The parent's, perhaps copied while its list was locked: nothing of it is touched.
            return;
        }
        if let Some(event_loop) = self.event_loop.get() {
            event_loop.retire();
        }
        let mut inbox = lock(&self.shared.inbox);
        inbox.closed = true;
        let left = std::mem::take(&mut inbox.events);
        drop(inbox);
        drop(left);
    }
}

/// Ends a turn at once.
struct EndOfTurn<'a>(&'a EventLoop);

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        self.0.end_turn();
    }
}

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    GET.import(py, "asyncio", "get_running_loop")?.call0()
}

/// The answer that one operation owes its future. Dropped unsent, it says so: no task waits for ever.
pub(crate) struct Reply {
    shared: Arc<Shared>,
    place: Option<usize>,
    unsent: fn(Python<'_>) -> PyResult<Py<PyAny>>,
}

impl Reply {
    /// Dropped unsent, the answer is to be `None`.
    pub(crate) fn or_none(mut self) -> Reply {
        self.unsent = |py| Ok(py.None());
        self
    }

    /// Has the future settled by what `outcome` gives, on the loop's thread.
    pub(crate) fn send(
        mut self,
        outcome: impl FnOnce(Settling<'_, '_>) -> PyResult<Py<PyAny>> + Send + 'static,
    ) {
        if let Some(place) = self.place.take() {
            self.shared.push(Event::Done(place, Box::new(outcome)));
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let unsent = self.unsent;
        if let Some(place) = self.place.take() {
            self.shared.push(Event::Done(
                place,
                Box::new(move |settling| unsent(settling.py)),
            ));
        }
    }
}

/// Calls something on the loop's thread.
pub(crate) struct Caller(Arc<Shared>);

impl Caller {
    pub(crate) fn call(&self, call: impl FnOnce(Python<'_>) + Send + 'static) {
        self.0.push(Event::Call(Box::new(call)));
    }
}
