//! What a play expects: waits for it, and says what came instead.

use super::Trouble::Wrong;
use super::{Item, Performance, Trouble};
use crate::pattern::Pattern;
use crate::scenario::Connection;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

impl Performance<'_> {
    pub(super) fn sees(
        &mut self,
        wanted: &Connection,
        anywhere: bool,
        pattern: &Pattern,
        limit: Instant,
    ) -> Result<Instant, Trouble> {
        let depth = if anywhere { usize::MAX } else { 1 };
        loop {
            for index in self.candidates(wanted)? {
                let mut queue = self.connections[index].queue.iter().take(depth);
                let found = queue.position(|(_, item)| {
                    matches!(item, Item::Line(line) if pattern.matches(line, &mut self.names))
                });
                if let Some(place) = found {
                    return Ok(self.take(wanted, index, place));
                }
                if !anywhere {
                    self.nothing_else(wanted, index)?;
                }
            }
            if !self.pump(limit)? {
                return Err(Wrong(format!("nothing like this came; {}", self.pending())));
            }
        }
    }

    pub(super) fn ended(
        &mut self,
        wanted: &Connection,
        reset: bool,
        limit: Instant,
    ) -> Result<Instant, Trouble> {
        loop {
            for index in self.candidates(wanted)? {
                match self.connections[index].queue.front() {
                    Some((_, Item::Ended { reset: false })) if reset => {
                        return Err(Wrong(
                            "the client closed it instead of resetting it".to_owned(),
                        ));
                    }
                    Some((_, Item::Ended { .. })) => return Ok(self.take(wanted, index, 0)),
                    _ => self.nothing_else(wanted, index)?,
                }
            }
            if !self.pump(limit)? {
                return Err(Wrong(format!(
                    "the connection stayed up; {}",
                    self.pending()
                )));
            }
        }
    }

    pub(super) fn take(&mut self, wanted: &Connection, connection: usize, place: usize) -> Instant {
        self.bind(wanted, connection);
        let queue = &mut self.connections[connection].queue;
        let (at, _) = queue.remove(place).expect("it was just found");
        at
    }

    /// On a connection that is known by name the next thing is the expected one or a fault.
    pub(super) fn nothing_else(
        &self,
        wanted: &Connection,
        connection: usize,
    ) -> Result<(), Trouble> {
        let seen = &self.connections[connection];
        match seen.queue.front() {
            Some((_, item)) if seen.label.is_some() && wanted.label.is_some() => {
                Err(Wrong(format!("instead came {}", self.spell(item))))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn got(
        &mut self,
        op: &str,
        pattern: &Pattern,
        limit: Instant,
    ) -> Result<Instant, Trouble> {
        loop {
            if let Some((at, text)) = self.answers.get_mut(op).and_then(VecDeque::pop_front) {
                return match pattern.matches(&text, &mut self.names) {
                    true => Ok(at),
                    false => Err(Wrong(format!("instead the caller got {text}"))),
                };
            }
            if !self.pump(limit)? {
                return Err(Wrong(format!("the caller got nothing; {}", self.pending())));
            }
        }
    }

    pub(super) fn connects(&mut self, node: &str, limit: Instant) -> Result<Instant, Trouble> {
        let node = self.node(node)?;
        loop {
            if let Some(at) = self.nodes[node].connects.pop_front() {
                return Ok(at);
            }
            if !self.pump(limit)? {
                return Err(Wrong("no connection came".to_owned()));
            }
        }
    }

    pub(super) fn no_connect(&mut self, node: &str, time: Duration) -> Result<(), Trouble> {
        let node = self.node(node)?;
        let begin = self.last;
        let limit = begin + time;
        loop {
            let more = self.pump(limit)?;
            if let Some(at) = self.nodes[node].connects.pop_front()
                && at < limit
            {
                let after = at.saturating_duration_since(begin).as_millis();
                return Err(Wrong(format!("a connection came after {after} ms")));
            }
            if !more {
                self.last = Instant::now();
                return Ok(());
            }
        }
    }

    pub(super) fn accepted(&mut self, node: &str, count: usize) -> Result<(), Trouble> {
        while self.pump(Instant::now())? {}
        let node = self.node(node)?;
        match self.nodes[node].accepted {
            have if have == count => {
                self.trace
                    .push(format!("{} accepted {count}", self.nodes[node].name));
                Ok(())
            }
            have => Err(Wrong(format!("{have} connections have come"))),
        }
    }

    pub(super) fn quiet(&mut self, time: Duration) -> Result<(), Trouble> {
        let limit = Instant::now() + time;
        loop {
            let more = self.pump(limit)?;
            if self.has_pending() {
                return Err(Wrong(format!("it is not quiet; {}", self.pending())));
            }
            if !more {
                self.last = Instant::now();
                return Ok(());
            }
        }
    }
}
