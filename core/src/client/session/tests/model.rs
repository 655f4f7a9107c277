//! A tiny server for random tests: the rules of locks, attempts and detached waiters, without a
//! thought for speed.

use super::*;
use crate::protocol::{Reply, Request, Tag};
use std::collections::HashMap as Map;

/// A client's connection as the server knows it.
pub(super) type LineId = u64;

const REATTACH_GRACE: Micros = 500 * MS;

#[derive(Default)]
pub(super) struct Model {
    keys: BTreeMap<Vec<u8>, Lock>,
    /// The highest attempt seen of each client's tag.
    attempts: Map<(usize, u64), u32>,
    last_token: u64,
    /// Which client a line belongs to.
    pub(super) clients: BTreeMap<LineId, usize>,
    pub(super) replies: Vec<(LineId, String)>,
}

#[derive(Default)]
struct Lock {
    holder: Option<Holder>,
    queue: Vec<Waiter>,
}

#[derive(Clone)]
struct Holder {
    client: usize,
    tag: u64,
    token: Token,
    ends: Micros,
}

struct Waiter {
    client: usize,
    tag: Tag,
    lease: Millis,
    until: Option<Micros>,
    line: Option<LineId>,
    detached_at: Micros,
}

impl Model {
    pub(super) fn holder(&self, key: &[u8]) -> Option<(usize, Token)> {
        let holder = self.keys.get(key)?.holder.as_ref()?;
        Some((holder.client, holder.token))
    }

    /// How often a client stands in the books, as holder or as waiter.
    pub(super) fn entries(&self, client: usize) -> Vec<(Vec<u8>, u64)> {
        let mut entries = Vec::new();
        for (key, lock) in &self.keys {
            let holder = lock.holder.iter().map(|holder| (holder.client, holder.tag));
            let waiters = lock
                .queue
                .iter()
                .map(|waiter| (waiter.client, waiter.tag.number));
            let mine = holder.chain(waiters).filter(|(owner, _)| *owner == client);
            entries.extend(mine.map(|(_, tag)| (key.clone(), tag)));
        }
        entries
    }

    fn reply(&mut self, line: LineId, reply: &Reply<'_>) {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        let text = String::from_utf8(bytes).expect("text");
        self.replies.push((line, text));
    }

    /// A connection is known to be gone.
    pub(super) fn close(&mut self, line: LineId, now: Micros) {
        self.clients.remove(&line);
        for lock in self.keys.values_mut() {
            for waiter in &mut lock.queue {
                if waiter.line == Some(line) {
                    waiter.line = None;
                    waiter.detached_at = now;
                }
            }
        }
    }

    /// The server stops in good order: what waits is refused.
    pub(super) fn refuse_waiters(&mut self) {
        for (key, lock) in &mut self.keys {
            for waiter in lock.queue.drain(..) {
                if let Some(line) = waiter.line {
                    let (key, tag) = (String::from_utf8_lossy(key), spell(waiter.tag));
                    let reply = format!("E A {key} unavailable {tag} stopping\n");
                    self.replies.push((line, reply));
                }
            }
        }
    }

