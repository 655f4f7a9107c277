//! What can go wrong, in one table: the kind that Rust code matches, the wire codes that end in it,
//! and its name in each of the other languages. Bindings take their names and numbers from
//! [`ERRORS`], or are tested against it; nobody else makes up an error.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// Why a lock is no longer held although nobody released it through this client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LostReason {
    /// The lease is nearly over by the client's own count: an eighth or less of it is left.
    Expired,
    /// The server says that the token does not hold the key: an operator released it, or the grant
    /// did not survive a change of the active node.
    Taken,
    /// Renewals were sent and none was confirmed before an eighth of the lease was left.
    Unconfirmed,
    /// The client was closed.
    Closed,
}

impl LostReason {
    /// Every reason.
    pub const ALL: [LostReason; 4] = [
        LostReason::Expired,
        LostReason::Taken,
        LostReason::Unconfirmed,
        LostReason::Closed,
    ];

    /// The word for it, the same in every language.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            LostReason::Expired => "expired",
            LostReason::Taken => "taken",
            LostReason::Unconfirmed => "unconfirmed",
            LostReason::Closed => "closed",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What went wrong, to be matched.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lock was not had within `wait`. Nothing is left behind on the server.
    WaitTimeout,
    /// No server was reached, or none of those reached is active. The text names each address and
    /// what went wrong there.
    ConnectionFailed,
    /// An argument is out of its limits. Nothing was done.
    InvalidArgument,
    /// The server refused the request and did nothing.
    Refused {
        /// The code on the wire: `auth`, `denied`, `busy`, `version`, `internal`, …
        code: Cow<'static, str>,
    },
    /// The lock had been lost before.
    LockLost {
        /// How.
        reason: LostReason,
    },
    /// No server confirmed a release in time: only the end of the lease will free the lock.
    ReleaseUnconfirmed,
    /// A [`Fence`](crate::Fence) has seen a higher token of this key: whoever comes with this one
    /// no longer holds the lock.
    StaleToken,
    /// The client has been closed.
    Closed,
    /// The object belongs to the process that this one was forked from.
    Forked,
    /// The caller gave up.
    Cancelled,
}

/// One line of the table of errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorRow {
    /// The variant of [`ErrorKind`].
    pub kind: &'static str,
    /// The codes of `E` that become this kind. Codes that stand nowhere become `Refused`.
    pub wire: &'static [&'static str],
    /// The name in C.
    pub c: &'static str,
    /// The number in C; 0 is success.
    pub number: i32,
    /// The exception class in Python.
    pub python: &'static str,
    /// The `code` of the error in Node; empty where Node has its own kind of error for it.
    pub node: &'static str,
}

const fn row(
    kind: &'static str,
    wire: &'static [&'static str],
    c: &'static str,
    number: i32,
    python: &'static str,
    node: &'static str,
) -> ErrorRow {
    ErrorRow {
        kind,
        wire,
        c,
        number,
        python,
        node,
    }
}

/// The table of errors.
#[rustfmt::skip]
pub const ERRORS: [ErrorRow; 10] = [
    row("WaitTimeout", &[], "FAIRLOCK_WAIT_TIMEOUT", 1, "WaitTimeout", "ERR_WAIT_TIMEOUT"),
    row("ConnectionFailed", &["unavailable"], "FAIRLOCK_CONNECTION_FAILED", 2, "ConnectionFailed", "ERR_CONNECTION_FAILED"),
    row("InvalidArgument", &["key", "lease", "wait"], "FAIRLOCK_INVALID_ARGUMENT", 3, "ValueError", ""),
    row("Refused", &["syntax", "version", "toolong", "auth", "denied", "busy", "internal"], "FAIRLOCK_REFUSED", 4, "Refused", "ERR_REFUSED"),
    row("LockLost", &[], "FAIRLOCK_LOCK_LOST", 5, "LockLost", "ERR_LOCK_LOST"),
    row("ReleaseUnconfirmed", &[], "FAIRLOCK_RELEASE_UNCONFIRMED", 6, "ReleaseUnconfirmed", "ERR_RELEASE_UNCONFIRMED"),
    row("StaleToken", &[], "FAIRLOCK_STALE_TOKEN", 7, "StaleToken", "ERR_STALE_TOKEN"),
    row("Closed", &[], "FAIRLOCK_CLOSED", 8, "ClientClosed", "ERR_CLOSED"),
    row("Forked", &[], "FAIRLOCK_FORKED", 9, "ForkedClient", ""),
    row("Cancelled", &[], "FAIRLOCK_CANCELLED", 10, "CancelledError", "ABORT_ERR"),
];

impl ErrorKind {
    const fn index(&self) -> usize {
        match self {
            ErrorKind::WaitTimeout => 0,
            ErrorKind::ConnectionFailed => 1,
            ErrorKind::InvalidArgument => 2,
            ErrorKind::Refused { .. } => 3,
            ErrorKind::LockLost { .. } => 4,
            ErrorKind::ReleaseUnconfirmed => 5,
            ErrorKind::StaleToken => 6,
            ErrorKind::Closed => 7,
            ErrorKind::Forked => 8,
            ErrorKind::Cancelled => 9,
        }
    }

