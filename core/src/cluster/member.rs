//! A node as a member of its cluster: roles, the copying of state both ways, and what two nodes that
//! were active at once give each other.
//!
//! ```text
//! events, frames ──▶ Member ──▶ the engine is copied, resumed, merged, left
//!                       │
//!                       ├─────▶ frames for each peer
//!                       └─────▶ outputs: terms to write, connections to make, how to treat clients
//! ```
//!
//! Requests do not pass through here. Whoever handles them asks [`Member::stance`] first and calls
//! [`Member::replicate`] after each batch.

use super::copier::{Copier, Taken};
use super::feeds::Feeds;
use super::frame::{Frame, FrameError, change_bytes};
use super::members::{Members, Slot};
use super::message::{Beat, Copy, Message, Stage, Stream, Timing};
use super::outgoing::Outgoing;
use super::releases::Releases;
use super::roles::{Beginning, Effect, Event, Note, Now, Origin, Roles, Stance};
use crate::engine::{Change, ClaimId, Engine, ForeignGrant, News, Recording, Time};
use crate::mutation::Mutation;
use crate::protocol::{Millis, Token};
use std::collections::VecDeque;

/// What a member needs to know besides its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberSettings {
    /// The times of the roles.
    pub timing: Timing,
    /// How long waiting requests keep their places after the active node has changed.
    pub takeover_grace: Millis,
    /// The same after all nodes were down.
    pub restart_grace: Millis,
    /// Where the counter of a term begins: 0, or for a node that remembers nothing the fraction of a
    /// second, so that it repeats no token when it starts twice within one.
    pub first_counter: u32,
    /// Whether standbys are told of each change, because somebody waits until they have it, or only of
    /// those that last until they are told.
    pub tell_everything: bool,
    /// What is broken on purpose: nothing, outside of tests.
    #[doc(hidden)]
    pub mutation: Mutation,
}

impl Default for MemberSettings {
    fn default() -> MemberSettings {
        MemberSettings {
            timing: Timing::default(),
            takeover_grace: Millis(2000),
            restart_grace: Millis(5000),
            first_counter: 0,
            tell_everything: false,
            mutation: Mutation::None,
        }
    }
}

/// What is to be done for a member by those who have sockets and disks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Write the term down and tell [`Member::handle`] how that went.
    WriteTerm {
        /// Which.
        term: u32,
    },
    /// Connect to the peer afresh, once, and tell how that went.
    Connect {
        /// To whom.
        to: Slot,
    },
    /// Treat clients so from now on.
    Stance(Stance),
    /// Exit the process.
    Exit,
    /// Tell the operator.
    Note(Note),
}

/// A node as a member of its cluster: its role, and the copying of the state both ways. Requests go past it.
#[derive(Debug)]
pub struct Member {
    members: Members,
    settings: MemberSettings,
    roles: Roles,
    feeds: Feeds,
    copier: Copier,
    outgoing: Outgoing,
    releases: Releases,
    /// Grants up to this token may be known to a standby that was lost.
    copied_up_to: Option<Token>,
    /// The latest grants and their numbers, as long as no standby has confirmed them.
    unconfirmed: VecDeque<Unconfirmed>,
    /// Tokens that were given back elsewhere and are to be ended here as soon as the node serves.
    given_back: Vec<Token>,
    outputs: VecDeque<Output>,
}

/// The state of a peer, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerState {
    /// Its place.
    pub slot: Slot,
    /// What it last said of itself.
    pub beat: Beat,
    /// Whether it counts as living.
    pub lives: bool,
    /// On the active node: how many changes this standby lacks, if it copies.
    pub lag: Option<u64>,
    /// On the active node: whether this standby has the whole state.
    pub complete: bool,
}

#[derive(Clone, Copy, Debug)]
struct Unconfirmed {
    number: u64,
    claim: ClaimId,
    token: Token,
}

/// The grants that no standby has confirmed are remembered up to this number.
const MOST_UNCONFIRMED: usize = 100_000;

/// Asked for and not begun after this time, the whole state is asked for again.
const ASK_AGAIN: Millis = Millis(1000);

