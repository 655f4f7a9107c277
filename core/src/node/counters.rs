//! What a node counts, in one place; whoever shows metrics reads it from here.
//!
//! Plain numbers that only the node's thread changes: counting costs an addition and no more. A new
//! limit is a number here and a line in [`Counters::limits`]; a reply counts itself when it is given.

use crate::engine::{Histogram, Refusal};
use crate::protocol::{Code, Operation, Reply};

/// Counts up from the start of the node.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Connections taken.
    pub accepted: u64,
    /// Connections turned away because there were too many (`max_connections`, or what the system allows).
    pub turned_away: u64,
    /// How often taking connections paused because the system had nothing left for another one.
    pub accept_paused: u64,
    /// Lines read.
    pub lines: u64,
    /// Reads that brought something; lines by reads is how well pipelining works.
    pub reads: u64,
    /// Acquires refused because too many keys were held (`max_keys`).
    pub refused_keys: u64,
    /// Acquires refused because too many waited for the key (`max_waiters_per_key`).
    pub refused_waiters_of_key: u64,
    /// Acquires refused because too many waited in all (`max_waiters`).
    pub refused_waiters: u64,
    /// Requests refused because too many of the connection waited (`max_waiting_per_connection`), parked ones included.
    pub refused_waiting_of_connection: u64,
    /// Requests refused because those that were parked took too much memory.
    pub refused_parked: u64,
    /// Acquires refused because no fencing token was left.
    pub refused_tokens: u64,
    /// Connections closed because a line was too long.
    pub too_long: u64,
    /// Connections cut off because the client did not read (`max_unread`).
    pub cut_off: u64,
    /// Connections cut off because all clients together left too much unread, and this one more than its share (`max_unread_total`).
    pub cut_off_in_all: u64,
    /// Connections closed because they had not said hello in time (`hello_timeout`).
    pub unannounced: u64,
    /// Connections closed because the client was silent (`idle_timeout`).
    pub silent: u64,
    /// Requests that were sent to the active node.
    pub moved: u64,
    /// Requests that were kept until a node became active.
    pub parked: u64,
    /// Connections closed for a missing or wrong secret.
    pub not_admitted: u64,
    /// Connections closed because there was no TLS, or the wrong one, where there should have been, or the reverse.
    pub not_secured: u64,
    /// TLS handshakes ended because others came when there were too many (`max_handshakes`).
    pub handshakes_pushed_out: u64,
    /// Requests that their users were not allowed.
    pub denied: u64,
    /// Hellos that were turned away because too many secrets were to be checked.
    pub unchecked: u64,
    /// How long it took from what freed a lock, as the node read or noticed it, until the next holder's line had
    /// been given to its socket.
    pub hand_over: Histogram,
    /// By operation, the last row for lines without one, and by outcome.
    answers: [[u64; Outcome::ALL.len()]; OPERATIONS.len() + 1],
    by_code: [u64; Code::ALL.len()],
}

/// What became of a request, as far as its reply says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was done: granted, released, kept, cancelled, answered.
    Ok,
    /// An acquire was not granted in time.
    TimedOut,
    /// The token of a release or keep did not hold the key.
    Stale,
    /// There was nothing to cancel.
    None,
    /// It was sent to the active node.
    Moved,
    /// It was refused; [`Counters::refusals`] says why.
    Refused,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Outcome; 6] = [
        Outcome::Ok,
        Outcome::TimedOut,
        Outcome::Stale,
        Outcome::None,
        Outcome::Moved,
        Outcome::Refused,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::TimedOut => "timeout",
            Outcome::Stale => "stale",
            Outcome::None => "none",
            Outcome::Moved => "moved",
            Outcome::Refused => "refused",
        }
    }
}

/// Operations in the order of their numbers, with their names in metrics.
const OPERATIONS: [(Operation, &str); 10] = [
    (Operation::Acquire, "acquire"),
    (Operation::Release, "release"),
    (Operation::Keep, "keep"),
    (Operation::Cancel, "cancel"),
    (Operation::Inspect, "inspect"),
    (Operation::Waiters, "waiters"),
    (Operation::List, "list"),
    (Operation::Hello, "hello"),
    (Operation::Ping, "ping"),
    (Operation::Status, "status"),
];

impl Counters {
    /// How many requests of each operation, by its name, had each outcome, but for combinations that never happened.
    /// A request that waits is counted when it has its answer, and one that is cancelled before has none.
    pub fn answers(&self) -> impl Iterator<Item = (&'static str, Outcome, u64)> + '_ {
        let names = OPERATIONS.iter().map(|(_, name)| *name).chain(["unknown"]);
        names.zip(&self.answers).flat_map(|(name, row)| {
            let counts = Outcome::ALL.into_iter().zip(row);
            counts
                .filter(|(_, count)| **count > 0)
                .map(move |(outcome, count)| (name, outcome, *count))
        })
    }

    /// How many requests were refused with each code.
    pub fn refusals(&self) -> impl Iterator<Item = (Code, u64)> + '_ {
        Code::ALL.into_iter().zip(self.by_code.iter().copied())
    }

