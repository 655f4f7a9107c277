//! Who is active: each node decides for itself from what its peers say of themselves.
//!
//! ```text
//!             nobody is active, I am the best            my term is on disk, still the best
//!  Starting ───────────┐        ┌──────────▶ Candidate ──────────────▶ Active
//!                      ├────────┤                ▲                       │
//!  Standby ────────────┘        └────────────────┘                       │
//!     ▲        another node is active, or handed over, or is better      │
//!     └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! There is no vote. What a node says of itself ([`Beat`]) is all that its peers know of it, and the
//! rules below are looked at again after every event, so that a message that is lost, late or doubled
//! changes when a rule applies and never whether. The state of the locks does not pass through here:
//! this module says when to copy, freeze, serve and give away, others do it.

use super::members::Slot;
use super::message::{Beat, Copy, Handoff, Message, Stage, Stream, Timing};
use super::peer::Peer;
use crate::engine::Time;
use crate::protocol::Millis;
use std::collections::VecDeque;
use std::fmt;

/// A moment, by both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// By the clock that everything is timed with.
    pub time: Time,
    /// The least term by the wall clock: seconds since 2026, or 0 if the clock cannot be right.
    pub wall: u32,
}

/// What happens to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A peer has said something.
    Heard {
        /// Who.
        from: Slot,
        /// What.
        message: Message,
    },
    /// A connection with a peer has ended.
    Lost {
        /// Whose.
        peer: Slot,
    },
    /// A fresh connection to a peer was refused.
    Refused {
        /// Whose.
        peer: Slot,
    },
    /// A fresh connection to a peer was made.
    Connected {
        /// Whose.
        peer: Slot,
    },
    /// The term is on disk.
    TermWritten {
        /// Which.
        term: u32,
    },
    /// The term could not be written.
    TermFailed {
        /// Which.
        term: u32,
    },
    /// What this node has of the state now.
    Copied(Copy),
    /// The node is frozen, as asked: this was its last change.
    Frozen {
        /// The number of the last change.
        sequence: u64,
    },
    /// Somebody knows a token of this term.
    TermSeen {
        /// Which.
        term: u32,
    },
    /// An operator asks the node to stop.
    Stop,
    /// The node is stopping and its last client has gone.
    Drained,
    /// The node has stood still, for at least half of the failure timeout.
    Woke,
}

/// What the node does with its clients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stance {
    /// Keeps their requests until it knows who is active.
    Park,
    /// Sends them to the active node.
    Redirect(Slot),
    /// Serves them.
    Serve,
    /// Keeps requests and timers still: it hands over, waits for its term to be on disk, or has just
    /// woken up and does not know whether it is still the one.
    Freeze,
    /// Is about to exit: sends them to its successor, or answers what it can.
    Leave(Option<Slot>),
}

/// How a node comes to serve.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// It was asked for the first time, or nobody alive has anything to copy.
    Start,
    /// The active node is gone: leases count as renewed, requests get time to come back.
    Takeover,
    /// The active node handed over: leases are exact, requests get time to come back.
    Handoff,
}

/// What a node is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Tell a peer, if there is a connection to it.
    Send {
        /// Whom.
        to: Slot,
        /// What.
        message: Message,
    },
    /// Connect to a peer afresh and tell how that went.
    Connect {
        /// To whom.
        to: Slot,
    },
    /// Write a term to disk and tell how that went.
    WriteTerm {
        /// Which.
        term: u32,
    },
    /// Give the candidate what it lacks of the stream, then send it `Fetched`.
    Supply {
        /// Whom.
        to: Slot,
        /// Its try.
        round: u64,
        /// What it has.
        copy: Copy,
    },
    /// Serve from this moment with tokens of the term.
    Lead {
        /// Of the tokens.
        term: u32,
        /// How it came.
        origin: Origin,
    },
    /// Take tokens from a higher term from now on.
    Raise {
        /// Of the tokens.
        term: u32,
    },
    /// Copy the state of the active node.
    Follow {
        /// Whose.
        active: Slot,
    },
    /// Give an active node what it does not have, and then forget the own state.
    Yield {
        /// To whom.
        to: Slot,
        /// True after a sleep: only the grants that no standby had confirmed are given.
        unconfirmed_only: bool,
    },
    /// The successor serves: send waiting requests there and forget the state.
    Retire,
    /// Change nothing any more, send every peer what it lacks, and tell the last number with
    /// [`Event::Frozen`].
    Freeze,
    /// Treat clients so from now on.
    Stance(Stance),
    /// Exit the process.
    Exit,
    /// Tell the operator.
    Note(Note),
}

