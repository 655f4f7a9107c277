//! Bytes ⇄ what nodes say to each other: a line that says who connects, then frames.
//!
//! A frame is its length (four bytes, little-endian), a kind and the fields of that kind. Numbers are
//! little-endian and whole, text has its length before it. Nothing is allocated for a length that was
//! not checked, and what is left over or missing makes the whole frame an error. Moments travel as the
//! time that is left or has passed, because no two nodes have the same clock.

mod news;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use super::message::{Message, Stage, Stream};
use crate::engine::{Change, Time};
use crate::protocol::{Token, limits};
pub(super) use news::NewsWriter;
use reader::Reader;
use writer::Writer;

/// The version of the frames; nodes of different versions do not talk.
pub const VERSION: u32 = 1;

/// The longest frame, its length not included.
pub const FRAME_BYTES: usize = 1 << 20;

/// How many bytes of changes are put into one frame at most, so that every frame is short enough.
pub(super) const BATCH_BYTES: usize = FRAME_BYTES - 8192;

/// Changes of which so many always fit into one frame, however long their keys, names and addresses are.
pub(super) const SURELY_FIT: usize = BATCH_BYTES / (REST_BYTES + LONGEST_TEXTS);

/// Of a change without its texts, at most.
const REST_BYTES: usize = 96;

/// A byte that is escaped takes three.
const LONGEST_TEXTS: usize = 3 * limits::KEY_BYTES + 3 * limits::NAME_BYTES + limits::ADDRESS_BYTES;

/// What a frame says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// About roles.
    Roles(Message),
    /// Standby to active: send the whole state, and then every change.
    Join,
    /// Active to standby: what follows is the whole state and the changes of this stream.
    Begin {
        /// Whose changes.
        stream: Stream,
        /// The number of the last change before the first part.
        sequence: u64,
    },
    /// Active to standby: a part of the whole state, as it is at this point of the stream.
    Dump {
        /// As changes to nothing.
        changes: Vec<Change>,
    },
    /// Active to standby: that was the whole state.
    Whole,
    /// Active to standby, and standby to candidate: changes, in order and without a gap.
    Changes {
        /// Whose.
        stream: Stream,
        /// The number of the first one.
        first: u64,
        /// They.
        changes: Vec<Change>,
    },
    /// Standby to active: applied up to here.
    Applied {
        /// Of this stream.
        stream: Stream,
        /// The number of the last change.
        sequence: u64,
    },
    /// One that gives up its place to the one that keeps it: grants that the other may not have.
    Given {
        /// Each a grant.
        grants: Vec<Change>,
    },
    /// Tokens that were given back at the side that gives up.
    Ended {
        /// They.
        tokens: Vec<Token>,
    },
}

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// Longer than any frame is.
    #[error("a frame of {0} bytes is too long")]
    TooLong(u32),
    /// Shorter than its kind is.
    #[error("a frame ends too early")]
    Short,
    /// Longer than its kind is.
    #[error("a frame has bytes left over")]
    LeftOver,
    /// A kind that this version does not have.
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    /// A field that cannot be.
    #[error("a frame with a wrong {0}")]
    Field(&'static str),
}

/// What a buffer begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit<'a> {
    /// A whole frame, without its length.
    Whole {
        /// Kind and fields.
        body: &'a [u8],
        /// How many bytes of the buffer it took.
        used: usize,
    },
    /// Not yet a whole frame.
    Partial,
}

/// Looks at the beginning of `buffer`.
///
/// # Errors
/// The frame that begins there is too long.
pub fn split_frame(buffer: &[u8]) -> Result<Unit<'_>, FrameError> {
    let Some(length) = buffer.first_chunk::<4>() else {
        return Ok(Unit::Partial);
    };
    let length = u32::from_le_bytes(*length);
    if length as usize > FRAME_BYTES {
        return Err(FrameError::TooLong(length));
    }
    let used = 4 + length as usize;
    Ok(buffer
        .get(4..used)
        .map_or(Unit::Partial, |body| Unit::Whole { body, used }))
}

