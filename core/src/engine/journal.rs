//! Changes that a journal has not been told of yet, beside those for standbys. Nobody waits for the journal
//! here and nobody reads it.
//!
//! The journal is told before a reply leaves, under load of millions of grants a second. So a new grant is
//! noted by its number alone and spelled from the state as it is when the journal hears of it. One that has
//! ended by then came to nothing, and is not told at all, nor is its end.

use super::lock::Claim;
use super::output::{Change, ClaimId, Holding, News};
use super::{Engine, Refusal};
use crate::protocol::Token;
use std::collections::BTreeSet;

/// See the [module](self).
#[derive(Default)]
pub(super) struct ForJournal {
    pub(super) on: bool,
    entries: Vec<Entry>,
    /// How many of them have been told.
    told: usize,
    others: Vec<Change>,
    /// Changes that came spelled, each piece behind its length. Nothing else waits beside them.
    spelled: Vec<u8>,
    /// Claims whose grants had ended before the journal heard of them, until it comes to the end.
    passed_over: Vec<ClaimId>,
    /// The state is another one than what changes before have led to.
    replaced: bool,
    /// Nothing is told.
    quiet: bool,
    /// Requests that have left without the journal being told.
    places_kept: BTreeSet<ClaimId>,
}

#[derive(Clone, Copy)]
enum Entry {
    /// A request got its key at once.
    New(ClaimId, Token),
    /// A grant was given back.
    Released(ClaimId, Token),
    /// Any other change, by its place.
    Other(u32),
}

/// Buffers that have grown beyond this are given back when they are empty.
const KEPT: usize = 16 << 10;

/// The same for what came spelled, in bytes.
const KEPT_SPELLED: usize = 1 << 20;

impl ForJournal {
    #[inline]
    pub(super) fn push_new(&mut self, claim: ClaimId, token: Token) {
        if !self.places_kept.is_empty() {
            self.use_place_again(claim);
        }
        self.entries.push(Entry::New(claim, token));
    }

    #[inline]
    pub(super) fn push(&mut self, change: Change) {
        match change {
            Change::Released { claim, token } => self.entries.push(Entry::Released(claim, token)),
            other => self.push_other(other),
        }
    }

    #[inline(never)]
    fn push_other(&mut self, change: Change) {
        if self.quiet {
            return;
        }
        if let Change::Granted { claim, .. } | Change::Enqueued { claim, .. } = &change {
            self.use_place_again(*claim);
        }
        self.entries.push(Entry::Other(self.others.len() as u32));
        self.others.push(change);
    }

    /// The number of a request that has left in silence is that of another one from now on.
    fn use_place_again(&mut self, claim: ClaimId) {
        if self.places_kept.remove(&claim) {
            self.push_other(Change::Left { claim });
        }
    }

    pub(super) fn replace(&mut self) {
        *self = ForJournal {
            on: self.on,
            replaced: self.on,
            ..ForJournal::default()
        };
    }

    fn clear_told(&mut self) {
        self.told = 0;
        self.entries.clear();
        self.others.clear();
        if self.entries.capacity() > KEPT {
            self.entries = Vec::new();
            self.others = Vec::new();
        }
    }
}

impl Engine {
    /// From now on a journal is told of each change, or no longer; what waits is dropped.
    pub fn record_for_journal(&mut self, on: bool) {
        *self.changes.journal_mut() = ForJournal {
            on,
            ..ForJournal::default()
        };
    }

    /// Whether the journal has something to hear.
    #[must_use]
    #[inline]
    pub fn has_news_for_journal(&self) -> bool {
        let journal = self.changes.journal();
        !journal.entries.is_empty() || journal.replaced || !journal.spelled.is_empty()
    }

    /// Whether a journal hears of changes.
    #[must_use]
    pub fn has_journal(&self) -> bool {
        self.changes.journal().on
    }

    /// Whether the journal can take changes as they came, spelled, instead of hearing of each.
    #[must_use]
    pub fn journal_takes_spelled(&self) -> bool {
        let journal = self.changes.journal();
        journal.on
            && !journal.replaced
            && journal.entries.is_empty()
            && journal.places_kept.is_empty()
    }

    /// Gives the journal changes that came spelled.
    pub fn spelled_for_journal(&mut self, piece: &[u8]) {
        debug_assert!(self.journal_takes_spelled());
        let spelled = &mut self.changes.journal_mut().spelled;
        spelled.extend_from_slice(&(piece.len() as u32).to_le_bytes());
        spelled.extend_from_slice(piece);
    }

