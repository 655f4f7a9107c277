//! The way back to JavaScript: what is done is put on a list, and the first entry wakes the event loop.
//!
//! There is one bridge for each JavaScript environment (the main thread, each worker). Fairlock's own thread
//! never runs JavaScript and never waits for it, so an event loop that is blocked holds up nobody else. The
//! bridge also keeps the environment alive while a call is under way, and only then.

use crate::event_loop;
use crate::outcome::{Failure, Outcome};
use crate::slots::{SlotId, Slots};
use fairlock::{Call, Client, EventLoop, Pending};
use napi::bindgen_prelude::{Array, Either, Error, Function, JsValue, Uint32ArraySlice};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Result, Status};
use napi_derive::napi;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Weak: by itself it does not keep the environment alive.
type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

/// What one JavaScript environment has under way. Used by its thread only. JavaScript names everything by number, which costs less
/// than objects that wrap it.
pub(crate) struct Bridge {
    back: Arc<Back>,
    calls: RefCell<Slots<Option<Pending>>>,
    clients: RefCell<Slots<Client>>,
    /// Reads for the clients, where the runtime lets it.
    event_loop: Option<Arc<EventLoop>>,
    /// How many reasons there are to keep the environment alive.
    holds: Cell<usize>,
}

thread_local! {
    /// The bridges of this thread by number: an environment has one for each copy of the JavaScript part that is loaded in it.
    static BRIDGES: RefCell<Slots<Rc<Bridge>>> = RefCell::default();
}

/// The end of the bridge that any thread may use.
pub(crate) struct Back {
    done: Mutex<List>,
    wake: Mutex<Wake>,
}

#[derive(Default)]
struct List {
    reports: Vec<Report>,
    closed: bool,
    /// The thread of the environment is about to look by itself.
    hushed: bool,
}

/// What JavaScript is to hear.
enum Report {
    /// The outcome of a call.
    Outcome(SlotId, std::result::Result<Outcome, Failure>),
    /// The lock that JavaScript watches under this number was lost.
    Lost(u32, Failure),
}

/// What JavaScript gets of a call: the number under which its outcome comes, or why it was not begun.
pub(crate) type Begun = Either<u32, Failure>;

/// Tells the outcome of one call, from any thread.
pub(crate) struct Teller {
    back: Arc<Back>,
    id: SlotId,
}

