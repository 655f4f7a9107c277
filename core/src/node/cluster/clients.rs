//! How a node with peers treats its clients while it is not the one that serves: keeps their requests,
//! or sends them to the active node; and what they are told when that changes.
//!
//! The order in which requests came is kept: as long as any is parked, those that come are parked
//! behind it.

use super::{Node, Shared, Slot, Stance};
use crate::cluster::{Full, Overdue, Parked, Stage, wait_left};
use crate::engine::{ConnectionId, Refusal, Time};
use crate::node::answer::{Flow, subject};
use crate::node::connection::Greeting;
use crate::node::counters::Limit;
use crate::node::state::now;
use crate::protocol::{Code, Reply, Request};

/// How many requests are answered, or clients told, before others get their turn.
const AT_ONCE: usize = 512;
/// The same for requests that keep others from being served.
const MOST_AT_ONCE: usize = 1 << 16;

impl Node {
    /// From now on clients are treated so.
    pub(super) fn take_stance(&mut self, stance: Stance) {
        let Some(cluster) = &mut self.cluster else {
            return;
        };
        let before = std::mem::replace(&mut cluster.stance, stance);
        self.active = match stance {
            Stance::Redirect(slot) | Stance::Leave(Some(slot)) => {
                Some(cluster.public(slot).to_owned())
            }
            Stance::Park | Stance::Serve | Stance::Freeze | Stance::Leave(None) => None,
        };
        if self.active.is_some() {
            self.move_held();
        } else if stance == Stance::Leave(None) {
            self.answer_held();
        }
        let Some(cluster) = &mut self.cluster else {
            return;
        };
        // Who was never active has only a copy, and goes without having served from it.
        let served = matches!(before, Stance::Serve | Stance::Freeze);
        self.timers_run = stance == Stance::Serve || (stance == Stance::Leave(None) && served);
        self.serves = self.timers_run && cluster.parking.is_empty();
        if stance == Stance::Park {
            // Who has said hello meanwhile has not been told of anybody.
            cluster.told = None;
        }
        cluster.clients.notify_one();
        cluster.ending.notify_one();
    }

    /// Takes a request that cannot be served now.
    #[cold]
    pub(crate) fn handle_unserved(
        &mut self,
        now: Time,
        id: ConnectionId,
        request: &Request<'_>,
        line: &[u8],
    ) {
        let Some(cluster) = &mut self.cluster else {
            return self.refuse_leaving(request);
        };
        match cluster.stance {
            Stance::Redirect(_) | Stance::Leave(Some(_)) => self.send_elsewhere(request),
            Stance::Leave(None) if !self.timers_run => self.refuse_leaving(request),
            Stance::Park | Stance::Freeze | Stance::Serve | Stance::Leave(None) => {
                let hands_over = cluster.member.stage() == Stage::HandingOver;
                cluster.parking.set_handing_over(hands_over);
                match cluster.parking.park(now, id, request, line) {
                    Ok(()) => {
                        self.counters.parked += 1;
                        self.timer.wake_before(cluster.parking.next_deadline());
                    }
                    Err(full) => {
                        match full {
                            Full::Connection(_) => {
                                self.counters.reached(Limit::WaitingOfConnection)
                            }
                            Full::Bytes => self.counters.reached(Limit::ParkedBytes),
                        }
                        let (operation, key, tag) = subject(request);
                        self.answer(&Reply::Refused {
                            operation,
                            key,
                            code: Code::Busy.as_str(),
                            tag,
                            text: &full.to_string(),
                        });
                    }
                }
            }
        }
    }

    /// Answers with the address of the active node.
    fn send_elsewhere(&mut self, request: &Request<'_>) {
        let (operation, key, tag) = subject(request);
        if let (Some(operation), Some(address)) = (operation, &self.active) {
            let reply = Reply::Moved {
                operation,
                key,
                address,
                tag,
            };
            self.counters.note(&reply);
            reply.encode(&mut self.replies);
        }
    }

    /// Refuses a request of a node that is about to stop and has nobody to send its clients to.
    pub(crate) fn refuse_leaving(&mut self, request: &Request<'_>) {
        let (operation, key, tag) = subject(request);
        let (code, text) = (Refusal::Leaving.code().as_str(), Refusal::Leaving.text());
        self.answer(&Reply::Refused {
            operation,
            key,
            code,
            tag,
            text,
        });
    }

    /// Answers a bounded number of those that have been parked for too long.
    pub(super) fn refuse_overdue(&mut self, now: Time) -> bool {
        for _ in 0..AT_ONCE {
            let overdue = self
                .cluster
                .as_mut()
                .and_then(|cluster| cluster.parking.pop_overdue(now));
            let Some((parked, overdue)) = overdue else {
                self.take_new_requests();
                return false;
            };
            let Ok(request) = Request::parse(&parked.line) else {
                continue;
            };
            let (operation, key, tag) = subject(&request);
            match (overdue, &request) {
                (Overdue::TimedOut, Request::Acquire { key, tag, .. }) => {
                    let (key, tag) = (*key, *tag);
                    self.tell(parked.connection, &Reply::TimedOut { key, tag });
                }
                _ => {
                    let reply = Reply::Refused {
                        operation,
                        key,
                        code: Code::Unavailable.as_str(),
                        tag,
                        text: "no node is active, and none became so in time",
                    };
                    self.tell(parked.connection, &reply);
                }
            }
        }
        true
    }

    /// Goes back to serving at once when nothing is parked any more.
    fn take_new_requests(&mut self) {
        if let Some(cluster) = &self.cluster {
            self.serves = self.timers_run && cluster.parking.is_empty();
        }
    }