impl Frame {
    /// Appends the frame with its length. `now` is the moment it leaves.
    pub(super) fn encode(&self, now: Time, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&[0; 4]);
        self.encode_body(now, out);
        let length = (out.len() - begin - 4) as u32;
        out[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Appends the frame without its length.
    pub(super) fn encode_body(&self, now: Time, out: &mut Vec<u8>) {
        let mut to = Writer { out, now };
        match self {
            Frame::Roles(message) => to.message(message),
            Frame::Join => to.u8(10),
            Frame::Begin { stream, sequence } => {
                to.u8(11);
                to.stream(*stream);
                to.u64(*sequence);
            }
            Frame::Dump { changes } => encode_part(now, changes, out),
            Frame::Whole => to.u8(13),
            Frame::Changes {
                stream,
                first,
                changes,
            } => encode_changes(now, (*stream, *first), changes, out),
            Frame::Applied { stream, sequence } => {
                to.u8(15);
                to.stream(*stream);
                to.u64(*sequence);
            }
            Frame::Given { grants } => {
                to.u8(16);
                to.changes(grants);
            }
            Frame::Ended { tokens } => {
                to.u8(17);
                to.u32(tokens.len() as u32);
                for token in tokens {
                    to.u64(token.get());
                }
            }
        }
    }

    /// Reads a frame's body. `now` is the moment it came.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn decode(body: &[u8], now: Time) -> Result<Frame, FrameError> {
        let mut from = Reader::new(body, now);
        let frame = match from.u8()? {
            kind @ 0..=9 => Frame::Roles(from.message(kind)?),
            10 => Frame::Join,
            11 => Frame::Begin {
                stream: from.stream()?,
                sequence: from.u64()?,
            },
            12 => Frame::Dump {
                changes: from.changes()?,
            },
            13 => Frame::Whole,
            14 => Frame::Changes {
                stream: from.stream()?,
                first: from.u64()?,
                changes: from.changes()?,
            },
            15 => Frame::Applied {
                stream: from.stream()?,
                sequence: from.u64()?,
            },
            16 => Frame::Given {
                grants: from.changes()?,
            },
            17 => Frame::Ended {
                tokens: from.list(8, Reader::token)?,
            },
            kind => return Err(FrameError::Kind(kind)),
        };
        if from.rest.is_empty() {
            Ok(frame)
        } else {
            Err(FrameError::LeftOver)
        }
    }
}

/// Appends the body of a [`Frame::Dump`].
pub(super) fn encode_part(now: Time, changes: &[Change], out: &mut Vec<u8>) {
    let mut to = Writer { out, now };
    to.u8(12);
    to.changes(changes);
}

/// Appends the body of a [`Frame::Changes`].
pub(super) fn encode_changes(
    now: Time,
    (stream, first): (Stream, u64),
    changes: &[Change],
    out: &mut Vec<u8>,
) {
    let mut to = Writer { out, now };
    to.u8(14);
    to.stream(stream);
    to.u64(first);
    to.changes(changes);
}

/// Appends what the body of a [`Frame::Changes`] begins with; the changes follow.
pub(super) fn begin_changes((stream, first): (Stream, u64), count: u32, out: &mut Vec<u8>) {
    let mut to = Writer { out, now: Time(0) };
    to.u8(14);
    to.stream(stream);
    to.u64(first);
    to.u32(count);
}

/// The numbers of the changes in the body of a [`Frame::Changes`], how many there are if there are any, and they themselves.
pub(super) fn split_changes(body: &[u8]) -> Option<((Stream, u64), u32, &[u8])> {
    let mut from = Reader::new(body, Time(0));
    let _kind = from.u8().ok().filter(|kind| *kind == 14)?;
    let numbered = (from.stream().ok()?, from.u64().ok()?);
    let count = from.u32().ok().filter(|count| *count > 0)?;
    Some((numbered, count, from.rest))
}

/// How many bytes a change takes in a frame, at most.
#[must_use]
pub(super) fn change_bytes(change: &Change) -> usize {
    match change {
        Change::Granted { key, owner, .. } | Change::Enqueued { key, owner, .. } => {
            REST_BYTES
                + key.spelling().len()
                + owner.name().spelling().len()
                + owner.address().len()
        }
        Change::Resent { owner, .. } => {
            REST_BYTES + owner.name().spelling().len() + owner.address().len()
        }
        Change::Released { .. }
        | Change::Expired { .. }
        | Change::Kept { .. }
        | Change::Left { .. }
        | Change::AttemptRemembered { .. }
        | Change::TermOpened { .. } => REST_BYTES,
    }
}

/// The stages by their numbers.
const STAGES: [Stage; 6] = [
    Stage::Starting,
    Stage::Standby,
    Stage::Candidate,
    Stage::Active,
    Stage::HandingOver,
    Stage::Leaving,
];
