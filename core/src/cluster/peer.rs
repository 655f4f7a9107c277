//! What a node knows of another one.

use super::message::{Beat, Stage};
use crate::engine::Time;
use crate::protocol::Millis;

/// Whether anybody is there, as far as the connections tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Contact {
    /// Nothing is known against it.
    Open,
    /// A connection has ended; a fresh one will tell whether the node has.
    Doubted,
    /// A fresh connection was refused: there is no such process.
    Refused,
}

/// Another node, as seen from here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// What it last said of itself.
    pub(super) beat: Beat,
    /// When it last said what it is, unless that says nothing any more.
    heard: Option<Time>,
    /// When it said what is kept of that.
    beat_at: Time,
    /// Since when its silence counts.
    since: Time,
    contact: Contact,
    /// When the latest connection to it was made.
    connected: Option<Time>,
    /// How many in a row have ended at once.
    quick_losses: u32,
    /// How many fresh connections in a row have ended before it had answered.
    cut_short: u32,
    /// Nothing was heard of it yet, or a connection has ended and what it said after that was lost.
    missed: bool,
    /// When it last said over a fresh connection that it does not take this node for its peer.
    rejected: Option<Time>,
    /// A fresh connection is being made.
    dialing: bool,
    /// That was begun before this node slept.
    dialed_before_sleep: bool,
    /// Whether it has not answered since it was last asked for a word.
    owes_word: bool,
    /// Since when it has been a complete standby of this node without a break.
    pub(super) complete_since: Option<Time>,
}

/// After so many connections that have ended at once, the next one waits.
const QUICK_LOSSES: u32 = 3;

impl Peer {
    pub(super) fn new(now: Time) -> Peer {
        Peer {
            beat: Beat::default(),
            heard: None,
            beat_at: now,
            since: now,
            contact: Contact::Open,
            connected: None,
            quick_losses: 0,
            cut_short: 0,
            missed: true,
            rejected: None,
            dialing: false,
            dialed_before_sleep: false,
            owes_word: false,
            complete_since: None,
        }
    }

    /// It said what it is.
    pub(super) fn hear(&mut self, now: Time) {
        self.heard = Some(now);
        self.beat_at = now;
        self.since = now;
        self.contact = Contact::Open;
        self.missed = false;
    }

    /// It said something that is not about itself: it lives, as it did before. One that had fallen silent may be another
    /// one by now, of which nothing is known before its first beat.
    pub(super) fn speak(&mut self, now: Time, timeout: Millis) {
        if self.contact == Contact::Open && self.lives(now, timeout) {
            self.since = now;
        }
    }

    /// A connection with it has ended.
    pub(super) fn lose(&mut self) {
        self.missed = true;
        if self.contact == Contact::Open && self.heard.is_some() {
            self.contact = Contact::Doubted;
        }
    }

    /// When to connect again after a connection to it has ended: at once, but where it ends again and
    /// again as soon as it is made, because another process calls itself the same node or what is said
    /// is not understood, only once in a `pause`.
    pub(super) fn redial_at(&mut self, now: Time, pause: Millis) -> Time {
        if self
            .connected
            .take()
            .is_some_and(|at| now < at.after(pause))
        {
            self.quick_losses = self.quick_losses.saturating_add(1);
        } else {
            self.quick_losses = 0;
        }
        if self.quick_losses > QUICK_LOSSES {
            now.after(pause)
        } else {
            now
        }
    }

    /// A fresh connection is about to be made.
    pub(super) fn dial(&mut self) {
        self.dialing = true;
    }

    /// A fresh connection was refused; false if that may have been long ago and says nothing now.
    pub(super) fn refuse(&mut self) -> bool {
        self.dialing = false;
        self.cut_short = 0;
        self.rejected = None;
        if std::mem::take(&mut self.dialed_before_sleep) {
            return false;
        }
        self.contact = Contact::Refused;
        // The next process in this place has said nothing yet.
        self.heard = None;
        self.missed = true;
        true
    }

    /// When to make the next connection after a fresh one has ended before the peer had answered. So
    /// it looks for a moment where a process is just ending, which the next one will tell; but for long
    /// where something stands before the peer that takes its connections, so each pause is longer.
    pub(super) fn cut_short(&mut self, now: Time, longest: Millis) -> Time {
        self.dialing = false;
        self.dialed_before_sleep = false;
        let pause = Millis(1 << self.cut_short.min(16));
        self.cut_short = self.cut_short.saturating_add(1);
        now.after(pause.min(longest))
    }

    /// It is there, but does not take this node for its peer.
    pub(super) fn reject(&mut self, now: Time) {
        self.dialing = false;
        self.cut_short = 0;
        if !std::mem::take(&mut self.dialed_before_sleep) {
            self.rejected = Some(now);
        }
    }

    /// Whether it is there and keeps this node out of what it knows.
    pub(super) fn rejects(&self, now: Time, timeout: Millis) -> bool {
        self.rejected.is_some_and(|at| now < at.after(timeout))
    }

