//! Exactly one reply a request, on each connection of a client.

use fairlock::protocol::{Operation, Reply, Request, Split, Tag, split};
use std::collections::BTreeMap;

type Name = (Operation, u64, u32);

/// What a client has asked over one connection and what came.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    open: BTreeMap<Name, u32>,
    input: Vec<u8>,
}

impl Replies {
    /// Bytes leave the client.
    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Split::Line { line, used } = split(rest) {
            rest = &rest[used..];
            if let Some(name) = Request::parse(line).ok().as_ref().and_then(name_of_request) {
                *self.open.entry(name).or_default() += 1;
            }
        }
    }

    /// Bytes reach the client.
    pub(crate) fn came(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Split::Line { line, used } = split(rest) {
            rest = &rest[used..];
            let text = || String::from_utf8_lossy(line).into_owned();
            let Some(reply) = Reply::parse(line) else {
                return Err(format!("no reply: {}", text()));
            };
            let Some(name) = name_of_reply(&reply) else {
                continue;
            };
            match self.open.get_mut(&name) {
                Some(count) if *count > 1 => *count -= 1,
                Some(_) => {
                    self.open.remove(&name);
                }
                None => return Err(format!("nobody had asked for {}", text())),
            }
        }
        self.input = rest.to_vec();
        Ok(())
    }

    /// What is not answered and has to be: everything but acquires, which may have been overtaken by
    /// a later attempt.
    pub(crate) fn unanswered(&self) -> Option<String> {
        let name = self
            .open
            .keys()
            .find(|(operation, ..)| *operation != Operation::Acquire)?;
        Some(format!("{name:?} was never answered"))
    }
}

fn name_of_request(request: &Request<'_>) -> Option<Name> {
    let (operation, tag) = match *request {
        Request::Acquire { tag, .. } => (Operation::Acquire, tag),
        Request::Release { tag, .. } => (Operation::Release, tag),
        Request::Keep { tag, .. } => (Operation::Keep, tag),
        Request::Cancel { tag, .. } => (Operation::Cancel, Some(tag)),
        Request::Inspect { tag, .. } => (Operation::Inspect, tag),
        Request::Ping { tag } => (Operation::Ping, tag),
        Request::Waiters { .. } | Request::List { .. } | Request::Hello(_) | Request::Status => {
            return None;
        }
    };
    name(operation, tag)
}

fn name_of_reply(reply: &Reply<'_>) -> Option<Name> {
    let (operation, tag) = match *reply {
        Reply::Granted { tag, .. } | Reply::TimedOut { tag, .. } => (Operation::Acquire, tag),
        Reply::Released { tag, .. } => (Operation::Release, tag),
        Reply::Kept { tag, .. } => (Operation::Keep, tag),
        Reply::Cancelled { tag, .. } => (Operation::Cancel, Some(tag)),
        Reply::Free { tag, .. } | Reply::Held { tag, .. } => (Operation::Inspect, tag),
        Reply::Pong { tag } => (Operation::Ping, tag),
        Reply::Moved { operation, tag, .. } => (operation, tag),
        Reply::Refused {
            operation: Some(operation),
            tag,
            ..
        } => (operation, tag),
        Reply::WaiterRow { .. }
        | Reply::Waiters { .. }
        | Reply::LockRow { .. }
        | Reply::Listed { .. }
        | Reply::Hello(_)
        | Reply::Status(_)
        | Reply::ActiveAt { .. }
        | Reply::Refused { .. } => return None,
    };
    name(operation, tag)
}

fn name(operation: Operation, tag: Option<Tag>) -> Option<Name> {
    tag.map(|tag| (operation, tag.number, tag.attempt))
}
