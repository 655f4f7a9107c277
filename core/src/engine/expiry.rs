//! What happens because time has passed.

use super::Engine;
use super::lock::Stage;
use super::output::Effect;
use super::time::Time;

impl Engine {
    /// When [`expire`](Engine::expire) has to be called at the latest, if nothing changes before.
    /// `Time(0)` if it has work left that can be done already.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        if !self.parting.is_empty() || !self.unserved.is_empty() {
            return Some(Time(0));
        }
        let claims = self.wheel.next_deadline().into_iter();
        claims.chain(self.attempts.next_deadline()).min()
    }

    /// The same if it is before `moment`. Whoever asks after each step, with the moment for which he is called anyway, has his
    /// answer without a search nearly always.
    pub fn next_deadline_before(&mut self, moment: Time) -> Option<Time> {
        if !self.parting.is_empty() || !self.unserved.is_empty() {
            return Some(Time(0));
        }
        let attempts = self.attempts.next_deadline();
        let attempts = attempts.filter(|deadline| *deadline < moment);
        let claims = self.wheel.next_deadline_before(moment);
        claims.into_iter().chain(attempts).min()
    }

    /// Ends the leases, waits and graces that are over by `now`, none early and none more than a
    /// millisecond late. Each of them counts as a piece of work, and so does each that is only put in
    /// order for later; no more than `at_most` pieces are done. Returns whether there is more to do
    /// now: then look after other things and call again.
    ///
    /// Call it before the requests that are read at `now`; when nothing is due it costs nothing.
    pub fn expire(&mut self, now: Time, at_most: usize) -> bool {
        // Half of it at most is for what broken connections have left, so that neither waits for the other.
        let mut parting = at_most.div_ceil(2);
        self.part_more(now, &mut parting);
        self.serve_more(now);
        let mut budget = at_most - (at_most.div_ceil(2) - parting);
        while let Some(claim) = self.wheel.pop(&mut self.claims, now, &mut budget) {
            self.end_in_time(now, claim);
        }
        self.attempts.expire(&self.hashes, now, &mut budget);
        self.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    fn end_in_time(&mut self, now: Time, claim: u32) {
        let ended = &self.claims[claim];
        match ended.stage {
            Stage::Held { clock, .. } => {
                if ended.deadline <= clock.take_back() {
                    self.counts.expired += 1;
                } else {
                    self.counts.undelivered += 1;
                }
                self.expire_grant(now, claim);
            }
            Stage::Attached { connection, .. } => {
                if let Some(connection) = self.listener(connection) {
                    let effect = Effect::TimedOut {
                        connection,
                        key: self.locks[ended.lock].key.clone(),
                        tag: ended.tag(),
                    };
                    self.counts.timed_out += 1;
                    self.effects.push_back(effect);
                }
                self.leave(now, claim);
            }
            Stage::Detached { .. } => self.leave(now, claim),
        }
    }
}
