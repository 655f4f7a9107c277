//! A node as a member of its cluster: what happens is passed to the roles, and what they ask for is done with the engine,
//! the copy and the frames for the peers.
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

mod copying;
mod giving;

use super::copier::Copier;
use super::feeds::Feeds;
use super::frame::{Frame, FrameError};
use super::members::{Members, Slot};
use super::message::{Beat, Copy, Message, Stage, Stream, Timing};
use super::outgoing::Outgoing;
use super::releases::Releases;
use super::roles::{Beginning, Effect, Event, Note, Now, Origin, Roles, Stance};
use crate::engine::{Engine, Time};
use crate::mutation::Mutation;
use crate::protocol::{Millis, Token};
use copying::ASK_AGAIN;
use giving::Unconfirmed;
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
    /// Whether somebody waits for what this node confirms, so that it confirms at once.
    pub confirm_at_once: bool,
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
            confirm_at_once: false,
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
            feeds: Feeds::default(),
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
        let settles = self.copier.settles_at();
        let deadlines = [self.roles.next_deadline(), asks, confirms, settles];
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
            | Event::Rejected { .. }
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
        if self.copier.settles_at().is_some_and(|at| at <= now.time) {
            self.settle(now, engine);
        }
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
                    .changes(now.time, engine, numbered, changes, body);
                self.taken(now, from, taken);
                self.copied(now, engine);
            }
            Frame::Applied { stream, sequence } => self.applied(from, stream, sequence),
            Frame::Given { grants } if self.serves() => self.given(now, engine, &grants),
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
                    engine.tell_begun_leases();
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

    fn send(&mut self, now: Now, to: Slot, message: Message) {
        let routine = matches!(message, Message::Beat(_));
        if !routine || !self.outgoing.is_stuck(to) {
            self.outgoing.frame(now.time, to, &Frame::Roles(message));
        }
    }

    fn lead(&mut self, now: Now, engine: &mut Engine, term: u32, origin: Origin) {
        // What does not fit was not whole, and whoever leads has nothing better.
        let _ = self.copier.settle(now.time, engine);
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

    /// The own position has moved; nothing can come of that but a beat.
    fn carry_out_quietly(&mut self, now: Now, engine: &mut Engine) {
        if self.serves() {
            self.carry_out(now, engine);
        }
    }
}

fn term_of(token: Token) -> u32 {
    (token.get() >> 32) as u32
}

fn slot_of(token: Token) -> Slot {
    Slot((token.get() >> 28) as u8 & 15)
}
