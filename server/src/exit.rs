//! How a command ends: the exit codes of all commands in one place, and the one sentence that goes
//! with each of them.

use crate::text;
use fairlock::{Error, ErrorKind, ServerError};
use std::fmt::Display;
use std::io::{self, Write};

/// The command did what it was asked to do.
pub(crate) const OK: u8 = 0;
/// The command failed for a reason that has no code of its own: a disk, a pipe, an address in use.
pub(crate) const FAILED: u8 = 1;
/// Wrong arguments, or a wrong setting.
pub(crate) const USAGE: u8 = 64;
/// No server was reached.
pub(crate) const UNREACHABLE: u8 = 69;
/// The lock was lost, or the token does not hold it.
pub(crate) const LOST: u8 = 74;
/// The lock was not had within the wait.
pub(crate) const NOT_HAD: u8 = 75;
/// The server refused.
pub(crate) const REFUSED: u8 = 77;
/// `run`: COMMAND was found but cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// `run`: COMMAND was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// A signal ended it: this plus the number of the signal.
pub(crate) const SIGNAL: u8 = 128;

/// Why a command ended without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    /// One sentence for people; nothing is printed if it is empty.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Display) -> Failure {
        Failure {
            code,
            message: message.to_string(),
        }
    }

    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure::new(USAGE, message)
    }

    /// Ended by a signal, which says enough by itself.
    pub(crate) fn signal(number: i32) -> Failure {
        Failure::new(code_of_signal(number), "")
    }
}

/// The code that a shell gives to a command that this signal ended.
pub(crate) fn code_of_signal(number: i32) -> u8 {
    SIGNAL.saturating_add(u8::try_from(number).unwrap_or(0))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match error.kind() {
            ErrorKind::WaitTimeout => NOT_HAD,
            ErrorKind::ConnectionFailed | ErrorKind::ReleaseUnconfirmed => UNREACHABLE,
            ErrorKind::InvalidArgument => USAGE,
            ErrorKind::Refused { .. } => REFUSED,
            ErrorKind::LockLost { .. } | ErrorKind::StaleToken => LOST,
            _ => FAILED,
        };
        Failure::new(code, error)
    }
}

impl From<ServerError> for Failure {
    /// A wrong setting stays wrong at the next try, which service managers are told by its code; all else may not.
    fn from(error: ServerError) -> Failure {
        let code = match error {
            ServerError::Setting(_) => USAGE,
            _ => FAILED,
        };
        Failure::new(code, error)
    }
}

impl From<io::Error> for Failure {
    /// Output that nobody reads any more is the reader's choice and no failure worth a word.
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::new(OK, ""),
            _ => Failure::new(FAILED, format_args!("cannot write the output: {error}")),
        }
    }
}

/// Tells people something on standard error; part of it may be the words of a server. Nobody there to read it is no reason
/// to stop.
pub(crate) fn tell(message: impl Display) {
    let message = text::plain(&message.to_string());
    let _ = writeln!(io::stderr(), "fairlock: {message}");
}
