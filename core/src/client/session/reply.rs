//! What the server says, and which operation it is about.

use super::Failure;
use super::connection::State;
use super::operation::{Age, Kind, Sent};
use super::query::{same_key, waiter};
use super::slab::OperationId;
use super::{ConnectionId, Micros, Session};
use crate::error::{Error, ErrorKind};
use crate::mutation::Mutation;
use crate::protocol::{
    Code, HelloReply, KeyRef, Operation as Letter, Reply, Split, Tag, Token, split,
};

/// A server that says this is none, or not one that this client can follow.
struct Garbage(String);

impl Session {
    /// Bytes have come from the server.
    pub(crate) fn handle_bytes(&mut self, id: ConnectionId, bytes: &[u8], now: Micros) {
        let Some(index) = self.current(id) else {
            return;
        };
        self.note_heard(index, now);
        if self.connections[index].incoming.is_empty() {
            let used = self.handle_lines(id, bytes, now);
            if self.current(id).is_some() {
                let rest = &bytes[used..];
                self.connections[index].incoming.extend_from_slice(rest);
            }
        } else {
            let mut buffer = std::mem::take(&mut self.connections[index].incoming);
            buffer.extend_from_slice(bytes);
            let used = self.handle_lines(id, &buffer, now);
            if self.current(id).is_some() {
                buffer.drain(..used);
                self.connections[index].incoming = buffer;
            }
        }
        self.check_end(now);
    }