    /// The line of the table.
    #[must_use]
    pub const fn row(&self) -> &'static ErrorRow {
        &ERRORS[self.index()]
    }

    /// What an `E` with this code becomes.
    #[must_use]
    pub fn of_wire_code(code: &str) -> ErrorKind {
        for row in &ERRORS {
            if let Some(known) = row.wire.iter().find(|known| **known == code) {
                return match row.number {
                    2 => ErrorKind::ConnectionFailed,
                    3 => ErrorKind::InvalidArgument,
                    _ => ErrorKind::Refused {
                        code: Cow::Borrowed(known),
                    },
                };
            }
        }
        ErrorKind::Refused {
            code: Cow::Owned(code.to_owned()),
        }
    }

    /// Whether the same call may succeed when it is made again later.
    #[must_use]
    pub fn try_again(&self) -> bool {
        match self {
            ErrorKind::WaitTimeout | ErrorKind::ConnectionFailed => true,
            ErrorKind::Refused { code } => code == "busy",
            ErrorKind::InvalidArgument
            | ErrorKind::LockLost { .. }
            | ErrorKind::ReleaseUnconfirmed
            | ErrorKind::StaleToken
            | ErrorKind::Closed
            | ErrorKind::Forked
            | ErrorKind::Cancelled => false,
        }
    }
}

/// What went wrong: a [kind](Error::kind) to match and a text that tells people what to do.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Inner {
    kind: ErrorKind,
    text: Cow<'static, str>,
    wrong_time: Option<WrongTime>,
}

/// A time that is out of its limits, for languages that write times in a unit of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongTime {
    /// The option that it was given as.
    pub option: &'static str,
    /// What was given.
    pub time: Duration,
    takes: &'static str,
}

impl WrongTime {
    /// The sentence with the option and the time as a language writes them.
    #[must_use]
    pub fn sentence(&self, option: impl fmt::Display, time: impl fmt::Display) -> String {
        format!("{option} is {time}; give {}", self.takes)
    }
}

impl Error {
    /// An error of this kind.
    #[must_use]
    pub fn new(kind: ErrorKind, text: impl Into<Cow<'static, str>>) -> Error {
        Error(Box::new(Inner {
            kind,
            text: text.into(),
            wrong_time: None,
        }))
    }

    #[cfg(feature = "client")]
    pub(crate) fn argument(text: impl Into<Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::InvalidArgument, text)
    }

    /// `takes`: which times the option takes.
    #[cfg(feature = "client")]
    pub(crate) fn wrong_time(option: &'static str, time: Duration, takes: &'static str) -> Error {
        let wrong = WrongTime {
            option,
            time,
            takes,
        };
        let mut error = Error::argument(wrong.sentence(option, format_args!("{time:?}")));
        error.0.wrong_time = Some(wrong);
        error
    }

    #[cfg(feature = "client")]
    pub(crate) fn closed() -> Error {
        Error::new(
            ErrorKind::Closed,
            "this client has been closed; make a new one",
        )
    }

    #[cfg(feature = "client")]
    pub(crate) fn forked() -> Error {
        Error::new(
            ErrorKind::Forked,
            "this lock belongs to the process that forked; only that process can release or keep it",
        )
    }

    #[cfg(feature = "client")]
    pub(crate) fn cancelled() -> Error {
        Error::new(ErrorKind::Cancelled, "the caller gave up")
    }

    /// What is said of a lock that was lost in this way.
    #[cfg(feature = "client")]
    #[must_use]
    pub fn lost(reason: LostReason) -> Error {
        let text = match reason {
            LostReason::Expired => "the lock has been lost: its lease is over",
            LostReason::Taken => {
                "the lock has been lost: the server says that this token does not hold the key"
            }
            LostReason::Unconfirmed => "the lock has been lost: no renewal was confirmed in time",
            LostReason::Closed => "the lock has been lost: the client was closed",
        };
        Error::new(ErrorKind::LockLost { reason }, text)
    }

    /// What went wrong, to be matched.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The time that is out of its limits, if that is what went wrong.
    #[must_use]
    pub fn time_out_of_limits(&self) -> Option<&WrongTime> {
        self.0.wrong_time.as_ref()
    }

    /// Whether the same call may succeed when it is made again later.
    #[must_use]
    pub fn try_again(&self) -> bool {
        self.0.kind.try_again()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.text)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Code;

    #[test]
    fn every_wire_code_stands_in_exactly_one_row() {
        for code in Code::ALL {
            let rows = ERRORS
                .iter()
                .filter(|row| row.wire.contains(&code.as_str()))
                .count();
            assert_eq!(rows, 1, "{code}");
            let kind = ErrorKind::of_wire_code(code.as_str());
            assert!(kind.row().wire.contains(&code.as_str()), "{code}");
        }
    }

    #[test]
    fn numbers_are_the_places_in_the_table_and_names_are_unique() {
        for (place, row) in ERRORS.iter().enumerate() {
            assert_eq!(row.number, i32::try_from(place).expect("ten rows") + 1);
            assert_eq!(ERRORS.iter().filter(|other| other.c == row.c).count(), 1);
        }
    }

    #[cfg(feature = "client")]
    #[test]
    fn a_wrong_time_can_be_said_in_the_unit_of_each_language() {
        let error = Error::wrong_time("max_hold", Duration::ZERO, "more");
        assert_eq!(error.to_string(), "max_hold is 0ns; give more");
        let wrong = error.time_out_of_limits().expect("that it is");
        let sentence = wrong.sentence("maxHoldMs", wrong.time.as_millis());
        assert_eq!(sentence, "maxHoldMs is 0; give more");
        assert!(Error::argument("x").time_out_of_limits().is_none());
    }

    #[test]
    fn a_code_of_a_later_server_is_kept_as_it_came() {
        let kind = ErrorKind::of_wire_code("quota");
        assert_eq!(
            kind,
            ErrorKind::Refused {
                code: "quota".into()
            }
        );
    }
}