/// A line for the operator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Note {
    /// Another stage, and why.
    Stage(Stage, &'static str),
    /// The term could not be written.
    CannotWrite(u32),
    /// No term is left.
    TermsUsedUp,
    /// It serves with an incomplete copy, because nobody has more.
    Incomplete,
    /// A handoff came to nothing.
    HandoffFailed(Slot),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Stage(stage, why) => write!(f, "{stage:?}: {why}"),
            Note::CannotWrite(term) => {
                write!(f, "cannot write term {term}: this node does not take over")
            }
            Note::TermsUsedUp => f.write_str("no term is left: this node does not take over"),
            Note::Incomplete => {
                f.write_str("no living node has a complete copy: serving with what is here")
            }
            Note::HandoffFailed(to) => write!(f, "node {to} did not take over"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// `begun`: since when nobody is known to be active.
    Looking {
        begun: Time,
    },
    /// An active node is known; heard by this node, or only by another one.
    Following {
        active: Slot,
        heard: bool,
    },
    Candidate(Candidate),
    Active(Active),
    Leaving {
        successor: Option<Slot>,
        until: Time,
    },
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Candidate {
    round: u64,
    origin: Origin,
    begun: Time,
    term: u32,
    written: bool,
    /// Bits of the peers whose `Fetched` is awaited, and until when.
    awaits: u16,
    until: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Active {
    /// Of the tokens.
    term: u32,
    since: Time,
    /// A higher term that is being written; nothing is granted until it is.
    raising: Option<u32>,
    handoff: Option<Round>,
    /// After a sleep: nothing is done until the peers have spoken or this time has come.
    doubts_until: Option<Time>,
    /// A successor that was asked in vain, bits.
    refused: u16,
    /// Once it was told to stop: until when it looks for a successor.
    stop_until: Option<Time>,
}

impl Active {
    fn is_handing_over(&self) -> bool {
        self.handoff
            .is_some_and(|handoff| handoff.step != Step::Offered)
    }
}

/// A handoff as the active node sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Round {
    number: u64,
    to: Slot,
    step: Step,
    until: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Offered,
    Freezing,
    Frozen,
}

/// A handoff as the successor sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Accepted {
    from: Slot,
    number: u64,
    term: u32,
    written: bool,
    last: Option<u64>,
}

/// The roles as one node sees them. See the [module](self).
#[derive(Clone, Debug)]
pub struct Roles {
    own: Slot,
    incarnation: u64,
    timing: Timing,
    peers: Vec<(Slot, Peer)>,
    connect_at: Vec<Option<Time>>,
    state: State,
    copy: Copy,
    /// The highest term that anybody has named.
    known_term: u32,
    /// The highest term on the own disk.
    disk_term: u32,
    /// A term that is on disk and that no token was taken from.
    spare_term: Option<u32>,
    /// Whether there was more on the own disk than a term.
    has_state: bool,
    /// When to try the disk again, after it failed.
    disk_failed: Option<Time>,
    accepted: Option<Accepted>,
    preempt: Preempt,
    /// The active node that was followed last, and since when.
    followed: Option<(Slot, Time)>,
    next_round: u64,
    next_beat: Time,
    said: Option<Beat>,
    stance: Stance,
    effects: VecDeque<Effect>,
}

/// How a node begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// A random number, new with every start of the process.
    pub incarnation: u64,
    /// The highest term on the own disk, 0 if there is none.
    pub disk_term: u32,
    /// What of the state was on the own disk.
    pub copy: Copy,
}

impl Roles {
    /// A node that has just started. `others` are the places of its peers.
    #[must_use]
    pub fn new(
        now: Now,
        own: Slot,
        others: impl IntoIterator<Item = Slot>,
        timing: Timing,
        beginning: Beginning,
    ) -> Roles {
        let peers: Vec<(Slot, Peer)> = others
            .into_iter()
            .map(|slot| (slot, Peer::new(now.time)))
            .collect();
        let mut roles = Roles {
            own,
            incarnation: beginning.incarnation,
            timing,
            connect_at: vec![Some(now.time); peers.len()],
            peers,
            state: State::Looking { begun: now.time },
            copy: beginning.copy,
            known_term: beginning.disk_term.max(beginning.copy.stream.term),
            disk_term: beginning.disk_term,
            spare_term: None,
            has_state: beginning.copy != Copy::default(),
            disk_failed: None,
            accepted: None,
            preempt: Preempt::new(timing),
            followed: None,
            next_round: beginning.incarnation,
            next_beat: now.time,
            said: None,
            stance: Stance::Park,
            effects: VecDeque::new(),
        };
        roles.handle(now, Event::Tick);
        roles
    }

