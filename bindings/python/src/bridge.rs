//! What connects one event loop with the background thread of the core.
//!
//! A finished operation puts its outcome into a list and, if the list was empty, writes one byte to a socket
//! that the loop watches; the loop then settles all futures of the list in one go. The background thread never
//! takes the GIL, so it cannot be held up by Python, nor stand in the way of an interpreter that ends.
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
use crate::border::lock;
use crate::error;
use crate::lock::OnLost;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

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
    /// Nothing once the bridge is gone: what comes later is dropped, and a lock in it thereby released.
    events: Mutex<Option<Vec<Event>>>,
    bell: UnixStream,
}

impl Shared {
    fn push(&self, event: Event) {
        let mut open = lock(&self.events);
        let Some(events) = &mut *open else {
            // Out of the lock before the event is dropped, which may make more of them.
            drop(open);
            return;
        };
        let first = events.is_empty();
        events.push(event);
        drop(open);
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
                events: Mutex::new(Some(Vec::new())),
                bell,
            }),
            ear,
            waiting: Mutex::default(),
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
        let events = lock(&self.shared.events).as_mut().map(std::mem::take);
        let mut failed = Ok(());
        for event in events.into_iter().flatten() {
            match event {
                Event::Call(call) => call(py),
                Event::Done(place, outcome) => {
                    let expected = lock(&self.waiting).remove(place);
                    if let Some(expected) = expected {
                        // A future that cannot be settled must not keep the others from it.
                        failed = self.settle(py, expected, outcome).and(failed);
                    }
                }
            }
        }
        failed
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

    /// Settles one future. Who had given up its future by then gets nothing: the value is dropped, and a lock in it
    /// thereby released.
    fn settle(&self, py: Python<'_>, expected: Expected, outcome: Outcome) -> PyResult<()> {
        let future = expected.future.bind(py);
        if future.call_method0(intern!(py, "done"))?.is_truthy()? {
            return Ok(());
        }
        let wish = expected.wish;
        match outcome(Settling {
            py,
            bridge: self,
            wish,
        }) {
            Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
            Err(error) => future.call_method1(intern!(py, "set_exception"), (error,))?,
        };
        Ok(())
    }

    /// A way to have something called on the loop's thread, from any thread.
    pub(crate) fn caller(&self) -> Caller {
        Caller(self.shared.clone())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let left = lock(&self.shared.events).take();
        drop(left);
    }
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
