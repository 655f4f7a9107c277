//! Requests that a simulated node keeps until it knows who is active, and those that it has to refuse.

use crate::desk::Work;
use crate::node::Process;
use fairlock::cluster::{Overdue, Parked, Stance, wait_left};
use fairlock::engine::{ConnectionId, Refusal};
use fairlock::protocol::{Code, Reply, Request};

impl Process {
    /// What was parked is served or sent elsewhere, now that the node knows where.
    pub(crate) fn unpark(&mut self, work: &mut Work<'_>) {
        while !matches!(self.stance, Stance::Park | Stance::Freeze) {
            let Some(parked) = self.parking.pop() else {
                return;
            };
            let Some(connection) = self.visitor_of(parked.connection) else {
                continue;
            };
            let Ok(request) = Request::parse(&parked.line) else {
                continue;
            };
            let serves = self.stance == Stance::Serve;
            work.coverage.count(if serves {
                "parked request served"
            } else {
                "parked request moved"
            });
            match request {
                Request::Acquire {
                    key,
                    lease,
                    wait,
                    tag,
                } if serves => match wait_left(wait, parked.at, work.now.time) {
                    Some(wait) => self.acquire(work, connection, key, lease, wait, tag),
                    None => self.say(connection, &Reply::TimedOut { key, tag }, None),
                },
                request => self.answer(work, connection, &request),
            }
        }
    }

    /// What was parked for too long.
    pub(crate) fn end_parked(&mut self, work: &mut Work<'_>) {
        while let Some((parked, overdue)) = self.parking.pop_overdue(work.now.time) {
            let Parked {
                connection, line, ..
            } = parked;
            let Some(to) = self.visitor_of(connection) else {
                continue;
            };
            let Ok(request) = Request::parse(&line) else {
                continue;
            };
            match (overdue, &request) {
                (Overdue::TimedOut, Request::Acquire { key, tag, .. }) => {
                    work.coverage.count("parked request timed out");
                    let (key, tag) = (*key, *tag);
                    self.say(to, &Reply::TimedOut { key, tag }, None);
                }
                (Overdue::TimedOut | Overdue::Unavailable, _) => {
                    work.coverage.count("parked request unavailable");
                    self.refuse(to, &request, Code::Unavailable);
                }
            }
        }
    }

    /// A node that stops without a successor has nothing more for those who wait.
    pub(crate) fn refuse_all(&mut self, work: &mut Work<'_>) {
        let ids: Vec<ConnectionId> = self.visitors.values().map(|visitor| visitor.id).collect();
        for id in ids {
            while self
                .engine
                .refuse_waiting(work.now.time, id, Refusal::Leaving, 100)
            {}
            self.deliver(work);
        }
    }
}
