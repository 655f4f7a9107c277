//! What a node counts, in one place; whoever shows metrics reads it from here.
//!
//! Plain numbers that only the node's thread changes: counting costs an addition and no more. A new
//! limit is a [`Limit`]; a reply counts itself when it is given.

use crate::engine::{Histogram, Refusal};
use crate::protocol::{Code, Operation, Reply};

/// Counts up from the start of the node.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Connections taken.
    pub accepted: u64,
    /// How often taking connections paused because the system had nothing left for another one.
    pub accept_paused: u64,
    /// Lines read.
    pub lines: u64,
    /// Reads that brought something; lines by reads is how well pipelining works.
    pub reads: u64,
    /// Connections closed because a line was too long.
    pub too_long: u64,
    /// Requests that were sent to the active node.
    pub moved: u64,
    /// Requests that were kept until a node became active.
    pub parked: u64,
    /// Connections closed for a missing or wrong secret.
    pub not_admitted: u64,
    /// Connections closed because their users are gone, or have another secret.
    pub users_gone: u64,
    /// Connections closed because there was no TLS, or the wrong one, where there should have been, or the reverse.
    pub not_secured: u64,
    /// How often something could not be written to the journal.
    pub journal_failures: u64,
    /// How long it took from what freed a lock, as the node read or noticed it, until the next holder's line had
    /// been given to its socket.
    pub hand_over: Histogram,
    /// By operation, the last row for lines without one, and by outcome.
    answers: [[u64; Outcome::ALL.len()]; OPERATIONS.len() + 1],
    by_code: [u64; Code::ALL.len()],
    by_limit: [u64; Limit::ALL.len()],
}

/// What there may be only so much of. Whoever would have more is refused or let go, and counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Keys that are held (`max_keys`): acquires are refused.
    Keys,
    /// Requests that wait for one key (`max_waiters_per_key`): acquires are refused.
    WaitersOfKey,
    /// Requests that wait in all (`max_waiters`): acquires are refused.
    Waiters,
    /// Requests of one connection that wait (`max_waiting_per_connection`), parked ones included: requests are refused.
    WaitingOfConnection,
    /// Memory of requests that are parked: requests are refused.
    ParkedBytes,
    /// Connections (`max_connections`, or what the system allows): those beyond are turned away.
    Connections,
    /// What a client leaves unread (`max_unread`): it is cut off.
    Unread,
    /// What all clients leave unread (`max_unread_total`): those with more than their share are cut off.
    UnreadInAll,
    /// TLS handshakes under way (`max_handshakes`): the oldest is ended.
    Handshakes,
    /// The time until the hello (`hello_timeout`): the connection is closed.
    HelloTimeout,
    /// The silence of a client that gave an id (`idle_timeout`): the connection is closed.
    IdleTimeout,
    /// Secrets that are checked against hashes: hellos are turned away.
    SecretChecks,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Limit; 12] = [
        Limit::Keys,
        Limit::WaitersOfKey,
        Limit::Waiters,
        Limit::WaitingOfConnection,
        Limit::ParkedBytes,
        Limit::Connections,
        Limit::Unread,
        Limit::UnreadInAll,
        Limit::Handshakes,
        Limit::HelloTimeout,
        Limit::IdleTimeout,
        Limit::SecretChecks,
    ];

    /// Its name in metrics: the setting, where there is one.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Limit::Keys => "max_keys",
            Limit::WaitersOfKey => "max_waiters_per_key",
            Limit::Waiters => "max_waiters",
            Limit::WaitingOfConnection => "max_waiting_per_connection",
            Limit::ParkedBytes => "parked_bytes",
            Limit::Connections => "max_connections",
            Limit::Unread => "max_unread",
            Limit::UnreadInAll => "max_unread_total",
            Limit::Handshakes => "max_handshakes",
            Limit::HelloTimeout => "hello_timeout",
            Limit::IdleTimeout => "idle_timeout",
            Limit::SecretChecks => "secret_checks",
        }
    }

    /// The limit that an acquire was refused for, where it was one.
    const fn of(refusal: Refusal) -> Option<Limit> {
        match refusal {
            Refusal::Keys => Some(Limit::Keys),
            Refusal::WaitersOfKey => Some(Limit::WaitersOfKey),
            Refusal::Waiters => Some(Limit::Waiters),
            Refusal::WaitingOfConnection => Some(Limit::WaitingOfConnection),
            // Nothing that more of something would change.
            Refusal::Leaving | Refusal::TokensUsedUp | Refusal::Denied => None,
        }
    }
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

    /// How often each limit was met.
    pub fn limits(&self) -> impl Iterator<Item = (Limit, u64)> + '_ {
        Limit::ALL.into_iter().zip(self.by_limit)
    }

    /// How often this limit was met.
    #[must_use]
    pub fn limit(&self, limit: Limit) -> u64 {
        self.by_limit[limit as usize]
    }

    /// Somebody would have had more than there may be.
    pub(crate) fn reached(&mut self, limit: Limit) {
        self.by_limit[limit as usize] += 1;
    }

    /// An acquire has been refused.
    pub(crate) fn refused(&mut self, refusal: Refusal) {
        if let Some(limit) = Limit::of(refusal) {
            self.reached(limit);
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
        for (number, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, number);
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
