//! The way back to JavaScript: what is done is put on a list, and the first entry wakes the event loop.
//!
//! There is one bridge for each JavaScript environment (the main thread, each worker). Fairlock's own thread
//! never runs JavaScript and never waits for it, so an event loop that is blocked holds up nobody else. The
//! bridge also keeps the environment alive while a call is under way, and only then.

use crate::event_loop;
use crate::fast;
use crate::outcome::{Failure, Object, Outcome};
use crate::slots::{SlotId, Slots};
use fairlock::{Call, Client, EventLoop, Lock, Pending};
use napi::bindgen_prelude::{Either, Error, Function, JsValue, Unknown};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Result, Status};
use napi_derive::napi;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
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
    locks: RefCell<Slots<GrantedLock>>,
    /// Taken from the list, and not handed to JavaScript yet.
    reports: RefCell<VecDeque<Report>>,
    /// Reads for the clients, where the runtime lets it.
    event_loop: Option<Arc<EventLoop>>,
    /// How many reasons there are to keep the environment alive, and whether it is told to stay.
    holds: Cell<usize>,
    held: Cell<bool>,
    /// The latest turn of the event loop whose end is told to the bridge, and whether it goes on.
    turn: Cell<u32>,
    turning: Cell<bool>,
    /// How many locks were granted in this turn, and their release not asked for.
    fresh: Cell<u32>,
}

/// A lock that JavaScript has, and the turn in which it came; zero if JavaScript has to see to it at once that the lock is not forgotten.
struct GrantedLock {
    lock: Lock,
    turn: u32,
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
    reports: VecDeque<Report>,
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

/// What JavaScript gets of an outcome that is no number.
pub(crate) enum Done {
    Object(Object),
    Failure(Failure),
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
        done.reports.push_back(report);
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
        self.with_client(number, Client::clone)
    }

    /// What is asked of a client.
    pub(crate) fn with_client<T>(&self, number: u32, ask: impl FnOnce(&Client) -> T) -> Result<T> {
        let clients = self.clients.borrow();
        Ok(ask(clients.get(number).ok_or_else(unknown)?))
    }

    /// What is done with a lock of JavaScript.
    pub(crate) fn with_lock<T>(&self, number: u32, look: impl FnOnce(&Lock) -> T) -> Result<T> {
        let locks = self.locks.borrow();
        let granted = locks.get(number).ok_or_else(unknown)?;
        Ok(look(&granted.lock))
    }

    /// Begins to release a lock, whose number is free again when that is confirmed.
    pub(crate) fn release(&self, env: &Env, number: u32) -> Result<Begun> {
        let (id, call) = {
            let mut locks = self.locks.borrow_mut();
            let id = locks.id(number).ok_or_else(unknown)?;
            let granted = locks.get_mut(number).ok_or_else(unknown)?;
            if std::mem::take(&mut granted.turn) == self.turn.get() {
                self.fresh.set(self.fresh.get().saturating_sub(1));
            }
            (id, granted.lock.release())
        };
        self.begin(env, Ok::<_, Failure>(call), |call, teller| {
            Some(call.submit(move |result| {
                teller.tell(result.map(|was_held| Outcome::Released { lock: id, was_held }));
            }))
        })
    }

    /// Runs what hands the outcomes to JavaScript, in a turn of the event loop. Locks that are granted in it and released at once need
    /// not be watched for being forgotten; where some are left, `hand_over` runs again, and JavaScript sees to them.
    pub(crate) fn turn(&self, env: &Env, hand_over: impl Fn()) {
        self.turn.set(self.turn.get().wrapping_add(1).max(1));
        self.fresh.set(0);
        self.turning.set(true);
        hand_over();
        self.turning.set(false);
        if self.fresh.replace(0) > 0 {
            hand_over();
        }
        self.let_env_go(env);
    }

    fn hold(&self, env: &Env) -> Result<()> {
        self.holds.set(self.holds.get() + 1);
        if !self.held.replace(true) {
            // The advice of the deprecation, to count clones instead, is about the life of the function; this
            // is about the life of the event loop.
            #[allow(deprecated)]
            locked(&self.back.wake).refer(env)?;
        }
        Ok(())
    }

    fn let_go(&self, env: &Env) {
        self.holds.set(self.holds.get().saturating_sub(1));
        // What is done in a turn often begins something else in it.
        if !self.turning.get() {
            self.let_env_go(env);
        }
    }

    /// Lets the environment end if there is no reason left to keep it.
    fn let_env_go(&self, env: &Env) {
        if self.holds.get() == 0 && self.held.replace(false) {
            // Refused only by an environment that ends already.
            #[allow(deprecated)]
            let _ = locked(&self.back.wake).unref(env);
        }
    }

    /// The next report, from the list if none is left of what was taken from it.
    fn next_report(&self) -> Option<Report> {
        let mut reports = self.reports.borrow_mut();
        if reports.is_empty() {
            // The list gets the memory back.
            std::mem::swap(&mut *reports, &mut locked(&self.back.done).reports);
        }
        reports.pop_front()
    }

