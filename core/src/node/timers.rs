//! What happens when nobody asks: leases, waits and graces end, silent clients are let go, terms rise.
//!
//! One task sleeps until the nearest of these moments. Whoever makes a nearer one wakes it.

use super::alarm::Alarm;
use super::connection::Greeting;
use super::counters::Limit;
use super::state::{Node, Shared, millis, now};
use super::stream::Peek;
use crate::engine::{ConnectionId, Time};
use crate::protocol::Millis;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::task::{Poll, Waker, ready};

/// How the timer's task is told of a nearer moment.
#[derive(Debug)]
pub(crate) struct TimerHandle {
    /// When the task will look again.
    pub(super) armed_for: Time,
    waker: Option<Waker>,
    /// Set while what had come in before a long pause is being read, and nothing may end.
    thawing: bool,
    /// When something was last ended, or looked for: what is still due was not missed in a pause.
    acted: Time,
}

impl Default for TimerHandle {
    fn default() -> Self {
        TimerHandle {
            armed_for: Time::NEVER,
            waker: None,
            thawing: false,
            acted: Time(0),
        }
    }
}

impl TimerHandle {
    /// A part of what was due has ended.
    pub(crate) fn acted(&mut self, now: Time) {
        self.acted = now;
    }

    /// Something is to be done at this moment.
    pub(crate) fn wake_before(&mut self, moment: Option<Time>) {
        if let Some(moment) = moment
            && moment < self.armed_for
        {
            self.armed_for = moment;
            if let Some(waker) = &self.waker {
                waker.wake_by_ref();
            }
        }
    }
}

/// When to look whether a connection is still alive. A connection that speaks costs nothing here: its
/// entry is moved when it comes up, not when the connection speaks.
#[derive(Debug, Default)]
pub(crate) struct IdleChecks(BinaryHeap<Reverse<(Time, u32, u32)>>);

impl IdleChecks {
    pub(crate) fn add(&mut self, at: Time, id: ConnectionId) {
        self.0.push(Reverse((at, id.index, id.generation)));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((at, _, _))| *at)
    }

    fn pop_due(&mut self, now: Time) -> Option<ConnectionId> {
        self.next().filter(|at| *at <= now)?;
        let Reverse((_, index, generation)) = self.0.pop()?;
        Some(ConnectionId { index, generation })
    }
}

/// A pause that nobody has noticed while it lasted: half of the time after which a silent node counts
/// as dead. What had come in before goes before what has ended in it.
const UNNOTICED: Millis = Millis(500);
/// How often sockets are read before the first deadline after a pause.
const THAW_ROUNDS: u32 = 1000;
/// How many connections are looked at before others get their turn.
const CHECKS_AT_ONCE: u32 = 256;

/// Never ends.
pub(crate) async fn run(node: Shared, mut alarm: Alarm) {
    loop {
        wait(&node, &mut alarm).await;
        if node.lock().has_paused(now()) {
            thaw(&node).await;
        }
        if node.lock().act(now()) {
            tokio::task::yield_now().await;
        }
    }
}

/// Sleeps until the moment that the handle names.
async fn wait(node: &Shared, alarm: &mut Alarm) {
    poll_fn(|cx| {
        let mut node = node.lock();
        let timer = &mut node.timer;
        if !timer
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            timer.waker = Some(cx.waker().clone());
        }
        loop {
            if timer.armed_for == Time::NEVER {
                return Poll::Pending;
            }
            if timer.armed_for <= now() {
                return Poll::Ready(());
            }
            ready!(alarm.poll(cx, timer.armed_for));
        }
    })
    .await;
}

/// Lets the sockets be read until they are empty.
async fn thaw(node: &Shared) {
    node.lock().timer.thawing = true;
    for _ in 0..THAW_ROUNDS {
        let before = node.lock().counters.reads;
        tokio::task::yield_now().await;
        if node.lock().counters.reads == before {
            break;
        }
    }
    node.lock().timer.thawing = false;
}

impl Node {
    /// Whether the nearest deadline has been over for so long that the node must have stood still, and
    /// not merely had too much to end at once.
    fn has_paused(&self, now: Time) -> bool {
        // A moment of zero stands for work that was left over, not for one that was missed.
        let due = self.engine.next_deadline().filter(|due| *due != Time(0));
        self.timers_run && due.is_some_and(|due| due.max(self.timer.acted).after(UNNOTICED) < now)
    }

    /// Ends what is over before requests are read, so that they find the present state.
    pub(crate) fn expire_due(&mut self, now: Time) {
        // Every step ends with `rearm`, so nothing ends before the timer's moment.
        if self.timer.armed_for > now {
            return;
        }
        let due = self.engine.next_deadline().is_some_and(|due| due <= now);
        if !due || !self.timers_run || self.timer.thawing {
            return;
        }
        if self.has_paused(now) || self.expire(now) {
            self.timer.wake_before(Some(Time(0)));
        }
    }