    /// Goes by other times from now on.
    pub fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
        self.preempt.timing = timing;
    }

    /// Takes in what has happened.
    pub fn handle(&mut self, now: Now, event: Event) {
        match event {
            Event::Tick => {}
            Event::Heard { from, message } => self.hear(now, from, message),
            Event::Lost { peer } => {
                if let Some(place) = self.place(peer) {
                    self.peers[place].1.lose();
                    self.connect_at[place] = Some(now.time);
                }
            }
            Event::Refused { peer } => {
                if let Some(place) = self.place(peer) {
                    self.peers[place].1.refuse();
                    self.connect_at[place] = Some(now.time.after(self.timing.heartbeat));
                }
            }
            Event::Connected { peer } => {
                if let Some(place) = self.place(peer) {
                    self.peers[place].1.connect();
                    self.connect_at[place] = None;
                    let beat = Message::Beat(self.beat(now));
                    self.send(peer, beat);
                }
            }
            Event::TermWritten { term } => self.term_written(now, term),
            Event::TermFailed { term } => self.term_failed(now, term),
            Event::Copied(copy) => self.copy = copy,
            Event::Frozen { sequence } => self.frozen(now, sequence),
            Event::TermSeen { term } => self.known_term = self.known_term.max(term),
            Event::Stop => self.stop(now),
            Event::Drained => {
                if matches!(self.state, State::Leaving { .. }) {
                    self.exit();
                }
            }
            Event::Woke => self.wake(now),
        }
        self.settle(now);
        self.speak(now);
    }

    /// What is to be done. Take all after every event.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to come back with [`Event::Tick`] at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let silences = self
            .peers
            .iter()
            .filter_map(|(_, peer)| peer.falls_silent(self.timing.failure_timeout));
        let connects = self.connect_at.iter().flatten().copied();
        let own = match self.state {
            State::Looking { begun } => Some(begun.after(self.timing.discovery_timeout)),
            State::Following { .. } | State::Gone => None,
            State::Candidate(candidate) => Some(candidate.until),
            State::Active(active) => self.active_deadline(&active),
            State::Leaving { until, .. } => Some(until),
        };
        let beat = (!self.peers.is_empty()).then_some(self.next_beat);
        silences
            .chain(connects)
            .chain(own)
            .chain(beat)
            .chain(self.disk_failed)
            .min()
            .filter(|_| self.state != State::Gone)
    }

    /// How clients are to be treated.
    #[must_use]
    pub fn stance(&self) -> Stance {
        self.stance
    }

    /// What this node is.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.state {
            State::Looking { .. } if self.copy == Copy::default() => Stage::Starting,
            State::Looking { .. } | State::Following { .. } => Stage::Standby,
            State::Candidate(_) => Stage::Candidate,
            State::Active(active) if active.is_handing_over() => Stage::HandingOver,
            State::Active(_) => Stage::Active,
            State::Leaving { .. } | State::Gone => Stage::Leaving,
        }
    }

    /// The term that tokens are taken from, on the active node.
    #[must_use]
    pub fn serving_term(&self) -> Option<u32> {
        match self.state {
            State::Active(active) => Some(active.term),
            State::Looking { .. }
            | State::Following { .. }
            | State::Candidate(_)
            | State::Leaving { .. }
            | State::Gone => None,
        }
    }

    /// The active node, as far as this one knows.
    #[must_use]
    pub fn active(&self) -> Option<Slot> {
        match self.state {
            State::Following { active, .. } => Some(active),
            State::Active(_) => Some(self.own),
            State::Leaving { successor, .. } => successor,
            State::Looking { .. } | State::Candidate(_) | State::Gone => None,
        }
    }

    /// What a peer last said of itself, and whether it counts as living.
    pub fn peers(&self, now: Now) -> impl Iterator<Item = (Slot, Beat, bool)> + '_ {
        self.peers
            .iter()
            .map(move |(slot, peer)| (*slot, peer.beat, self.lives(now, peer)))
    }

    // What comes in.

    fn hear(&mut self, now: Now, from: Slot, message: Message) {
        let Some(place) = self.place(from) else {
            return;
        };
        if self.peers[place].1.is_refused() {
            // It was not there when this node last tried, and is there now.
            self.connect_at[place] = Some(now.time);
        }
        self.peers[place].1.hear(now.time);
        match message {
            Message::Beat(beat) => self.hear_beat(now, place, beat),
            Message::Handoff { round, step } => self.hear_handoff(now, from, round, step),
            Message::Fetch { round, copy } => {
                let can_supply =
                    !matches!(self.state, State::Active(_)) && self.copy.stream == copy.stream;
                if can_supply {
                    self.effects.push_back(Effect::Supply {
                        to: from,
                        round,
                        copy,
                    });
                } else {
                    self.send(from, Message::Fetched { round });
                }
            }
            Message::Fetched { round } => {
                if let State::Candidate(candidate) = &mut self.state
                    && candidate.round == round
                {
                    candidate.awaits &= !from.bit();
                }
            }
        }
    }

    fn hear_beat(&mut self, now: Now, place: usize, beat: Beat) {
        self.known_term = self.known_term.max(beat.term);
        let own_stream = self.copy.stream;
        let serves = matches!(self.state, State::Active(_));
        let (_, peer) = &mut self.peers[place];
        if peer.beat.incarnation != beat.incarnation {
            peer.complete_since = None;
        }
        peer.beat = beat;
        let complete = serves
            && beat.stage == Stage::Standby
            && beat.copy.complete
            && beat.copy.stream == own_stream;
        if complete {
            peer.complete_since.get_or_insert(now.time);
        } else {
            peer.complete_since = None;
        }
    }

    fn hear_handoff(&mut self, now: Now, from: Slot, round: u64, step: Handoff) {
        match step {
            Handoff::Offer => self.offered(now, from, round),
            Handoff::Withdraw => {
                if self
                    .accepted
                    .is_some_and(|a| a.from == from && a.number == round)
                {
                    self.accepted = None;
                }
            }
            Handoff::Final { sequence } => {
                if let Some(accepted) = &mut self.accepted
                    && (accepted.from, accepted.number) == (from, round)
                {
                    accepted.last = Some(sequence);
                }
            }
            Handoff::Ready => {
                if let State::Active(active) = &mut self.state
                    && let Some(handoff) = &mut active.handoff
                    && (handoff.to, handoff.number, handoff.step) == (from, round, Step::Offered)
                {
                    handoff.step = Step::Freezing;
                    self.effects.push_back(Effect::Freeze);
                }
            }
            Handoff::Taken => {
                if let State::Active(Active {
                    handoff: Some(handoff),
                    ..
                }) = self.state
                    && (handoff.to, handoff.number, handoff.step) == (from, round, Step::Frozen)
                {
                    self.handed_over(now, from);
                }
            }
        }
    }

    /// The active node asks this one to take over.
    fn offered(&mut self, now: Now, from: Slot, number: u64) {
        let follows = self.state
            == State::Following {
                active: from,
                heard: true,
            };
        let able = follows && self.copy.complete && self.copy.stream.slot == from.0;
        if !able || !self.can_lead() {
            return;
        }
        let Some(term) = self.next_term(now) else {
            self.effects.push_back(Effect::Note(Note::TermsUsedUp));
            return;
        };
        let spare = self.spare_term.filter(|spare| *spare >= term);
        self.accepted = Some(Accepted {
            from,
            number,
            term: spare.unwrap_or(term),
            written: spare.is_some(),
            last: None,
        });
        if spare.is_some() {
            self.send_handoff(from, number, Handoff::Ready);
        } else {
            self.effects.push_back(Effect::WriteTerm { term });
        }
    }

    fn term_written(&mut self, now: Now, term: u32) {
        if self.disk_failed.take().is_some() {
            // Whatever waited for the disk begins anew.
            self.next_beat = now.time;
        }
        self.disk_term = self.disk_term.max(term);
        match &mut self.state {
            State::Candidate(candidate) if candidate.term == term => candidate.written = true,
            State::Active(active) if active.raising == Some(term) => {
                active.raising = None;
                active.term = term;
                self.known_term = self.known_term.max(term);
                self.effects.push_back(Effect::Raise { term });
                return;
            }
            State::Looking { .. }
            | State::Following { .. }
            | State::Candidate(_)
            | State::Active(_)
            | State::Leaving { .. }
            | State::Gone => {}
        }
        if term > self.known_term {
            self.spare_term = Some(term);
        }
        if let Some(accepted) = &mut self.accepted
            && accepted.term == term
            && !accepted.written
        {
            accepted.written = true;
            let (to, round) = (accepted.from, accepted.number);
            self.send_handoff(to, round, Handoff::Ready);
        }
    }

    fn term_failed(&mut self, now: Now, term: u32) {
        if self.disk_failed.is_none() {
            self.effects
                .push_back(Effect::Note(Note::CannotWrite(term)));
        }
        self.disk_failed = Some(now.time.after(Millis(1000)));
        self.accepted = None;
        match &mut self.state {
            State::Candidate(candidate) => {
                self.state = State::Looking {
                    begun: candidate.begun,
                };
            }
            State::Active(active) => active.raising = None,
            State::Looking { .. }
            | State::Following { .. }
            | State::Leaving { .. }
            | State::Gone => {}
        }
    }

    /// Nothing changes here any more: the successor learns up to where to copy.
    fn frozen(&mut self, now: Now, sequence: u64) {
        let until = now.time.after(self.timing.failure_timeout);
        if let State::Active(active) = &mut self.state
            && let Some(handoff) = &mut active.handoff
            && handoff.step == Step::Freezing
        {
            handoff.step = Step::Frozen;
            handoff.until = until;
            let (to, number) = (handoff.to, handoff.number);
            self.send_handoff(to, number, Handoff::Final { sequence });
        }
    }

    fn stop(&mut self, now: Now) {
        match &mut self.state {
            State::Active(active) => {
                active
                    .stop_until
                    .get_or_insert(now.time.after(self.timing.drain_timeout));
            }
            State::Looking { .. } | State::Candidate(_) => self.leave(now, None),
            State::Following { active, .. } => {
                let active = *active;
                self.leave(now, Some(active));
            }
            State::Leaving { .. } => self.exit(),
            State::Gone => {}
        }
    }

    /// The silence of the peers says nothing: this node has slept through it.
    fn wake(&mut self, now: Now) {
        for (_, peer) in &mut self.peers {
            peer.forgive(now.time);
        }
        match &mut self.state {
            State::Looking { begun } => *begun = now.time,
            State::Candidate(_) => self.state = State::Looking { begun: now.time },
            State::Active(active) if !self.peers.is_empty() => {
                active.doubts_until = Some(now.time.after(self.timing.failure_timeout));
                for (_, peer) in &mut self.peers {
                    peer.expect_word();
                }
            }
            State::Active(_) | State::Following { .. } | State::Leaving { .. } | State::Gone => {}
        }
    }

    // The rules, looked at after every event.

    fn settle(&mut self, now: Now) {
        self.connect_again(now);
        self.try_disk(now);
        // Each rule leads to another state, and none back within one moment, so this ends.
        for _ in 0..8 {
            let before = self.state;
            match before {
                State::Looking { .. } | State::Following { .. } => self.seek(now),
                State::Candidate(candidate) => self.stand(now, candidate),
                State::Active(active) => self.serve(now, active),
                State::Leaving { until, .. } if now.time >= until => self.exit(),
                State::Leaving { .. } | State::Gone => {}
            }
            if self.state == before {
                break;
            }
        }
        self.update_stance();
    }

    fn connect_again(&mut self, now: Now) {
        for place in 0..self.peers.len() {
            if self.connect_at[place].is_some_and(|at| at <= now.time) {
                // Whatever comes of it, the next try has its time; being connected ends it.
                self.connect_at[place] = Some(now.time.after(self.timing.heartbeat));
                let to = self.peers[place].0;
                self.effects.push_back(Effect::Connect { to });
            }
        }
    }

    fn try_disk(&mut self, now: Now) {
        if self.disk_failed.is_some_and(|at| at <= now.time) {
            self.disk_failed = Some(now.time.after(Millis(1000)));
            let term = self.disk_term.max(1);
            self.effects.push_back(Effect::WriteTerm { term });
        }
    }

    /// Looks for an active node, and whether it has to be this one.
    fn seek(&mut self, now: Now) {
        if let Some(accepted) = self.accepted
            && accepted.written
            && accepted.last.is_some_and(|last| self.copy.sequence >= last)
            && self.copy.stream.slot == accepted.from.0
            && self.copy.complete
        {
            if accepted.term > self.known_term {
                self.lead(now, accepted.term, Origin::Handoff);
                self.send_handoff(accepted.from, accepted.number, Handoff::Taken);
            } else {
                // Somebody has named a higher term meanwhile; the active node will ask again.
                self.accepted = None;
            }
            return;
        }
        if let Some(active) = self.heard_active(now) {
            self.follow(now, active, true);
            return;
        }
        if let Some(active) = self.told_active(now) {
            self.follow(now, active, false);
            return;
        }
        self.accepted = None;
        let begun = match self.state {
            State::Looking { begun } => begun,
            State::Following { .. }
            | State::Candidate(_)
            | State::Active(_)
            | State::Leaving { .. }
            | State::Gone => {
                self.state = State::Looking { begun: now.time };
                now.time
            }
        };
        if let Some(origin) = self.should_lead(now, begun) {
            self.become_candidate(now, begun, origin);
        }
    }

    fn follow(&mut self, now: Now, active: Slot, heard: bool) {
        let already = match self.state {
            State::Following { active: known, .. } => known == active,
            State::Looking { .. }
            | State::Candidate(_)
            | State::Active(_)
            | State::Leaving { .. }
            | State::Gone => false,
        };
        self.state = State::Following { active, heard };
        if !already {
            self.followed = Some((active, now.time));
            self.effects.push_back(Effect::Follow { active });
            self.note(Stage::Standby, "another node is active");
        }
    }

    /// The living node of highest priority that says it is active.
    fn heard_active(&self, now: Now) -> Option<Slot> {
        self.living(now)
            .filter(|(_, peer)| peer.is_active())
            .map(|(slot, _)| slot)
            .min()
    }

    /// An active node that this one does not hear, but a living peer does.
    fn told_active(&self, now: Now) -> Option<Slot> {
        self.living(now)
            .filter_map(|(teller, peer)| {
                let (active, incarnation) = peer.beat.active?;
                if active == self.own || active == teller {
                    return None;
                }
                let known_better = self.peer(active).is_some_and(|peer| {
                    // It speaks for itself, or it is not the process that the teller has heard.
                    self.lives(now, peer) || newer_process(peer, incarnation)
                });
                (!known_better).then_some(active)
            })
            .min()
    }

    /// Whether nobody is better suited to be active than this node, and how it would come to it.
    fn should_lead(&self, now: Now, begun: Time) -> Option<Origin> {
        if !self.can_lead() {
            return None;
        }
        let able: Vec<(Slot, Copy)> = self
            .living(now)
            .filter(|(_, peer)| peer.beat.can_lead && peer.beat.stage != Stage::Leaving)
            .map(|(slot, peer)| (slot, peer.beat.copy))
            .chain([(self.own, self.copy)])
            .collect();
        let best_complete = able
            .iter()
            .filter(|(_, copy)| {
                copy.complete
                    && able.iter().all(|(_, other)| {
                        !other.complete
                            || other.position() <= copy.position()
                            || copy.reaches(other)
                    })
            })
            .map(|(slot, _)| *slot)
            .min();
        if let Some(best) = best_complete {
            return (best == self.own).then_some(Origin::Takeover);
        }
        let heard_out = self.peers.iter().all(|(_, peer)| {
            let timeout = self.timing.discovery_timeout;
            peer.heard_out(now.time, begun, timeout, !self.has_state)
        });
        if !heard_out {
            return None;
        }
        let best = able
            .iter()
            .max_by_key(|(slot, copy)| (copy.position(), std::cmp::Reverse(*slot)))
            .map(|(slot, _)| *slot);
        let nothing = self.copy == Copy::default();
        (best == Some(self.own)).then_some(if nothing {
            Origin::Start
        } else {
            Origin::Takeover
        })
    }

    fn become_candidate(&mut self, now: Now, begun: Time, origin: Origin) {
        let Some(term) = self.next_term(now) else {
            self.effects.push_back(Effect::Note(Note::TermsUsedUp));
            self.disk_failed = Some(now.time.after(Millis(1000)));
            return;
        };
        let round = self.new_round();
        let mut awaits = 0;
        if origin == Origin::Takeover {
            let suppliers: Vec<Slot> = self
                .living(now)
                .filter(|(_, peer)| peer.beat.copy.stream == self.copy.stream)
                .map(|(slot, _)| slot)
                .collect();
            for slot in suppliers {
                awaits |= slot.bit();
                let copy = self.copy;
                self.send(slot, Message::Fetch { round, copy });
            }
        }
        let spare = self.spare_term.filter(|spare| *spare >= term);
        if spare.is_none() {
            self.effects.push_back(Effect::WriteTerm { term });
        }
        self.state = State::Candidate(Candidate {
            round,
            origin,
            begun,
            term: spare.unwrap_or(term),
            written: spare.is_some(),
            awaits,
            until: now.time.after(self.timing.heartbeat),
        });
    }

    /// Goes on to become active, if that is still right.
    fn stand(&mut self, now: Now, candidate: Candidate) {
        let still_right = self.heard_active(now).is_none()
            && self.told_active(now).is_none()
            && self.should_lead(now, candidate.begun).is_some();
        if !still_right {
            self.state = State::Looking {
                begun: candidate.begun,
            };
            return;
        }
        let gone: u16 = self
            .peers
            .iter()
            .filter(|(_, peer)| !self.lives(now, peer))
            .map(|(slot, _)| slot.bit())
            .sum();
        let supplied = candidate.awaits & !gone == 0 || now.time >= candidate.until;
        if !candidate.written || !supplied {
            return;
        }
        if candidate.term <= self.known_term {
            // Somebody has named a higher term while this one was written.
            self.state = State::Looking {
                begun: candidate.begun,
            };
            return;
        }
        if candidate.origin == Origin::Takeover {
            if !self.copy.complete {
                self.effects.push_back(Effect::Note(Note::Incomplete));
            }
            if let Some((slot, since)) = self.followed
                && now.time < since.after(self.timing.calm)
            {
                self.preempt.trouble(slot, now.time);
            }
        }
        self.lead(now, candidate.term, candidate.origin);
    }

    fn lead(&mut self, now: Now, term: u32, origin: Origin) {
        self.state = State::Active(Active {
            term,
            since: now.time,
            raising: None,
            handoff: None,
            doubts_until: None,
            refused: 0,
            stop_until: None,
        });
        self.known_term = self.known_term.max(term);
        self.spare_term = None;
        self.accepted = None;
        self.copy = Copy {
            stream: Stream {
                term,
                slot: self.own.0,
            },
            sequence: 0,
            oldest: 0,
            complete: true,
        };
        for (_, peer) in &mut self.peers {
            peer.complete_since = None;
        }
        self.effects.push_back(Effect::Lead { term, origin });
        self.note(
            Stage::Active,
            match origin {
                Origin::Start => "no other node is active, and none has anything to copy",
                Origin::Takeover => "the active node is gone, and this is the best standby",
                Origin::Handoff => "the active node handed over",
            },
        );
    }

    /// What an active node has to look at.
    fn serve(&mut self, now: Now, mut active: Active) {
        if let Some(other) = self.other_active(now, &active) {
            let unconfirmed_only = active.doubts_until.is_some();
            self.give_up(now, other, unconfirmed_only);
            return;
        }
        if let Some(until) = active.doubts_until {
            let all_spoke = self
                .peers
                .iter()
                .all(|(_, peer)| !peer.owes_word() || !self.lives(now, peer));
            if !all_spoke && now.time < until {
                return;
            }
            active.doubts_until = None;
        }
        if self.known_term > active.term && active.raising.is_none() && self.disk_failed.is_none() {
            match self.next_term(now) {
                Some(term) => {
                    active.raising = Some(term);
                    self.effects.push_back(Effect::WriteTerm { term });
                }
                None => self.effects.push_back(Effect::Note(Note::TermsUsedUp)),
            }
        }
        self.state = State::Active(active);
        self.hand_over(now, active);
    }

    /// An active node to which this one has to give up its place.
    fn other_active(&self, now: Now, active: &Active) -> Option<Slot> {
        self.living(now)
            .filter(|(slot, peer)| {
                let newer = peer.beat.copy.stream > self.copy.stream;
                peer.serves() && (*slot < self.own || (active.doubts_until.is_some() && newer))
            })
            .map(|(slot, _)| slot)
            .min()
    }

    fn give_up(&mut self, now: Now, to: Slot, unconfirmed_only: bool) {
        self.effects.push_back(Effect::Yield {
            to,
            unconfirmed_only,
        });
        let stopping = matches!(
            self.state,
            State::Active(Active {
                stop_until: Some(_),
                ..
            })
        );
        self.copy = Copy::default();
        if stopping {
            self.leave(now, Some(to));
        } else {
            self.followed = Some((to, now.time));
            self.state = State::Following {
                active: to,
                heard: true,
            };
            self.effects.push_back(Effect::Follow { active: to });
            self.note(
                Stage::Standby,
                "another node is active too, and goes before this one",
            );
        }
    }

    /// Begins, goes on with or gives up a handoff.
    fn hand_over(&mut self, now: Now, mut active: Active) {
        if let Some(handoff) = active.handoff {
            let lives = self
                .peer(handoff.to)
                .is_some_and(|peer| self.lives(now, peer));
            if lives && now.time < handoff.until {
                return;
            }
            self.send_handoff(handoff.to, handoff.number, Handoff::Withdraw);
            self.effects
                .push_back(Effect::Note(Note::HandoffFailed(handoff.to)));
            self.preempt.trouble(handoff.to, now.time);
            active.handoff = None;
            active.refused |= handoff.to.bit();
        }
        let relief = active.stop_until.is_some() || self.disk_failed.is_some();
        let successor = if relief {
            self.successors(now)
                .map(|(slot, _)| slot)
                .find(|slot| active.refused & slot.bit() == 0)
        } else if self.timing.preempt {
            self.successors(now)
                .filter(|(slot, since)| {
                    *slot < self.own && now.time >= since.after(self.preempt.delay(*slot, now.time))
                })
                .map(|(slot, _)| slot)
                .next()
        } else {
            None
        };
        if let Some(to) = successor {
            let number = self.new_round();
            active.handoff = Some(Round {
                number,
                to,
                step: Step::Offered,
                until: now.time.after(self.timing.failure_timeout),
            });
            self.state = State::Active(active);
            self.send_handoff(to, number, Handoff::Offer);
            return;
        }
        self.state = State::Active(active);
        if let Some(until) = active.stop_until {
            let nobody = self.living(now).all(|(_, peer)| !peer.beat.can_lead);
            if nobody || now.time >= until {
                self.leave(now, None);
            }
        }
    }

    /// The complete standbys that could take over, the best first, and since when each is one.
    fn successors(&self, now: Now) -> impl Iterator<Item = (Slot, Time)> + '_ {
        self.living(now)
            .filter(|(_, peer)| peer.beat.can_lead)
            .filter_map(|(slot, peer)| Some((slot, peer.complete_since?)))
    }

    fn handed_over(&mut self, now: Now, to: Slot) {
        let stopping = matches!(
            self.state,
            State::Active(Active {
                stop_until: Some(_),
                ..
            })
        );
        if let Some(place) = self.place(to) {
            // It has said so by taking over; its beat may still be on the way.
            self.peers[place].1.beat.stage = Stage::Active;
        }
        self.effects.push_back(Effect::Retire);
        self.copy = Copy::default();
        if stopping {
            self.leave(now, Some(to));
        } else {
            self.followed = Some((to, now.time));
            self.state = State::Following {
                active: to,
                heard: true,
            };
            self.effects.push_back(Effect::Follow { active: to });
            self.note(Stage::Standby, "handed over to a node of higher priority");
        }
    }

    fn leave(&mut self, now: Now, successor: Option<Slot>) {
        self.state = State::Leaving {
            successor,
            until: now.time.after(self.timing.drain_timeout),
        };
        self.note(Stage::Leaving, "asked to stop");
    }

    fn exit(&mut self) {
        self.state = State::Gone;
        self.effects.push_back(Effect::Exit);
    }

    fn active_deadline(&self, active: &Active) -> Option<Time> {
        let preempts = self.peers.iter().filter_map(|(slot, peer)| {
            let delay = self.preempt.longest(*slot);
            (*slot < self.own).then_some(peer.complete_since?.after(delay))
        });
        active
            .handoff
            .map(|handoff| handoff.until)
            .into_iter()
            .chain(active.doubts_until)
            .chain(active.stop_until)
            .chain(preempts)
            .filter(|time| *time > active.since)
            .min()
    }

    fn update_stance(&mut self) {
        let stance = match self.state {
            State::Looking { .. } | State::Candidate(_) => Stance::Park,
            State::Following { active, .. } => Stance::Redirect(active),
            State::Active(active) => {
                let behind = self.known_term > active.term;
                if active.is_handing_over() || behind || active.doubts_until.is_some() {
                    Stance::Freeze
                } else {
                    Stance::Serve
                }
            }
            State::Leaving { successor, .. } => Stance::Leave(successor),
            State::Gone => return,
        };
        if stance != self.stance {
            self.stance = stance;
            self.effects.push_back(Effect::Stance(stance));
        }
    }

    // What goes out.

    fn beat(&self, now: Now) -> Beat {
        let active = match self.state {
            State::Active(_) => Some((self.own, self.incarnation)),
            State::Following {
                active,
                heard: true,
            } => self
                .peer(active)
                .filter(|peer| self.lives(now, peer) && peer.is_active())
                .map(|peer| (active, peer.beat.incarnation)),
            State::Following { heard: false, .. }
            | State::Looking { .. }
            | State::Candidate(_)
            | State::Leaving { .. }
            | State::Gone => None,
        };
        Beat {
            incarnation: self.incarnation,
            stage: self.stage(),
            term: self.known_term,
            active,
            copy: self.copy,
            can_lead: self.can_lead(),
        }
    }

    /// Tells the peers what this node is, when that has changed or it is time.
    fn speak(&mut self, now: Now) {
        if self.peers.is_empty() || self.state == State::Gone {
            return;
        }
        let beat = self.beat(now);
        // Every change of a lock moves the sequence; the heartbeat is often enough for that.
        let same = self.said.is_some_and(|said| {
            let copy = Copy {
                sequence: said.copy.sequence,
                oldest: said.copy.oldest,
                ..beat.copy
            };
            Beat { copy, ..beat } == said
        });
        if same && now.time < self.next_beat {
            return;
        }
        self.said = Some(beat);
        self.next_beat = now.time.after(self.timing.heartbeat);
        for place in 0..self.peers.len() {
            let to = self.peers[place].0;
            self.send(to, Message::Beat(beat));
        }
    }

    fn send(&mut self, to: Slot, message: Message) {
        self.effects.push_back(Effect::Send { to, message });
    }

    fn send_handoff(&mut self, to: Slot, round: u64, step: Handoff) {
        self.send(to, Message::Handoff { round, step });
    }

    fn note(&mut self, stage: Stage, why: &'static str) {
        self.effects
            .push_back(Effect::Note(Note::Stage(stage, why)));
    }

    // Small questions.

    fn can_lead(&self) -> bool {
        self.disk_failed.is_none() && !matches!(self.state, State::Leaving { .. } | State::Gone)
    }

    fn next_term(&self, now: Now) -> Option<u32> {
        let above = self.known_term.max(self.disk_term).checked_add(1)?;
        let term = above.max(now.wall);
        (term <= LAST_TERM).then_some(term)
    }

    fn new_round(&mut self) -> u64 {
        self.next_round = self.next_round.wrapping_add(1);
        self.next_round
    }

    fn place(&self, slot: Slot) -> Option<usize> {
        self.peers.iter().position(|(known, _)| *known == slot)
    }

    fn peer(&self, slot: Slot) -> Option<&Peer> {
        self.place(slot).map(|place| &self.peers[place].1)
    }

    fn lives(&self, now: Now, peer: &Peer) -> bool {
        peer.lives(now.time, self.timing.failure_timeout)
    }

    fn living(&self, now: Now) -> impl Iterator<Item = (Slot, &Peer)> {
        self.peers
            .iter()
            .filter(move |(_, peer)| self.lives(now, peer))
            .map(|(slot, peer)| (*slot, peer))
    }
}

