//! Changes of the state that the standbys have not been told of yet, and what a journal has not.
//!
//! What comes and goes before it is told need not be told at all: a key that was taken and given back
//! within a moment is free for a copy as it was before. Under load that is nearly everything, so a new
//! grant is noted by its number alone and spelled from the state as it is when it is told.

use super::Engine;
use super::journal::ForJournal;
use super::output::{Change, ClaimId, Grant, News};
use crate::protocol::Token;

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
    queue: Queue,
    /// How many of the queue are not gone.
    waiting: usize,
    /// By claim: the place in the queue of its grant, if nobody was told of that. What stands there is
    /// checked, because this is not kept up when changes are told.
    came: Vec<u32>,
    /// Grants that the standbys know of and whose leases have begun since.
    begun: Vec<Grant>,
    /// What a journal has not been told of.
    journal: ForJournal,
}

#[derive(Default)]
struct Queue {
    entries: Vec<Entry>,
    /// How many of them have been told.
    told: usize,
    others: Vec<Change>,
}

#[derive(Clone, Copy)]
enum Entry {
    /// A request got its key at once.
    New(ClaimId, Token),
    /// A grant was given back.
    Released(ClaimId, Token),
    /// Any other change, by its place.
    Other(u32),
    /// A grant that has ended, and its end.
    Gone,
}

/// A queue that has grown beyond this is given back when it is empty.
const KEPT: usize = 16 << 10;

/// So many leases that have begun are noted before those that have not ended are told.
const BEGUN: usize = 4096;

impl Queue {
    fn clear(&mut self) {
        self.told = 0;
        self.entries.clear();
        self.others.clear();
        if self.entries.capacity() > KEPT {
            *self = Queue::default();
        }
    }

    fn push_other(&mut self, change: Change) {
        self.entries.push(Entry::Other(self.others.len() as u32));
        self.others.push(change);
    }
}

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

    /// Whether a new grant has to be spelled at once, because it is told whatever becomes of it.
    #[inline]
    pub(super) fn tells_everything(&self) -> bool {
        self.recording == Recording::Everything
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

    #[inline]
    pub(super) fn journal(&self) -> &ForJournal {
        &self.journal
    }

    #[inline]
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

    #[inline]
    fn tell_standbys(&mut self, change: Change) {
        match change {
            Change::Released { claim, token } => {
                if !self.undo(claim, token) {
                    self.queue.entries.push(Entry::Released(claim, token));
                    self.waiting += 1;
                }
            }
            other => self.tell_standbys_at_length(other),
        }
    }

    #[inline(never)]
    fn tell_standbys_at_length(&mut self, change: Change) {
        let untold = match &change {
            Change::Expired { claim, token } => self.undo(*claim, *token),
            // It is spelled as it is when it is told.
            Change::Kept { claim, .. } | Change::Resent { claim, .. } => {
                self.untold(*claim).is_some()
            }
            Change::Granted { .. }
            | Change::Released { .. }
            | Change::Enqueued { .. }
            | Change::Left { .. }
            | Change::AttemptRemembered { .. }
            | Change::TermOpened { .. } => false,
        };
        if !untold {
            self.queue.push_other(change);
            self.waiting += 1;
        }
    }

    /// Tells standbys of a grant whose claim nobody has been told of.
    #[inline]
    pub(super) fn push_new(&mut self, claim: ClaimId, token: Token) {
        let place = self.queue.entries.len() as u32;
        self.queue.entries.push(Entry::New(claim, token));
        self.waiting += 1;
        match self.came.get_mut(claim.0 as usize) {
            Some(came) => *came = place,
            None => self.came_beyond(claim, place),
        }
    }

    #[cold]
    fn came_beyond(&mut self, claim: ClaimId, place: u32) {
        self.came.resize(claim.0 as usize + 1, 0);
        self.came[claim.0 as usize] = place;
    }

    /// Tells standbys of a grant that is spelled already.
    pub(super) fn push_spelled(&mut self, change: Change) {
        self.queue.push_other(change);
        self.waiting += 1;
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Where in the queue a claim's grant stands that nobody has been told of.
    #[inline]
    fn untold(&self, claim: ClaimId) -> Option<(usize, Token)> {
        let place = *self.came.get(claim.0 as usize)? as usize;
        match self.queue.entries.get(place)? {
            Entry::New(of, token) if *of == claim => Some((place, *token)),
            _ => None,
        }
    }

    /// Takes a grant out of the queue, if it is there.
    #[inline]
    fn undo(&mut self, claim: ClaimId, token: Token) -> bool {
        match self.untold(claim) {
            Some((place, with)) if with == token => {
                self.queue.entries[place] = Entry::Gone;
                self.waiting -= 1;
                if self.waiting == 0 {
                    self.queue.clear();
                }
                true
            }
            _ => false,
        }
    }
}

impl Engine {
    /// Tells the standbys the next changes, at most `at_most`. Returns whether there are more; take all
    /// before anything else changes, and what is told is never undone.
    pub fn tell_standbys(&mut self, at_most: usize, mut tell: impl FnMut(News<'_>)) -> bool {
        let mut queue = std::mem::take(&mut self.changes.queue);
        let mut count = 0;
        while count < at_most
            && let Some(entry) = queue.entries.get(queue.told)
        {
            queue.told += 1;
            match *entry {
                Entry::New(claim, token) => {
                    let held = self.claims.get(claim.0);
                    // Whoever keeps releases secret has ended it without a word.
                    let Some(held) = held.filter(|held| held.token() == Some(token)) else {
                        continue;
                    };
                    tell(News::Granted(self.holding(claim, held, token)));
                }
                Entry::Released(claim, token) => {
                    tell(News::Change(&Change::Released { claim, token }));
                }
                Entry::Other(other) => tell(News::Change(&queue.others[other as usize])),
                Entry::Gone => continue,
            }
            count += 1;
        }
        let more = queue.told < queue.entries.len();
        if !more {
            queue.clear();
            self.changes.waiting = 0;
        }
        self.changes.queue = queue;
        more
    }

    /// The standbys are to have the exact ends of all leases.
    pub fn tell_begun_leases(&mut self) {
        let mut begun = std::mem::take(&mut self.changes.begun);
        for Grant { claim, token } in begun.drain(..) {
            let held = self.claims.get(claim.0);
            if let Some(held) = held.filter(|held| held.token() == Some(token)) {
                let (lease, ends) = (held.lease(), held.deadline);
                let kept = Change::Kept { claim, lease, ends };
                self.changes.tell_standbys(kept);
            }
        }
        self.changes.begun = begun;
    }

    /// The lease of a grant has begun; see [`begin_lease`](Engine::begin_lease). Nearly all are over before anybody
    /// has to hear of that.
    #[inline]
    pub(super) fn note_begun_lease(&mut self, grant: Grant) {
        if self.changes.tells_standbys() {
            self.changes.begun.push(grant);
            if self.changes.begun.len() >= BEGUN {
                self.tell_begun_leases();
            }
        }
    }

    /// All that the standbys have not been told of.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::with_capacity(self.changes_waiting());
        self.tell_standbys(usize::MAX, |news| {
            changes.push(match news {
                News::Granted(held) => held.to_change(),
                News::Change(change) => change.clone(),
            });
        });
        changes
    }
}
