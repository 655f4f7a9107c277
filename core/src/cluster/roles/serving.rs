//! How long to stay active: other active nodes, better ones, and the end.

use super::Roles;
use super::event::{Effect, Note, Now, Stance};
use super::state::{Active, Meeting, Round, State, Step};
use crate::cluster::members::Slot;
use crate::cluster::message::{Copy, Handoff, Stage};
use crate::cluster::peer::Peer;
use crate::engine::Time;
use crate::mutation::Mutation;

impl Roles {
    /// What an active node has to look at.
    pub(super) fn serve(&mut self, now: Now, mut active: Active) {
        if let Some(handoff) = active.handoff
            && handoff.step == Step::Frozen
            && self.peer(handoff.to).is_some_and(Peer::serves)
        {
            // It says so, even if its word to this node got lost on the way.
            self.handed_over(now, handoff.to);
            return;
        }
        let other = self.other_active(now, &active);
        if let Some(other) = other.or_else(|| self.came_after(&active)) {
            let met = self.meet(now, &active, other);
            active.met = Some(met);
            self.state = State::Active(active);
            let peer = self.peer(other);
            let answered = self.is_linked(other) && peer.is_some_and(|peer| !peer.owes_word());
            let silent = peer.is_some_and(|peer| !self.lives(now, peer));
            let overdue = now.time >= met.until && peer.is_some_and(|peer| !peer.is_missed());
            if answered || overdue || silent {
                self.give_up(now, other, active.doubt.is_some());
            }
            return;
        }
        active.met = None;
        if let Some(doubt) = active.doubt {
            // One that counted as dead before the sleep may have started since.
            let all_spoke = self.peers.iter().all(|(_, peer)| !peer.owes_word());
            if !all_spoke && now.time < doubt.until {
                return;
            }
            active.doubt = None;
        }
        // While it hands over it grants nothing, and two that hear of each other's terms would raise
        // them without an end.
        let grants = !active.is_handing_over() && self.disk_failed.is_none();
        // Two that do not hear each other but have a peer in common would do so too.
        let calm = active.raised_enough(now.time, self.timing.heartbeat);
        if self.known_term > active.term && active.raising.is_none() && grants && calm {
            match self.next_term(now) {
                Some(term) => {
                    active.raising = Some(term);
                    self.write_term(now, term);
                }
                None => self.effects.push_back(Effect::Note(Note::TermsUsedUp)),
            }
        }
        self.state = State::Active(active);
        self.hand_over(now, active);
    }

    /// An active node to which this one has to give up its place.
    pub(super) fn other_active(&self, now: Now, active: &Active) -> Option<Slot> {
        if self.mutation.is(Mutation::NeverYield) {
            return None;
        }
        self.living(now)
            .filter(|(slot, peer)| {
                let newer = peer.beat.copy.stream > self.copy.stream;
                peer.serves() && (*slot < self.own || (active.doubt.is_some() && newer))
            })
            .map(|(slot, _)| slot)
            .min()
    }

    /// Who became active while this node slept. What is here is older than what that one had, even if it has fallen silent
    /// before it has answered.
    fn came_after(&self, active: &Active) -> Option<Slot> {
        let other = active.doubt.and(active.met)?.other;
        self.peer(other)?.serves().then_some(other)
    }

    /// The meeting with this one, which is asked for a word if that has not been done.
    fn meet(&mut self, now: Now, active: &Active, other: Slot) -> Meeting {
        let latest = active.met.map(|met| met.until);
        if let Some(met) = active.met.filter(|met| met.other == other) {
            return met;
        }
        let round = match active.doubt {
            Some(doubt) => doubt.round,
            None => {
                let round = self.new_round();
                if let Some(place) = self.place(other) {
                    self.peers[place].1.expect_word();
                }
                self.ask_for_word(now, other, round);
                round
            }
        };
        Meeting {
            other,
            round,
            until: latest.unwrap_or(now.time.after(self.timing.failure_timeout)),
        }
    }

    pub(super) fn give_up(&mut self, now: Now, to: Slot, unconfirmed_only: bool) {
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
    pub(super) fn hand_over(&mut self, now: Now, mut active: Active) {
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
            let untried = |slot: &Slot| active.refused & slot.bit() == 0;
            let able: Vec<Slot> = self.successors(now).map(|(slot, _)| slot).collect();
            if active.stop_until.is_some_and(|until| now.time < until) && !able.iter().any(untried)
            {
                // Every one was asked in vain, and there is time to ask again.
                active.refused = 0;
                able.first().copied()
            } else {
                able.into_iter().find(untried)
            }
        } else if self.timing.preempt && !self.mutation.is(Mutation::NeverPreempt) {
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
    pub(super) fn successors(&self, now: Now) -> impl Iterator<Item = (Slot, Time)> + '_ {
        self.living(now)
            .filter(|(_, peer)| peer.beat.can_lead)
            .filter_map(|(slot, peer)| Some((slot, peer.complete_since?)))
    }

    pub(super) fn handed_over(&mut self, now: Now, to: Slot) {
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

    pub(super) fn leave(&mut self, now: Now, successor: Option<Slot>) {
        self.state = State::Leaving {
            successor,
            until: now.time.after(self.timing.drain_timeout),
        };
        self.note(Stage::Leaving, "asked to stop");
    }

    pub(super) fn exit(&mut self) {
        self.state = State::Gone;
        self.effects.push_back(Effect::Exit);
    }

    pub(super) fn active_deadline(&self, active: &Active) -> Option<Time> {
        let preempts = self.peers.iter().filter_map(|(slot, peer)| {
            let delay = self.preempt.longest(*slot);
            (*slot < self.own).then_some(peer.complete_since?.after(delay))
        });
        active
            .handoff
            .map(|handoff| handoff.until)
            .into_iter()
            .chain(active.doubt.map(|doubt| doubt.until))
            .chain(active.met.map(|met| met.until))
            .chain(active.stop_until)
            .chain(preempts)
            .chain(active.raised.map(|at| at.after(self.timing.heartbeat)))
            .min()
    }

    pub(super) fn update_stance(&mut self) {
        let stance = match self.state {
            State::Looking { .. } | State::Candidate(_) => Stance::Park,
            // A list that is longer elsewhere may have nodes that this one cannot name to its clients.
            State::Following { active, .. } if self.place(active).is_none() => Stance::Park,
            State::Following { active, .. } => Stance::Redirect(active),
            State::Active(active) => {
                let behind = self.known_term > active.term;
                let serves_on = self.mutation.is(Mutation::ServeOnInHandoff);
                let hands_over = active.is_handing_over() && !serves_on;
                let met = active.met.is_some();
                if hands_over || behind || active.doubt.is_some() || met {
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
}