    /// Does what is due, or a bounded part of it. Returns whether there is more.
    fn act(&mut self, now: Time) -> bool {
        self.look_at_clock(now);
        self.raise_term(now);
        let mut more = self.tick_cluster(now);
        if self.timers_run {
            more |= self.expire(now);
        }
        for round in 0.. {
            if round == CHECKS_AT_ONCE {
                more = true;
                break;
            }
            let Some(id) = self.idle_checks.pop_due(now) else {
                break;
            };
            self.check_idle(now, id);
        }
        more |= self.step_journal(now);
        self.flush_others(now);
        let changes_due = self.changes_due();
        let moments = [
            self.engine.next_deadline().filter(|_| self.timers_run),
            self.cluster
                .as_ref()
                .and_then(|cluster| cluster.next_deadline()),
            changes_due,
            self.idle_checks.next(),
            self.terms.raise_at(),
            self.next_journal_step(),
        ];
        self.timer.armed_for = moments.into_iter().flatten().min().unwrap_or(Time::NEVER);
        more
    }

    /// When changes that wait have been collected for long enough.
    fn changes_due(&mut self) -> Option<Time> {
        if self.engine.changes_waiting() == 0 {
            return None;
        }
        self.send_changes()
    }

    fn check_idle(&mut self, now: Time, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        match connection.greeting {
            Greeting::Anonymous | Greeting::Introduced => {}
            // Its answer is on the way.
            Greeting::Checking | Greeting::Unproven => {}
            // Checked while it is awaited only where a secret is asked for, once its time is over.
            Greeting::Awaited if connection.stream.peek() == Peek::Something => {
                // It may be the hello that the node, and not the client, has been too slow for.
                let timeout = millis(self.settings.hello_timeout);
                self.idle_checks.add(now.after(timeout), id);
            }
            Greeting::Awaited => {
                self.counters.reached(Limit::HelloTimeout);
                self.abandon(now, id);
            }
            Greeting::Identified => {
                let timeout = millis(self.settings.idle_timeout);
                let silent_until = connection.heard.after(timeout);
                if silent_until > now {
                    self.idle_checks.add(silent_until, id);
                } else if connection.stream.peek() == Peek::Something {
                    self.idle_checks.add(now.after(timeout), id);
                } else {
                    self.counters.reached(Limit::IdleTimeout);
                    self.abandon(now, id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::serve::tests::{connected_with, run, stream};
    use super::super::settings::{Secret, Settings};
    use super::super::state::engine_settings;
    use super::super::terms::Terms;
    use super::*;
    use crate::engine::Engine;
    use crate::protocol::{Key, Wait};
    use std::io::Write;

    /// Goal: who has said hello in time is not let go because the node has not read it in time.
    #[test]
    fn a_hello_that_lies_in_the_socket_is_not_late_and_silence_is() {
        run(async {
            let settings = Settings {
                secret: Some(Secret::new("s")),
                ..Settings::default()
            };
            let timeout = millis(settings.hello_timeout);
            let (mut node, id, mut client) = connected_with(settings).await;
            client.write_all(b"H 1 auth=s\n").expect("it lives");
            while stream(&mut node, id).peek() == Peek::Empty {
                tokio::task::yield_now().await;
            }
            let late = now().after(timeout);
            node.act(late);
            assert!(node.connections.get_mut(id).is_some());
            let mut buffer = [0; 100];
            let read = poll_fn(|cx| stream(&mut node, id).poll_read(cx, &mut buffer)).await;
            assert_eq!(read.expect("it lives"), 11);
            node.act(late.after(timeout));
            assert!(node.connections.get_mut(id).is_none());
        });
    }

    /// Goal: what is over in a pause is worked off without another look at all sockets for each part
    /// of it. Method: far more leases than end at once, all of them over for long.
    #[test]
    fn a_pause_is_noticed_once_however_much_has_ended_in_it() {
        let settings = Settings::default();
        let mut engine = Engine::new(engine_settings(&settings), 1);
        engine.open_term(1, 0, 0).expect("the first term");
        let connection = engine.connect("one:1");
        let hold = |engine: &mut Engine, now, number: u32| {
            let key = Key::encode(format!("k{number}").as_bytes()).expect("a key");
            engine.acquire(now, connection, key.as_ref(), Millis(1), Wait::No, None);
        };
        let begin = Time(1_000_000);
        (0..2000).for_each(|number| hold(&mut engine, begin, number));
        let mut node = Node::new(settings, None, engine, Terms::new(None, 1));
        node.timers_run = true;
        let now = begin.after(Millis(10_000));
        assert!(node.has_paused(now));
        while node.act(now) {
            assert!(!node.has_paused(now));
        }
        assert_eq!(node.engine.stats().held, 0);
        hold(&mut node.engine, now, 0);
        assert!(node.has_paused(now.after(Millis(10_000))), "a second one");
    }
}
