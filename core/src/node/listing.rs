//! Answers of many rows, `L` and `W`: made piece by piece as the connection takes them, so that a long
//! one neither fills memory nor gets its reader cut off.

use super::users::User;
use crate::engine::{Engine, ListCursor, LockRow, Owner, QueuePlace, Time};
use crate::protocol::{Holder, Key, KeyRef, Operation, Prefix, Reply, Tag};
use std::sync::Arc;

/// A list under way.
#[derive(Debug)]
pub(crate) struct Listing {
    rows: Rows,
    /// How many rows may still be made.
    left: u32,
    tag: Option<Tag>,
}

#[derive(Debug)]
enum Rows {
    Locks {
        prefix: Box<[u8]>,
        cursor: ListCursor,
        made: u64,
        /// Who gets only rows of its own keys.
        user: Option<Arc<User>>,
    },
    Waiters {
        key: Key,
        last: Option<QueuePlace>,
    },
}

impl Listing {
    /// `L`: held keys, those only that `user` may see.
    pub(crate) fn locks(
        prefix: Prefix<'_>,
        after: Option<KeyRef<'_>>,
        limit: u32,
        tag: Option<Tag>,
        user: Option<Arc<User>>,
    ) -> Listing {
        let cursor = ListCursor::new(prefix, after);
        let prefix = prefix.field().into();
        Listing {
            rows: Rows::Locks {
                prefix,
                cursor,
                made: 0,
                user,
            },
            left: limit,
            tag,
        }
    }

    /// `W`: the queue of one key.
    pub(crate) fn waiters(key: KeyRef<'_>, limit: u32, tag: Option<Tag>) -> Listing {
        Listing {
            rows: Rows::Waiters {
                key: key.to_key(),
                last: None,
            },
            left: limit,
            tag,
        }
    }

    /// From now on its reader may see what this user may.
    pub(crate) fn restrict(&mut self, reader: &Arc<User>) {
        if let Rows::Locks { user, .. } = &mut self.rows {
            *user = Some(reader.clone());
        }
    }

    /// Which request it answers.
    pub(crate) fn operation(&self) -> Operation {
        match self.rows {
            Rows::Locks { .. } => Operation::List,
            Rows::Waiters { .. } => Operation::Waiters,
        }
    }

    /// Appends rows to `out` until it holds `enough` bytes or a bounded amount of work is done.
    /// Returns whether the last line has been made, too.
    pub(crate) fn append(
        &mut self,
        engine: &Engine,
        now: Time,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> bool {
        let tag = self.tag;
        match &mut self.rows {
            Rows::Locks {
                prefix,
                cursor,
                made,
                user,
            } => {
                let mut more = true;
                for _ in 0..PIECES {
                    if self.left == 0 || !more || out.len() >= enough {
                        break;
                    }
                    let before = *made;
                    more = engine.list(now, cursor, PIECE.min(self.left as usize), |row| {
                        if user.as_ref().is_some_and(|user| !user.knows(row.key)) {
                            return;
                        }
                        *made += 1;
                        Reply::LockRow {
                            holder: holder(&row),
                            tag,
                        }
                        .encode(out);
                    });
                    self.left -= (*made - before) as u32;
                }
                if more && self.left > 0 {
                    return false;
                }
                let prefix = Prefix::parse(prefix).expect("it was parsed from this field before");
                Reply::Listed {
                    prefix,
                    count: *made,
                    tag,
                }
                .encode(out);
            }
            Rows::Waiters { key, last } => {
                let key = key.as_ref();
                let mut rows = engine.waiters(now, key, *last);
                let mut ended = false;
                while self.left > 0 && out.len() < enough {
                    let Some(row) = rows.next() else {
                        ended = true;
                        break;
                    };
                    *last = Some(row.place);
                    self.left -= 1;
                    Reply::WaiterRow {
                        key,
                        position: row.position,
                        waited: row.waited,
                        name: row.owner.name(),
                        address: row.owner.address(),
                        tag,
                    }
                    .encode(out);
                }
                if !ended && self.left > 0 {
                    return false;
                }
                Reply::Waiters {
                    key,
                    count: engine.queue_length(key),
                    tag,
                }
                .encode(out);
            }
        }
        true
    }
}

/// How many rows are asked for at once, and how often, before others get their turn.
const PIECE: usize = 64;
const PIECES: usize = 16;

/// A row of the engine as one of the wire.
pub(crate) fn holder<'a>(row: &LockRow<'a>) -> Holder<'a> {
    let owner: &'a Owner = row.owner;
    Holder {
        key: row.key,
        token: row.token,
        remaining: row.remaining,
        waiters: row.waiters,
        name: owner.name(),
        address: owner.address(),
    }
}
