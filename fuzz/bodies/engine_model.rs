//! The lock rules once more, as naively as they can be written: one list of claims, searched from the
//! front each time. What it says is compared with what the engine says.

use fairlock::engine::{
    Answer, Change, ClaimId, ConnectionId, Effect, EngineSettings, Grant, Refusal, Time,
};
use fairlock::protocol::{ClientId, Key, Millis, Tag, Token, Wait};

pub(crate) struct Model {
    pub(crate) settings: EngineSettings,
    /// Waiters of a key stand in their order; a holder has a token.
    pub(crate) claims: Vec<Claim>,
    /// Client, number, attempt, since when; oldest first.
    pub(crate) memory: Vec<(ClientId, u64, u32, Time)>,
    /// Who said what in its hello.
    pub(crate) connections: Vec<(ConnectionId, Option<ClientId>)>,
    pub(crate) term: u32,
    pub(crate) counter: u32,
    pub(crate) half_told: bool,
    pub(crate) next_term: Option<u32>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) ends: Vec<End>,
}

/// An acquire, and what the engine calls the claim if it made one.
pub(crate) struct Acquire<'a> {
    pub(crate) id: ClaimId,
    pub(crate) connection: ConnectionId,
    pub(crate) key: &'a Key,
    pub(crate) lease: Millis,
    pub(crate) wait: Wait,
    pub(crate) tag: Option<Tag>,
}

/// How a claim ended or was granted, in order, to be compared with the changes of the engine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum End {
    Granted(ClaimId, Token),
    Released(ClaimId),
    Expired(ClaimId),
    Left(ClaimId),
}

#[derive(Clone)]
pub(crate) struct Claim {
    pub(crate) id: ClaimId,
    pub(crate) key: Key,
    pub(crate) client: Option<ClientId>,
    /// The connection it was made or last sent on.
    pub(crate) connection: ConnectionId,
    pub(crate) gone: bool,
    pub(crate) tag: Option<Tag>,
    pub(crate) lease: Millis,
    pub(crate) since: Time,
    pub(crate) deadline: Time,
    /// When the grace ends, if one runs.
    pub(crate) until: Time,
    pub(crate) token: Option<Token>,
}

impl Claim {
    pub(crate) fn due(&self) -> u64 {
        self.deadline.min(self.until).0.div_ceil(1000)
    }
}

pub(crate) fn end_of(change: &Change) -> Option<End> {
    match change {
        Change::Granted { claim, token, .. } => Some(End::Granted(*claim, *token)),
        Change::Released { claim, .. } => Some(End::Released(*claim)),
        Change::Expired { claim, .. } => Some(End::Expired(*claim)),
        Change::Left { claim } => Some(End::Left(*claim)),
        Change::Kept { .. }
        | Change::Enqueued { .. }
        | Change::Resent { .. }
        | Change::AttemptRemembered { .. }
        | Change::TermOpened { .. } => None,
    }
}

impl Model {
    pub(crate) fn client(&self, connection: ConnectionId) -> Option<ClientId> {
        let found = self.connections.iter().find(|known| known.0 == connection);
        found.and_then(|known| known.1)
    }

    pub(crate) fn queue(&self, key: &Key) -> impl Iterator<Item = &Claim> {
        let of_key = self.claims.iter().filter(move |claim| claim.key == *key);
        of_key.filter(|claim| claim.token.is_none())
    }

    pub(crate) fn holder(&mut self, key: &Key) -> Option<&mut Claim> {
        let mut claims = self.claims.iter_mut();
        claims.find(|claim| claim.key == *key && claim.token.is_some())
    }

    fn find(&self, key: &Key, client: ClientId, number: u64) -> Option<usize> {
        self.claims.iter().position(|claim| {
            claim.key == *key
                && claim.client == Some(client)
                && claim.tag.map(|tag| tag.number) == Some(number)
        })
    }

    fn attempt(&self, client: ClientId, number: u64) -> u32 {
        let memory = self.memory.iter();
        let found = memory.filter(|memory| (memory.0, memory.1) == (client, number));
        found.map(|memory| memory.2).max().unwrap_or(0)
    }

    fn remember(&mut self, now: Time, client: ClientId, number: u64, attempt: u32) {
        if attempt == 0 {
            return;
        }
        let attempt = attempt.max(self.attempt(client, number));
        self.memory
            .retain(|memory| (memory.0, memory.1) != (client, number));
        self.memory.push((client, number, attempt, now));
        if self.memory.len() > self.settings.max_attempts_remembered as usize {
            self.memory.remove(0);
        }
    }