    /// Writes what is done into `entries`: whether there may be more; whether locks among them need not be watched yet; and for each its
    /// number, its kind, and of a lock its number and the two halves of its token. Objects and failures are given to `hand_over` in the
    /// order of their entries. Gives how many places are used. What nobody waits for any more is dropped, and a lock in it released.
    pub(crate) fn drain(
        &self,
        env: &Env,
        entries: &mut [i32],
        mut hand_over: impl FnMut(Done) -> Result<()>,
    ) -> Result<u32> {
        let turn = if self.turning.get() {
            self.turn.get()
        } else {
            0
        };
        entries[1] = i32::from(turn != 0);
        let mut at = 2;
        while at + LONGEST_ENTRY <= entries.len() {
            let Some(report) = self.next_report() else {
                entries[0] = 0;
                return Ok(at as u32);
            };
            let (number, kind) = match report {
                Report::Lost(watch, failure) => {
                    hand_over(Done::Failure(failure))?;
                    (watch, kind::LOST)
                }
                Report::Outcome(id, outcome) => {
                    if self.calls.borrow_mut().remove(id).is_none() {
                        continue;
                    }
                    self.let_go(env);
                    let kind = match outcome {
                        Ok(Outcome::Done) => kind::NOTHING,
                        Ok(Outcome::Flag(false)) => kind::FALSE,
                        Ok(Outcome::Flag(true)) => kind::TRUE,
                        Ok(Outcome::Lock(lock)) => {
                            let token = lock.token().get();
                            entries[at + 2] = self.insert_lock(lock, turn);
                            entries[at + 3] = token as i32;
                            entries[at + 4] = (token >> 32) as i32;
                            kind::LOCK
                        }
                        // How it was lost JavaScript may still ask.
                        Ok(Outcome::Released {
                            was_held: false, ..
                        }) => kind::FALSE,
                        Ok(Outcome::Released { lock, .. }) => {
                            let gone = self.locks.borrow_mut().remove(lock);
                            drop(gone);
                            kind::TRUE
                        }
                        Ok(Outcome::Object(object)) => {
                            hand_over(Done::Object(object))?;
                            kind::OBJECT
                        }
                        Err(failure) => {
                            hand_over(Done::Failure(failure))?;
                            kind::FAILURE
                        }
                    };
                    (id.number, kind)
                }
            };
            entries[at] = number as i32;
            entries[at + 1] = kind;
            at += if kind == kind::LOCK { LONGEST_ENTRY } else { 2 };
        }
        entries[0] = 1;
        Ok(at as u32)
    }

    fn insert_lock(&self, lock: Lock, turn: u32) -> i32 {
        if turn != 0 {
            self.fresh.set(self.fresh.get() + 1);
        }
        let granted = GrantedLock { lock, turn };
        self.locks.borrow_mut().insert(granted).number as i32
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
        drop(self.reports.take());
        let locks: Vec<_> = self.locks.borrow_mut().drain().collect();
        drop(locks);
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

/// A bridge for JavaScript: its number, and an object with the functions of `fast`.
#[napi(object, object_from_js = false)]
pub(crate) struct OpenBridge<'a> {
    pub number: u32,
    pub calls: Unknown<'a>,
}

/// Makes a bridge. `drain` is called on this thread whenever something is done.
/// `reads`: the runtime has a libuv whose loop can read the answers.
#[napi(catch_unwind)]
pub(crate) fn open_bridge<'a>(
    env: &'a Env,
    drain: Function<(), ()>,
    reads: bool,
) -> Result<OpenBridge<'a>> {
    let wake = drain
        .build_threadsafe_function::<()>()
        .weak::<true>()
        .build_callback(|_| Ok(()))?;
    let back = Arc::new(Back {
        done: Mutex::default(),
        wake: Mutex::new(wake),
    });
    let number = BRIDGES.with_borrow_mut(Slots::next).number;
    let event_loop = reads
        .then(|| event_loop::watch(env, Arc::clone(&back), number, drain.raw()))
        .flatten();
    let bridge = Rc::new(Bridge {
        back,
        calls: RefCell::default(),
        clients: RefCell::default(),
        locks: RefCell::default(),
        reports: RefCell::default(),
        event_loop,
        holds: Cell::new(0),
        held: Cell::new(false),
        turn: Cell::new(0),
        turning: Cell::new(false),
        fresh: Cell::new(0),
    });
    let id = BRIDGES.with_borrow_mut(|bridges| bridges.insert(Rc::clone(&bridge)));
    let calls = fast::functions(env, &bridge)?;
    env.add_env_cleanup_hook(bridge, move |bridge| {
        bridge.end();
        BRIDGES.with_borrow_mut(|bridges| bridges.remove(id));
    })?;
    Ok(OpenBridge {
        number: id.number,
        calls,
    })
}

/// What stands in the second place of each entry of `drain`.
mod kind {
    pub(super) const NOTHING: i32 = 0;
    pub(super) const FALSE: i32 = 1;
    pub(super) const TRUE: i32 = 2;
    pub(super) const OBJECT: i32 = 3;
    pub(super) const FAILURE: i32 = 4;
    pub(super) const LOST: i32 = 5;
    pub(super) const LOCK: i32 = 6;
}

/// So many places the longest entry has.
const LONGEST_ENTRY: usize = 5;

/// Gives up a call: its outcome will not come, and a lock that it gets all the same is released.
#[napi(catch_unwind)]
pub(crate) fn cancel(env: &Env, number: u32, call: u32) -> Result<()> {
    let bridge = bridge(number)?;
    let removed = bridge.calls.borrow_mut().remove_number(call);
    if let Some(pending) = removed {
        if let Some(pending) = pending {
            pending.cancel();
        }
        bridge.let_go(env);
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
    bridge(number)?.let_go(env);
    Ok(())
}

/// A client that JavaScript has collected.
#[napi(catch_unwind)]
pub(crate) fn drop_client(number: u32, client: u32) -> Result<()> {
    let dropped = bridge(number)?.clients.borrow_mut().remove_number(client);
    drop(dropped);
    Ok(())
}

/// A lock that JavaScript has collected.
#[napi(catch_unwind)]
pub(crate) fn drop_lock(number: u32, lock: u32) -> Result<()> {
    let dropped = bridge(number)?.locks.borrow_mut().remove_number(lock);
    drop(dropped);
    Ok(())
}
