//! Splits received bytes into lines. A partial line is not an error: the caller keeps it and comes
//! back with more.

use super::limits::LINE_BYTES;

/// What a buffer begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Split<'a> {
    /// A whole line, without its LF and the CR before it.
    Line {
        /// The line.
        line: &'a [u8],
        /// How many bytes of the buffer it took.
        used: usize,
    },
    /// Not yet a whole line.
    Partial,
    /// More bytes than a line may have, and no end.
    TooLong,
}

/// Looks at the beginning of `buffer`.
#[must_use]
pub fn split(buffer: &[u8]) -> Split<'_> {
    match memchr::memchr(b'\n', &buffer[..buffer.len().min(LINE_BYTES)]) {
        Some(end) => {
            let line = &buffer[..end];
            Split::Line {
                line: line.strip_suffix(b"\r").unwrap_or(line),
                used: end + 1,
            }
        }
        None if buffer.len() >= LINE_BYTES => Split::TooLong,
        None => Split::Partial,
    }
}

/// The fields of a line, each separated from the next by exactly one space; two spaces, or one at an
/// end, make an empty field.
#[derive(Clone)]
pub(super) struct Fields<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(line: &'a [u8]) -> Fields<'a> {
        Fields { rest: Some(line) }
    }

    /// All that has not been read as fields.
    pub(super) fn rest(&self) -> Option<&'a [u8]> {
        self.rest
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        match memchr::memchr(b' ', rest) {
            Some(space) => {
                self.rest = Some(&rest[space + 1..]);
                Some(&rest[..space])
            }
            None => {
                self.rest = None;
                Some(rest)
            }
        }
    }
}
