//! The way back to JavaScript: what is done is put on a list, and the first entry wakes the event loop.
//!
//! There is one bridge for each JavaScript environment (the main thread, each worker). Fairlock's own thread
//! never runs JavaScript and never waits for it, so an event loop that is blocked holds up nobody else. The
//! bridge also keeps the environment alive while a call is under way, and only then.

use crate::event_loop;
use crate::outcome::{Failure, Outcome};
use fairlock::{EventLoop, Pending};
use napi::bindgen_prelude::{Array, External, Function, JsValue};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Result, Status};
use napi_derive::napi;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Weak: by itself it does not keep the environment alive.
type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

/// What a call is given to say its outcome with.
pub(crate) type Done<T, F> = Box<dyn FnOnce(std::result::Result<T, F>) + Send>;

/// What one JavaScript environment has under way. Used by its thread only.
pub(crate) struct Bridge {
    back: Arc<Back>,
    under_way: RefCell<HashMap<u64, Option<Pending>>>,
    /// Reads for the clients, where the runtime lets it.
    event_loop: Option<Arc<EventLoop>>,
    /// How many reasons there are to keep the environment alive.
    holds: Cell<usize>,
}

/// The end of the bridge that any thread may use.
pub(crate) struct Back {
    done: Mutex<List>,
    wake: Mutex<Wake>,
}

#[derive(Default)]
struct List {
    outcomes: Vec<(u64, std::result::Result<Outcome, Failure>)>,
    closed: bool,
    /// The thread of the environment is about to look by itself.
    hushed: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Back {
    /// Puts an outcome on the list. If the environment has ended it is dropped, and a lock in it released.
    pub(crate) fn send(&self, id: u64, outcome: std::result::Result<Outcome, Failure>) {
        let mut done = locked(&self.done);
        if done.closed {
            drop(done);
            drop(outcome);
            return;
        }
        done.outcomes.push((id, outcome));
        let wake = done.outcomes.len() == 1 && !done.hushed;
        drop(done);
        if wake {
            // Refused only by an environment that is ending; its bridge drops the list.
            let _ = locked(&self.wake).call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}

impl Back {
    /// Nobody needs to be woken: the thread of the environment looks at the list when it says [`speak`](Self::speak).
    pub(crate) fn hush(&self) {
        locked(&self.done).hushed = true;
    }

    /// Ends that, and says whether there is something on the list.
    pub(crate) fn speak(&self) -> bool {
        let mut done = locked(&self.done);
        done.hushed = false;
        !done.outcomes.is_empty()
    }
}

impl Bridge {
    pub(crate) fn event_loop(&self) -> Option<Arc<EventLoop>> {
        self.event_loop.clone()
    }

    /// Begins a call. `submit` gets the callback for the outcome and gives what cancels it.
    pub(crate) fn begin<T, F: Into<Failure>>(
        &self,
        env: &Env,
        id: f64,
        convert: impl FnOnce(T) -> Outcome + Send + 'static,
        submit: impl FnOnce(Done<T, F>) -> Option<Pending>,
    ) -> Result<()> {
        let (back, id) = (Arc::clone(&self.back), id as u64);
        let pending = submit(Box::new(move |result| {
            back.send(id, result.map(convert).map_err(Into::into));
        }));
        // Only this thread takes outcomes from the list, so this one has not been looked for yet.
        self.under_way.borrow_mut().insert(id, pending);
        self.hold(env)
    }

    pub(crate) fn back(&self) -> Arc<Back> {
        Arc::clone(&self.back)
    }

    fn hold(&self, env: &Env) -> Result<()> {
        self.holds.set(self.holds.get() + 1);
        if self.holds.get() == 1 {
            // The advice of the deprecation, to count clones instead, is about the life of the function; this is about the life of the event loop.
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
}

impl Drop for Bridge {
    /// The environment has ended: nobody waits for what is under way.
    fn drop(&mut self) {
        let list = {
            let mut done = locked(&self.back.done);
            done.closed = true;
            std::mem::take(&mut done.outcomes)
        };
        for pending in self.under_way.take().into_values().flatten() {
            pending.cancel();
        }
        drop(list);
    }
}

/// Makes the bridge of this environment. `drain` is called on its thread whenever something is done.
/// `reads`: the runtime has a libuv whose loop can read the answers.
#[napi(catch_unwind)]
pub(crate) fn open_bridge(
    env: &Env,
    drain: Function<(), ()>,
    reads: bool,
) -> Result<External<Bridge>> {
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
    Ok(External::new(Bridge {
        back,
        under_way: RefCell::default(),
        event_loop,
        holds: Cell::new(0),
    }))
}

/// What is done since the last call, three places for each: id, failure if there is one, value.
/// What nobody waits for any more is dropped, and a lock in it released.
#[napi(catch_unwind)]
pub(crate) fn drain<'env>(env: &'env Env, bridge: &External<Bridge>) -> Result<Array<'env>> {
    let list = std::mem::take(&mut locked(&bridge.back.done).outcomes);
    let mut array = env.create_array(0)?;
    for (id, result) in list {
        let answers_a_call = !matches!(result, Ok(Outcome::Lost(_)));
        if answers_a_call {
            if bridge.under_way.borrow_mut().remove(&id).is_none() {
                continue;
            }
            bridge.let_go(env)?;
        }
        array.insert(id as f64)?;
        match result {
            Ok(outcome) => {
                array.insert(())?;
                array.insert(outcome.into_js(env)?)?;
            }
            Err(failure) => {
                array.insert(failure)?;
                array.insert(())?;
            }
        }
    }
    Ok(array)
}

/// Gives up a call: its outcome will not come, and a lock that it gets all the same is released.
#[napi(catch_unwind)]
pub(crate) fn cancel(env: &Env, bridge: &External<Bridge>, id: f64) -> Result<()> {
    let removed = bridge.under_way.borrow_mut().remove(&(id as u64));
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
pub(crate) fn hold(env: &Env, bridge: &External<Bridge>) -> Result<()> {
    bridge.hold(env)
}

/// Ends what [`hold`] began.
#[napi(catch_unwind)]
pub(crate) fn let_go(env: &Env, bridge: &External<Bridge>) -> Result<()> {
    bridge.let_go(env)
}