/// Where nobody waits for it, what was applied is confirmed no more often than this: each time costs the active node
/// a read.
const CONFIRM_PAUSE: Millis = Millis(5);

impl Member {
    /// A node that has just started.
    #[must_use]
    pub fn new(
        now: Now,
        members: Members,
        settings: MemberSettings,
        beginning: Beginning,
        engine: &mut Engine,
    ) -> Member {
        let mut roles = Roles::new(
            now,
            members.own(),
            members.others(),
            settings.timing,
            beginning,
        );
        roles.mutation = settings.mutation;
        let mut member = Member {
            outgoing: Outgoing::new(members.others()),
            members,
            settings,
            roles,
            feeds: Feeds::new(if settings.tell_everything {
                Recording::Everything
            } else {
                Recording::WhatLasts
            }),
            copier: Copier::default(),
            releases: Releases::default(),
            copied_up_to: None,
            unconfirmed: VecDeque::new(),
            given_back: Vec::new(),
            outputs: VecDeque::new(),
        };
        member.carry_out(now, engine);
        member
    }

    /// The list of nodes.
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// How clients are to be treated.
    #[must_use]
    pub fn stance(&self) -> Stance {
        self.roles.stance()
    }

    /// What this node is.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.roles.stage()
    }

    /// The active node, as far as this one knows.
    #[must_use]
    pub fn active(&self) -> Option<Slot> {
        self.roles.active()
    }

    /// The term to be written before the counter of the present one ends; `None` when they are used up.
    #[must_use]
    pub fn next_term(&self, now: Now) -> Option<u32> {
        self.roles.next_term(now)
    }

    /// The highest term that this node knows of.
    #[must_use]
    pub fn known_term(&self) -> u32 {
        self.roles.known_term()
    }

    /// What this node has of the state.
    #[must_use]
    pub fn copy(&self) -> Copy {
        self.roles.copy()
    }

    /// The next thing to be done. Take all after every call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether there is something to be done.
    #[must_use]
    pub fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Takes the frames that are to be sent to a peer now. What was not taken is what counts as its
    /// backlog, so take only what a socket is ready for.
    pub fn take_frames(&mut self, to: Slot, into: &mut Vec<u8>) {
        self.outgoing.take(to, into);
    }

    /// Whether there are frames to be sent to a peer.
    #[must_use]
    pub fn has_frames(&self, to: Slot) -> bool {
        self.outgoing.unsent(to) > 0
    }

    /// When to come back with [`Event::Tick`] at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let asks = self.copier.asking_since().map(|at| at.after(ASK_AGAIN));
        let confirms = self.copier.confirms_at();
        let deadlines = [self.roles.next_deadline(), asks, confirms];
        deadlines.into_iter().flatten().min()
    }

    /// What is known of the peers.
    pub fn peers(&self, now: Now) -> impl Iterator<Item = PeerState> + '_ {
        self.roles.peers(now).map(|(slot, beat, lives)| {
            let feed = self.feeds.lags().find(|(to, ..)| *to == slot);
            PeerState {
                slot,
                beat,
                lives,
                lag: feed.map(|(_, lag, _)| lag),
                complete: feed.is_some_and(|(_, _, complete)| complete),
            }
        })
    }

    /// Takes in what has happened.
    pub fn handle(&mut self, now: Now, event: Event, engine: &mut Engine) {
        match event {
            Event::Connected { peer } => {
                // What was under way over the connection before is lost.
                self.lose_standby(peer, engine);
                self.outgoing.set_open(peer, true);
                if self.copier.active() == Some(peer) {
                    self.ask(now, peer);
                }
            }
            Event::Lost { peer } | Event::Refused { peer } => {
                self.outgoing.set_open(peer, false);
                self.lose_standby(peer, engine);
            }
            Event::Relinked { peer } => {
                let asks = !self.settings.mutation.is(Mutation::IgnoreGaps);
                if self.copier.active() == Some(peer) && asks {
                    self.ask(now, peer);
                }
            }
            Event::Tick
            | Event::Doubted { .. }
            | Event::CutShort { .. }
            | Event::TermOpened { .. }
            | Event::Heard { .. }
            | Event::TermWritten { .. }
            | Event::TermFailed { .. }
            | Event::Copied(_)
            | Event::Frozen { .. }
            | Event::TermSeen { .. }
            | Event::Stop
            | Event::Drained
            | Event::Woke => {}
        }
        self.roles.handle(now, event);
        self.carry_out(now, engine);
        self.end_given_back(now, engine);
        self.ask_again(now);
        self.confirm(now);
    }

    /// Takes in the body of a frame from a peer. Follow a batch of frames with [`Member::replicate`].
    ///
    /// # Errors
    /// It is no frame. The connection cannot be used any more.
    pub fn handle_frame(
        &mut self,
        now: Now,
        from: Slot,
        body: &[u8],
        engine: &mut Engine,
    ) -> Result<(), FrameError> {
        let frame = Frame::decode(body, now.time)?;
        self.roles.spoke(now, from);
        let follows = self.copier.active() == Some(from);
        match frame {
            Frame::Roles(message) => {
                let event = Event::Heard { from, message };
                self.roles.handle(now, event);
            }
            Frame::Join => {
                if self.serves() {
                    self.note_changes(now, engine);
                }
                if self.serves() {
                    self.feeds.join(now.time, engine, &mut self.outgoing, from);
                }
            }
            Frame::Begin { stream, sequence } if follows => {
                self.copier.begin(engine, stream, sequence);
                self.copied(now, engine);
            }
            Frame::Dump { changes } if follows => {
                let taken = self.copier.part(now.time, engine, &changes);
                self.saw_tokens(now, engine);
                self.taken(now, from, taken);
            }
            Frame::Whole if follows => {
                self.copier.whole();
                self.copied(now, engine);
            }
            Frame::Changes {
                stream,
                first,
                changes,
            } if !self.serves() => {
                let numbered = (stream, first);
                let taken = self
                    .copier
                    .changes(now.time, engine, numbered, &changes, body);
                self.taken(now, from, taken);
                self.copied(now, engine);
            }
            Frame::Applied { stream, sequence } => {
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
            Frame::Given { grants } if self.serves() => {
                let released = self.releases.not_known_elsewhere(now.time);
                for foreign in grants.iter().filter_map(foreign) {
                    engine.merge(now.time, &foreign);
                    if released.contains(&foreign.token) {
                        self.given_back.push(foreign.token);
                    }
                }
                self.saw_tokens(now, engine);
            }
            Frame::Ended { tokens } if self.serves() => self.given_back.extend(tokens),
            // What came for another role than this node has by now.
            Frame::Begin { .. }
            | Frame::Dump { .. }
            | Frame::Whole
            | Frame::Changes { .. }
            | Frame::Given { .. }
            | Frame::Ended { .. } => {}
        }
        self.carry_out(now, engine);
        self.end_given_back(now, engine);
        Ok(())
    }

    /// Tells the standbys what has changed, and the active node what was applied. Call it after every
    /// batch of requests, deadlines or frames; where there is nothing to tell it costs nothing.
    pub fn replicate(&mut self, now: Now, engine: &mut Engine) {
        if self.serves() {
            if engine.changes_waiting() > 0 {
                self.note_changes(now, engine);
            }
            if self.feeds.is_dumping() {
                self.feeds.pump(now.time, engine, &mut self.outgoing);
            }
        } else {
            self.confirm(now);
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

    /// How many standbys have the whole state and confirm in time.
    #[must_use]
    pub fn counting_standbys(&self) -> usize {
        self.feeds.counting().count()
    }

    /// Standbys that have not confirmed this number by now do not count until they have caught up.
    pub fn standbys_lag(&mut self, number: u64) {
        self.feeds.lag(number);
    }

    /// The number of the last change that at least `count` standbys have confirmed; `None` where
    /// fewer than that copy.
    #[must_use]
    pub fn confirmed_by(&self, count: usize) -> Option<u64> {
        self.feeds.confirmed_by(count)
    }

    /// The number that the last change made so far has or will have.
    #[must_use]
    pub fn sequence(&self, engine: &Engine) -> u64 {
        self.feeds.sequence() + engine.changes_waiting() as u64
    }

    /// What a copy on disk has that is up to date: the position, and whether the state here is whole.
    #[must_use]
    pub fn kept(&self, engine: &Engine) -> Copy {
        let mut copy = self.roles.copy();
        if self.serves() {
            copy.sequence = self.sequence(engine);
        }
        copy
    }

    fn serves(&self) -> bool {
        matches!(self.roles.stage(), Stage::Active | Stage::HandingOver)
    }

    /// Does what the roles ask for.
    fn carry_out(&mut self, now: Now, engine: &mut Engine) {
        while let Some(effect) = self.roles.poll_effect() {
            match effect {
                Effect::Send { to, message } => self.send(now, to, message),
                Effect::Connect { to } => self.outputs.push_back(Output::Connect { to }),
                Effect::WriteTerm { term } => self.outputs.push_back(Output::WriteTerm { term }),
                Effect::Supply { to, round, copy } => self.supply(now, to, round, &copy),
                Effect::Lead { term, origin } => self.lead(now, engine, term, origin),
                Effect::Raise { term } => self.open_term(engine, term),
                Effect::Follow { active } => {
                    self.feeds.end(engine);
                    self.copier.follow(active);
                    self.ask(now, active);
                }
                Effect::Yield {
                    to,
                    unconfirmed_only,
                } => self.give(now, engine, to, unconfirmed_only),
                Effect::Retire => self.retire(now, engine),
                Effect::Freeze => {
                    self.note_changes(now, engine);
                    let sequence = self.feeds.sequence();
                    self.roles.handle(now, Event::Frozen { sequence });
                }
                Effect::Stance(stance) => self.outputs.push_back(Output::Stance(stance)),
                Effect::Exit => self.outputs.push_back(Output::Exit),
                Effect::Note(note) => self.outputs.push_back(Output::Note(note)),
            }
        }
    }

    /// This standby is told of nothing any more. It may become active with what it has.
    fn lose_standby(&mut self, peer: Slot, engine: &Engine) {
        if self.feeds.tells(peer) {
            self.copied_up_to = engine.highest_token();
            self.releases.lose();
        }
        self.feeds.lose(peer);
    }

    fn send(&mut self, now: Now, to: Slot, message: Message) {
        let routine = matches!(message, Message::Beat(_));
        if !routine || !self.outgoing.is_stuck(to) {
            self.outgoing.frame(now.time, to, &Frame::Roles(message));
        }
    }

    fn lead(&mut self, now: Now, engine: &mut Engine, term: u32, origin: Origin) {
        self.copier.end();
        self.open_term(engine, term);
        self.unconfirmed.clear();
        self.releases.begin();
        self.copied_up_to = None;
        let exact = origin == Origin::Handoff;
        let grace = match origin {
            Origin::Restart => self.settings.restart_grace,
            Origin::Start | Origin::Takeover | Origin::Handoff => self.settings.takeover_grace,
        };
        engine.resume(now.time, grace, exact);
        let slot = self.members.own().0;
        self.feeds.begin(engine, Stream { term, slot });
        // Grants that came with the copy may have been released here before.
        let released = self.releases.remembered(now.time);
        if !released.is_empty() {
            engine.end_tokens(now.time, released);
        }
    }

    fn open_term(&mut self, engine: &mut Engine, term: u32) {
        // The roles know of every term that a copied token can have, so this does not fail; if it did,
        // grants would be refused, which harms nobody.
        let slot = if self.settings.mutation.is(Mutation::SameSlot) {
            0
        } else {
            self.members.own().0
        };
        let first = self.settings.first_counter;
        if engine.open_term(term, slot, first).is_err() {
            self.outputs.push_back(Output::Note(Note::TermsUsedUp));
        }
    }

    /// Gives the node that stays active what it does not have, and forgets the rest.
    fn give(&mut self, now: Now, engine: &mut Engine, to: Slot, unconfirmed_only: bool) {
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
            if bytes > super::frame::BATCH_BYTES / 2 {
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
    fn retire(&mut self, now: Now, engine: &mut Engine) {
        self.feeds.end(engine);
        self.unconfirmed.clear();
        for token in self.given_back.drain(..) {
            self.releases.remember(now.time, token);
        }
        engine.resign();
    }

    fn supply(&mut self, now: Now, to: Slot, round: u64, copy: &Copy) {
        for body in self.copier.frames_after(copy.sequence) {
            self.outgoing.body(to, body);
        }
        self.send(now, to, Message::Fetched { round });
    }

    /// Asks the active node for the whole state.
    fn ask(&mut self, now: Now, active: Slot) {
        self.copier.asked(now.time);
        self.outgoing.frame(now.time, active, &Frame::Join);
    }

    fn ask_again(&mut self, now: Now) {
        if let (Some(active), Some(asked)) = (self.copier.active(), self.copier.asking_since())
            && now.time >= asked.after(ASK_AGAIN)
        {
            self.ask(now, active);
        }
    }

    /// Tells the active node what was applied.
    fn confirm(&mut self, now: Now) {
        let pause = match self.settings.tell_everything {
            true => Millis(0),
            false => CONFIRM_PAUSE,
        };
        if let Some((to, frame)) = self.copier.confirmation(now.time, pause) {
            self.outgoing.frame(now.time, to, &frame);
        }
    }

    fn taken(&mut self, now: Now, from: Slot, taken: Taken) {
        match taken {
            Taken::Gap if self.settings.mutation.is(Mutation::IgnoreGaps) => {}
            Taken::Fine => {}
            Taken::Gap => {
                self.copier.broken();
                self.roles.handle(now, Event::Copied(self.copier.copy()));
                if self.copier.active() == Some(from) {
                    self.ask(now, from);
                }
            }
        }
    }

    fn copied(&mut self, now: Now, engine: &Engine) {
        self.saw_tokens(now, engine);
        self.roles.handle(now, Event::Copied(self.copier.copy()));
    }

    /// The next own term is above that of every token that came from elsewhere.
    fn saw_tokens(&mut self, now: Now, engine: &Engine) {
        if let Some(token) = engine.highest_token() {
            let term = term_of(token);
            let used_by_both =
                self.roles.serving_term() == Some(term) && slot_of(token) != self.members.own();
            let term = term + u32::from(used_by_both);
            self.roles.handle(now, Event::TermSeen { term });
        }
    }

    /// Ends what was given back at another node that was active. The next in the queue gets a token at
    /// once, so this waits until there is a term above all that the other node has used.
    fn end_given_back(&mut self, now: Now, engine: &mut Engine) {
        if self.given_back.is_empty() || self.roles.stance() != Stance::Serve {
            return;
        }
        let ended = self.given_back.drain(..).collect();
        for unknown in engine.end_tokens(now.time, &ended) {
            self.releases.remember(now.time, unknown);
        }
    }

    /// Hands the changes to the feeds and remembers of them what another active node would have to
    /// be told.
    fn note_changes(&mut self, now: Now, engine: &mut Engine) {
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

    /// The own position has moved; nothing can come of that but a beat.
    fn carry_out_quietly(&mut self, now: Now, engine: &mut Engine) {
        if self.serves() {
            self.carry_out(now, engine);
        }
    }
}

/// Makes room among the grants that no standby has confirmed: first those go that have ended, and if
/// that is not enough, the oldest.
fn forget_ended(unconfirmed: &mut VecDeque<Unconfirmed>, engine: &Engine) {
    unconfirmed.retain(|grant| engine.still_holds(grant.claim, grant.token));
    let surplus = unconfirmed.len().saturating_sub(MOST_UNCONFIRMED / 2);
    unconfirmed.drain(..surplus);
}

fn term_of(token: Token) -> u32 {
    (token.get() >> 32) as u32
}

fn slot_of(token: Token) -> Slot {
    Slot((token.get() >> 28) as u8 & 15)
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
