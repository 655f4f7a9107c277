//! How much is kept for clients that do not read: what they have not been sent yet, and what they have asked for and is not
//! answered before they read. One client may leave `max_unread`, and all together `max_unread_total`.
//!
//! The bound for all is kept without a look at every connection. While more than half of it is in use, whoever leaves more
//! than an equal share of that half is cut off when it grows. Those that were larger before do not grow any more and were
//! at most half together; the others are at most the other half.

use super::connection::Connection;
use super::settings::Settings;

/// What is kept for all connections.
#[derive(Debug)]
pub(crate) struct Unread {
    total: u64,
    most_each: u64,
    most: u64,
}

/// Whether a client may go on not reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Load {
    Fine,
    /// It leaves more than one client may.
    TooMuch,
    /// All together leave much, and it more than its share.
    MoreThanItsShare,
}

impl Unread {
    pub(crate) fn new(settings: &Settings) -> Unread {
        Unread {
            total: 0,
            most_each: settings.max_unread.0,
            most: settings.max_unread_total.0,
        }
    }

    /// Takes note of what is kept for a connection now. `open` is the number of connections.
    pub(crate) fn weigh(&mut self, connection: &mut Connection, open: u32) -> Load {
        let unread = connection.outbox.unsent() as u64;
        let kept = match unread {
            0 => 0,
            _ => (connection.outbox.kept() + connection.unhandled.len()) as u64,
        };
        self.total = self.total - connection.weight + kept;
        connection.weight = kept;
        let half = self.most / 2;
        if unread > self.most_each {
            Load::TooMuch
        } else if self.total > half && kept > half / u64::from(open.max(1)) {
            Load::MoreThanItsShare
        } else {
            Load::Fine
        }
    }

    /// The connection is closed.
    pub(crate) fn forget(&mut self, connection: &Connection) {
        self.total -= connection.weight;
    }
}
