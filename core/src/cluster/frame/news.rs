//! Changes as journals and standbys are told them, shorter than in a part of the state: under load most of them are
//! grants that differ from the one before them in little, and their ends.
//!
//! ```text
//!  9  claim  key  token − the one before                  the same owner, lease and time left; no tag
//! 10  claim  key  token − the one before  tag's number    the same, its first attempt
//! 11  claim  low half of the token                        released; the high half as before
//! ```

use super::reader::Reader;
use super::writer::Writer;
use super::{FrameError, Stream};
use crate::engine::{Change, Holding, News, Owner, Time};
use crate::protocol::{Millis, Tag, Token};
use std::ptr;
use std::sync::Arc;

const GRANTED: u8 = 9;
const GRANTED_WITH_TAG: u8 = 10;
const RELEASED: u8 = 11;

/// Where the number of changes stands in a frame of them: behind its kind, the stream, and the first number.
const COUNT_AT: usize = 1 + 5 + 8;

/// Writes the body of a [`Frame::Changes`](super::Frame::Changes) change by change.
pub(crate) struct NewsWriter<'a> {
    to: Writer<'a>,
    begin: usize,
    count: u32,
    /// What the last grant was like.
    owner: *const Owner,
    token: u64,
    lease: Millis,
    left: u64,
    /// The high half of the last token.
    high: u64,
}

impl<'a> NewsWriter<'a> {
    pub(crate) fn begin(
        now: Time,
        (stream, first): (Stream, u64),
        out: &'a mut Vec<u8>,
    ) -> NewsWriter<'a> {
        let begin = out.len();
        let mut to = Writer { out, now };
        to.u8(14);
        to.stream(stream);
        to.u64(first);
        to.u32(0);
        NewsWriter {
            to,
            begin,
            count: 0,
            owner: ptr::null(),
            token: 0,
            lease: Millis(0),
            left: 0,
            high: 0,
        }
    }

    /// Ends the frame. Returns how many changes it has.
    pub(crate) fn end(self) -> u32 {
        let at = self.begin + COUNT_AT;
        self.to.out[at..at + 4].copy_from_slice(&self.count.to_le_bytes());
        self.count
    }

    #[inline(always)]
    pub(crate) fn news(&mut self, news: News<'_>) {
        self.count += 1;
        match news {
            News::Granted(held) => self.granted(&held),
            News::Change(Change::Released { claim, token }) => {
                self.released(claim.number(), *token);
            }
            News::Change(change) => self.change(change),
        }
    }

    #[inline(never)]
    fn change(&mut self, change: &Change) {
        match change {
            Change::Granted {
                claim,
                key,
                token,
                owner,
                tag,
                lease,
                ends,
            } => self.granted(&Holding {
                claim: *claim,
                key: key.as_ref(),
                token: *token,
                owner,
                tag: *tag,
                lease: *lease,
                ends: *ends,
            }),
            change => self.to.change(change),
        }
    }

    #[inline(always)]
    fn granted(&mut self, held: &Holding<'_>) {
        let token = held.token.get();
        let left = self.to.left(held.ends);
        let ahead = token.wrapping_sub(self.token);
        let key = held.key.spelling();
        let number = match held.tag {
            None => Some(0),
            Some(tag) if tag.attempt == 0 => u32::try_from(tag.number).ok(),
            Some(_) => None,
        };
        let like_before = ptr::eq(Arc::as_ptr(held.owner), self.owner)
            && (held.lease, left) == (self.lease, self.left)
            && (1..256).contains(&ahead)
            && key.len() < 256;
        self.token = token;
        self.high = token >> 32;
        match number {
            Some(number) if like_before => {
                let kind = match held.tag {
                    None => GRANTED,
                    Some(_) => GRANTED_WITH_TAG,
                };
                let [a, b, c, d] = held.claim.number().to_le_bytes();
                let head = [kind, a, b, c, d, key.len() as u8];
                let [e, f, g, h] = number.to_le_bytes();
                let tail = [ahead as u8, e, f, g, h];
                self.to.out.extend_from_slice(&head);
                self.to.out.extend_from_slice(key);
                match held.tag {
                    None => self.to.u8(ahead as u8),
                    Some(_) => self.to.out.extend_from_slice(&tail),
                }
            }
            _ => self.granted_at_length(held, left),
        }
    }

    #[inline(never)]
    fn granted_at_length(&mut self, held: &Holding<'_>, left: u64) {
        self.owner = Arc::as_ptr(held.owner);
        (self.lease, self.left) = (held.lease, left);
        self.to.holding(held);
    }

    #[inline(always)]
    fn released(&mut self, claim: u32, token: Token) {
        let token = token.get();
        let [a, b, c, d] = claim.to_le_bytes();
        if token >> 32 == self.high {
            let [e, f, g, h] = (token as u32).to_le_bytes();
            let fields = [RELEASED, a, b, c, d, e, f, g, h];
            self.to.out.extend_from_slice(&fields);
        } else {
            self.high = token >> 32;
            let [e, f, g, h, i, j, k, l] = token.to_le_bytes();
            let fields = [1, a, b, c, d, e, f, g, h, i, j, k, l];
            self.to.out.extend_from_slice(&fields);
        }
    }
}

/// What the changes before were like, for whoever reads them.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    granted: Option<(Arc<Owner>, Token, Millis, Time)>,
    high: u64,
}

impl Before {
    /// A change has been read that was told at length.
    pub(super) fn note(&mut self, change: &Change) {
        match change {
            Change::Granted {
                owner,
                token,
                lease,
                ends,
                ..
            } => {
                self.granted = Some((owner.clone(), *token, *lease, *ends));
                self.high = token.get() >> 32;
            }
            Change::Released { token, .. } => self.high = token.get() >> 32,
            Change::Expired { .. }
            | Change::Kept { .. }
            | Change::Enqueued { .. }
            | Change::Left { .. }
            | Change::Resent { .. }
            | Change::AttemptRemembered { .. }
            | Change::TermOpened { .. } => {}
        }
    }
}

impl Reader<'_> {
    /// Reads a change of a kind that is none of those told at length.
    pub(super) fn short_change(&mut self, kind: u8) -> Result<Change, FrameError> {
        match kind {
            GRANTED | GRANTED_WITH_TAG => {
                let claim = self.claim()?;
                let length = self.u8()?;
                let key = self.key_of(length.into())?;
                let ahead = u64::from(self.u8()?);
                let tag = match kind {
                    GRANTED => None,
                    _ => Some(Tag {
                        number: self.u32()?.into(),
                        attempt: 0,
                    }),
                };
                let granted = self.before.granted.as_mut();
                let (owner, before, lease, ends) = granted.ok_or(FrameError::Field("change"))?;
                let token = before.get().checked_add(ahead).and_then(Token::new);
                let token = token.ok_or(FrameError::Field("token"))?;
                *before = token;
                self.before.high = token.get() >> 32;
                Ok(Change::Granted {
                    claim,
                    key,
                    token,
                    owner: owner.clone(),
                    tag,
                    lease: *lease,
                    ends: *ends,
                })
            }
            RELEASED => {
                let claim = self.claim()?;
                let token = self.before.high << 32 | u64::from(self.u32()?);
                let token = Token::new(token).ok_or(FrameError::Field("token"))?;
                Ok(Change::Released { claim, token })
            }
            _ => Err(FrameError::Field("change")),
        }
    }
}