    /// How often each limit was met, by its setting; `parked_bytes` and `secret_checks` have none.
    pub fn limits(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("max_keys", self.refused_keys),
            ("max_waiters_per_key", self.refused_waiters_of_key),
            ("max_waiters", self.refused_waiters),
            (
                "max_waiting_per_connection",
                self.refused_waiting_of_connection,
            ),
            ("parked_bytes", self.refused_parked),
            ("max_connections", self.turned_away),
            ("max_unread", self.cut_off),
            ("max_unread_total", self.cut_off_in_all),
            ("max_handshakes", self.handshakes_pushed_out),
            ("hello_timeout", self.unannounced),
            ("idle_timeout", self.silent),
            ("secret_checks", self.unchecked),
        ]
        .into_iter()
    }

    /// An acquire has been refused.
    pub(crate) fn refused(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Keys => self.refused_keys += 1,
            Refusal::WaitersOfKey => self.refused_waiters_of_key += 1,
            Refusal::Waiters => self.refused_waiters += 1,
            Refusal::WaitingOfConnection => self.refused_waiting_of_connection += 1,
            Refusal::TokensUsedUp => self.refused_tokens += 1,
            // That is no limit: the client goes elsewhere.
            Refusal::Leaving => {}
        }
    }

    /// A reply is given. Inlined, so that where its kind is known this is one addition.
    #[inline(always)]
    pub(crate) fn note(&mut self, reply: &Reply<'_>) {
        let (operation, outcome) = match reply {
            Reply::Granted { .. } => (Operation::Acquire, Outcome::Ok),
            Reply::TimedOut { .. } => (Operation::Acquire, Outcome::TimedOut),
            Reply::Released { ok: true, .. } => (Operation::Release, Outcome::Ok),
            Reply::Released { .. } => (Operation::Release, Outcome::Stale),
            Reply::Kept { ok: true, .. } => (Operation::Keep, Outcome::Ok),
            Reply::Kept { .. } => (Operation::Keep, Outcome::Stale),
            Reply::Cancelled { found: true, .. } => (Operation::Cancel, Outcome::Ok),
            Reply::Cancelled { .. } => (Operation::Cancel, Outcome::None),
            Reply::Free { .. } | Reply::Held { .. } => (Operation::Inspect, Outcome::Ok),
            Reply::Hello(_) => (Operation::Hello, Outcome::Ok),
            Reply::Pong { .. } => (Operation::Ping, Outcome::Ok),
            Reply::Status(_) => (Operation::Status, Outcome::Ok),
            Reply::Moved { operation, .. } => {
                self.moved += 1;
                (*operation, Outcome::Moved)
            }
            Reply::Refused {
                operation, code, ..
            } => return self.note_refusal(*operation, code),
            // Parts of an answer that is counted as a whole, and what nobody has asked for.
            Reply::Waiters { .. }
            | Reply::Listed { .. }
            | Reply::WaiterRow { .. }
            | Reply::LockRow { .. }
            | Reply::ActiveAt { .. } => return,
        };
        self.answers[operation as usize][outcome as usize] += 1;
    }

    /// An answer of many rows has been made to its end.
    pub(crate) fn listed(&mut self, operation: Operation) {
        self.answers[operation as usize][Outcome::Ok as usize] += 1;
    }

    #[cold]
    fn note_refusal(&mut self, operation: Option<Operation>, code: &str) {
        let row = operation.map_or(OPERATIONS.len(), |operation| operation as usize);
        self.answers[row][Outcome::Refused as usize] += 1;
        if let Some(code) = Code::parse(code) {
            self.by_code[code as usize] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_where_its_number_says() {
        for (number, (operation, name)) in OPERATIONS.into_iter().enumerate() {
            assert_eq!(operation as usize, number, "{name}");
        }
        for (number, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, number);
        }
        for (number, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, number);
        }
    }

    #[test]
    fn a_refusal_counts_by_its_operation_and_by_its_code() {
        let mut counters = Counters::default();
        counters.note(&Reply::refused(
            Operation::Keep,
            b"k",
            Code::Lease,
            None,
            "no",
        ));
        counters.note(&Reply::Refused {
            operation: None,
            key: b"-",
            code: Code::Syntax.as_str(),
            tag: None,
            text: "what",
        });
        let answers: Vec<_> = counters.answers().collect();
        let expected = [
            ("keep", Outcome::Refused, 1),
            ("unknown", Outcome::Refused, 1),
        ];
        assert_eq!(answers, expected);
        let refused: Vec<_> = counters
            .refusals()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(refused, [(Code::Syntax, 1), (Code::Lease, 1)]);
    }
}
