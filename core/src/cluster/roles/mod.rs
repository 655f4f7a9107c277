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

mod choosing;
mod event;
#[cfg(test)]
mod fingerprint;
mod hearing;
mod preempt;
mod serving;
mod state;

pub use event::{Effect, Event, Note, Now, Origin, Stance};
#[cfg(test)]
pub(super) use fingerprint::age;

use super::members::Slot;
use super::message::{Beat, Copy, Handoff, Message, Stage, Timing};
use super::peer::Peer;
use crate::engine::Time;
use crate::mutation::Mutation;
use preempt::Preempt;
use state::{Accepted, State};
use std::collections::VecDeque;

/// The last term there can be: a token is below 2⁶³.
const LAST_TERM: u32 = (1 << 31) - 1;

/// The roles as one node sees them: events in, effects out, the rules looked at after each.
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
    /// Whether that is all it has.
    has_only_disk: bool,
    /// When to try the disk again, after it failed.
    disk_failed: Option<Time>,
    /// Since when a term is being written, and which.
    writing: Option<(Time, u32)>,
    /// After a sleep: until when it does not take over from anybody.
    sleepy_until: Option<Time>,
    accepted: Option<Accepted>,
    preempt: Preempt,
    /// The active node that was followed last, and since when.
    followed: Option<(Slot, Time)>,
    next_round: u64,
    /// When the rules were last looked at: what was due by then has been seen to.
    looked: Time,
    next_beat: Time,
    said: Option<Beat>,
    stance: Stance,
    effects: VecDeque<Effect>,
    /// What is broken on purpose.
    pub(super) mutation: Mutation,
}

/// How a node begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// A random number, new with every start of the process.
    pub incarnation: u64,
    /// The highest term on the own disk, 0 if there is none.
    pub disk_term: u32,
    /// What of the state was on the own disk: not complete, because what came after it is not there.
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
            has_only_disk: beginning.copy != Copy::default(),
            disk_failed: None,
            writing: None,
            sleepy_until: None,
            accepted: None,
            preempt: Preempt::new(timing),
            followed: None,
            next_round: beginning.incarnation,
            looked: now.time,
            next_beat: now.time,
            said: None,
            stance: Stance::Park,
            effects: VecDeque::new(),
            mutation: Mutation::None,
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
            Event::Relinked { .. } => {}
            Event::Lost { peer } => {
                if let Some(place) = self.place(peer) {
                    let heartbeat = self.timing.heartbeat;
                    let peer = &mut self.peers[place].1;
                    peer.lose();
                    let again = peer.redial_at(now.time, heartbeat);
                    self.connect_at[place] = Some(again);
                }
            }
            Event::Doubted { peer } => {
                if let Some(place) = self.place(peer) {
                    self.peers[place].1.lose();
                    self.connect_at[place] = Some(now.time);
                }
            }
            Event::Refused { peer } => {
                if let Some(place) = self.place(peer) {
                    let again = if self.peers[place].1.refuse() {
                        now.time.after(self.timing.heartbeat)
                    } else {
                        now.time
                    };
                    self.connect_at[place] = Some(again);
                }
            }
            Event::CutShort { peer } => {
                if let Some(place) = self.place(peer) {
                    let heartbeat = self.timing.heartbeat;
                    let again = self.peers[place].1.cut_short(now.time, heartbeat);
                    self.connect_at[place] = Some(again);
                }
            }
            Event::Rejected { peer } => {
                if let Some(place) = self.place(peer) {
                    self.peers[place].1.reject(now.time);
                }
            }
            Event::Connected { peer } => {
                if let Some(place) = self.place(peer) {
                    self.peers[place].1.connect(now.time);
                    self.connect_at[place] = None;
                    if let State::Active(active) = self.state
                        && let Some(round) = active.asks(peer)
                    {
                        self.ask_for_word(now, peer, round);
                    } else {
                        let beat = Message::Beat(self.beat(now));
                        self.send(peer, beat);
                    }
                }
            }
            Event::TermWritten { term } => self.term_written(now, term),
            Event::TermFailed { term } => self.term_failed(now, term),
            Event::Copied(copy) => {
                self.has_only_disk = false;
                self.copy = copy;
            }
            Event::Frozen { sequence } => self.frozen(now, sequence),
            Event::TermOpened { term } => {
                self.disk_term = self.disk_term.max(term);
                self.known_term = self.known_term.max(term);
                if let State::Active(active) = &mut self.state {
                    active.term = active.term.max(term);
                }
            }
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
        self.looked = now.time;
    }

    /// A peer says something that is not about roles. It may have much of that to say before the next
    /// beat, and is not silent meanwhile.
    pub fn spoke(&mut self, now: Now, from: Slot) {
        if let Some(place) = self.place(from) {
            let timeout = self.timing.failure_timeout;
            self.peers[place].1.speak(now.time, timeout);
        }
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
            .chain(self.sleepy_until)
            .chain(
                self.writing
                    .map(|(begun, _)| begun.after(self.timing.failure_timeout)),
            )
            // What was due by then has been looked at, whether anything came of it or not.
            .filter(|time| *time > self.looked && self.state != State::Gone)
            .min()
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
            State::Active(active) if active.is_handing_over() || active.doubt.is_some() => {
                Stage::HandingOver
            }
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

    /// The highest term that anybody has named.
    #[must_use]
    pub fn known_term(&self) -> u32 {
        self.known_term.max(self.disk_term)
    }

    /// What this node has of the state.
    #[must_use]
    pub fn copy(&self) -> Copy {
        self.copy
    }

    /// The active node, as far as this one knows.
    #[must_use]
    pub fn active(&self) -> Option<Slot> {
        match self.state {
            State::Following { active, .. } => {
                Some(active).filter(|slot| self.place(*slot).is_some())
            }
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

    fn can_lead(&self) -> bool {
        self.disk_failed.is_none() && !matches!(self.state, State::Leaving { .. } | State::Gone)
    }

    /// The term to open next; `None` when they are used up.
    #[must_use]
    pub fn next_term(&self, now: Now) -> Option<u32> {
        if self.mutation.is(Mutation::SkipTermBump) {
            return Some(self.known_term.max(1));
        }
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

    /// Whether there is a connection to a peer over which it can be told something.
    fn is_linked(&self, slot: Slot) -> bool {
        let place = self.place(slot);
        place.is_some_and(|place| self.connect_at[place].is_none())
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
