//! The lines of what has been read from a connection: which of them are handled now, which ends the batch, and
//! where a list goes on. What a line asks for is answered elsewhere, and nothing is read or written here.

use super::answer::Flow;
use super::cluster::LinkId;
use super::serve::crowd;
use super::state::Node;
use super::tls;
use crate::engine::{ConnectionId, Time};
use crate::protocol::{Code, Reply, Request, Split, split};

/// Why no further line of a batch was handled.
pub(super) enum Stop {
    /// The rest is not yet a whole line.
    Partial,
    /// The replies are long enough to be written first, or rows have to be made.
    Pause,
    /// The line there cannot be handled yet.
    Later,
    /// The connection ends after the replies.
    Close,
    /// The connection is a link of a peer from now on.
    Link(LinkId),
}

/// Replies of this size are written before more requests are handled.
pub(super) const ENOUGH_REPLIES: usize = 256 << 10;
impl Node {
    /// Handles the lines of a batch until one stops it. Returns how many bytes are done with.
    pub(super) fn handle_lines(
        &mut self,
        now: Time,
        id: ConnectionId,
        bytes: &[u8],
    ) -> (Stop, usize) {
        let Some(connection) = self.connections.get_mut(id) else {
            // Nobody knows what it might do.
            return (Stop::Close, bytes.len());
        };
        let mut first = connection.greeting.is_to_come();
        let mut limited = connection.is_limited();
        if first && tls::is_client_hello(bytes) {
            self.refuse_tls(id);
            return (Stop::Close, bytes.len());
        }
        let enough_replies = ENOUGH_REPLIES / crowd(self.yielding);
        let mut used = 0;
        loop {
            if self.serves
                && !(first | limited)
                && let Some((request, length)) = Request::parse_ahead(&bytes[used..])
            {
                used += length;
                self.counters.lines += 1;
                self.handle_request(now, id, &request);
                if self.replies.len() >= enough_replies {
                    return (Stop::Pause, used);
                }
                continue;
            }
            match split(&bytes[used..]) {
                Split::Line { line, used: length } => {
                    used += length;
                    self.counters.lines += 1;
                    let flow = if std::mem::take(&mut first) {
                        let flow = self.handle_first_line(now, id, line);
                        let connection = self.connections.get_mut(id);
                        limited = connection.is_none_or(|connection| connection.is_limited());
                        flow
                    } else if limited {
                        self.handle_limited_line(now, id, line)
                    } else {
                        self.handle_line(now, id, line)
                    };
                    match flow {
                        Flow::On => {}
                        Flow::Later => {
                            self.counters.lines -= 1;
                            return (Stop::Later, used - length);
                        }
                        Flow::Close => return (Stop::Close, used),
                        Flow::Link(link) => return (Stop::Link(link), used),
                        Flow::Rows => {
                            // Looking for rows is work even where there are none.
                            self.append_rows(now, id);
                            return (Stop::Pause, used);
                        }
                    }
                    if self.replies.len() >= enough_replies {
                        return (Stop::Pause, used);
                    }
                }
                Split::Partial => return (Stop::Partial, used),
                Split::TooLong => {
                    self.counters.too_long += 1;
                    self.answer(&Reply::Refused {
                        operation: None,
                        key: b"-",
                        code: Code::TooLong.as_str(),
                        tag: None,
                        text: "a line has at most 4096 bytes",
                    });
                    return (Stop::Close, used);
                }
            }
        }
    }

    /// Makes rows of the list under way.
    pub(super) fn append_rows(&mut self, now: Time, id: ConnectionId) {
        let crowd = crowd(self.yielding);
        let Node {
            engine,
            connections,
            replies,
            counters,
            ..
        } = self;
        if let Some(connection) = connections.get_mut(id)
            && let Some(listing) = &mut connection.listing
            && listing.append(engine, counters, now, replies, crowd)
        {
            connection.listing = None;
        }
    }
}
