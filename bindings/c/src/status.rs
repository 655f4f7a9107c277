//! Statuses and reasons: the numbers of the error table and their words.

use fairlock::{ErrorKind, LostReason};
use std::ffi::{CStr, c_char, c_int};

/// What became of a call. The numbers are fixed; later versions may add some.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum fairlock_status {
    /// It is done.
    FAIRLOCK_OK = 0,
    /// The lock was not had within `wait_ms`.
    FAIRLOCK_WAIT_TIMEOUT = 1,
    /// No server could be reached, or none of them is active.
    FAIRLOCK_CONNECTION_FAILED = 2,
    /// An argument cannot be used; nothing was sent, unless it is a lease above the server's `max_lease`.
    FAIRLOCK_INVALID_ARGUMENT = 3,
    /// The server refused; fairlock_last_reason() says why in a word ("auth", "denied", "busy" …).
    FAIRLOCK_REFUSED = 4,
    /// The lock was lost before; fairlock_last_reason() says how ("expired", "taken",
    /// "unconfirmed", "closed").
    FAIRLOCK_LOCK_LOST = 5,
    /// No server answered the release for five seconds; the lease will free the lock.
    FAIRLOCK_RELEASE_UNCONFIRMED = 6,
    /// The fence has seen a newer token of this key: the caller is not the holder any more.
    FAIRLOCK_STALE_TOKEN = 7,
    /// The client was closed.
    FAIRLOCK_CLOSED = 8,
    /// The handle belongs to the process that this one was forked from.
    FAIRLOCK_FORKED = 9,
    /// The call was cancelled by fairlock_cancel().
    FAIRLOCK_CANCELLED = 10,
    /// A node could not be started, or had ended by itself.
    FAIRLOCK_SERVER_FAILED = 100,
    /// A blocking call was made inside a callback, where it would wait for itself.
    FAIRLOCK_WOULD_DEADLOCK = 101,
    /// A bug of the library; please report the message.
    FAIRLOCK_INTERNAL = 102,
}

use fairlock_status::*;

/// Every status with its name. Those below 100 are the core's table of errors, number by number;
/// the others are what only this border can say.
pub(crate) const STATUSES: [(fairlock_status, &CStr); 14] = [
    (FAIRLOCK_OK, c"FAIRLOCK_OK"),
    (FAIRLOCK_WAIT_TIMEOUT, c"FAIRLOCK_WAIT_TIMEOUT"),
    (FAIRLOCK_CONNECTION_FAILED, c"FAIRLOCK_CONNECTION_FAILED"),
    (FAIRLOCK_INVALID_ARGUMENT, c"FAIRLOCK_INVALID_ARGUMENT"),
    (FAIRLOCK_REFUSED, c"FAIRLOCK_REFUSED"),
    (FAIRLOCK_LOCK_LOST, c"FAIRLOCK_LOCK_LOST"),
    (
        FAIRLOCK_RELEASE_UNCONFIRMED,
        c"FAIRLOCK_RELEASE_UNCONFIRMED",
    ),
    (FAIRLOCK_STALE_TOKEN, c"FAIRLOCK_STALE_TOKEN"),
    (FAIRLOCK_CLOSED, c"FAIRLOCK_CLOSED"),
    (FAIRLOCK_FORKED, c"FAIRLOCK_FORKED"),
    (FAIRLOCK_CANCELLED, c"FAIRLOCK_CANCELLED"),
    (FAIRLOCK_SERVER_FAILED, c"FAIRLOCK_SERVER_FAILED"),
    (FAIRLOCK_WOULD_DEADLOCK, c"FAIRLOCK_WOULD_DEADLOCK"),
    (FAIRLOCK_INTERNAL, c"FAIRLOCK_INTERNAL"),
];

impl fairlock_status {
    /// The status of a kind of error: the one with the number that the core's table gives it.
    pub(crate) fn of(kind: &ErrorKind) -> fairlock_status {
        let number = kind.row().number;
        STATUSES
            .iter()
            .find(|(status, _)| *status as i32 == number)
            .map_or(FAIRLOCK_INTERNAL, |(status, _)| *status)
    }
}

/// The name of a status, as in "FAIRLOCK_WAIT_TIMEOUT"; "FAIRLOCK_UNKNOWN" for a number that is
/// none. The string lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn fairlock_status_string(status: c_int) -> *const c_char {
    STATUSES
        .iter()
        .find(|(known, _)| *known as c_int == status)
        .map_or(c"FAIRLOCK_UNKNOWN", |(_, name)| name)
        .as_ptr()
}

/// How a lock was lost.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum fairlock_lost_reason {
    /// Its lease is nearly over: an eighth of it is left.
    FAIRLOCK_LOST_EXPIRED = 1,
    /// The server says that the token does not hold the key: an operator released it, or the grant
    /// did not survive a change of the active node.
    FAIRLOCK_LOST_TAKEN = 2,
    /// Renewals were sent, and none was confirmed in time.
    FAIRLOCK_LOST_UNCONFIRMED = 3,
    /// The client was closed.
    FAIRLOCK_LOST_CLOSED = 4,
}

use fairlock_lost_reason::*;

impl From<LostReason> for fairlock_lost_reason {
    fn from(reason: LostReason) -> fairlock_lost_reason {
        match reason {
            LostReason::Expired => FAIRLOCK_LOST_EXPIRED,
            LostReason::Taken => FAIRLOCK_LOST_TAKEN,
            LostReason::Unconfirmed => FAIRLOCK_LOST_UNCONFIRMED,
            LostReason::Closed => FAIRLOCK_LOST_CLOSED,
        }
    }
}

/// The word for a reason: "expired", "taken", "unconfirmed", "closed"; "unknown" for a number that
/// is none. The string lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn fairlock_lost_reason_string(reason: c_int) -> *const c_char {
    [
        (FAIRLOCK_LOST_EXPIRED, c"expired"),
        (FAIRLOCK_LOST_TAKEN, c"taken"),
        (FAIRLOCK_LOST_UNCONFIRMED, c"unconfirmed"),
        (FAIRLOCK_LOST_CLOSED, c"closed"),
    ]
    .iter()
    .find(|(known, _)| *known as c_int == reason)
    .map_or(c"unknown", |(_, word)| word)
    .as_ptr()
}
