//! What two nodes that were active at once give each other: grants that the other one may not have, and what was released of
//! those it may have. That is noted from the changes while this node serves, and forgotten once the standbys have it. When and
//! to whom to give is for the roles to say, never decided here.

use super::{Member, slot_of, term_of};
use crate::cluster::frame::{BATCH_BYTES, Frame, change_bytes};
use crate::cluster::members::Slot;
use crate::cluster::message::{Copy, Stream};
use crate::cluster::roles::{Event, Now, Stance};
use crate::engine::{Change, ClaimId, Engine, ForeignGrant, News, Time};
use crate::mutation::Mutation;
use crate::protocol::Token;
use std::collections::VecDeque;

/// A grant that no standby has confirmed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unconfirmed {
    number: u64,
    claim: ClaimId,
    token: Token,
}

/// The grants that no standby has confirmed are remembered up to this number.
const MOST_UNCONFIRMED: usize = 100_000;

impl Member {
    /// Gives the node that stays active what it does not have, and forgets the rest.
    pub(super) fn give(&mut self, now: Now, engine: &mut Engine, to: Slot, unconfirmed_only: bool) {
        self.note_changes(now, engine);
        let grants: Vec<Change> = if self.settings.mutation.is(Mutation::GiveNothing) {
            Vec::new()
        } else if unconfirmed_only {
            let granted = |grant: &Unconfirmed| engine.grant_by(grant.claim, grant.token);
            self.unconfirmed.iter().filter_map(granted).collect()
        } else {
            engine.grants().collect()
        };
        let mut batch = Vec::new();
        let mut bytes = 0;
        for grant in grants {
            bytes += change_bytes(&grant);
            batch.push(grant);
            if bytes > BATCH_BYTES / 2 {
                bytes = 0;
                let grants = std::mem::take(&mut batch);
                self.outgoing.frame(now.time, to, &Frame::Given { grants });
            }
        }
        if !batch.is_empty() {
            let frame = Frame::Given { grants: batch };
            self.outgoing.frame(now.time, to, &frame);
        }
        if !unconfirmed_only {
            let ended = self.releases.not_known_elsewhere(now.time);
            let ended: Vec<Token> = ended.into_iter().collect();
            for tokens in ended.chunks(50_000) {
                let tokens = tokens.to_vec();
                self.outgoing.frame(now.time, to, &Frame::Ended { tokens });
            }
        }
        self.retire(now, engine);
    }

    /// This node is the active one no longer.
    pub(super) fn retire(&mut self, now: Now, engine: &mut Engine) {
        self.feeds.end(engine);
        self.unconfirmed.clear();
        for token in self.given_back.drain(..) {
            self.releases.remember(now.time, token);
        }
        engine.resign();
    }

    /// Takes what another node has given, which was active too.
    pub(super) fn given(&mut self, now: Now, engine: &mut Engine, grants: &[Change]) {
        let released = self.releases.not_known_elsewhere(now.time);
        for foreign in grants.iter().filter_map(foreign) {
            engine.merge(now.time, &foreign);
            if released.contains(&foreign.token) {
                self.given_back.push(foreign.token);
            }
        }
        self.saw_tokens(now, engine);
    }

    /// Ends what was given back at another node that was active. The next in the queue gets a token at
    /// once, so this waits until there is a term above all that the other node has used.
    pub(super) fn end_given_back(&mut self, now: Now, engine: &mut Engine) {
        if self.given_back.is_empty() || self.roles.stance() != Stance::Serve {
            return;
        }
        let ended = self.given_back.drain(..).collect();
        for unknown in engine.end_tokens(now.time, &ended) {
            self.releases.remember(now.time, unknown);
        }
    }

    /// A client has released a token that does not hold its key. If this node has never known it, the
    /// grant may still come from another one.
    pub fn stale_release(&mut self, now: Time, token: Token) {
        let own = self.feeds.stream();
        if term_of(token) < own.term || slot_of(token) != self.members.own() {
            self.releases.remember(now, token);
        }
    }

