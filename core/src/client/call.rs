//! One operation and its three faces: await it, block on it, or give it a callback.

use super::acquire::OnLost;
use super::calling;
use super::instance::{Face, Handle, Here, Instance, Started};
use super::lock::{Lock, LockInner};
use super::session::{Ask, Grant, OperationId, Outcome};
use super::view::{KeyState, LockPage, Status, Waiters};
use crate::error::Error;
use crate::protocol::Key;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// One operation that has not begun: await it, [`call`](Self::call) it where the thread may block,
/// or [`submit`](Self::submit) it with a callback.
///
/// Nothing is sent before that. Dropping the future cancels the operation; only a release goes on.
#[must_use = "nothing is sent until it is awaited, called or submitted"]
pub struct Call<T> {
    origin: Origin,
    ask: Result<Ask, Error>,
    on_lost: Option<OnLost>,
    finish: Finish<T>,
}

/// Whose call it is.
enum Origin {
    Client(Arc<Handle>),
    Lock(Arc<LockInner>),
}

type Finish<T> = fn(Outcome, Place) -> T;

/// Where an outcome becomes a value. It keeps the client alive until then, and a lock that is being
/// released or kept.
pub(crate) enum Place {
    Client(Here),
    /// What the lock that comes of it is about.
    Key(Here, Key),
    Lock(Arc<LockInner>),
}

impl Place {
    pub(crate) fn here(&self) -> &Here {
        match self {
            Place::Client(here) | Place::Key(here, _) => here,
            Place::Lock(lock) => lock.here(),
        }
    }

    fn lock(self, grant: Grant) -> Lock {
        match self {
            Place::Key(here, key) => Lock::new(here, key, grant),
            Place::Client(_) | Place::Lock(_) => unreachable!("only an acquire ends in a lock"),
        }
    }

    fn instance(&self) -> &Arc<Instance> {
        self.here().instance()
    }
}

// Only this crate makes calls, so only this crate has to know how outcomes become values.
#[allow(private_bounds)]
impl<T: FromOutcome> Call<T> {
    pub(crate) fn new(handle: &Arc<Handle>, ask: Result<Ask, Error>) -> Call<T> {
        Call::with_on_lost(handle.clone(), ask, None)
    }

    pub(crate) fn with_on_lost(
        handle: Arc<Handle>,
        ask: Result<Ask, Error>,
        on_lost: Option<OnLost>,
    ) -> Call<T> {
        Call {
            origin: Origin::Client(handle),
            ask,
            on_lost,
            finish: T::from_outcome,
        }
    }

    pub(crate) fn of_lock(lock: &Arc<LockInner>, ask: Result<Ask, Error>) -> Call<T> {
        Call {
            origin: Origin::Lock(lock.clone()),
            ask,
            on_lost: None,
            finish: T::from_outcome,
        }
    }
}

impl<T> Call<T> {
    /// Does it, blocking this thread.
    ///
    /// # Errors
    /// As when awaited, and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) in a callback on the client's
    /// own thread, where it would wait for itself; a release goes on all the same.
    pub fn call(self) -> Result<T, Error> {
        self.block(None)
    }

