//! How much is kept for clients that do not read: what they have not been sent yet, and what they have asked for and is not
//! answered before they read. One client may leave `max_unread`, and all together `max_unread_total`.
//!
//! The bound for all is kept without a look at every connection. While more than half of it is in use, whoever leaves more
//! than an equal share of that half is cut off when it grows. Shares become smaller as more clients come, so that alone is no
//! bound. While more than three quarters are in use, whoever grows beyond what each of `max_connections` may have of the last
//! quarter is cut off: those that had more before do not grow any more and are at most three quarters together, the others
//! are at most the last one.

use super::connection::Connection;
use super::settings::Settings;

/// What is kept for all connections.
#[derive(Debug)]
pub(crate) struct Unread {
    total: u64,
    most_each: u64,
    most: u64,
    /// What each may leave when hardly anything is left for all.
    least: u64,
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
            least: settings.max_unread_total.0 / 4 / u64::from(settings.max_connections.max(1)),
        }
    }

    /// Takes note of what is kept for a connection now. `open` is the number of connections.
    pub(crate) fn weigh(&mut self, connection: &mut Connection, open: u32) -> Load {
        let unread = connection.outbox.unsent() as u64;
        let kept = match unread {
            0 => 0,
            _ => (connection.outbox.kept() + connection.unanswered()) as u64,
        };
        self.total = self.total - connection.weight + kept;
        connection.weight = kept;
        self.judge(unread, kept, open)
    }

    fn judge(&self, unread: u64, kept: u64, open: u32) -> Load {
        let half = self.most / 2;
        let beyond_half = self.total > half && kept > half / u64::from(open.max(1));
        let in_last_quarter = self.total > self.most - self.most / 4 && kept > self.least;
        // First, because of its own replies a client may leave too much.
        if beyond_half || in_last_quarter {
            Load::MoreThanItsShare
        } else if unread > self.most_each {
            Load::TooMuch
        } else {
            Load::Fine
        }
    }

    /// The connection is closed.
    pub(crate) fn forget(&mut self, connection: &Connection) {
        self.total -= connection.weight;
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::{Bytes, Settings};
    use super::*;

    fn with(total: u64) -> Unread {
        let settings = Settings {
            max_unread: Bytes(400),
            max_connections: 10,
            max_unread_total: Bytes(1000),
            ..Settings::default()
        };
        Unread {
            total,
            ..Unread::new(&settings)
        }
    }

    #[test]
    fn one_client_may_leave_its_limit_and_not_a_byte_more() {
        assert_eq!(with(400).judge(400, 400, 1), Load::Fine);
        assert_eq!(with(401).judge(401, 401, 1), Load::TooMuch);
    }

    #[test]
    fn beyond_half_of_the_limit_for_all_nobody_may_leave_more_than_an_equal_share_of_that_half() {
        // Of ten clients each may leave 50.
        assert_eq!(with(500).judge(400, 400, 10), Load::Fine);
        assert_eq!(with(501).judge(50, 50, 10), Load::Fine);
        assert_eq!(with(501).judge(51, 51, 10), Load::MoreThanItsShare);
        assert_eq!(with(501).judge(50, 51, 10), Load::MoreThanItsShare);
    }

    #[test]
    fn who_leaves_more_than_its_share_of_all_has_no_excuse_in_its_own_limit() {
        assert_eq!(with(600).judge(450, 450, 10), Load::MoreThanItsShare);
    }

    /// Method: each comes when those before have taken what they could, and takes all that does not get it cut off.
    #[test]
    fn all_together_never_leave_more_than_there_may_be_however_they_come() {
        let settings = Settings {
            max_unread: Bytes(1 << 20),
            max_unread_total: Bytes(1 << 20),
            max_connections: 1000,
            ..Settings::default()
        };
        let step = 64;
        let mut unread = Unread::new(&settings);
        for open in 1..=1000 {
            let mut kept = 0;
            loop {
                unread.total += step;
                assert!(unread.total <= (1 << 20) + step);
                if unread.judge(kept + step, kept + step, open) != Load::Fine {
                    break;
                }
                kept += step;
            }
            unread.total -= step;
        }
        assert!(unread.total > 3 << 18, "they did what they could");
    }
}
