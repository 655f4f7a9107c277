//! Releases and cancels that a node has confirmed a moment ago. If that node is replaced now, its
//! successor may not have the copy, so they are said once more.

use super::super::address::Address;
use super::choice::Choice;
use super::hash::HashedKey;
use super::repeat::Release;
use super::{Micros, SECOND, Session};
use crate::protocol::{Tag, Token};
use std::collections::VecDeque;

/// What was confirmed longer ago has been copied.
pub(super) const REMEMBERED_FOR: Micros = 3 * SECOND;
/// More are not remembered; the leases end what is left.
const REMEMBERED_MAX: usize = 65_536;

#[derive(Default)]
pub(super) struct Recent {
    confirmed: VecDeque<Entry>,
    /// Those whose node may have been replaced.
    doubtful: VecDeque<Entry>,
}

struct Entry {
    at: Micros,
    connection: u32,
    node: Option<Address>,
    key: HashedKey,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// With the request that it had been granted to, if that was a moment before.
    Released(Token, Option<Tag>),
    Cancelled(Tag),
}

impl Recent {
    pub(super) fn note_release(
        &mut self,
        key: HashedKey,
        token: Token,
        fresh: Option<Tag>,
        connection: u32,
        node: Option<Address>,
        now: Micros,
    ) {
        self.note(key, What::Released(token, fresh), connection, node, now);
    }

    pub(super) fn note_cancel(
        &mut self,
        key: HashedKey,
        tag: Tag,
        connection: u32,
        node: Option<Address>,
        now: Micros,
    ) {
        self.note(key, What::Cancelled(tag), connection, node, now);
    }

    fn note(
        &mut self,
        key: HashedKey,
        what: What,
        connection: u32,
        node: Option<Address>,
        now: Micros,
    ) {
        self.forget_before(now);
        if self.confirmed.len() >= REMEMBERED_MAX {
            self.confirmed.pop_front();
        }
        self.confirmed.push_back(Entry {
            at: now,
            connection,
            node,
            key,
            what,
        });
    }

    /// Forgets what was confirmed too long ago to be in doubt now.
    pub(super) fn forget_before(&mut self, now: Micros) {
        while let Some(first) = self.confirmed.front()
            && first.at + REMEMBERED_FOR < now
        {
            self.confirmed.pop_front();
        }
    }

    /// This connection is lost.
    pub(super) fn doubt_connection(&mut self, connection: u32, now: Micros) {
        self.doubt(now, |entry| entry.connection == connection);
    }

    /// This node is active now.
    pub(super) fn doubt_all_but(&mut self, active: &Address, now: Micros) {
        self.doubt(now, |entry| entry.node.as_ref() != Some(active));
    }

    fn doubt(&mut self, now: Micros, doubted: impl Fn(&Entry) -> bool) {
        self.forget_before(now);
        if !self.confirmed.iter().any(&doubted) {
            return;
        }
        for entry in std::mem::take(&mut self.confirmed) {
            if doubted(&entry) {
                self.doubtful.push_back(entry);
            } else {
                self.confirmed.push_back(entry);
            }
        }
    }
}

impl Session {
    /// Says once more what another node than the one that serves now has confirmed.
    pub(super) fn ask_doubtful(&mut self, now: Micros) {
        while !self.recent.doubtful.is_empty() {
            let Choice::Now(index) = self.choose(None) else {
                return;
            };
            let Some(mut entry) = self.recent.doubtful.pop_front() else {
                return;
            };
            let node = &self.connections[index].node;
            if entry.node.is_some() && entry.node == *node {
                // Another way to the same node, as far as it is known; it may be lost next.
                entry.connection = index as u32;
                self.recent.confirmed.push_back(entry);
                continue;
            }
            match entry.what {
                What::Released(token, fresh) => {
                    let release = Release {
                        token,
                        lock: None,
                        once_more: true,
                        fresh,
                    };
                    self.start_release(entry.key, release, None, now);
                }
                What::Cancelled(tag) => self.cancel_once_more(entry.key, tag, now),
            }
        }
    }
}