impl Teller {
    pub(crate) fn tell<T: Into<Outcome>, F: Into<Failure>>(
        self,
        result: std::result::Result<T, F>,
    ) {
        let outcome = result.map(Into::into).map_err(Into::into);
        self.back.send(Report::Outcome(self.id, outcome));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Back {
    /// Puts a report on the list. If the environment has ended it is dropped, and a lock in it released.
    fn send(&self, report: Report) {
        let mut done = locked(&self.done);
        if done.closed {
            drop(done);
            drop(report);
            return;
        }
        done.reports.push(report);
        let wake = done.reports.len() == 1 && !done.hushed;
        drop(done);
        if wake {
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        // Refused only by an environment that is ending; its bridge drops the list.
        let _ = locked(&self.wake).call((), ThreadsafeFunctionCallMode::NonBlocking);
    }

    pub(crate) fn lost(&self, watch: u32, failure: Failure) {
        self.send(Report::Lost(watch, failure));
    }

    /// Nobody needs to be woken: the thread of the environment looks at the list when it says [`speak`](Self::speak).
    pub(crate) fn hush(&self) {
        locked(&self.done).hushed = true;
    }

    /// Ends that, and says whether there is something on the list.
    pub(crate) fn speak(&self) -> bool {
        let mut done = locked(&self.done);
        done.hushed = false;
        !done.reports.is_empty()
    }
}

impl Bridge {
    /// Begins a call of the core.
    pub(crate) fn call<T: Into<Outcome> + 'static>(
        &self,
        env: &Env,
        call: std::result::Result<Call<T>, fairlock::Error>,
    ) -> Result<Begun> {
        self.begin(env, call, |call, teller| {
            Some(call.submit(|result| teller.tell(result)))
        })
    }

    /// Begins what `submit` does, which is given what tells the outcome and gives what cancels it.
    pub(crate) fn begin<A, E: Into<Failure>>(
        &self,
        env: &Env,
        asked: std::result::Result<A, E>,
        submit: impl FnOnce(A, Teller) -> Option<Pending>,
    ) -> Result<Begun> {
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => return Ok(Either::B(error.into())),
        };
        let id = self.calls.borrow_mut().next();
        let back = Arc::clone(&self.back);
        let pending = submit(asked, Teller { back, id });
        // Only this thread takes outcomes from the list, so this one has not been looked for yet.
        self.calls.borrow_mut().insert(pending);
        self.hold(env)?;
        Ok(Either::A(id.number))
    }

    pub(crate) fn back(&self) -> Arc<Back> {
        Arc::clone(&self.back)
    }

    pub(crate) fn event_loop(&self) -> Option<Arc<EventLoop>> {
        self.event_loop.clone()
    }

    pub(crate) fn insert_client(&self, client: Client) -> u32 {
        self.clients.borrow_mut().insert(client).number
    }

    pub(crate) fn client(&self, number: u32) -> Result<Client> {
        let clients = self.clients.borrow();
        clients.get(number).cloned().ok_or_else(unknown)
    }

    fn hold(&self, env: &Env) -> Result<()> {
        self.holds.set(self.holds.get() + 1);
        if self.holds.get() == 1 {
            // The advice of the deprecation, to count clones instead, is about the life of the function; this
            // is about the life of the event loop.
            #[allow(deprecated)]
            locked(&self.back.wake).refer(env)?;
        }
        Ok(())
    }

    fn let_go(&self, env: &Env) -> Result<()> {
        self.holds.set(self.holds.get().saturating_sub(1));
        if self.holds.get() == 0 {
            #[allow(deprecated)]
            locked(&self.back.wake).unref(env)?;
        }
        Ok(())
    }

    /// Takes so many reports from the front of the list.
    fn take(&self, most: usize) -> Vec<Report> {
        let mut done = locked(&self.back.done);
        if done.reports.len() <= most {
            return std::mem::take(&mut done.reports);
        }
        let rest = done.reports.split_off(most);
        std::mem::replace(&mut done.reports, rest)
    }

    /// The environment has ended: nobody waits for what is under way.
    fn end(&self) {
        let list = {
            let mut done = locked(&self.back.done);
            done.closed = true;
            std::mem::take(&mut done.reports)
        };
        let calls: Vec<_> = self.calls.borrow_mut().drain().flatten().collect();
        for pending in calls {
            pending.cancel();
        }
        drop(list);
        let clients: Vec<_> = self.clients.borrow_mut().drain().collect();
        drop(clients);
    }
}

fn unknown() -> Error {
    Error::new(Status::InvalidArg, "no such number")
}

/// The bridge of this number.
pub(crate) fn bridge(number: u32) -> Result<Rc<Bridge>> {
    BRIDGES.with_borrow(|bridges| bridges.get(number).cloned().ok_or_else(unknown))
}

/// Makes a bridge and gives its number. `drain` is called on this thread whenever something is done.
/// `reads`: the runtime has a libuv whose loop can read the answers.
#[napi(catch_unwind)]
pub(crate) fn open_bridge(env: &Env, drain: Function<(), ()>, reads: bool) -> Result<u32> {
    let wake = drain
        .build_threadsafe_function::<()>()
        .weak::<true>()
        .build_callback(|_| Ok(()))?;
    let back = Arc::new(Back {
        done: Mutex::default(),
        wake: Mutex::new(wake),
    });
    let event_loop = reads
        .then(|| event_loop::watch(env, Arc::clone(&back), drain.raw()))
        .flatten();
    let bridge = Rc::new(Bridge {
        back,
        calls: RefCell::default(),
        clients: RefCell::default(),
        event_loop,
        holds: Cell::new(0),
    });
    let id = BRIDGES.with_borrow_mut(|bridges| bridges.insert(Rc::clone(&bridge)));
    env.add_env_cleanup_hook(bridge, move |bridge| {
        bridge.end();
        BRIDGES.with_borrow_mut(|bridges| bridges.remove(id));
    })?;
    Ok(id.number)
}

/// What stands in the second place of each entry of `drain`.
mod kind {
    pub(super) const NOTHING: u32 = 0;
    pub(super) const FALSE: u32 = 1;
    pub(super) const TRUE: u32 = 2;
    pub(super) const OBJECT: u32 = 3;
    pub(super) const FAILURE: u32 = 4;
    pub(super) const LOST: u32 = 5;
}

/// Writes what is done into `entries`, two places for each: number and kind; and objects, failures and locks
/// in the order of their entries behind those that are in `objects`. Gives how many there are; if `entries` is full, there may be
/// more. What nobody waits for any more is dropped, and a lock in it released.
#[napi(catch_unwind)]
pub(crate) fn drain(
    env: &Env,
    number: u32,
    mut entries: Uint32ArraySlice<'_>,
    mut objects: Array<'_>,
) -> Result<u32> {
    let bridge = bridge(number)?;
    // SAFETY: the memory is that of an array which only `lib/bridge.js` has, and no JavaScript runs before this returns.
    #[allow(unsafe_code)]
    let entries = unsafe { entries.as_mut() };
    let mut count = 0;
    for report in bridge.take(entries.len() / 2) {
        let (number, kind) = match report {
            Report::Lost(watch, failure) => {
                objects.insert(failure)?;
                (watch, kind::LOST)
            }
            Report::Outcome(id, outcome) => {
                if bridge.calls.borrow_mut().remove(id).is_none() {
                    continue;
                }
                bridge.let_go(env)?;
                let kind = match outcome {
                    Ok(Outcome::Done) => kind::NOTHING,
                    Ok(Outcome::Flag(false)) => kind::FALSE,
                    Ok(Outcome::Flag(true)) => kind::TRUE,
                    Ok(Outcome::Object(object)) => {
                        objects.insert(object.into_js(env)?)?;
                        kind::OBJECT
                    }
                    Err(failure) => {
                        objects.insert(failure)?;
                        kind::FAILURE
                    }
                };
                (id.number, kind)
            }
        };
        entries[2 * count] = number;
        entries[2 * count + 1] = kind;
        count += 1;
    }
    Ok(count as u32)
}

/// Gives up a call: its outcome will not come, and a lock that it gets all the same is released.
#[napi(catch_unwind)]
pub(crate) fn cancel(env: &Env, number: u32, call: u32) -> Result<()> {
    let bridge = bridge(number)?;
    let removed = bridge.calls.borrow_mut().remove_number(call);
    if let Some(pending) = removed {
        if let Some(pending) = pending {
            pending.cancel();
        }
        bridge.let_go(env)?;
    }
    Ok(())
}

/// Keeps the environment alive until [`let_go`] is called.
#[napi(catch_unwind)]
pub(crate) fn hold(env: &Env, number: u32) -> Result<()> {
    bridge(number)?.hold(env)
}

/// Ends what [`hold`] began.
#[napi(catch_unwind)]
pub(crate) fn let_go(env: &Env, number: u32) -> Result<()> {
    bridge(number)?.let_go(env)
}

/// A client that JavaScript has collected.
#[napi(catch_unwind)]
pub(crate) fn drop_client(number: u32, client: u32) -> Result<()> {
    let dropped = bridge(number)?.clients.borrow_mut().remove_number(client);
    drop(dropped);
    Ok(())
}