    fn take_token(&mut self) -> Option<Token> {
        if self.counter == (1 << 28) - 1 || self.term == 0 {
            self.term = self.next_term.filter(|_| self.term != 0)?;
            self.next_term = None;
            self.counter = 0;
            self.half_told = false;
            self.effects.push(Effect::TermOpened { term: self.term });
        }
        self.counter += 1;
        if self.counter >= 1 << 27 && !self.half_told {
            self.half_told = true;
            self.effects.push(Effect::TermHalfUsed { term: self.term });
        }
        Token::new(u64::from(self.term) << 32 | u64::from(self.counter))
    }

    pub(crate) fn acquire(&mut self, now: Time, asked: &Acquire<'_>) -> Answer {
        let Acquire {
            id,
            connection,
            key,
            lease,
            wait,
            tag,
        } = *asked;
        let client = self.client(connection);
        let waiting = |claim: &&Claim| claim.token.is_none();
        let all = self.claims.iter().filter(waiting);
        let mine = all
            .clone()
            .filter(|claim| !claim.gone && claim.connection == connection);
        let too_many = mine.count() >= self.settings.max_waiting_per_connection as usize;
        let waiters = all.count();
        if let (Some(client), Some(tag)) = (client, tag) {
            let seen = self.find(key, client, tag.number);
            let live = seen
                .and_then(|seen| self.claims[seen].tag)
                .map_or(0, |tag| tag.attempt);
            if tag.attempt < self.attempt(client, tag.number).max(live) {
                return Answer::Dropped;
            }
            if let Some(seen) = seen {
                let claim = &mut self.claims[seen];
                let moves = claim.gone || claim.connection != connection;
                if claim.token.is_none() && moves && too_many {
                    return Answer::Refused(Refusal::WaitingOfConnection);
                }
                if claim.token.is_some() && now.after(lease) >= claim.deadline {
                    claim.deadline = now.after(lease);
                    claim.lease = lease;
                } else if claim.token.is_none() {
                    claim.lease = lease;
                }
                (claim.gone, claim.connection, claim.tag) = (false, connection, Some(tag));
                claim.until = Time::NEVER;
                let claim = claim.clone();
                if let Some(token) = claim.token {
                    return Answer::Granted(Grant {
                        claim: claim.id,
                        token,
                    });
                }
                let next = self
                    .queue(key)
                    .next()
                    .is_some_and(|next| next.id == claim.id);
                if !next || self.holder(key).is_some() {
                    return Answer::Queued;
                }
                let Some(token) = self.take_token() else {
                    self.end(now, claim.id, End::Left);
                    return Answer::Refused(Refusal::TokensUsedUp);
                };
                self.grant(now, claim.id, token);
                return Answer::Granted(Grant {
                    claim: claim.id,
                    token,
                });
            }
        }
        let taken = self.claims.iter().any(|claim| claim.key == *key);
        let mut keys: Vec<&Key> = self.claims.iter().map(|claim| &claim.key).collect();
        keys.sort();
        keys.dedup();
        let claim = Claim {
            id,
            key: key.clone(),
            client,
            connection,
            gone: false,
            tag,
            lease,
            since: now,
            deadline: Time::NEVER,
            until: Time::NEVER,
            token: None,
        };
        if !taken {
            if keys.len() >= self.settings.max_keys as usize {
                return Answer::Refused(Refusal::Keys);
            }
            let Some(token) = self.take_token() else {
                return Answer::Refused(Refusal::TokensUsedUp);
            };
            self.claims.push(claim);
            self.grant(now, id, token);
            return Answer::Granted(Grant { claim: id, token });
        }
        let deadline = match wait {
            Wait::No => {
                if let (Some(client), Some(tag)) = (client, tag) {
                    self.remember(now, client, tag.number, tag.attempt);
                }
                return Answer::NotHad;
            }
            Wait::For(length) => now.after(length),
            Wait::Forever => Time::NEVER,
        };
        if self.queue(key).count() >= self.settings.max_waiters_per_key as usize {
            return Answer::Refused(Refusal::WaitersOfKey);
        }
        if waiters >= self.settings.max_waiters as usize {
            return Answer::Refused(Refusal::Waiters);
        }
        if too_many {
            return Answer::Refused(Refusal::WaitingOfConnection);
        }
        self.claims.push(Claim { deadline, ..claim });
        Answer::Queued
    }

