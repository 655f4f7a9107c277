//! Requests that came while nobody was known to be active, or while the node hands over.
//!
//! They are kept as lines, in the order in which they came, until the node serves them itself or knows
//! whom to name. An acquire leaves when its own wait is over, one that does not wait soon, and
//! everything after the time that a client may be kept waiting for a cluster without an active node.

use crate::engine::{ConnectionId, Time};
use crate::protocol::{Millis, Request, Wait};
use std::collections::{BTreeMap, BTreeSet};

/// How long an acquire that does not wait is kept.
const NO_WAIT: Millis = Millis(100);

/// A request that was kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parked {
    /// Where it came from.
    pub connection: ConnectionId,
    /// What came, without the end of the line.
    pub line: Box<[u8]>,
    /// When.
    pub at: Time,
}

/// What becomes of a request that was kept for too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overdue {
    /// Its own wait is over (reply `T`).
    TimedOut,
    /// Nobody became active (reply `E … unavailable`).
    Unavailable,
}

/// No more can be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Full {
    /// The connection has as many here as it may have waiting.
    #[error("max_waiting_per_connection is reached: {0}")]
    Connection(u32),
    /// All requests here together take as much memory as they may.
    #[error("no node is active, and {PARKED_BYTES} bytes of requests wait for one")]
    Bytes,
}

/// The most that all requests here take together.
const PARKED_BYTES: usize = 256 << 20;

/// What a request takes beside its line.
const OVERHEAD_BYTES: usize = 250;

/// Requests that wait for an active node, in the order in which they came.
#[derive(Debug)]
pub struct Parking {
    timeout: Millis,
    limit: u32,
    /// By the order in which they came.
    parked: BTreeMap<u64, (Parked, Time)>,
    deadlines: BTreeSet<(Time, u64)>,
    /// The numbers of those of each connection.
    connections: BTreeMap<(u32, u32), BTreeSet<u64>>,
    bytes: usize,
    next: u64,
    handing_over: bool,
}

impl Parking {
    /// Keeps requests for at most `timeout`, and at most `limit` of a connection.
    #[must_use]
    pub fn new(timeout: Millis, limit: u32) -> Parking {
        Parking {
            timeout,
            limit,
            parked: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            connections: BTreeMap::new(),
            bytes: 0,
            next: 0,
            handing_over: false,
        }
    }

    /// While a node hands over it keeps even those that do not wait: it knows the answer soon.
    pub fn set_handing_over(&mut self, handing_over: bool) {
        self.handing_over = handing_over;
    }

    /// How many are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parked.len()
    }

    /// Whether none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// Keeps a request.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn park(
        &mut self,
        now: Time,
        connection: ConnectionId,
        request: &Request<'_>,
        line: &[u8],
    ) -> Result<(), Full> {
        if self.bytes + line.len() + OVERHEAD_BYTES > PARKED_BYTES {
            return Err(Full::Bytes);
        }
        let known = self.connections.get(&of(connection));
        if known.map_or(0, BTreeSet::len) >= self.limit as usize {
            return Err(Full::Connection(self.limit));
        }
        self.bytes += line.len() + OVERHEAD_BYTES;
        let most = now.after(self.timeout);
        let until = match request {
            Request::Acquire { wait: Wait::No, .. } if !self.handing_over => now.after(NO_WAIT),
            Request::Acquire {
                wait: Wait::For(wait),
                ..
            } => now.after(*wait).min(most),
            Request::Acquire { .. }
            | Request::Release { .. }
            | Request::Keep { .. }
            | Request::Cancel { .. }
            | Request::Inspect { .. }
            | Request::Waiters { .. }
            | Request::List { .. }
            | Request::Hello(_)
            | Request::Ping { .. }
            | Request::Status => most,
        };
        let number = self.next;
        self.next += 1;
        let own = self.connections.entry(of(connection)).or_default();
        own.insert(number);
        let parked = Parked {
            connection,
            line: line.into(),
            at: now,
        };
        self.deadlines.insert((until, number));
        self.parked.insert(number, (parked, until));
        Ok(())
    }

    /// A connection is gone, and with it what it had asked for.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        let numbers = self.connections.remove(&of(connection));
        for number in numbers.into_iter().flatten() {
            if let Some((parked, until)) = self.parked.remove(&number) {
                self.deadlines.remove(&(until, number));
                self.bytes -= parked.line.len() + OVERHEAD_BYTES;
            }
        }
    }

    /// The next one in the order in which they came: to be served or sent elsewhere.
    pub fn pop(&mut self) -> Option<Parked> {
        let (number, (parked, until)) = self.parked.pop_first()?;
        self.deadlines.remove(&(until, number));
        self.forget(&parked, number);
        Some(parked)
    }

    /// When the next one has been kept for too long.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// The next one that has been kept for too long by `now`.
    pub fn pop_overdue(&mut self, now: Time) -> Option<(Parked, Overdue)> {
        let (until, number) = *self.deadlines.first().filter(|(until, _)| *until <= now)?;
        self.deadlines.remove(&(until, number));
        let (parked, _) = self.parked.remove(&number)?;
        self.forget(&parked, number);
        let waits = matches!(
            Request::parse(&parked.line),
            Ok(Request::Acquire { wait: Wait::For(wait), .. }) if parked.at.after(wait) <= now
        );
        let overdue = if waits {
            Overdue::TimedOut
        } else {
            Overdue::Unavailable
        };
        Some((parked, overdue))
    }

    fn forget(&mut self, parked: &Parked, number: u64) {
        self.bytes -= parked.line.len() + OVERHEAD_BYTES;
        if let Some(numbers) = self.connections.get_mut(&of(parked.connection)) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.connections.remove(&of(parked.connection));
            }
        }
    }
}