    /// Does it, blocking this thread, and asks `go_on` at least once in every `every`, and when a
    /// signal interrupts the wait. When it says false the operation is cancelled as if its future
    /// were dropped.
    ///
    /// # Errors
    /// As when awaited, and [`Cancelled`](crate::ErrorKind::Cancelled) when told to stop.
    pub fn call_checking(
        self,
        every: Duration,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<T, Error> {
        self.block(Some((every, &mut go_on)))
    }

    fn block(self, check: Option<(Duration, &mut dyn FnMut() -> bool)>) -> Result<T, Error> {
        let finish = self.finish;
        let (place, ask, on_lost) = self.place()?;
        let outcome = place.instance().block(ask, on_lost, check)?;
        Ok(finish(outcome, place))
    }

    /// Starts it; `done` gets the result exactly once: on the client's own thread, on one that is just
    /// calling this client, or, if it is known at once, on this one. `done` must not block. What is known at once inside such a
    /// callback is told when that has returned. One that forks must not return in the child, where its caller has nothing
    /// to go on with: the client's own thread ends there.
    #[inline]
    pub fn submit(self, done: impl FnOnce(Result<T, Error>) + Send + 'static) -> Pending
    where
        T: 'static,
    {
        let finish = self.finish;
        let (place, ask, on_lost) = match self.place() {
            Ok(parts) => parts,
            Err(error) => {
                calling::call(move || done(Err(error)));
                return Pending { operation: None };
            }
        };
        let instance = place.instance().clone();
        let face = Face::Callback(Box::new(move |outcome| {
            done(outcome.map(|outcome| finish(outcome, place)));
        }));
        let started = instance.start(ask, on_lost, face);
        Pending {
            operation: started.operation.map(|operation| (instance, operation)),
        }
    }

    #[inline(always)]
    fn place(self) -> Result<(Place, Ask, Option<OnLost>), Error> {
        let ask = self.ask?;
        let place = match self.origin {
            Origin::Client(handle) => match &ask {
                Ask::Acquire { key, .. } => Place::Key(handle.here()?, key.clone()),
                _ => Place::Client(handle.here()?),
            },
            Origin::Lock(lock) => {
                lock.instance()?;
                Place::Lock(lock)
            }
        };
        Ok((place, ask, self.on_lost))
    }
}

impl<T> IntoFuture for Call<T> {
    type Output = Result<T, Error>;
    type IntoFuture = Running<T>;

    fn into_future(self) -> Running<T> {
        Running(State::Idle(Some(self)))
    }
}

/// The future of an operation. Nothing is sent before it is polled first; dropping it cancels.
#[must_use = "futures do nothing unless polled"]
pub struct Running<T>(State<T>);

enum State<T> {
    Idle(Option<Call<T>>),
    Under {
        place: Place,
        started: Started,
        finish: Finish<T>,
    },
    Over,
}

impl<T> Future for Running<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let state = &mut self.0;
        match state {
            State::Idle(call) => {
                let call = call
                    .take()
                    .expect("a call is taken once, and then the state changes");
                *state = State::Over;
                let finish = call.finish;
                let (place, ask, on_lost) = call.place()?;
                let face = Face::Waiting(Some(context.waker().clone()));
                let started = place.instance().start(ask, on_lost, face);
                // No waker would come for what is known at once.
                if started.known
                    && let Poll::Ready(outcome) = place.instance().poll(&started, context.waker())
                {
                    return Poll::Ready(outcome.map(|outcome| finish(outcome, place)));
                }
                *state = State::Under {
                    place,
                    started,
                    finish,
                };
                Poll::Pending
            }
            State::Under {
                place,
                started,
                finish,
            } => {
                let Poll::Ready(outcome) = place.instance().poll(started, context.waker()) else {
                    return Poll::Pending;
                };
                let finish = *finish;
                let State::Under { place, .. } = std::mem::replace(state, State::Over) else {
                    unreachable!("it has just been looked at");
                };
                Poll::Ready(outcome.map(|outcome| finish(outcome, place)))
            }
            State::Over => panic!("a finished fairlock future was polled again"),
        }
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        if let State::Under { place, started, .. } = &self.0 {
            place.instance().abandon(started);
        }
    }
}

/// A submitted operation. Dropping this does nothing.
#[derive(Debug)]
pub struct Pending {
    operation: Option<(Arc<Instance>, OperationId)>,
}

impl Pending {
    /// Gives up: if the result is not on its way yet, the callback gets
    /// [`Cancelled`](crate::ErrorKind::Cancelled) (on this thread), and nothing is left behind on the
    /// server. A release goes on all the same. From any thread, any number of times.
    pub fn cancel(&self) {
        if let Some((instance, operation)) = &self.operation {
            instance.cancel(*operation);
        }
    }
}

/// What an outcome is to a caller.
pub(crate) trait FromOutcome: Sized {
    fn from_outcome(outcome: Outcome, place: Place) -> Self;
}

impl FromOutcome for Lock {
    fn from_outcome(outcome: Outcome, place: Place) -> Lock {
        match outcome {
            Outcome::Locked(grant) => place.lock(grant),
            _ => unreachable!("an acquire that may wait ends in a lock or an error"),
        }
    }
}

impl FromOutcome for Option<Lock> {
    fn from_outcome(outcome: Outcome, place: Place) -> Option<Lock> {
        match outcome {
            Outcome::Locked(grant) => Some(place.lock(grant)),
            _ => None,
        }
    }
}

impl FromOutcome for bool {
    fn from_outcome(outcome: Outcome, _: Place) -> bool {
        matches!(outcome, Outcome::Confirmed(true))
    }
}

impl FromOutcome for () {
    fn from_outcome(_: Outcome, _: Place) {}
}

impl FromOutcome for KeyState {
    fn from_outcome(outcome: Outcome, _: Place) -> KeyState {
        match outcome {
            Outcome::Key(state) => *state,
            _ => unreachable!("an inspection ends in the state of a key or an error"),
        }
    }
}

impl FromOutcome for Waiters {
    fn from_outcome(outcome: Outcome, _: Place) -> Waiters {
        match outcome {
            Outcome::Waiters(waiters) => *waiters,
            _ => unreachable!("a look at a queue ends in the queue or an error"),
        }
    }
}

impl FromOutcome for LockPage {
    fn from_outcome(outcome: Outcome, _: Place) -> LockPage {
        match outcome {
            Outcome::Locks(page) => *page,
            _ => unreachable!("a list of locks ends in a page or an error"),
        }
    }
}

impl FromOutcome for Status {
    fn from_outcome(outcome: Outcome, _: Place) -> Status {
        match outcome {
            Outcome::Status(status) => *status,
            _ => unreachable!("a question for the status ends in it or an error"),
        }
    }
}
