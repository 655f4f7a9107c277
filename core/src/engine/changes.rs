//! Changes of the state that nobody has been told of yet.
//!
//! What comes and goes before it is told need not be told at all: a key that was taken and given back
//! within a moment is free for a copy as it was before. Under load that is nearly everything, so a
//! copy costs little just then.

use super::journal::ForJournal;
use super::output::{Change, ClaimId};
use super::slab::NIL;
use crate::protocol::Token;
use std::collections::VecDeque;

/// Which changes are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recording {
    /// None.
    #[default]
    Nothing,
    /// Each.
    Everything,
    /// Those that have not been undone before anybody asked.
    WhatLasts,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Changes {
    recording: Recording,
    /// `None` where both a change and what undid it are gone.
    queue: VecDeque<Option<Change>>,
    /// How many of the queue are there.
    waiting: usize,
    /// The number of the first in the queue; numbers wrap around.
    first: u32,
    /// By claim: the number of the change with which it came, if nothing was told of it since. What it
    /// says is checked, because it is not kept up when a change is told.
    came: Vec<u32>,
    /// What a journal has not been told of.
    journal: ForJournal,
}

/// A queue that has grown beyond this is given back when it is empty.
const KEPT: usize = 1024;

impl Changes {
    pub(super) fn new(recording: Recording) -> Changes {
        Changes {
            recording,
            ..Changes::default()
        }
    }

    #[inline]
    pub(super) fn is_recording(&self) -> bool {
        self.tells_standbys() || self.journal.on
    }

    #[inline]
    pub(super) fn tells_standbys(&self) -> bool {
        self.recording != Recording::Nothing
    }

    /// From now on; what waits stays unless nothing is to be told any more.
    pub(super) fn record(&mut self, recording: Recording) {
        if recording == Recording::Nothing {
            self.forget_queue();
        }
        self.recording = recording;
    }

    /// The state is another one from now on.
    pub(super) fn clear(&mut self) {
        self.forget_queue();
        self.journal.replace();
    }

    fn forget_queue(&mut self) {
        *self = Changes {
            recording: self.recording,
            journal: std::mem::take(&mut self.journal),
            ..Changes::default()
        };
    }

    pub(super) fn journal(&self) -> &ForJournal {
        &self.journal
    }

    pub(super) fn journal_mut(&mut self) -> &mut ForJournal {
        &mut self.journal
    }

    #[inline]
    pub(super) fn push(&mut self, change: Change) {
        if self.journal.on {
            if !self.tells_standbys() {
                return self.journal.push(change);
            }
            self.journal.push(change.clone());
        }
        if self.tells_standbys() {
            self.tell_standbys(change);
        }
    }

    fn tell_standbys(&mut self, change: Change) {
        if self.recording == Recording::WhatLasts {
            match &change {
                Change::Released { claim, token } | Change::Expired { claim, token } => {
                    if self.undo(*claim, *token) {
                        return;
                    }
                }
                Change::Kept { claim, .. }
                | Change::Resent { claim, .. }
                | Change::Left { claim } => self.settle(*claim),
                Change::Granted { .. }
                | Change::Enqueued { .. }
                | Change::AttemptRemembered { .. }
                | Change::TermOpened { .. } => {}
            }
        }
        self.queue.push_back(Some(change));
        self.waiting += 1;
    }

    /// Tells standbys of a grant whose claim nobody has been told of.
    pub(super) fn push_new(&mut self, claim: ClaimId, change: Change) {
        let number = self.first.wrapping_add(self.queue.len() as u32);
        self.tell_standbys(change);
        if self.recording == Recording::WhatLasts {
            let place = claim.0 as usize;
            if self.came.len() <= place {
                self.came.resize(place + 1, NIL);
            }
            self.came[place] = number;
        }
    }

    /// The next one. Take all, and what is told is never undone.
    pub(super) fn poll(&mut self) -> Option<Change> {
        while let Some(next) = self.queue.pop_front() {
            self.first = self.first.wrapping_add(1);
            if next.is_some() {
                self.waiting -= 1;
                return next;
            }
        }
        if self.queue.capacity() > KEPT {
            self.queue = VecDeque::new();
        }
        None
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Change> {
        self.queue.iter().flatten()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes a grant out of the queue, if it is there and nothing depends on it.
    fn undo(&mut self, claim: ClaimId, token: Token) -> bool {
        let Some(number) = self.came.get(claim.0 as usize) else {
            return false;
        };
        let place = number.wrapping_sub(self.first) as usize;
        let Some(entry) = self.queue.get_mut(place) else {
            return false;
        };
        let is_that = matches!(entry, Some(Change::Granted { claim: of, token: with, .. })
            if (*of, *with) == (claim, token));
        if is_that {
            *entry = None;
            self.waiting -= 1;
        }
        is_that
    }

    /// Something else is told of a claim, which needs the claim to be there.
    fn settle(&mut self, claim: ClaimId) {
        if let Some(number) = self.came.get_mut(claim.0 as usize) {
            // Behind everything that the queue can hold.
            *number = self.first.wrapping_sub(1);
        }
    }
}
