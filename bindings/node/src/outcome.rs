//! What a call gave, as JavaScript sees it.

use crate::convert::in_camel_case;
use crate::server::RunningServer;
use crate::slots::SlotId;
use crate::view::{KeyView, LocksView, StatusView, WaitersView};
use fairlock::{Error, ErrorKind, Lock};
use fairlock::{KeyState, LockPage, Status, Waiters};
use napi::bindgen_prelude::{External, Null, ToNapiValue, Unknown};
use napi::{Env, Result};
use napi_derive::napi;

/// What a call gave.
pub(crate) enum Outcome {
    Done,
    Flag(bool),
    Lock(Lock),
    /// A lock that JavaScript has is released; false if it had been lost before.
    Released {
        lock: SlotId,
        was_held: bool,
    },
    Object(Object),
}

/// What a call gave where that takes an object.
pub(crate) enum Object {
    Null,
    State(KeyState),
    Waiters(Waiters),
    Locks(LockPage),
    Status(Box<Status>),
    Server(RunningServer),
}

impl Object {
    pub(crate) fn into_js(self, env: &Env) -> Result<Unknown<'_>> {
        match self {
            Object::Null => Null.into_unknown(env),
            Object::State(state) => KeyView::from(state).into_unknown(env),
            Object::Waiters(waiters) => WaitersView::from(waiters).into_unknown(env),
            Object::Locks(page) => LocksView::from(page).into_unknown(env),
            Object::Status(status) => StatusView::from(*status).into_unknown(env),
            Object::Server(server) => External::new(server).into_unknown(env),
        }
    }
}

macro_rules! from_object {
    ($($variant:ident($type:ty),)+) => {
        $(impl From<$type> for Outcome {
            fn from(value: $type) -> Outcome {
                Outcome::Object(Object::$variant(value))
            }
        })+
    };
}

from_object! {
    State(KeyState),
    Waiters(Waiters),
    Locks(LockPage),
    Server(RunningServer),
}

impl From<()> for Outcome {
    fn from((): ()) -> Outcome {
        Outcome::Done
    }
}

impl From<bool> for Outcome {
    fn from(flag: bool) -> Outcome {
        Outcome::Flag(flag)
    }
}

impl From<Lock> for Outcome {
    fn from(lock: Lock) -> Outcome {
        Outcome::Lock(lock)
    }
}

impl From<Option<Lock>> for Outcome {
    fn from(lock: Option<Lock>) -> Outcome {
        lock.map_or(Outcome::Object(Object::Null), Outcome::Lock)
    }
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Outcome {
        Outcome::Object(Object::Status(Box::new(status)))
    }
}

/// An error on its way to `lib/errors.js`, which makes the object that users see.
#[napi(object, object_from_js = false, use_nullable = true)]
pub(crate) struct Failure {
    /// The name of the kind, as in the table of errors.
    pub kind: &'static str,
    /// The text.
    pub message: String,
    /// The code of a refusal, the reason of a loss.
    pub reason: Option<String>,
}

impl Failure {
    /// A value of the wrong type or an unknown name, as `TypeError` in JavaScript.
    pub(crate) fn wrong_type(message: String) -> Failure {
        Failure {
            kind: "WrongType",
            message,
            reason: None,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            kind: error.kind().row().kind,
            message: match error.time_out_of_limits() {
                Some(wrong) => wrong.sentence(
                    format_args!("{}Ms", in_camel_case(wrong.option)),
                    wrong.time.as_secs_f64() * 1000.0,
                ),
                None => error.to_string(),
            },
            reason: match error.kind() {
                ErrorKind::Refused { code } => Some(code.to_string()),
                ErrorKind::LockLost { reason } => Some(reason.as_str().to_owned()),
                _ => None,
            },
        }
    }
}

/// A row of the table of errors.
#[napi(object, object_from_js = false)]
pub(crate) struct ErrorCode {
    /// The name of the kind.
    pub kind: &'static str,
    /// The code of it in JavaScript; empty where JavaScript has its own kind of error for it.
    pub code: &'static str,
}

/// The table of errors, so that `lib/errors.js` can be tested against it.
#[napi(catch_unwind)]
pub(crate) fn error_codes() -> Vec<ErrorCode> {
    fairlock::ERRORS
        .iter()
        .map(|row| ErrorCode {
            kind: row.kind,
            code: row.node,
        })
        .collect()
}