/// The last term there can be: a token is below 2⁶³.
const LAST_TERM: u32 = (1 << 31) - 1;

fn newer_process(peer: &Peer, incarnation: u64) -> bool {
    peer.beat.incarnation != 0 && peer.beat.incarnation != incarnation
}

/// How long a better node has to wait for the active place: longer after each time it went wrong.
#[derive(Clone, Debug)]
struct Preempt {
    timing: Timing,
    /// By slot: the delay, and when it last went wrong.
    delays: Vec<(Slot, Millis, Time)>,
}

impl Preempt {
    fn new(timing: Timing) -> Preempt {
        Preempt {
            timing,
            delays: Vec::new(),
        }
    }

    fn trouble(&mut self, slot: Slot, now: Time) {
        let doubled = Millis(self.delay(slot, now).0 * 2).min(self.timing.preempt_delay_max);
        self.delays.retain(|(known, ..)| *known != slot);
        self.delays.push((slot, doubled, now));
    }

    fn delay(&self, slot: Slot, now: Time) -> Millis {
        self.delays
            .iter()
            .find(|(known, _, last)| *known == slot && now < last.after(self.timing.calm))
            .map_or(self.timing.preempt_delay, |(_, delay, _)| *delay)
    }

    /// The delay without a look at the time: when to look again at the latest.
    fn longest(&self, slot: Slot) -> Millis {
        self.delays
            .iter()
            .find(|(known, ..)| *known == slot)
            .map_or(self.timing.preempt_delay, |(_, delay, _)| *delay)
    }
}
