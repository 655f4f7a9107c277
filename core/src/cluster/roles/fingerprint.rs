//! What of a node decides about its future, for the model that visits every state once: times count
//! from now, and those too long ago to matter are one.

use super::Roles;
use super::state::{Accepted, Active, Candidate, Doubt, Meeting, Round, State};
use crate::cluster::members::Slot;
use crate::cluster::message::Timing;
use crate::engine::Time;
use std::hash::{Hash, Hasher};

impl Roles {
    /// Feeds the hasher with all that two nodes with the same future have in common. Rounds count back
    /// from the latest one of the node that counts them.
    pub(in crate::cluster) fn fingerprint(
        &self,
        now: Time,
        latest_round: impl Fn(Slot) -> u64,
        into: &mut impl Hasher,
    ) {
        // Named one by one, so that a new field cannot be forgotten here.
        let Roles {
            own,
            incarnation,
            timing,
            peers,
            connect_at,
            state,
            copy,
            known_term,
            disk_term,
            spare_term,
            has_state,
            has_only_disk,
            disk_failed,
            writing,
            mutation: _,
            sleepy_until,
            accepted,
            preempt,
            followed,
            next_round: _,
            looked,
            next_beat,
            said,
            stance,
            effects,
        } = self;
        assert!(
            effects.is_empty(),
            "all effects are taken after every event"
        );
        let ahead = |time: Time| time.0.saturating_sub(now.0);
        (
            own,
            incarnation,
            copy,
            known_term,
            disk_term,
            spare_term,
            has_state,
            has_only_disk,
        )
            .hash(into);
        // Only whether what is due now has been seen to.
        (*looked == now).hash(into);
        (disk_failed.map(ahead), ahead(*next_beat), said, stance).hash(into);
        sleepy_until.map(ahead).hash(into);
        writing
            .map(|(begun, term)| (age(now, begun, longest(timing)), term))
            .hash(into);
        for (slot, peer) in peers {
            slot.hash(into);
            let times = (timing.failure_timeout.0, longest(timing));
            peer.fingerprint(now, times, into);
        }
        for at in connect_at {
            at.map(ahead).hash(into);
        }
        if let Some(Accepted {
            from,
            number,
            term,
            written,
            last,
        }) = accepted
        {
            let age = latest_round(*from).wrapping_sub(*number);
            (from, age, term, written, last).hash(into);
        }
        preempt.fingerprint(now, into);
        followed
            .map(|(slot, since)| (slot, age(now, since, timing.calm.0)))
            .hash(into);
        std::mem::discriminant(state).hash(into);
        match state {
            State::Looking { begun } => age(now, *begun, longest(timing)).hash(into),
            State::Following { active, heard } => (active, heard).hash(into),
            State::Candidate(Candidate {
                round,
                origin,
                begun,
                term,
                written,
                awaits,
                until,
            }) => {
                let round = self.next_round.wrapping_sub(*round);
                let begun = age(now, *begun, longest(timing));
                (round, origin, begun, term, written, awaits, ahead(*until)).hash(into);
            }
            State::Active(Active {
                term,
                raising,
                raised,
                handoff,
                doubt,
                met,
                refused,
                stop_until,
            }) => {
                (term, raising, refused).hash(into);
                stop_until.map(ahead).hash(into);
                if let Some(Meeting {
                    other,
                    round,
                    until,
                }) = met
                {
                    let round = self.next_round.wrapping_sub(*round);
                    (other, round, ahead(*until)).hash(into);
                }
                raised.map(|at| age(now, at, timing.heartbeat.0)).hash(into);
                if let Some(Doubt { round, until }) = doubt {
                    (self.next_round.wrapping_sub(*round), ahead(*until)).hash(into);
                }
                if let Some(Round {
                    number,
                    to,
                    step,
                    until,
                }) = handoff
                {
                    let number = self.next_round.wrapping_sub(*number);
                    (number, to, *step as u8, ahead(*until)).hash(into);
                }
            }
            State::Leaving { successor, until } => (successor, ahead(*until)).hash(into),
            State::Gone => {}
        }
    }

    /// The latest round that this node has counted.
    pub(in crate::cluster) fn latest_round(&self) -> u64 {
        self.next_round
    }
}

/// No rule asks whether something is longer ago than this, in milliseconds.
fn longest(timing: &Timing) -> u64 {
    timing
        .failure_timeout
        .max(timing.discovery_timeout)
        .max(timing.preempt_delay_max)
        .0
}

/// How long ago, in microseconds, up to `most` milliseconds.
pub(in crate::cluster) fn age(now: Time, then: Time, most: u64) -> u64 {
    now.0.saturating_sub(then.0).min(most * 1000)
}
