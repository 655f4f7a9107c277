//! Who is to be active: the rules of a node that is not.

use super::Roles;
use super::event::{Effect, Note, Now, Origin};
use super::state::{Active, Candidate, State};
use crate::cluster::members::Slot;
use crate::cluster::message::{Copy, Handoff, Message, Stage, Stream};
use crate::engine::Time;
use crate::mutation::Mutation;
use crate::protocol::Millis;

impl Roles {
    pub(super) fn settle(&mut self, now: Now) {
        self.connect_again(now);
        self.give_up_writing(now);
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

    pub(super) fn connect_again(&mut self, now: Now) {
        for place in 0..self.peers.len() {
            if self.connect_at[place].is_some_and(|at| at <= now.time) {
                // Whatever comes of it, the next try has its time; being connected ends it.
                self.connect_at[place] = Some(now.time.after(self.timing.heartbeat));
                let (to, peer) = &mut self.peers[place];
                peer.dial();
                self.effects.push_back(Effect::Connect { to: *to });
            }
        }
    }

    pub(super) fn try_disk(&mut self, now: Now) {
        if self.disk_failed.is_some_and(|at| at <= now.time) {
            self.disk_failed = Some(now.time.after(Millis(1000)));
            // One that has not come back yet will tell just as well.
            if self.writing.is_none() {
                self.write_term(now, self.disk_term.max(1));
            }
        }
    }

    pub(super) fn write_term(&mut self, now: Now, term: u32) {
        self.writing.get_or_insert((now.time, term));
        self.effects.push_back(Effect::WriteTerm { term });
    }

    /// A disk that does not answer is as good as one that fails; if it answers after all, it works again.
    fn give_up_writing(&mut self, now: Now) {
        if self.disk_failed.is_none()
            && let Some((begun, term)) = self.writing
            && now.time >= begun.after(self.timing.failure_timeout)
        {
            self.disk_is_no_use(now, term);
        }
    }

    /// Looks for an active node, and whether it has to be this one.
    pub(super) fn seek(&mut self, now: Now) {
        // Whoever made the offer has waited for as long as it takes to fall silent, and goes on.
        self.accepted = self.accepted.filter(|accepted| {
            let from = self.peer(accepted.from);
            from.is_some_and(|peer| self.lives(now, peer))
        });
        if let Some(accepted) = self.accepted
            && accepted.written
            && accepted.last.is_some_and(|last| self.copy.sequence >= last)
            && self.copy.stream.slot == accepted.from.0
            && self.copy.complete
        {
            if accepted.term > self.known_term || self.mutation.is(Mutation::SkipTermBump) {
                self.lead(accepted.term, Origin::Handoff);
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

    pub(super) fn follow(&mut self, now: Now, active: Slot, heard: bool) {
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
            self.note(Stage::Standby, "that node is active");
        }
    }

    /// The living node of highest priority that says it is active; one that stands still comes after
    /// those that serve.
    pub(super) fn heard_active(&self, now: Now) -> Option<Slot> {
        self.living(now)
            .filter(|(_, peer)| peer.is_active())
            .map(|(slot, peer)| (!peer.serves(), slot))
            .min()
            .map(|(_, slot)| slot)
    }

    /// An active node that this one does not hear, but a living peer does.
    pub(super) fn told_active(&self, now: Now) -> Option<Slot> {
        self.living(now)
            .filter_map(|(teller, peer)| {
                let (active, incarnation) = peer.beat.active?;
                if active == self.own || active == teller {
                    return None;
                }
                let known_better = self.peer(active).is_some_and(|peer| {
                    // It speaks for itself, or it is not the process that the teller has heard.
                    let timeout = self.timing.failure_timeout;
                    self.lives(now, peer) || peer.is_newer_than(incarnation, now.time, timeout)
                });
                (!known_better).then_some(active)
            })
            .min()
    }

    /// Whether nobody is better suited to be active than this node, and how it would come to it.
    pub(super) fn should_lead(&self, now: Now, begun: Time) -> Option<Origin> {
        // Nothing is decided by a word that may not be the last one.
        let timeout = self.timing.failure_timeout;
        let mut peers = self.peers.iter();
        let unheard = peers.any(|(_, peer)| peer.owes_beat(now.time, timeout));
        let sleepy = self.sleepy_until.is_some_and(|until| now.time < until);
        if unheard || sleepy || !self.can_lead() {
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
                (copy.complete || self.mutation.is(Mutation::PromoteIncomplete))
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
            // Who is there and keeps this node out may be active, or know who is.
            !peer.rejects(now.time, self.timing.failure_timeout)
                && peer.heard_out(now.time, begun, timeout, !self.has_state)
        });
        if !heard_out {
            return None;
        }
        let best = able
            .iter()
            .max_by_key(|(slot, copy)| (copy.position(), std::cmp::Reverse(*slot)))
            .map(|(slot, _)| *slot);
        (best == Some(self.own)).then_some(if self.copy == Copy::default() {
            Origin::Start
        } else if self.has_only_disk {
            Origin::Restart
        } else {
            Origin::Takeover
        })
    }

    pub(super) fn become_candidate(&mut self, now: Now, begun: Time, origin: Origin) {
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
            self.write_term(now, term);
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
    pub(super) fn stand(&mut self, now: Now, candidate: Candidate) {
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
        if candidate.term <= self.known_term && !self.mutation.is(Mutation::SkipTermBump) {
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
        self.lead(candidate.term, candidate.origin);
    }

    pub(super) fn lead(&mut self, term: u32, origin: Origin) {
        self.state = State::Active(Active {
            term,
            raising: None,
            handoff: None,
            doubt: None,
            met: None,
            raised: None,
            refused: 0,
            stop_until: None,
        });
        self.known_term = self.known_term.max(term);
        self.spare_term = None;
        self.accepted = None;
        self.has_only_disk = false;
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
                Origin::Restart => "no other node is active, and none has a newer state",
                Origin::Takeover => "the active node is gone, and this is the best standby",
                Origin::Handoff => "the active node handed over",
            },
        );
    }
}
