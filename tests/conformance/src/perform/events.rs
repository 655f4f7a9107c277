//! What happens meanwhile: takes it into the queues in which it is looked for.

use super::Trouble::Wrong;
use super::{Item, Performance, Seen, Trouble};
use crate::pattern::Pattern;
use crate::stage::What;
use std::collections::VecDeque;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

impl Performance<'_> {
    /// Takes one event into its queue. False if none came until `limit`.
    pub(super) fn pump(&mut self, limit: Instant) -> Result<bool, Trouble> {
        if let Some(why) = &self.gone {
            return Err(Wrong(format!("the driver has ended: {why}")));
        }
        let event = match self
            .events
            .recv_timeout(limit.saturating_duration_since(Instant::now()))
        {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Wrong("the stage has ended".to_owned()));
            }
        };
        match event.what {
            What::Connected { node, connection } => {
                self.nodes[node].accepted += 1;
                self.nodes[node].connects.push_back(event.at);
                if let Some(connection) = connection {
                    self.seen(connection).node = node;
                }
            }
            What::Hello { connection, line } => {
                let form = Pattern::parse("H 1 id=<id> ...").expect("the pattern is right");
                if !form.matches(&line, &mut self.names) {
                    return Err(Wrong(format!("a hello of another form: {line}")));
                }
                let node = self.seen(connection).node;
                self.nodes[node].greeted += 1;
            }
            What::Line { connection, line } => {
                self.seen(connection)
                    .queue
                    .push_back((event.at, Item::Line(line)));
            }
            What::Ended { connection, reset } => {
                let seen = self.seen(connection);
                if !seen.cut_by_server {
                    seen.queue.push_back((event.at, Item::Ended { reset }));
                }
            }
            What::Answer { op, text } => {
                self.stage.remark(&format!("got {op} {text}"));
                self.answers
                    .entry(op)
                    .or_default()
                    .push_back((event.at, text));
            }
            What::DriverGone { why } => self.gone = Some(why),
        }
        Ok(true)
    }

    pub(super) fn seen(&mut self, connection: usize) -> &mut Seen {
        while self.connections.len() <= connection {
            self.connections.push(Seen {
                node: 0,
                label: None,
                queue: VecDeque::new(),
                cut_by_server: false,
            });
        }
        &mut self.connections[connection]
    }

    pub(super) fn has_pending(&self) -> bool {
        self.connections.iter().any(|seen| !seen.queue.is_empty())
            || self.answers.values().any(|queue| !queue.is_empty())
    }

    /// All that came and was not asked for.
    pub(super) fn pending(&self) -> String {
        let mut left = Vec::new();
        for seen in &self.connections {
            let node = self
                .nodes
                .get(seen.node)
                .map_or("?", |node| node.name.as_str());
            let label = seen.label.as_deref().unwrap_or("?");
            for (_, item) in &seen.queue {
                left.push(format!("{node}.{label} {}", self.spell(item)));
            }
        }
        for (op, queue) in &self.answers {
            for (_, text) in queue {
                left.push(format!("got {op} {text}"));
            }
        }
        if left.is_empty() {
            "nothing else came".to_owned()
        } else {
            format!("what came and was not asked for: {}", left.join(" · "))
        }
    }

    pub(super) fn spell(&self, item: &Item) -> String {
        match item {
            Item::Line(line) => format!("< {}", self.names.normal(line)),
            Item::Ended { reset: true } => "a reset by the client".to_owned(),
            Item::Ended { reset: false } => "the client's end of the connection".to_owned(),
        }
    }
}
