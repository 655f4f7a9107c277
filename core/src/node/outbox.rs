//! What a connection has not yet been sent: whole lines, the first of which may be half gone.
//!
//! Empty for nearly every connection at nearly every moment, and then without memory of its own.

use super::stream::Stream;
use crate::protocol::{KeyRef, Reply, Split, Token, split};
use std::io;

/// Unsent lines.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Begins with a whole line.
    bytes: Vec<u8>,
    /// How much of `bytes` has left.
    sent: usize,
}

impl Outbox {
    /// Whether everything has left.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes have not left.
    pub(crate) fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// How many bytes are kept, those included that have left and are thrown away later.
    pub(crate) fn kept(&self) -> usize {
        self.bytes.len()
    }

    /// Where to append lines. `spare` lends memory to an outbox that has none.
    pub(crate) fn lines(&mut self, spare: &mut Vec<Vec<u8>>) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0
            && let Some(buffer) = spare.pop()
        {
            self.bytes = buffer;
        }
        &mut self.bytes
    }

    /// Keeps what is left of `lines` after `sent` bytes, from the beginning of the line that is half gone.
    pub(crate) fn keep(&mut self, lines: &[u8], sent: usize) {
        debug_assert!(
            self.is_empty(),
            "a connection with unsent lines is not served"
        );
        let start = line_start(lines, sent);
        self.bytes.extend_from_slice(&lines[start..]);
        self.sent = sent - start;
    }

    /// Writes what the socket takes. Memory of an emptied outbox goes to `spare`.
    pub(crate) fn flush(
        &mut self,
        stream: &mut Stream,
        spare: &mut Vec<Vec<u8>>,
    ) -> io::Result<()> {
        while self.sent < self.bytes.len() {
            match stream.write(&self.bytes[self.sent..])? {
                0 => break,
                count => self.sent += count,
            }
        }
        if self.sent == self.bytes.len() {
            let mut buffer = std::mem::take(&mut self.bytes);
            self.sent = 0;
            if spare.len() < SPARE_BUFFERS && buffer.capacity() <= SPARE_BYTES {
                buffer.clear();
                spare.push(buffer);
            }
        } else if self.sent >= COMPACT_BYTES {
            let start = line_start(&self.bytes, self.sent);
            self.bytes.drain(..start);
            self.sent -= start;
        }
        Ok(())
    }

    /// The grants among the lines that have not left as a whole.
    pub(crate) fn unsent_grants(&self) -> impl Iterator<Item = (KeyRef<'_>, Token)> {
        grants(&self.bytes[line_start(&self.bytes, self.sent)..])
    }
}

/// Buffers that are kept for hand-overs, so that these do not allocate, and the largest one kept.
const SPARE_BUFFERS: usize = 64;
const SPARE_BYTES: usize = 4096;
/// Sent bytes are thrown away in pieces of this size at least, so that it costs little.
const COMPACT_BYTES: usize = 256 << 10;

/// Where the line begins that byte `at` belongs to.
fn line_start(lines: &[u8], at: usize) -> usize {
    memchr::memrchr(b'\n', &lines[..at]).map_or(0, |end| end + 1)
}

/// The grants among whole lines.
pub(crate) fn grants(mut lines: &[u8]) -> impl Iterator<Item = (KeyRef<'_>, Token)> {
    std::iter::from_fn(move || {
        while let Split::Line { line, used } = split(lines) {
            lines = &lines[used..];
            if let Some(Reply::Granted { key, token, .. }) = Reply::parse(line) {
                return Some((key, token));
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_that_is_half_gone_counts_as_unsent() {
        let lines = b"A one 5\nP\nA two 6 #1\nR three ok\nA four 7\n";
        let whole_left = |sent| {
            let mut outbox = Outbox::default();
            outbox.keep(lines, sent);
            let tokens: Vec<u64> = outbox
                .unsent_grants()
                .map(|(_, token)| token.get())
                .collect();
            (tokens, outbox.unsent())
        };
        assert_eq!(whole_left(0), (vec![5, 6, 7], lines.len()));
        assert_eq!(whole_left(7), (vec![5, 6, 7], lines.len() - 7));
        assert_eq!(whole_left(8), (vec![6, 7], lines.len() - 8));
        assert_eq!(whole_left(15), (vec![6, 7], lines.len() - 15));
        assert_eq!(whole_left(lines.len() - 1), (vec![7], 1));
    }

    #[test]
    fn a_grant_that_has_left_by_a_later_write_is_not_unsent() {
        let lines = b"A one 5\nA two 6 #1\nA four 7\n";
        let outbox = Outbox {
            bytes: lines.to_vec(),
            sent: 20,
        };
        let tokens: Vec<u64> = outbox
            .unsent_grants()
            .map(|(_, token)| token.get())
            .collect();
        assert_eq!(tokens, [7]);
    }

    #[test]
    fn a_line_longer_than_a_request_may_be_does_not_hide_the_next() {
        let mut lines = vec![b'x'; 3000];
        lines.extend_from_slice(b"\nA key 9\n");
        assert_eq!(grants(&lines).count(), 1);
    }
}
