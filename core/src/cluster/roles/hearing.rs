//! What comes in: what peers say, what became of terms, what the operator wants.

use super::Roles;
use super::event::{Effect, Note, Now};
use super::state::{Accepted, Active, Doubt, State, Step};
use crate::cluster::members::Slot;
use crate::cluster::message::{Beat, Handoff, Message, Stage};
use crate::mutation::Mutation;
use crate::protocol::Millis;

impl Roles {
    pub(super) fn hear(&mut self, now: Now, from: Slot, message: Message) {
        let Some(place) = self.place(from) else {
            return;
        };
        if self.peers[place].1.is_refused() {
            // It was not there when this node last tried, and is there now.
            self.connect_at[place] = Some(now.time);
        }
        let timeout = self.timing.failure_timeout;
        let peer = &mut self.peers[place].1;
        if !peer.lives(now.time, timeout) {
            // What it was before it fell silent has ended with that.
            peer.complete_since = None;
            self.accepted = self.accepted.filter(|accepted| accepted.from != from);
        }
        match message {
            Message::Beat(_) => self.peers[place].1.hear(now.time),
            Message::Handoff { .. } | Message::Fetch { .. } | Message::Fetched { .. } => {
                self.peers[place].1.speak(now.time, timeout);
            }
        }
        match message {
            Message::Beat(beat) => {
                self.hear_beat(now, place, beat);
                self.ask_again_for_word(from, place);
            }
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
            Message::Fetched { round } => match &mut self.state {
                State::Candidate(candidate) if candidate.round == round => {
                    candidate.awaits &= !from.bit();
                }
                State::Active(active) if active.asks(from) == Some(round) => {
                    self.peers[place].1.keep_word();
                }
                State::Looking { .. }
                | State::Following { .. }
                | State::Candidate(_)
                | State::Active(_)
                | State::Leaving { .. }
                | State::Gone => {}
            },
        }
    }

    pub(super) fn hear_beat(&mut self, now: Now, place: usize, beat: Beat) {
        // Where both serve with one term, the next one has to be above what either has used of it.
        let both_use = beat.stage == Stage::Active
            && matches!(self.state, State::Active(active) if active.term == beat.term);
        let used = beat.term.saturating_add(u32::from(both_use));
        self.known_term = self.known_term.max(used);
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

    pub(super) fn hear_handoff(&mut self, now: Now, from: Slot, round: u64, step: Handoff) {
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
                    if let Some(place) = self.place(from) {
                        // This is a word about itself.
                        self.peers[place].1.hear(now.time);
                    }
                    self.handed_over(now, from);
                }
            }
        }
    }

    /// The active node asks this one to take over.
    pub(super) fn offered(&mut self, now: Now, from: Slot, number: u64) {
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
            self.write_term(now, term);
        }
    }

    pub(super) fn term_written(&mut self, now: Now, term: u32) {
        self.writing = None;
        if self.disk_failed.take().is_some() {
            // Whatever waited for the disk begins anew.
            self.next_beat = now.time;
        }
        self.disk_term = self.disk_term.max(term);
        match &mut self.state {
            State::Candidate(candidate) if candidate.term == term => candidate.written = true,
            State::Active(active) if active.raising == Some(term) => {
                active.raising = None;
                if term <= self.known_term && !self.mutation.is(Mutation::SkipTermBump) {
                    // Somebody has named it while it was written: another one, above that.
                    return;
                }
                if active.is_handing_over() {
                    // The successor may have the same one; nothing is granted until it is known.
                    return;
                }
                active.term = term;
                active.raised = Some(now.time);
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

    pub(super) fn term_failed(&mut self, now: Now, term: u32) {
        self.writing = None;
        self.disk_is_no_use(now, term);
    }

    pub(super) fn disk_is_no_use(&mut self, now: Now, term: u32) {
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
    pub(super) fn frozen(&mut self, now: Now, sequence: u64) {
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

    pub(super) fn stop(&mut self, now: Now) {
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

    /// The silence of the peers says nothing: this node has slept through it. Nor does what lies in
    /// its sockets, which may be from before: an active node asks, and the answers come after all that.
    pub(super) fn wake(&mut self, now: Now) {
        let round = self.new_round();
        // The active node may have thawed meanwhile, and say so behind what is read first.
        self.accepted = None;
        // What its sockets hold is read first, and may be old news.
        self.sleepy_until =
            (!self.peers.is_empty()).then(|| now.time.after(self.timing.failure_timeout));
        for place in 0..self.peers.len() {
            let (_, peer) = &mut self.peers[place];
            if peer.is_refused() {
                self.connect_at[place] = Some(now.time);
            }
            let lived = peer.lives(self.looked, self.timing.failure_timeout);
            peer.forgive(now.time, lived);
        }
        match &mut self.state {
            State::Looking { begun } => *begun = now.time,
            State::Candidate(_) => self.state = State::Looking { begun: now.time },
            State::Active(_) if self.mutation.is(Mutation::TrustThePast) => {}
            State::Active(active) if !self.peers.is_empty() => {
                active.doubt = Some(Doubt {
                    round,
                    until: now.time.after(self.timing.failure_timeout),
                });
                // Whoever it had met is asked anew.
                active.met = None;
                for place in 0..self.peers.len() {
                    self.peers[place].1.expect_word();
                    self.ask_for_word(now, self.peers[place].0, round);
                }
            }
            State::Active(_) | State::Following { .. } | State::Leaving { .. } | State::Gone => {}
        }
    }

    /// Who was asked before it had a connection to answer over has one when it speaks.
    fn ask_again_for_word(&mut self, peer: Slot, place: usize) {
        if let State::Active(active) = self.state
            && let Some(round) = active.asks(peer)
            && self.peers[place].1.owes_word()
        {
            let copy = self.copy;
            self.send(peer, Message::Fetch { round, copy });
        }
    }

    /// Asks what the peer is now, and tells it first that there is an active node that stands still.
    pub(super) fn ask_for_word(&mut self, now: Now, peer: Slot, round: u64) {
        let beat = Message::Beat(self.beat(now));
        self.send(peer, beat);
        let copy = self.copy;
        self.send(peer, Message::Fetch { round, copy });
    }
}
