//! Answers of many rows, `L` and `W`: made piece by piece as the connection takes them, so that a long
//! one neither fills memory nor gets its reader cut off.

use super::counters::Counters;
use super::users::User;
use crate::engine::{Engine, ListCursor, LockRow, Owner, QueuePlace, Time};
use crate::protocol::{Code, Holder, Key, KeyRef, Operation, Prefix, Reply, Tag};
use std::sync::Arc;

/// A list under way.
#[derive(Debug)]
pub(crate) struct Listing {
    rows: Rows,
    /// How many rows may still be made.
    left: u32,
    tag: Option<Tag>,
    /// Why its reader may not have the rest.
    denied: Option<&'static str>,
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
            denied: None,
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
            denied: None,
        }
    }

    /// From now on its reader may see what this user may, which can be nothing.
    pub(crate) fn restrict(&mut self, reader: &Arc<User>) {
        self.denied = match &mut self.rows {
            Rows::Locks { user, .. } => {
                *user = Some(reader.clone());
                reader.may_not_list()
            }
            Rows::Waiters { key, .. } => reader.may_not_inspect(key.as_ref()),
        };
    }

    /// Its reader takes nothing for now: gives back what can be found again.
    pub(crate) fn pause(&mut self) {
        if let Rows::Locks { cursor, .. } = &mut self.rows {
            cursor.pause();
        }
    }

    /// Which request it answers.
    fn operation(&self) -> Operation {
        match self.rows {
            Rows::Locks { .. } => Operation::List,
            Rows::Waiters { .. } => Operation::Waiters,
        }
    }

    /// Appends rows to `out` until these are enough or a bounded amount of work is done; of both, one part in `crowd`.
    /// Returns whether the last line has been made, too.
    pub(crate) fn append(
        &mut self,
        engine: &Engine,
        counters: &mut Counters,
        now: Time,
        out: &mut Vec<u8>,
        crowd: usize,
    ) -> bool {
        let tag = self.tag;
        if let Some(text) = self.denied {
            let reply = self.denial(text);
            counters.note(&reply);
            reply.encode(out);
            return true;
        }
        let enough = out.len() + ENOUGH_ROWS / crowd;
        match &mut self.rows {
            Rows::Locks {
                prefix,
                cursor,
                made,
                user,
            } => {
                let mut more = true;
                for _ in 0..(PIECES / crowd).max(1) {
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
        counters.listed(self.operation());
        true
    }

    /// How many keys it keeps that it has found.
    #[cfg(test)]
    pub(crate) fn found(&self) -> usize {
        match &self.rows {
            Rows::Locks { cursor, .. } => cursor.found(),
            Rows::Waiters { .. } => 0,
        }
    }

    fn denial(&self, text: &'static str) -> Reply<'_> {
        Reply::Refused {
            operation: Some(self.operation()),
            key: match &self.rows {
                Rows::Locks { prefix, .. } => prefix,
                Rows::Waiters { key, .. } => key.as_ref().spelling(),
            },
            code: Code::Denied.as_str(),
            tag: self.tag,
            text,
        }
    }
}

/// Rows are made in pieces of this size.
const ENOUGH_ROWS: usize = 64 << 10;
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

#[cfg(test)]
mod tests {
    use super::super::settings::Settings;
    use super::super::state::engine_settings;
    use super::*;
    use crate::protocol::{Millis, Wait};

    /// Method: a list that finds nothing, so that only the keys that it comes past can end its turn.
    #[test]
    fn the_more_wait_for_their_turn_the_fewer_keys_a_list_looks_at_in_its_own() {
        let mut engine = Engine::new(engine_settings(&Settings::default()), 1);
        engine.open_term(1, 0, 0).expect("the first term");
        let connection = engine.connect("one:1");
        let now = Time(1_000_000);
        let keys = 50_000;
        for number in 0..keys {
            let key = Key::encode(format!("k{number}").as_bytes()).expect("a key");
            engine.acquire(now, connection, key.as_ref(), Millis(1), Wait::No, None);
        }
        let turns = |crowd| {
            let prefix = Prefix::of_spelling(b"zz");
            let mut listing = Listing::locks(prefix, None, 1, None, None);
            let (mut counters, mut out) = (Counters::default(), Vec::new());
            let mut turns = 1;
            while !listing.append(&engine, &mut counters, now, &mut out, crowd) {
                assert_eq!(out, b"");
                turns += 1;
            }
            assert_eq!(out, b"L zz 0\n");
            turns
        };
        assert!(turns(64) > keys / 2048);
        assert!(turns(1) < turns(64) / 8);
    }
}