    pub(super) fn handle(&mut self, line: LineId, text: &str, now: Micros) {
        let Some(client) = self.clients.get(&line).copied() else {
            return;
        };
        match Request::parse(text.as_bytes()).expect("the client says what is allowed") {
            Request::Acquire {
                key,
                lease,
                wait,
                tag,
            } => {
                let tag = tag.expect("every request has a tag");
                self.acquire(client, line, key.spelling(), lease, wait, tag, now);
            }
            Request::Release { key, token, tag } => {
                let lock = self.keys.entry(key.spelling().to_vec()).or_default();
                let ok = lock
                    .holder
                    .as_ref()
                    .is_some_and(|holder| holder.token == token);
                if ok {
                    lock.holder = None;
                }
                self.serve(key.spelling(), now);
                self.reply(line, &Reply::Released { key, ok, tag });
            }
            Request::Keep {
                key,
                token,
                lease,
                tag,
            } => {
                let lock = self.keys.entry(key.spelling().to_vec()).or_default();
                let holder = lock.holder.as_mut().filter(|holder| holder.token == token);
                let ok = holder.is_some();
                if let Some(holder) = holder {
                    holder.ends = holder.ends.max(now + lease.0 * MS);
                }
                self.reply(line, &Reply::Kept { key, ok, tag });
            }
            Request::Cancel { key, tag } => {
                let seen = self.attempts.entry((client, tag.number)).or_default();
                *seen = tag.attempt.max(*seen);
                let lock = self.keys.entry(key.spelling().to_vec()).or_default();
                let mine = |owner: usize, number: u64| owner == client && number == tag.number;
                let before = lock.queue.len();
                lock.queue
                    .retain(|waiter| !mine(waiter.client, waiter.tag.number));
                let mut found = lock.queue.len() < before;
                if lock
                    .holder
                    .as_ref()
                    .is_some_and(|holder| mine(holder.client, holder.tag))
                {
                    lock.holder = None;
                    found = true;
                }
                self.serve(key.spelling(), now);
                self.reply(line, &Reply::Cancelled { key, found, tag });
            }
            Request::Ping { tag } => self.reply(line, &Reply::Pong { tag }),
            other => panic!("not asked in this test: {other:?}"),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn acquire(
        &mut self,
        client: usize,
        line: LineId,
        key: &[u8],
        lease: Millis,
        wait: Wait,
        tag: Tag,
        now: Micros,
    ) {
        let seen = self.attempts.entry((client, tag.number)).or_default();
        if tag.attempt < *seen {
            return;
        }
        *seen = tag.attempt;
        let lock = self.keys.entry(key.to_vec()).or_default();
        if let Some(holder) = &mut lock.holder
            && holder.client == client
            && holder.tag == tag.number
        {
            holder.ends = holder.ends.max(now + lease.0 * MS);
            let text = format!(
                "A {} {} {}\n",
                String::from_utf8_lossy(key),
                holder.token,
                spell(tag)
            );
            self.replies.push((line, text));
            return;
        }
        let again = lock
            .queue
            .iter_mut()
            .find(|waiter| waiter.client == client && waiter.tag.number == tag.number);
        if let Some(waiter) = again {
            waiter.line = Some(line);
            waiter.tag = tag;
            return;
        }
        let until = match wait {
            Wait::No => Some(now),
            Wait::For(time) => Some(now + time.0 * MS),
            Wait::Forever => None,
        };
        lock.queue.push(Waiter {
            client,
            tag,
            lease,
            until,
            line: Some(line),
            detached_at: 0,
        });
        self.serve(key, now);
    }

    /// Ends leases and waits, and hands over.
    pub(super) fn pass(&mut self, now: Micros) {
        for key in self.keys.keys().cloned().collect::<Vec<_>>() {
            self.serve(&key, now);
        }
    }

    fn serve(&mut self, key: &[u8], now: Micros) {
        let text = String::from_utf8_lossy(key).into_owned();
        let Some(lock) = self.keys.get_mut(key) else {
            return;
        };
        if lock
            .holder
            .as_ref()
            .is_some_and(|holder| holder.ends <= now)
        {
            lock.holder = None;
        }
        while lock.holder.is_none()
            && let Some(head) = lock.queue.first()
        {
            match head.line {
                Some(line) => {
                    let head = lock.queue.remove(0);
                    self.last_token += 1;
                    let token = Token::new(self.last_token).expect("a small number");
                    lock.holder = Some(Holder {
                        client: head.client,
                        tag: head.tag.number,
                        token,
                        ends: now + head.lease.0 * MS,
                    });
                    let reply = format!("A {text} {token} {}\n", spell(head.tag));
                    self.replies.push((line, reply));
                }
                None if now >= head.detached_at + REATTACH_GRACE => {
                    lock.queue.remove(0);
                }
                // The lock waits for it.
                None => break,
            }
        }
        let mut ended = Vec::new();
        lock.queue.retain(|waiter| {
            let late = waiter.until.is_some_and(|until| until <= now);
            let gone = waiter.line.is_none() && now >= waiter.detached_at + REATTACH_GRACE;
            if late && let Some(line) = waiter.line {
                ended.push((line, format!("T {text} {}\n", spell(waiter.tag))));
            }
            !late && !gone
        });
        self.replies.extend(ended);
        if lock.holder.is_none() && lock.queue.is_empty() {
            self.keys.remove(key);
        }
    }
}

fn spell(tag: Tag) -> String {
    match tag.attempt {
        0 => format!("#{}", tag.number),
        attempt => format!("#{}.{attempt}", tag.number),
    }
}