    /// Hands the changes to the feeds and remembers of them what another active node would have to
    /// be told.
    pub(super) fn note_changes(&mut self, now: Now, engine: &mut Engine) {
        let own = self.feeds.stream();
        let alone = self.feeds.is_empty();
        let (releases, unconfirmed) = (&mut self.releases, &mut self.unconfirmed);
        let copied_up_to = self.copied_up_to;
        let mut granted = |number, claim, token| {
            unconfirmed.push_back(Unconfirmed {
                number,
                claim,
                token,
            });
        };
        let note = |number, news: &News<'_>| match news {
            News::Granted(held) => granted(number, held.claim, held.token),
            News::Change(Change::Granted { claim, token, .. }) => granted(number, *claim, *token),
            News::Change(Change::Released { token, .. }) => {
                let from_before = term_of(*token) < own.term;
                if from_before || Some(*token) <= copied_up_to {
                    releases.note(*token);
                } else if !alone {
                    releases.tell(number, *token);
                }
            }
            News::Change(
                Change::Expired { .. }
                | Change::Kept { .. }
                | Change::Enqueued { .. }
                | Change::Left { .. }
                | Change::Resent { .. }
                | Change::AttemptRemembered { .. }
                | Change::TermOpened { .. },
            ) => {}
        };
        self.feeds.tell(now.time, engine, &mut self.outgoing, note);
        if self.unconfirmed.len() > MOST_UNCONFIRMED {
            forget_ended(&mut self.unconfirmed, engine);
        }
        let copy = Copy {
            stream: own,
            sequence: self.feeds.sequence(),
            oldest: 0,
            complete: true,
        };
        self.roles.handle(now, Event::Copied(copy));
        self.carry_out_quietly(now, engine);
    }

    /// What a standby has confirmed it need not be given.
    pub(super) fn applied(&mut self, from: Slot, stream: Stream, sequence: u64) {
        self.feeds.applied(from, stream, sequence);
        if let Some(confirmed) = self.feeds.confirmed_by_all() {
            self.releases.confirm(confirmed);
        }
        if self.feeds.complete() == self.members.others().count() {
            self.copied_up_to = None;
            self.releases.all_know();
        }
        if let Some(confirmed) = self.feeds.confirmed_by(1) {
            let is_confirmed = |grant: &Unconfirmed| grant.number <= confirmed;
            while self.unconfirmed.front().is_some_and(is_confirmed) {
                self.unconfirmed.pop_front();
            }
        }
    }

    /// This standby is told of nothing any more. It may become active with what it has.
    pub(super) fn lose_standby(&mut self, peer: Slot, engine: &Engine) {
        if self.feeds.tells(peer) {
            self.copied_up_to = engine.highest_token();
            self.releases.lose();
        }
        self.feeds.lose(peer);
    }
}

/// Makes room among the grants that no standby has confirmed: first those go that have ended, and if
/// that is not enough, the oldest.
fn forget_ended(unconfirmed: &mut VecDeque<Unconfirmed>, engine: &Engine) {
    unconfirmed.retain(|grant| engine.still_holds(grant.claim, grant.token));
    let surplus = unconfirmed.len().saturating_sub(MOST_UNCONFIRMED / 2);
    unconfirmed.drain(..surplus);
}

fn foreign(change: &Change) -> Option<ForeignGrant> {
    match change {
        Change::Granted {
            key,
            token,
            owner,
            tag,
            lease,
            ends,
            ..
        } => Some(ForeignGrant {
            key: key.clone(),
            token: *token,
            owner: owner.clone(),
            tag: *tag,
            lease: *lease,
            ends: *ends,
        }),
        Change::Released { .. }
        | Change::Expired { .. }
        | Change::Kept { .. }
        | Change::Enqueued { .. }
        | Change::Left { .. }
        | Change::Resent { .. }
        | Change::AttemptRemembered { .. }
        | Change::TermOpened { .. } => None,
    }
}