/// What is left of a wait that began at `at`; `None` if it is over.
#[must_use]
pub fn wait_left(wait: Wait, at: Time, now: Time) -> Option<Wait> {
    match wait {
        Wait::No | Wait::Forever => Some(wait),
        Wait::For(length) => {
            let left = at.after(length).0.saturating_sub(now.0).div_ceil(1000);
            (left > 0).then_some(Wait::For(Millis(left)))
        }
    }
}

fn of(connection: ConnectionId) -> (u32, u32) {
    (connection.index, connection.generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Time = Time(1_000_000);
    const CONNECTION: ConnectionId = ConnectionId {
        index: 3,
        generation: 9,
    };

    fn parking() -> Parking {
        Parking::new(Millis(5000), 10)
    }

    fn park(parking: &mut Parking, now: Time, line: &str) -> Result<(), Full> {
        let request = Request::parse(line.as_bytes()).expect("a request");
        parking.park(now, CONNECTION, &request, line.as_bytes())
    }

    fn line(parked: Option<Parked>) -> Option<String> {
        parked.map(|parked| String::from_utf8_lossy(&parked.line).into_owned())
    }

    #[test]
    fn requests_come_out_in_the_order_in_which_they_came() {
        let mut parking = parking();
        for text in ["A k 30 0 #1", "A k 30 - #2", "C k #1.1", "R k 5"] {
            park(&mut parking, AT, text).expect("there is room");
        }
        for text in ["A k 30 0 #1", "A k 30 - #2", "C k #1.1", "R k 5"] {
            assert_eq!(line(parking.pop()).as_deref(), Some(text));
        }
        assert_eq!((parking.pop(), parking.next_deadline()), (None, None));
    }

    #[test]
    fn each_leaves_at_its_own_time_with_its_own_answer() {
        let mut parking = parking();
        for text in [
            "A k 30 0 #1",
            "A k 30 - #2",
            "A k 30 0.5 #3",
            "A k 30 9 #4",
            "I k",
        ] {
            park(&mut parking, AT, text).expect("there is room");
        }
        let mut left = Vec::new();
        for ms in 0..=5000 {
            while let Some((parked, overdue)) = parking.pop_overdue(AT.after(Millis(ms))) {
                left.push((ms, line(Some(parked)).expect("it is there"), overdue));
            }
        }
        let expected = [
            (100, "A k 30 - #2", Overdue::Unavailable),
            (500, "A k 30 0.5 #3", Overdue::TimedOut),
            (5000, "A k 30 0 #1", Overdue::Unavailable),
            (5000, "A k 30 9 #4", Overdue::Unavailable),
            (5000, "I k", Overdue::Unavailable),
        ];
        assert_eq!(
            left,
            expected.map(|(ms, text, how)| (ms, text.to_owned(), how))
        );
    }

    #[test]
    fn a_node_that_hands_over_keeps_those_that_do_not_wait() {
        let mut parking = parking();
        parking.set_handing_over(true);
        park(&mut parking, AT, "A k 30 - #2").expect("there is room");
        assert_eq!(parking.next_deadline(), Some(AT.after(Millis(5000))));
    }

    #[test]
    fn a_connection_has_a_limit_and_takes_its_requests_with_it() {
        let mut parking = parking();
        for number in 0..10 {
            park(&mut parking, AT, &format!("I k #{number}")).expect("there is room");
        }
        assert_eq!(park(&mut parking, AT, "I k #10"), Err(Full::Connection(10)));
        parking.disconnect(CONNECTION);
        assert_eq!((parking.len(), parking.next_deadline()), (0, None));
        park(&mut parking, AT, "I k #11").expect("there is room again");
    }

    #[test]
    fn a_wait_goes_on_from_when_it_came() {
        let later = AT.after(Millis(300));
        assert_eq!(wait_left(Wait::Forever, AT, later), Some(Wait::Forever));
        assert_eq!(wait_left(Wait::No, AT, later), Some(Wait::No));
        let half = Wait::For(Millis(500));
        assert_eq!(wait_left(half, AT, later), Some(Wait::For(Millis(200))));
        assert_eq!(wait_left(half, AT, AT.after(Millis(500))), None);
    }
}
