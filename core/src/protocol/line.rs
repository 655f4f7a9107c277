//! Splits received bytes into lines. A partial line is not an error: the caller keeps it and comes
//! back with more.

use super::limits::LINE_BYTES;
use super::word;

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
#[inline]
pub fn split(buffer: &[u8]) -> Split<'_> {
    // Most lines are so short that calling a search for long ones costs more than it saves.
    match word::find(&buffer[..buffer.len().min(LINE_BYTES)], 0, b'\n') {
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
///
/// Texts and numbers, which most fields are, have a way of their own that finds the end of the field
/// and checks it in one go; what it does not know is left to the general way.
#[derive(Clone)]
pub(super) struct Fields<'a> {
    line: &'a [u8],
    /// Where the next field begins; behind the end of the line where there is none.
    at: usize,
}

impl<'a> Fields<'a> {
    #[inline]
    pub(super) fn new(line: &'a [u8]) -> Fields<'a> {
        Fields { line, at: 0 }
    }

    /// All that has not been read as fields.
    #[inline]
    pub(super) fn rest(&self) -> Option<&'a [u8]> {
        self.line.get(self.at..)
    }

    /// Whether all fields have been read.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.at > self.line.len()
    }

    /// The letter that is the next field, if that is a single byte.
    #[inline(always)]
    pub(super) fn letter(&mut self) -> Option<u8> {
        let letter = *self.line.get(self.at)?;
        self.ends_at(self.at + 1)?;
        self.at += 2;
        Some(letter)
    }

    /// The next field if it is a text without escapes, of 1 to `max` bytes.
    #[inline(always)]
    pub(super) fn text(&mut self, max: usize) -> Option<&'a [u8]> {
        let end = word::text_end(self.line, self.at);
        let text = self.line.get(self.at..end)?;
        if text.is_empty() || text.len() > max {
            return None;
        }
        self.ends_at(end)?;
        self.at = end + 1;
        Some(text)
    }

    /// The next field if it is a number as the wire spells them, of at most nineteen digits.
    #[inline(always)]
    pub(super) fn number(&mut self) -> Option<u64> {
        self.number_behind(0)
    }

    /// The number in the next field behind `#`, if nothing else is there.
    #[inline(always)]
    pub(super) fn tag_number(&mut self) -> Option<u64> {
        if self.line.get(self.at) != Some(&b'#') {
            return None;
        }
        self.number_behind(1)
    }

    #[inline(always)]
    fn number_behind(&mut self, skip: usize) -> Option<u64> {
        let start = self.at + skip;
        let first = *self.line.get(start)?;
        let (number, end) = word::number(self.line, start);
        let is_number = end == start + 1 || (end > start && first != b'0');
        if !is_number {
            return None;
        }
        self.ends_at(end)?;
        self.at = end + 1;
        Some(number)
    }

    #[inline(always)]
    fn ends_at(&self, end: usize) -> Option<()> {
        matches!(self.line.get(end), None | Some(b' ')).then_some(())
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    #[inline(never)]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest()?;
        let length = word::find(rest, 0, b' ').unwrap_or(rest.len());
        self.at += length + 1;
        Some(&rest[..length])
    }
}