    /// A fresh connection was made: somebody is there, and will speak.
    pub(super) fn connect(&mut self, now: Time) {
        self.connected = Some(now);
        self.cut_short = 0;
        self.rejected = None;
        if self.heard.is_none() {
            self.since = now;
        }
        self.dialing = false;
        self.dialed_before_sleep = false;
        self.contact = Contact::Open;
    }

    pub(super) fn is_refused(&self) -> bool {
        self.contact == Contact::Refused
    }

    /// Whether it counts as living: it has spoken lately, and no fresh connection was refused since.
    pub(super) fn lives(&self, now: Time, timeout: Millis) -> bool {
        self.contact != Contact::Refused && self.heard.is_some() && now < self.since.after(timeout)
    }

    /// When its silence will count as death.
    pub(super) fn falls_silent(&self, timeout: Millis) -> Option<Time> {
        (self.contact != Contact::Refused).then(|| self.since.after(timeout))
    }

    /// Whether nothing more is to be expected of it before a decision that was begun at `begun`.
    pub(super) fn heard_out(
        &self,
        now: Time,
        begun: Time,
        timeout: Millis,
        refusal_counts: bool,
    ) -> bool {
        (self.heard.is_some() && self.contact == Contact::Open && self.since >= begun)
            || (self.contact == Contact::Refused && refusal_counts)
            || now >= begun.after(timeout)
    }

    /// Silence and refusals up to now say nothing, because this node has slept through them. But one that had not `lived`
    /// before is not brought back by that: what it was says nothing either.
    pub(super) fn forgive(&mut self, now: Time, lived: bool) {
        if !lived {
            self.heard = None;
            self.missed = true;
        }
        self.since = self.since.max(now);
        self.dialed_before_sleep = self.dialing;
        if self.contact == Contact::Refused {
            self.contact = Contact::Doubted;
        }
    }

    /// Whether what it said last may be over, because a connection has ended since.
    pub(super) fn is_missed(&self) -> bool {
        self.missed
    }

    /// Whether another process than the one that a third node has just heard has spoken in this place, and not so
    /// long ago that the third node's word must be the newer one.
    pub(super) fn is_newer_than(&self, incarnation: u64, now: Time, timeout: Millis) -> bool {
        let known = self.beat.incarnation;
        let recent = now < self.beat_at.after(Millis(2 * timeout.0));
        known != 0 && known != incarnation && recent
    }

    /// Whether it may be there and have something to say that this node has not heard yet.
    pub(super) fn owes_beat(&self, now: Time, timeout: Millis) -> bool {
        self.missed && self.contact != Contact::Refused && now < self.since.after(timeout)
    }

    /// It is asked for a word: what it said before may be out of date.
    pub(super) fn expect_word(&mut self) {
        self.owes_word = true;
    }

    /// It has answered.
    pub(super) fn keep_word(&mut self) {
        self.owes_word = false;
    }

    pub(super) fn owes_word(&self) -> bool {
        self.owes_word
    }

    /// Whether it is the one to copy and to send clients to.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.beat.stage, Stage::Active | Stage::HandingOver)
    }

    /// Whether it serves, so that nobody else may.
    pub(super) fn serves(&self) -> bool {
        self.beat.stage == Stage::Active
    }

    /// See `Roles::fingerprint`.
    #[cfg(test)]
    pub(super) fn fingerprint(
        &self,
        now: Time,
        (timeout, longest): (u64, u64),
        into: &mut impl std::hash::Hasher,
    ) {
        use super::roles::age;
        use std::hash::Hash;
        let Peer {
            beat,
            heard,
            beat_at,
            since,
            contact,
            connected,
            quick_losses,
            cut_short,
            missed,
            rejected,
            dialing,
            dialed_before_sleep,
            owes_word,
            complete_since,
        } = self;
        (beat, heard.is_some(), *contact as u8, owes_word).hash(into);
        (missed, dialing, dialed_before_sleep).hash(into);
        let connected = connected.map(|at| age(now, at, longest));
        (connected, (*quick_losses).min(QUICK_LOSSES + 1)).hash(into);
        (*cut_short).min(16).hash(into);
        rejected.map(|at| age(now, at, longest)).hash(into);
        age(now, *since, longest).hash(into);
        let beat_at = (beat.incarnation != 0).then(|| age(now, *beat_at, 2 * timeout));
        beat_at.hash(into);
        complete_since
            .map(|since| age(now, since, longest))
            .hash(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT: Millis = Millis(250);

    #[test]
    fn who_ends_each_connection_unheard_is_called_again_soon_and_then_less_and_less() {
        let mut peer = Peer::new(Time(0));
        let mut pauses = || -> Vec<u64> {
            let again = (0..10).map(|_| peer.cut_short(Time(0), HEARTBEAT));
            again.map(|at| at.0 / 1000).collect()
        };
        let growing = [1, 2, 4, 8, 16, 32, 64, 128, 250, 250];
        assert_eq!(pauses(), growing);
        assert_eq!(pauses(), [250; 10]);
        peer.connect(Time(0));
        assert_eq!(peer.cut_short(Time(0), HEARTBEAT), Time(1000));
        peer.refuse();
        assert_eq!(peer.cut_short(Time(0), HEARTBEAT), Time(1000));
    }
}
