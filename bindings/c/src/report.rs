//! How a call ends for its caller: a status, and a message for the thread. Panics end here.

use crate::status::fairlock_status::{self, *};
use fairlock::{Error, ErrorKind};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    status: fairlock_status,
    message: String,
    reason: String,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(status: fairlock_status, message: impl Into<String>) -> Failure {
        Failure {
            status,
            message: message.into(),
            reason: String::new(),
        }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Failure {
        Failure::new(FAIRLOCK_INVALID_ARGUMENT, message)
    }

    fn panic(payload: &(dyn Any + Send)) -> Failure {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Failure::new(
            FAIRLOCK_INTERNAL,
            format!("a bug of the library, please report it: {text}"),
        )
    }

    /// Leaves the message for this thread and gives the status.
    pub(crate) fn report(self) -> fairlock_status {
        let status = self.status;
        // A thread that is ending has no place for messages any more.
        let _ = LAST.try_with(|last| {
            *last.borrow_mut() = Some(Last {
                message: c_string(self.message),
                reason: c_string(self.reason),
            });
        });
        status
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let reason = match error.kind() {
            ErrorKind::Refused { code } => code.to_string(),
            ErrorKind::LockLost { reason } => reason.to_string(),
            _ => String::new(),
        };
        Failure {
            status: fairlock_status::of(error.kind()),
            message: match error.time_out_of_limits() {
                Some(wrong) => {
                    wrong.sentence(format_args!("{}_ms", wrong.option), wrong.time.as_millis())
                }
                None => error.to_string(),
            },
            reason,
        }
    }
}

struct Last {
    message: CString,
    reason: CString,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

fn c_string(text: String) -> CString {
    CString::new(text).unwrap_or_else(|error| {
        let mut bytes = error.into_vec();
        bytes.retain(|byte| *byte != 0);
        CString::new(bytes).expect("the NULs have just been taken out")
    })
}

/// Runs the body of a call that returns a status.
pub(crate) fn call(body: impl FnOnce() -> Outcome<()>) -> fairlock_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => FAIRLOCK_OK,
        Ok(Err(failure)) => failure.report(),
        Err(payload) => Failure::panic(&*payload).report(),
    }
}

/// Runs the body of a call that returns a value, or `fallback` where it fails.
pub(crate) fn value<T>(fallback: T, body: impl FnOnce() -> Outcome<T>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure.report(),
        Err(payload) => Failure::panic(&*payload).report(),
    };
    fallback
}

/// What went wrong in the last call on this thread that failed, for people: one sentence without a
/// line end; "" if none has failed. In a callback that is given a status, the message of that
/// status. The string lives until the next call on this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn fairlock_last_error() -> *const c_char {
    last(|last| &last.message)
}

/// The word that goes with the last failure on this thread, for programs: with FAIRLOCK_REFUSED the
/// code of the refusal ("auth", "denied", "busy", "version", "internal", or one of a later server),
/// with FAIRLOCK_LOCK_LOST how the lock was lost ("expired", "taken", "unconfirmed", "closed"), else
/// "". The string lives until the next call on this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn fairlock_last_reason() -> *const c_char {
    last(|last| &last.reason)
}

fn last(part: impl FnOnce(&Last) -> &CString) -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ref().map(|last| part(last).as_ptr()))
        .ok()
        .flatten()
        .unwrap_or(c"".as_ptr())
}