    /// Handles whole lines and says how many bytes they took.
    fn handle_lines(&mut self, id: ConnectionId, bytes: &[u8], now: Micros) -> usize {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let index = id.index as usize;
            let ahead = match self.connections[index].state {
                State::Up => Reply::parse_ahead(rest),
                State::Down { .. } | State::Trying | State::Greeting => None,
            };
            let garbage = match ahead {
                Some((
                    Reply::Granted {
                        key,
                        token,
                        tag: Some(tag),
                    },
                    used,
                )) => {
                    at += used;
                    let line = &rest[..used - 1];
                    self.handle_grant(index, key, token, tag, line, now).err()
                }
                Some((
                    Reply::Released {
                        key,
                        ok,
                        tag: Some(tag),
                    },
                    used,
                )) => {
                    at += used;
                    let line = &rest[..used - 1];
                    self.handle_release(index, key, ok, tag, line, now).err()
                }
                _ => match split(rest) {
                    Split::Partial => return at,
                    Split::TooLong => Some(Garbage("a line without end".to_owned())),
                    Split::Line { line, used } => {
                        at += used;
                        self.handle_line(index, line, now).err()
                    }
                },
            };
            if let Some(Garbage(what)) = garbage {
                let text = format!("the server says what no fairlock server says: {what}");
                self.drop_connection(id.index as usize, text.into(), now);
            }
            if self.current(id).is_none() {
                return at;
            }
        }
    }

    fn handle_line(&mut self, index: usize, line: &[u8], now: Micros) -> Result<(), Garbage> {
        let Some(reply) = Reply::parse(line) else {
            return Err(excerpt(line));
        };
        match (self.connections[index].state, reply) {
            (State::Up, reply) => self.handle_reply(index, &reply, line, now),
            (_, Reply::Hello(hello)) => {
                self.handle_hello(index, &hello, now);
                Ok(())
            }
            (_, Reply::Refused { code, text, .. }) => {
                let text = advice(text, cfg!(feature = "tls"));
                let text = format!("the server refuses this client: {code}: {text}");
                let failure = Failure::refused(code, text);
                self.drop_connection(index, failure, now);
                Ok(())
            }
            (_, Reply::ActiveAt { address }) => {
                self.handle_active_at(address, now);
                Ok(())
            }
            (_, _) => Err(excerpt(line)),
        }
    }

    fn handle_hello(&mut self, index: usize, hello: &HelloReply<'_>, now: Micros) {
        let connection = &mut self.connections[index];
        connection.node = super::super::address::Address::parse(hello.node).ok();
        connection.role = Some(hello.role);
        self.rotation.known = false;
        let peers = hello.peers.iter().take(16);
        let peers: Vec<_> = peers
            .filter_map(|peer| super::super::address::Address::parse(peer).ok())
            .collect();
        if !peers.is_empty() {
            self.peers = peers;
        }
        self.come_up(index, now);
    }

    fn handle_reply(
        &mut self,
        index: usize,
        reply: &Reply<'_>,
        line: &[u8],
        now: Micros,
    ) -> Result<(), Garbage> {
        match *reply {
            Reply::Granted { key, token, tag } => {
                let tag = tag.ok_or_else(|| excerpt(line))?;
                self.handle_grant(index, key, token, tag, line, now)?;
            }
            Reply::TimedOut { key, tag } => {
                if let Some((id, age)) = self.settle(index, Letter::Acquire, key, tag, line)?
                    && age == Age::Current
                {
                    self.handle_timed_out(id, now);
                }
            }
            Reply::Released { key, ok, tag } => {
                let tag = tag.ok_or_else(|| excerpt(line))?;
                self.handle_release(index, key, ok, tag, line, now)?;
            }
            Reply::Kept { key, ok, tag } => {
                let tag = tag.ok_or_else(|| excerpt(line))?;
                if let Some((id, sent, _)) = self.find(index, Letter::Keep, key, tag, line)? {
                    self.note_answer(index, sent.sequence, sent.at, true);
                    self.handle_kept(id, sent, ok, now);
                }
            }
            Reply::Cancelled { key, tag, .. } => {
                if let Some((id, _)) = self.settle(index, Letter::Cancel, key, Some(tag), line)? {
                    self.handle_cancelled(id, index, tag, now);
                }
            }
            Reply::Free { key, waiters, tag } => {
                if let Some(id) = self.settle_query(index, Letter::Inspect, key, tag, line)? {
                    self.handle_free(id, waiters);
                }
            }
            Reply::Held { ref holder, tag } => {
                if let Some(id) =
                    self.settle_query(index, Letter::Inspect, holder.key, tag, line)?
                {
                    self.handle_held(id, holder);
                }
            }
            Reply::WaiterRow {
                position,
                waited,
                name,
                address,
                tag,
                ..
            } => {
                if let Some(id) = self.peek(index, Letter::Waiters, tag) {
                    self.handle_waiter_row(id, waiter(position, waited, name, address));
                }
            }
            Reply::Waiters { key, count, tag } => {
                if let Some(id) = self.settle_query(index, Letter::Waiters, key, tag, line)? {
                    self.handle_waiters(id, count);
                }
            }
            Reply::LockRow { ref holder, tag } => {
                if let Some(id) = self.peek(index, Letter::List, tag) {
                    self.handle_lock_row(id, holder);
                }
            }
            Reply::Listed { tag, .. } => {
                if let Some((id, sent, age)) = self.take(index, Letter::List, tag) {
                    self.note_answer(index, sent.sequence, sent.at, true);
                    if age == Age::Current {
                        self.handle_listed(id);
                    }
                }
            }
            Reply::Hello(_) => return Err(excerpt(line)),
            Reply::Pong { tag } => self.handle_pong(index, tag),
            Reply::Status(ref status) => self.handle_status(index, status),
            Reply::Moved {
                operation,
                address,
                tag,
                ..
            } => {
                if let Some((id, sent, age)) = self.take(index, operation, tag) {
                    // A request that was waiting there has not been moved in a row.
                    let accepted = self.connections[index].answered > sent.sequence;
                    if accepted && let Some(operation) = self.operations.get_mut(id) {
                        operation.moves = 0;
                    }
                    self.note_answer(index, sent.sequence, sent.at, false);
                    if age == Age::Current {
                        self.handle_moved(id, index, address, now);
                    }
                }
            }
            Reply::ActiveAt { address } => self.handle_active_at(address, now),
            Reply::Refused {
                operation,
                code,
                tag,
                text,
                ..
            } => return self.handle_refused(index, operation, code, tag, text, now),
        }
        Ok(())
    }

    /// `A`, from whichever way of reading.
    fn handle_grant(
        &mut self,
        index: usize,
        key: KeyRef<'_>,
        token: Token,
        tag: Tag,
        line: &[u8],
        now: Micros,
    ) -> Result<(), Garbage> {
        self.note_token(token);
        match self.find(index, Letter::Acquire, key, tag, line)? {
            Some((id, sent, age)) => {
                self.handle_granted(id, index, sent, age, token, now);
                self.note_answer(index, sent.sequence, sent.at, true);
            }
            None => self.handle_stray_grant(key, token, now),
        }
        Ok(())
    }

    /// `R`, likewise.
    fn handle_release(
        &mut self,
        index: usize,
        key: KeyRef<'_>,
        ok: bool,
        tag: Tag,
        line: &[u8],
        now: Micros,
    ) -> Result<(), Garbage> {
        if let Some((id, sent, _)) = self.find(index, Letter::Release, key, tag, line)? {
            self.note_answer(index, sent.sequence, sent.at, true);
            self.handle_released(id, index, ok, now);
        }
        Ok(())
    }

    fn handle_refused(
        &mut self,
        index: usize,
        operation: Option<Letter>,
        code: &str,
        tag: Option<Tag>,
        text: &str,
        now: Micros,
    ) -> Result<(), Garbage> {
        if operation == Some(Letter::Status) {
            let error = Error::new(ErrorKind::of_wire_code(code), format!("{code}: {text}"));
            self.refuse_status(index, error);
            return Ok(());
        }
        let Some(tag) = tag else {
            // About the connection, not about a request: every request of this client has a tag.
            let text = format!("the server refuses this client: {code}: {text}");
            let failure = if code == Code::Auth.as_str() {
                Failure::refused(code, text)
            } else {
                // Whatever else was wrong with this connection, another one may be all right.
                text.into()
            };
            self.drop_connection(index, failure, now);
            return Ok(());
        };
        let Some(letter) = operation else {
            return Ok(());
        };
        let Some((id, sent, age)) = self.take(index, letter, Some(tag)) else {
            return Ok(());
        };
        // Before the counters change: what was answered behind this copy.
        let fresh = self.connections[index].answered > sent.sequence;
        self.note_answer(index, sent.sequence, sent.at, false);
        if age == Age::Older {
            return Ok(());
        }
        let is_try = self
            .operations
            .get(id)
            .is_some_and(|operation| operation.is_try());
        let refused = |session: &Session| {
            let operation = session.operations.get(id);
            let key = operation.and_then(|operation| operation.key());
            let about = key.map_or_else(String::new, |key| {
                format!(" about {}", beginning(key.spelling()))
            });
            let text = format!("the server refused the request{about}: {code}: {text}");
            Error::new(ErrorKind::of_wire_code(code), text)
        };
        match (is_try, code) {
            (true, "unavailable") => {
                let text = format!("no node is active there: {text}");
                self.fail_refused_try(id, index, text, fresh, now);
            }
            // What repeats itself goes on at its next turn.
            (false, "unavailable") => {
                let text = format!("no node is active there: {text}");
                self.connections[index].unavailable = Some((now, text));
            }
            (true, _) => {
                let error = refused(self);
                match self.operations.get(id).map(|operation| &operation.kind) {
                    Some(Kind::Acquire(_)) => self.end_acquire(id, Err(error), now),
                    Some(_) | None => self.fail_operation(id, error),
                }
            }
            (false, _) => {
                let error = refused(self);
                self.refuse_repeat(id, error);
            }
        }
        Ok(())
    }

    fn handle_pong(&mut self, index: usize, tag: Option<Tag>) {
        let connection = &mut self.connections[index];
        let Some(probe) = connection.probe else {
            return;
        };
        if tag == Some(Tag::first(probe.tag)) {
            connection.probe = None;
            self.note_answer(index, probe.sequence, probe.at, true);
        }
    }

    /// A line of this connection has been answered; `counts` unless that was `M` or `E`.
    pub(super) fn note_answer(
        &mut self,
        index: usize,
        sequence: u64,
        sent_at: Micros,
        counts: bool,
    ) {
        let counts = counts && self.is_active(index);
        let connection = &mut self.connections[index];
        if !connection.is_up() {
            return;
        }
        connection.answered_sent_at = connection.answered_sent_at.max(sent_at);
        if counts {
            connection.answered = connection.answered.max(sequence);
        }
    }

    fn note_token(&mut self, token: Token) {
        self.seen = self.seen.max(Some(token));
    }

    /// A grant that nobody waits for any more: unless the token is in hand it is released.
    fn handle_stray_grant(&mut self, key: KeyRef<'_>, token: Token, now: Micros) {
        let keeps = self.settings.mutation.is(Mutation::KeepStrayGrants);
        if !keeps && !self.is_in_hand(token) {
            self.release_token(key.to_key(), token, None, now);
        }
    }

    /// The operation that a row is about.
    fn peek(&self, index: usize, letter: Letter, tag: Option<Tag>) -> Option<OperationId> {
        let tag = tag?;
        let id = self.tags.get(tag.number)?;
        let operation = self.operations.get(id)?;
        let sent = operation.current?;
        let fits = sent.tag == tag && sent.connection == Some(index);
        let asked = match &operation.kind {
            Kind::Query(query) => query.letter() == Some(letter),
            Kind::Acquire(_) | Kind::Release(..) | Kind::Cancel(..) | Kind::Keep(..) => false,
        };
        (fits && asked).then_some(id)
    }

    /// Takes out the copy that an answer is about; it is no longer under way.
    fn take(
        &mut self,
        index: usize,
        letter: Letter,
        tag: Option<Tag>,
    ) -> Option<(OperationId, Sent, Age)> {
        let tag = tag?;
        let id = self.tags.get(tag.number)?;
        let operation = self.operations.get_mut(id)?;
        if operation.letter() != Some(letter) {
            return None;
        }
        let (sent, age) =
            operation.settle_copy(tag, index, &mut self.connections, &mut self.tags)?;
        Some((id, sent, age))
    }

    /// The same, where the key has to fit as well: a server that mixes up keys must not be believed.
    #[inline(always)]
    fn find(
        &mut self,
        index: usize,
        letter: Letter,
        key: KeyRef<'_>,
        tag: Tag,
        line: &[u8],
    ) -> Result<Option<(OperationId, Sent, Age)>, Garbage> {
        let Some(id) = self.tags.get(tag.number) else {
            return Ok(None);
        };
        let operation = self.operations.get_mut(id);
        let mine = operation.as_ref().and_then(|operation| operation.key());
        if !same_key(mine, key) {
            return Err(excerpt(line));
        }
        let copy = operation
            .filter(|operation| operation.letter() == Some(letter))
            .and_then(|operation| {
                operation.settle_copy(tag, index, &mut self.connections, &mut self.tags)
            });
        Ok(copy.map(|(sent, age)| (id, sent, age)))
    }

    /// The same, and the answer is noted.
    fn settle(
        &mut self,
        index: usize,
        letter: Letter,
        key: KeyRef<'_>,
        tag: Option<Tag>,
        line: &[u8],
    ) -> Result<Option<(OperationId, Age)>, Garbage> {
        let tag = tag.ok_or_else(|| excerpt(line))?;
        let Some((id, sent, age)) = self.find(index, letter, key, tag, line)? else {
            return Ok(None);
        };
        self.note_answer(index, sent.sequence, sent.at, true);
        Ok(Some((id, age)))
    }

    /// The same for a question. Rule 4.4: it has been asked again elsewhere because another node is active, so what the
    /// one that was asked before still says is no answer, and its rows were not taken either.
    fn settle_query(
        &mut self,
        index: usize,
        letter: Letter,
        key: KeyRef<'_>,
        tag: Option<Tag>,
        line: &[u8],
    ) -> Result<Option<OperationId>, Garbage> {
        let settled = self.settle(index, letter, key, tag, line)?;
        Ok(settled.and_then(|(id, age)| (age == Age::Current).then_some(id)))
    }
}

