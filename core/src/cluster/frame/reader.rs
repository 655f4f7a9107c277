//! From bytes to what was said; nothing that a peer sends can do more than fail here.

use super::news::Before;
use super::{FrameError, STAGES};
use crate::cluster::members::{MAX_NODES, Slot};
use crate::cluster::message::{Beat, Copy, Handoff, Message, Stream};
use crate::engine::{Change, ClaimId, Owner, Time};
use crate::protocol::{ClientId, Key, KeyRef, Millis, NameRef, Tag, Token, limits};
use std::sync::Arc;

/// For so many there is room at once, whatever is announced.
const READ_AT_ONCE: usize = 1024;

pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
    pub(super) now: Time,
    /// What the changes so far were like.
    pub(super) before: Before,
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a [u8], now: Time) -> Reader<'a> {
        let before = Before::default();
        Reader { rest, now, before }
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(FrameError::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(FrameError::Short)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FrameError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, FrameError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn flag(&mut self, field: &'static str) -> Result<bool, FrameError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FrameError::Field(field)),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a [u8], FrameError> {
        let length = self.u16()?;
        self.bytes(usize::from(length))
    }

    pub(super) fn until(&mut self) -> Result<Time, FrameError> {
        let left = self.u64()?;
        Ok(Time(self.now.0.saturating_add(left)))
    }

    pub(super) fn since(&mut self) -> Result<Time, FrameError> {
        let passed = self.u64()?;
        Ok(Time(self.now.0.saturating_sub(passed)))
    }

    /// As many as are announced, each of at least `least` bytes.
    pub(super) fn list<T>(
        &mut self,
        least: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, FrameError>,
    ) -> Result<Vec<T>, FrameError> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / least {
            return Err(FrameError::Short);
        }
        let mut list = Vec::with_capacity(count.min(READ_AT_ONCE));
        for _ in 0..count {
            list.push(read(self)?);
        }
        Ok(list)
    }

    pub(super) fn slot(&mut self) -> Result<Slot, FrameError> {
        let slot = Slot(self.u8()?);
        (slot.index() < MAX_NODES)
            .then_some(slot)
            .ok_or(FrameError::Field("slot"))
    }

    pub(super) fn stream(&mut self) -> Result<Stream, FrameError> {
        Ok(Stream {
            term: self.u32()?,
            slot: self.slot()?.0,
        })
    }

    pub(super) fn copy(&mut self) -> Result<Copy, FrameError> {
        Ok(Copy {
            stream: self.stream()?,
            sequence: self.u64()?,
            oldest: self.u64()?,
            complete: self.flag("copy")?,
        })
    }

    pub(super) fn message(&mut self, kind: u8) -> Result<Message, FrameError> {
        let step = match kind {
            0 => return Ok(Message::Beat(self.beat()?)),
            6 => {
                return Ok(Message::Fetch {
                    round: self.u64()?,
                    copy: self.copy()?,
                });
            }
            7 => return Ok(Message::Fetched { round: self.u64()? }),
            1..=5 => kind,
            kind => return Err(FrameError::Kind(kind)),
        };
        let round = self.u64()?;
        let step = match step {
            1 => Handoff::Offer,
            2 => Handoff::Ready,
            3 => Handoff::Withdraw,
            4 => Handoff::Final {
                sequence: self.u64()?,
            },
            _ => Handoff::Taken,
        };
        Ok(Message::Handoff { round, step })
    }

    pub(super) fn beat(&mut self) -> Result<Beat, FrameError> {
        Ok(Beat {
            incarnation: self.u64()?,
            stage: *STAGES
                .get(usize::from(self.u8()?))
                .ok_or(FrameError::Field("stage"))?,
            term: self.u32()?,
            active: if self.flag("active node")? {
                Some((self.slot()?, self.u64()?))
            } else {
                None
            },
            copy: self.copy()?,
            can_lead: self.flag("readiness")?,
        })
    }

    pub(super) fn key(&mut self) -> Result<Key, FrameError> {
        let length = self.u16()?;
        self.key_of(length.into())
    }

    pub(super) fn key_of(&mut self, length: usize) -> Result<Key, FrameError> {
        KeyRef::parse(self.bytes(length)?)
            .map(KeyRef::to_key)
            .map_err(|_| FrameError::Field("key"))
    }

    pub(super) fn token(&mut self) -> Result<Token, FrameError> {
        Token::new(self.u64()?).ok_or(FrameError::Field("token"))
    }

    pub(super) fn lease(&mut self) -> Result<Millis, FrameError> {
        let lease = self.u64()?;
        (limits::TIME_MIN_MS..=limits::TIME_MAX_MS)
            .contains(&lease)
            .then_some(Millis(lease))
            .ok_or(FrameError::Field("lease"))
    }

    pub(super) fn claim(&mut self) -> Result<ClaimId, FrameError> {
        ClaimId::from_number(self.u32()?).ok_or(FrameError::Field("claim"))
    }

    pub(super) fn owner(&mut self) -> Result<Arc<Owner>, FrameError> {
        let client = if self.flag("client")? {
            Some(ClientId(self.array()?))
        } else {
            None
        };
        let name = NameRef::parse(self.text()?).map_err(|_| FrameError::Field("name"))?;
        let address = std::str::from_utf8(self.text()?)
            .ok()
            .filter(|address| {
                address.len() <= limits::ADDRESS_BYTES
                    && address.bytes().all(|byte| byte.is_ascii_graphic())
            })
            .ok_or(FrameError::Field("address"))?;
        Ok(Arc::new(Owner::new(client, name, address)))
    }

    pub(super) fn tag(&mut self) -> Result<Option<Tag>, FrameError> {
        if !self.flag("tag")? {
            return Ok(None);
        }
        Ok(Some(Tag {
            number: self.u64()?,
            attempt: self.u32()?,
        }))
    }

    pub(super) fn changes(&mut self) -> Result<Vec<Change>, FrameError> {
        // The shortest change is that of a term.
        self.list(5, Reader::change)
    }

    pub(super) fn change(&mut self) -> Result<Change, FrameError> {
        let change = match self.u8()? {
            0 => Change::Granted {
                claim: self.claim()?,
                key: self.key()?,
                token: self.token()?,
                owner: self.owner()?,
                tag: self.tag()?,
                lease: self.lease()?,
                ends: self.until()?,
            },
            1 => Change::Released {
                claim: self.claim()?,
                token: self.token()?,
            },
            2 => Change::Expired {
                claim: self.claim()?,
                token: self.token()?,
            },
            3 => Change::Kept {
                claim: self.claim()?,
                lease: self.lease()?,
                ends: self.until()?,
            },
            4 => Change::Enqueued {
                claim: self.claim()?,
                key: self.key()?,
                owner: self.owner()?,
                tag: self.tag()?,
                lease: self.lease()?,
                since: self.since()?,
                ends: self.until()?,
            },
            5 => Change::Left {
                claim: self.claim()?,
            },
            6 => Change::Resent {
                claim: self.claim()?,
                owner: self.owner()?,
                attempt: self.u32()?,
                lease: self.lease()?,
                ends: self.until()?,
            },
            7 => Change::AttemptRemembered {
                client: ClientId(self.array()?),
                number: self.u64()?,
                attempt: self.u32()?,
                at: self.since()?,
            },
            8 => Change::TermOpened { term: self.u32()? },
            kind => return self.short_change(kind),
        };
        self.before.note(&change);
        Ok(change)
    }
}