    /// Tells the journal what came spelled. Has to be called before [`tell_journal`](Engine::tell_journal).
    pub fn tell_journal_spelled(&mut self, mut tell: impl FnMut(&[u8])) {
        let mut spelled = std::mem::take(&mut self.changes.journal_mut().spelled);
        let mut rest = &spelled[..];
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (piece, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
            tell(piece);
            rest = behind;
        }
        spelled.clear();
        if spelled.capacity() <= KEPT_SPELLED {
            self.changes.journal_mut().spelled = spelled;
        }
    }

    /// Whether the state has become another one since the journal was last asked. What it hears from now
    /// on does not follow what it has.
    #[must_use]
    pub fn was_replaced(&mut self) -> bool {
        std::mem::take(&mut self.changes.journal_mut().replaced)
    }

    /// Tells the journal the next changes, at most `at_most`. Returns whether there are more.
    #[inline]
    pub fn tell_journal(&mut self, at_most: usize, mut tell: impl FnMut(News<'_>)) -> bool {
        let mut journal = std::mem::take(self.changes.journal_mut());
        for place in journal.told..journal.entries.len().min(journal.told + at_most) {
            match journal.entries[place] {
                Entry::New(claim, token) => match self.claims.get(claim.0) {
                    Some(held) if held.token() == Some(token) => {
                        tell(News::Granted(self.holding(claim, held, token)));
                    }
                    _ => journal.passed_over.push(claim),
                },
                Entry::Released(claim, token) => {
                    if journal.passed_over.is_empty()
                        || !is_passed_over(&mut journal.passed_over, claim, true)
                    {
                        tell(News::Change(&Change::Released { claim, token }));
                    }
                }
                Entry::Other(other) => {
                    let change = &journal.others[other as usize];
                    let (about, ends) = match change {
                        Change::Expired { claim, .. } => (Some(*claim), true),
                        Change::Kept { claim, .. } | Change::Resent { claim, .. } => {
                            (Some(*claim), false)
                        }
                        Change::Granted { .. }
                        | Change::Released { .. }
                        | Change::Enqueued { .. }
                        | Change::Left { .. }
                        | Change::AttemptRemembered { .. }
                        | Change::TermOpened { .. } => (None, false),
                    };
                    let passed_over = about.is_some_and(|claim| {
                        !journal.passed_over.is_empty()
                            && is_passed_over(&mut journal.passed_over, claim, ends)
                    });
                    if !passed_over {
                        tell(News::Change(change));
                    }
                }
            }
        }
        journal.told = journal.entries.len().min(journal.told + at_most);
        let more = journal.told < journal.entries.len();
        if !more {
            debug_assert!(journal.passed_over.is_empty(), "every end has been told");
            journal.clear_told();
        }
        *self.changes.journal_mut() = journal;
        more
    }

    #[inline(always)]
    pub(super) fn holding<'a>(
        &'a self,
        claim: ClaimId,
        held: &'a Claim,
        token: Token,
    ) -> Holding<'a> {
        Holding {
            claim,
            key: self.locks[held.lock].key.as_ref(),
            token,
            owner: self.owner_of(held),
            tag: held.tag(),
            lease: held.lease(),
            ends: held.deadline,
        }
    }

    /// A copy forgets a claim because a newer word of its key has come.
    pub(super) fn record_forgotten(&mut self, claim: u32) {
        if self.changes.journal().on {
            let (token, claim) = (self.claims[claim].token(), ClaimId(claim));
            self.changes.journal_mut().push(match token {
                Some(token) => Change::Expired { claim, token },
                None => Change::Left { claim },
            });
        }
    }

    /// Does something of which the journal is told nothing.
    pub(super) fn without_journal<T>(&mut self, act: impl FnOnce(&mut Engine) -> T) -> T {
        self.changes.journal_mut().quiet = true;
        let outcome = act(self);
        self.changes.journal_mut().quiet = false;
        outcome
    }

    /// A request that is refused because the node stops keeps its place in the journal.
    pub(super) fn keep_place(&mut self, claim: u32, refusal: Refusal) -> bool {
        let journal = self.changes.journal_mut();
        let keeps = journal.on && refusal == Refusal::Leaving;
        if keeps {
            journal.places_kept.insert(ClaimId(claim));
        }
        keeps
    }
}

/// Whether the grant of this claim has been passed over; no longer once its end has come.
fn is_passed_over(passed_over: &mut Vec<ClaimId>, claim: ClaimId, ends: bool) -> bool {
    let place = passed_over.iter().position(|passed| *passed == claim);
    if let Some(place) = place
        && ends
    {
        passed_over.swap_remove(place);
    }
    place.is_some()
}