    /// Answers a bounded number of parked requests, if the node knows how. Returns whether there are more.
    fn answer_parked(&mut self, at_once: usize) -> bool {
        let now = now();
        self.look_at_clock(now);
        let mut more = true;
        for _ in 0..at_once {
            let Some(cluster) = &mut self.cluster else {
                break;
            };
            if matches!(cluster.stance, Stance::Park | Stance::Freeze) {
                more = false;
                break;
            }
            let Some(parked) = cluster.parking.pop() else {
                more = false;
                break;
            };
            self.answer_one(now, parked);
        }
        self.take_new_requests();
        self.flush_others(now);
        self.rearm();
        more
    }

    fn answer_one(&mut self, now: Time, parked: Parked) {
        let Ok(mut request) = Request::parse(&parked.line) else {
            return;
        };
        let id = parked.connection;
        if self.timers_run && matches!(request, Request::List { .. } | Request::Waiters { .. }) {
            // Rows are made as the connection takes them, so its own task has to see to it.
            if let Some(connection) = self.connections.get_mut(id) {
                connection.hand_back(parked.line);
            }
            return;
        }
        if let Request::Acquire { key, wait, tag, .. } = &mut request {
            match wait_left(*wait, parked.at, now) {
                Some(left) => *wait = left,
                None => {
                    let reply = Reply::TimedOut {
                        key: *key,
                        tag: *tag,
                    };
                    return self.tell(id, &reply);
                }
            }
        }
        self.serving = Some(id);
        if self.timers_run {
            let flow = self.handle_if_allowed(now, id, &request);
            debug_assert_eq!(flow, Flow::On, "rows were dealt with before");
        } else if self.active.is_none() {
            self.refuse_leaving(&request);
        } else {
            self.send_elsewhere(&request);
        }
        self.serving = None;
        self.put_replies(id);
    }

    /// Answers a list that was parked, or begins to. It has had its turn among those that are parked, so it does not go behind
    /// them again as long as the node knows how to answer.
    pub(in crate::node) fn answer_handed_back(&mut self, now: Time, id: ConnectionId, line: &[u8]) {
        let Ok(request) = Request::parse(line) else {
            return;
        };
        if !self.timers_run {
            self.handle_unserved(now, id, &request, line);
        } else if self.handle_if_allowed(now, id, &request) == Flow::Rows {
            self.append_rows(now, id);
        }
    }

    /// Tells a bounded number of clients, those after `from`, who the active node is.
    fn tell_active(&mut self, ids: &[ConnectionId], address: &str) {
        let leaving = self.role == crate::protocol::Role::Leaving;
        for id in ids {
            let Some(connection) = self.connections.get_mut(*id) else {
                continue;
            };
            if matches!(
                connection.greeting,
                Greeting::Introduced | Greeting::Identified
            ) {
                self.tell(*id, &Reply::ActiveAt { address });
            }
            if leaving && let Some(connection) = self.connections.get_mut(*id) {
                // Its task lets the client go.
                connection.may_end = true;
                connection.wake();
            }
        }
        self.flush_others(now());
        self.rearm();
    }

    /// Whether the node stops and has no successor for its clients.
    fn leaves_nobody(&self) -> bool {
        let stance = self.cluster.as_ref().map(|cluster| cluster.stance);
        stance == Some(Stance::Leave(None))
    }

    /// The active node, if the clients have not been told of it yet.
    fn news_for_clients(&mut self) -> Option<String> {
        let leaving = self.role == crate::protocol::Role::Leaving;
        let cluster = self.cluster.as_mut()?;
        let active: Slot = match cluster.stance {
            Stance::Serve => cluster.member.members().own(),
            Stance::Redirect(slot) | Stance::Leave(Some(slot)) => slot,
            Stance::Park | Stance::Freeze | Stance::Leave(None) => return None,
        };
        // Who leaves tells it once more: that it goes is news too.
        if cluster.told == Some(active) && !leaving {
            return None;
        }
        cluster.told = Some(active);
        Some(cluster.public(active).to_owned())
    }
}

/// Answers parked requests and tells clients of a new active node, whenever there is
/// reason to. Never ends on a node with peers.
pub(crate) async fn settle_clients(node: Shared) {
    let clients = |node: &Node| Some(node.cluster.as_ref()?.clients.clone());
    let Some(news) = clients(&node.lock()) else {
        return;
    };
    loop {
        news.notified().await;
        let mut at_once = AT_ONCE;
        while node.lock().answer_parked(at_once) {
            tokio::task::yield_now().await;
            // While there are any, new requests are parked behind them; so it has to be faster than those
            // who get their answers and ask again.
            at_once = (2 * at_once).min(MOST_AT_ONCE);
        }
        let told = {
            let mut node = node.lock();
            node.news_for_clients()
                .map(|address| (address, node.connections.ids()))
        };
        if let Some((address, ids)) = told {
            for some in ids.chunks(AT_ONCE) {
                node.lock().tell_active(some, &address);
                tokio::task::yield_now().await;
            }
        }
        if node.lock().leaves_nobody() {
            let ids = node.lock().connections.ids();
            for some in ids.chunks(AT_ONCE) {
                for id in some {
                    while node.lock().refuse_waiting(*id) {
                        tokio::task::yield_now().await;
                    }
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Whether a request is answered by every node, whatever its role.
pub(crate) fn is_for_every_node(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Hello(_) | Request::Ping { .. } | Request::Status
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_probes_and_status_are_for_every_node() {
        let of = |line: &str| is_for_every_node(&Request::parse(line.as_bytes()).expect(line));
        assert!(["H 1", "P #1", "S"].into_iter().all(of));
        let others = [
            "A k 1 1", "R k 5", "K k 5 1", "C k #1", "I k", "W k 1", "L - 1",
        ];
        assert!(!others.into_iter().any(of));
    }
}
