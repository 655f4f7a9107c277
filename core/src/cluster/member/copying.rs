//! The member as one that copies: it asks for the whole state and asks again, tells what it has applied, and notes the
//! terms of what came. It never takes a frame that does not follow what it has; then it asks for the whole again.

use super::{Member, slot_of, term_of};
use crate::cluster::copier::Taken;
use crate::cluster::frame::Frame;
use crate::cluster::members::Slot;
use crate::cluster::message::{Copy, Message};
use crate::cluster::roles::{Event, Now};
use crate::engine::Engine;
use crate::mutation::Mutation;
use crate::protocol::Millis;

/// Asked for and not begun after this time, the whole state is asked for again.
pub(super) const ASK_AGAIN: Millis = Millis(1000);

/// Where nobody waits for it, what was applied is confirmed no more often than this: each time costs the active node
/// a read.
const CONFIRM_PAUSE: Millis = Millis(5);

impl Member {
    /// Asks the active node for the whole state.
    pub(super) fn ask(&mut self, now: Now, active: Slot) {
        self.copier.asked(now.time);
        self.outgoing.frame(now.time, active, &Frame::Join);
    }

    pub(super) fn ask_again(&mut self, now: Now) {
        if let (Some(active), Some(asked)) = (self.copier.active(), self.copier.asking_since())
            && now.time >= asked.after(ASK_AGAIN)
        {
            self.ask(now, active);
        }
    }

    pub(super) fn taken(&mut self, now: Now, from: Slot, taken: Taken) {
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

    /// Lets the engine of a copy have all that has come, which it otherwise has a moment later. Whoever reads the whole
    /// state from it calls this before.
    pub fn settle(&mut self, now: Now, engine: &mut Engine) {
        if let Some(active) = self.copier.active()
            && self.copier.settle(now.time, engine).is_err()
        {
            self.taken(now, active, Taken::Gap);
        }
    }

    pub(super) fn copied(&mut self, now: Now, engine: &Engine) {
        self.saw_tokens(now, engine);
        self.roles.handle(now, Event::Copied(self.copier.copy()));
    }

    /// The next own term is above that of every token that came from elsewhere.
    pub(super) fn saw_tokens(&mut self, now: Now, engine: &Engine) {
        if let Some(token) = engine.highest_token() {
            let term = term_of(token);
            let used_by_both =
                self.roles.serving_term() == Some(term) && slot_of(token) != self.members.own();
            let term = term + u32::from(used_by_both);
            self.roles.handle(now, Event::TermSeen { term });
        }
    }

    /// Tells the active node what was applied.
    pub(super) fn confirm(&mut self, now: Now) {
        let pause = match self.settings.confirm_at_once {
            true => Millis(0),
            false => CONFIRM_PAUSE,
        };
        if let Some((to, frame)) = self.copier.confirmation(now.time, pause) {
            self.outgoing.frame(now.time, to, &frame);
        }
    }

    pub(super) fn supply(&mut self, now: Now, to: Slot, round: u64, copy: &Copy) {
        for body in self.copier.frames_after(copy.sequence) {
            self.outgoing.body(to, body);
        }
        self.send(now, to, Message::Fetched { round });
    }
}