/// What a client without TLS is told by a port that speaks it begins so; what follows are options of those that have it.
const SPEAKS_TLS: &str = "this port speaks TLS";

/// The server's words, unless they advise what this program cannot do.
fn advice(text: &str, has_tls: bool) -> &str {
    if !has_tls && text.starts_with(SPEAKS_TLS) {
        return "this port speaks TLS, and this program was built without it; build it with the feature `tls` of the crate fairlock";
    }
    text
}

/// A key for people, who need no more of a long one.
fn beginning(key: &[u8]) -> String {
    let start = &key[..key.len().min(60)];
    let cut = if start.len() < key.len() { "…" } else { "" };
    format!("{}{cut}", String::from_utf8_lossy(start))
}

/// The beginning of a line, for people.
fn excerpt(line: &[u8]) -> Garbage {
    let start = &line[..line.len().min(60)];
    Garbage(format!("{:?}", String::from_utf8_lossy(start)))
}

#[cfg(test)]
mod tests {
    use super::{advice, beginning};

    #[test]
    fn a_long_key_is_cut_where_people_read_it() {
        assert_eq!(beginning(b"order:42"), "order:42");
        assert_eq!(beginning(&[b'x'; 60]), "x".repeat(60));
        assert_eq!(beginning(&[b'x'; 512]), format!("{}…", "x".repeat(60)));
    }

    #[test]
    fn a_program_without_tls_is_not_told_to_set_an_option_that_it_lacks() {
        let said = "this port speaks TLS; set ca_file (or tls) of the client";
        assert_eq!(advice(said, true), said);
        assert!(advice(said, false).contains("the feature `tls`"));
        assert!(!advice(said, false).contains("ca_file"));
        assert_eq!(advice("wrong secret", false), "wrong secret");
    }
}