    pub(crate) fn release(&mut self, now: Time, key: &Key, token: Token) -> bool {
        match self.holder(key).filter(|claim| claim.token == Some(token)) {
            Some(claim) => {
                let id = claim.id;
                self.end(now, id, End::Released);
                true
            }
            None => false,
        }
    }

    pub(crate) fn keep(&mut self, now: Time, key: &Key, token: Token, lease: Millis) -> bool {
        let Some(claim) = self.holder(key).filter(|claim| claim.token == Some(token)) else {
            return false;
        };
        if now.after(lease) >= claim.deadline {
            (claim.deadline, claim.lease) = (now.after(lease), lease);
        }
        claim.until = Time::NEVER;
        true
    }

    pub(crate) fn cancel(
        &mut self,
        now: Time,
        connection: ConnectionId,
        key: &Key,
        tag: Tag,
    ) -> bool {
        let Some(client) = self.client(connection) else {
            return false;
        };
        let Some(found) = self.find(key, client, tag.number) else {
            self.remember(now, client, tag.number, tag.attempt);
            return false;
        };
        let claim = &mut self.claims[found];
        if claim.tag.is_some_and(|live| live.attempt > tag.attempt) {
            return false;
        }
        claim.tag = Some(tag);
        let (id, held) = (claim.id, claim.token.is_some());
        self.end(now, id, if held { End::Released } else { End::Left });
        true
    }

    pub(crate) fn disconnect(&mut self, now: Time, connection: ConnectionId, unsent: &[Grant]) {
        let until = now.after(self.settings.reattach_grace);
        self.connections.retain(|known| known.0 != connection);
        // The engine goes through them from the newest to the oldest; none of it can be seen outside.
        for index in (0..self.claims.len()).rev() {
            let claim = &mut self.claims[index];
            if claim.connection != connection || claim.gone {
                continue;
            }
            if let Some(token) = claim.token {
                if unsent.contains(&Grant {
                    claim: claim.id,
                    token,
                }) {
                    claim.until = until;
                }
            } else {
                (claim.gone, claim.until) = (true, until);
            }
        }
        let lost = |claim: &&Claim| claim.token.is_none() && claim.gone;
        let unknown = |claim: &&Claim| claim.client.is_none() || claim.tag.is_none();
        while let Some(claim) = self.claims.iter().filter(lost).find(unknown) {
            let id = claim.id;
            self.end(now, id, End::Left);
        }
    }

    /// Ends a claim and hands its key on.
    pub(crate) fn end(&mut self, now: Time, id: ClaimId, how: fn(ClaimId) -> End) {
        let index = self
            .claims
            .iter()
            .position(|claim| claim.id == id)
            .expect("a claim ends once");
        let ended = self.claims.remove(index);
        self.ends.push(how(id));
        if let (Some(client), Some(tag)) = (ended.client, ended.tag) {
            self.remember(now, client, tag.number, tag.attempt);
        }
        self.serve(now, &ended.key);
    }

    fn serve(&mut self, now: Time, key: &Key) {
        if self.holder(key).is_some() {
            return;
        }
        let Some(next) = self.queue(key).next().filter(|next| !next.gone).cloned() else {
            return;
        };
        let (connection, key, tag) = (next.connection, key.clone(), next.tag);
        match self.take_token() {
            Some(token) => {
                let grant = Grant {
                    claim: next.id,
                    token,
                };
                self.effects.push(Effect::Granted {
                    connection,
                    key,
                    grant,
                    tag,
                });
                self.grant(now, next.id, token);
            }
            None => {
                let refusal = Refusal::TokensUsedUp;
                self.effects.push(Effect::Refused {
                    connection,
                    key,
                    tag,
                    refusal,
                });
                self.end(now, next.id, End::Left);
            }
        }
    }

    fn grant(&mut self, now: Time, id: ClaimId, token: Token) {
        let mut claims = self.claims.iter_mut();
        let claim = claims.find(|claim| claim.id == id).expect("it is there");
        claim.token = Some(token);
        claim.deadline = now.after(claim.lease);
        claim.until = Time::NEVER;
        self.ends.push(End::Granted(id, token));
    }
}
