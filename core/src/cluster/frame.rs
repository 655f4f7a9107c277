//! Bytes ⇄ what nodes say to each other: a line that says who connects, then frames.
//!
//! A frame is its length (four bytes, little-endian), a kind and the fields of that kind. Numbers are
//! little-endian and whole, text has its length before it. Nothing is allocated for a length that was
//! not checked, and what is left over or missing makes the whole frame an error. Moments travel as the
//! time that is left or has passed, because no two nodes have the same clock.

use super::members::Slot;
use super::message::{Beat, Copy, Handoff, Message, Stage, Stream};
use crate::engine::{Change, ClaimId, Owner, Time};
use crate::protocol::{ClientId, Key, KeyRef, Millis, NameRef, Tag, Token, limits};
use std::sync::Arc;

/// The version of the frames; nodes of different versions do not talk.
pub const VERSION: u32 = 1;

/// The longest frame, its length not included.
pub const FRAME_BYTES: usize = 1 << 20;

/// How many bytes of changes are put into one frame at most, so that every frame is short enough.
pub(super) const BATCH_BYTES: usize = FRAME_BYTES - 8192;

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
        let mut to = Writer { out, now };
        match self {
            Frame::Roles(message) => to.message(message),
            Frame::Join => to.u8(10),
            Frame::Begin { stream, sequence } => {
                to.u8(11);
                to.stream(*stream);
                to.u64(*sequence);
            }
            Frame::Dump { changes } => {
                to.u8(12);
                to.changes(changes);
            }
            Frame::Whole => to.u8(13),
            Frame::Changes {
                stream,
                first,
                changes,
            } => {
                to.u8(14);
                to.stream(*stream);
                to.u64(*first);
                to.changes(changes);
            }
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
        let length = (out.len() - begin - 4) as u32;
        out[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Reads a frame's body. `now` is the moment it came.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn decode(body: &[u8], now: Time) -> Result<Frame, FrameError> {
        let mut from = Reader { rest: body, now };
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

/// How many bytes a change takes in a frame, at most.
#[must_use]
pub(super) fn change_bytes(change: &Change) -> usize {
    const REST: usize = 96;
    match change {
        Change::Granted { key, owner, .. } | Change::Enqueued { key, owner, .. } => {
            REST + key.spelling().len() + owner.name().spelling().len() + owner.address().len()
        }
        Change::Resent { owner, .. } => {
            REST + owner.name().spelling().len() + owner.address().len()
        }
        Change::Released { .. }
        | Change::Expired { .. }
        | Change::Kept { .. }
        | Change::Left { .. }
        | Change::AttemptRemembered { .. }
        | Change::TermOpened { .. } => REST,
    }
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    now: Time,
}

impl Writer<'_> {
    fn u8(&mut self, number: u8) {
        self.out.push(number);
    }

    fn u16(&mut self, number: u16) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, bytes: &[u8]) {
        self.u16(bytes.len() as u16);
        self.out.extend_from_slice(bytes);
    }

    /// A moment to come, as what is left until it.
    fn until(&mut self, moment: Time) {
        self.u64(if moment == Time::NEVER {
            u64::MAX
        } else {
            moment.0.saturating_sub(self.now.0)
        });
    }

    /// A moment that was, as what has passed since it.
    fn since(&mut self, moment: Time) {
        self.u64(self.now.0.saturating_sub(moment.0));
    }

    fn stream(&mut self, stream: Stream) {
        self.u32(stream.term);
        self.u8(stream.slot);
    }

    fn copy(&mut self, copy: &Copy) {
        self.stream(copy.stream);
        self.u64(copy.sequence);
        self.u64(copy.oldest);
        self.u8(u8::from(copy.complete));
    }

    fn message(&mut self, message: &Message) {
        match message {
            Message::Beat(beat) => {
                self.u8(0);
                self.u64(beat.incarnation);
                self.u8(stage_number(beat.stage));
                self.u32(beat.term);
                match beat.active {
                    None => self.u8(0),
                    Some((slot, incarnation)) => {
                        self.u8(1);
                        self.u8(slot.0);
                        self.u64(incarnation);
                    }
                }
                self.copy(&beat.copy);
                self.u8(u8::from(beat.can_lead));
            }
            Message::Handoff { round, step } => {
                let kind = match step {
                    Handoff::Offer => 1,
                    Handoff::Ready => 2,
                    Handoff::Withdraw => 3,
                    Handoff::Final { .. } => 4,
                    Handoff::Taken => 5,
                };
                self.u8(kind);
                self.u64(*round);
                if let Handoff::Final { sequence } = step {
                    self.u64(*sequence);
                }
            }
            Message::Fetch { round, copy } => {
                self.u8(6);
                self.u64(*round);
                self.copy(copy);
            }
            Message::Fetched { round } => {
                self.u8(7);
                self.u64(*round);
            }
        }
    }

    fn owner(&mut self, owner: &Owner) {
        match owner.client {
            None => self.u8(0),
            Some(client) => {
                self.u8(1);
                self.out.extend_from_slice(&client.0);
            }
        }
        self.text(owner.name().spelling());
        self.text(owner.address().as_bytes());
    }

    fn tag(&mut self, tag: Option<Tag>) {
        match tag {
            None => self.u8(0),
            Some(tag) => {
                self.u8(1);
                self.u64(tag.number);
                self.u32(tag.attempt);
            }
        }
    }

    fn changes(&mut self, changes: &[Change]) {
        self.u32(changes.len() as u32);
        for change in changes {
            self.change(change);
        }
    }

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
            } => {
                self.u8(0);
                self.u32(claim.number());
                self.text(key.spelling());
                self.u64(token.get());
                self.owner(owner);
                self.tag(*tag);
                self.u64(lease.0);
                self.until(*ends);
            }
            Change::Released { claim, token } => {
                self.u8(1);
                self.u32(claim.number());
                self.u64(token.get());
            }
            Change::Expired { claim, token } => {
                self.u8(2);
                self.u32(claim.number());
                self.u64(token.get());
            }
            Change::Kept { claim, lease, ends } => {
                self.u8(3);
                self.u32(claim.number());
                self.u64(lease.0);
                self.until(*ends);
            }
            Change::Enqueued {
                claim,
                key,
                owner,
                tag,
                lease,
                since,
                ends,
            } => {
                self.u8(4);
                self.u32(claim.number());
                self.text(key.spelling());
                self.owner(owner);
                self.tag(*tag);
                self.u64(lease.0);
                self.since(*since);
                self.until(*ends);
            }
            Change::Left { claim } => {
                self.u8(5);
                self.u32(claim.number());
            }
            Change::Resent {
                claim,
                owner,
                attempt,
                lease,
                ends,
            } => {
                self.u8(6);
                self.u32(claim.number());
                self.owner(owner);
                self.u32(*attempt);
                self.u64(lease.0);
                self.until(*ends);
            }
            Change::AttemptRemembered {
                client,
                number,
                attempt,
                at,
            } => {
                self.u8(7);
                self.out.extend_from_slice(&client.0);
                self.u64(*number);
                self.u32(*attempt);
                self.since(*at);
            }
            Change::TermOpened { term } => {
                self.u8(8);
                self.u32(*term);
            }
        }
    }
}

const STAGES: [Stage; 6] = [
    Stage::Starting,
    Stage::Standby,
    Stage::Candidate,
    Stage::Active,
    Stage::HandingOver,
    Stage::Leaving,
];

fn stage_number(stage: Stage) -> u8 {
    STAGES
        .iter()
        .position(|known| *known == stage)
        .expect("all stages are in the list") as u8
}

struct Reader<'a> {
    rest: &'a [u8],
    now: Time,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(FrameError::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(FrameError::Short)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn u8(&mut self) -> Result<u8, FrameError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, FrameError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, FrameError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FrameError::Field(field)),
        }
    }

    fn text(&mut self) -> Result<&'a [u8], FrameError> {
        let length = self.u16()?;
        self.bytes(usize::from(length))
    }

    fn until(&mut self) -> Result<Time, FrameError> {
        let left = self.u64()?;
        Ok(Time(self.now.0.saturating_add(left)))
    }

    fn since(&mut self) -> Result<Time, FrameError> {
        let passed = self.u64()?;
        Ok(Time(self.now.0.saturating_sub(passed)))
    }

    /// As many as are announced, each of at least `least` bytes.
    fn list<T>(
        &mut self,
        least: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, FrameError>,
    ) -> Result<Vec<T>, FrameError> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / least {
            return Err(FrameError::Short);
        }
        (0..count).map(|_| read(self)).collect()
    }

    fn slot(&mut self) -> Result<Slot, FrameError> {
        let slot = Slot(self.u8()?);
        (slot.index() < super::members::MAX_NODES)
            .then_some(slot)
            .ok_or(FrameError::Field("slot"))
    }

    fn stream(&mut self) -> Result<Stream, FrameError> {
        Ok(Stream {
            term: self.u32()?,
            slot: self.slot()?.0,
        })
    }

    fn copy(&mut self) -> Result<Copy, FrameError> {
        Ok(Copy {
            stream: self.stream()?,
            sequence: self.u64()?,
            oldest: self.u64()?,
            complete: self.flag("copy")?,
        })
    }

    fn message(&mut self, kind: u8) -> Result<Message, FrameError> {
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

    fn beat(&mut self) -> Result<Beat, FrameError> {
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

    fn key(&mut self) -> Result<Key, FrameError> {
        KeyRef::parse(self.text()?)
            .map(KeyRef::to_key)
            .map_err(|_| FrameError::Field("key"))
    }

    fn token(&mut self) -> Result<Token, FrameError> {
        Token::new(self.u64()?).ok_or(FrameError::Field("token"))
    }

    fn lease(&mut self) -> Result<Millis, FrameError> {
        let lease = self.u64()?;
        (limits::TIME_MIN_MS..=limits::TIME_MAX_MS)
            .contains(&lease)
            .then_some(Millis(lease))
            .ok_or(FrameError::Field("lease"))
    }

    fn claim(&mut self) -> Result<ClaimId, FrameError> {
        ClaimId::from_number(self.u32()?).ok_or(FrameError::Field("claim"))
    }

    fn owner(&mut self) -> Result<Arc<Owner>, FrameError> {
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

    fn tag(&mut self) -> Result<Option<Tag>, FrameError> {
        if !self.flag("tag")? {
            return Ok(None);
        }
        Ok(Some(Tag {
            number: self.u64()?,
            attempt: self.u32()?,
        }))
    }

    fn changes(&mut self) -> Result<Vec<Change>, FrameError> {
        // The shortest change is that of a term.
        self.list(5, Reader::change)
    }

    fn change(&mut self) -> Result<Change, FrameError> {
        Ok(match self.u8()? {
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
            _ => return Err(FrameError::Field("change")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(5_000_000_000);

    fn owner() -> Arc<Owner> {
        let name = NameRef::parse(b"worker%201").expect("a name");
        Arc::new(Owner::new(Some(ClientId([7; 16])), name, "10.0.0.1:4711"))
    }

    fn every_change() -> Vec<Change> {
        let claim = ClaimId::from_number(12).expect("a claim");
        let key = Key::encode(b"order 42").expect("a key");
        let token = Token::new(77).expect("a token");
        let tag = Some(Tag {
            number: 3,
            attempt: 2,
        });
        let (lease, ends) = (Millis(30_000), NOW.after(Millis(29_000)));
        vec![
            Change::Granted {
                claim,
                key: key.clone(),
                token,
                owner: owner(),
                tag,
                lease,
                ends,
            },
            Change::Released { claim, token },
            Change::Expired { claim, token },
            Change::Kept { claim, lease, ends },
            Change::Enqueued {
                claim,
                key,
                owner: Arc::new(Owner::new(None, NameRef::NONE, "a:1")),
                tag: None,
                lease,
                since: Time(NOW.0 - 9),
                ends: Time::NEVER,
            },
            Change::Left { claim },
            Change::Resent {
                claim,
                owner: owner(),
                attempt: 4,
                lease,
                ends,
            },
            Change::AttemptRemembered {
                client: ClientId([9; 16]),
                number: 1,
                attempt: 2,
                at: Time(NOW.0 - 100),
            },
            Change::TermOpened { term: 5 },
        ]
    }

    fn every_frame() -> Vec<Frame> {
        let stream = Stream { term: 9, slot: 2 };
        let copy = Copy {
            stream,
            sequence: 100,
            oldest: 50,
            complete: true,
        };
        let mut frames: Vec<Frame> = STAGES
            .into_iter()
            .zip([None, Some((Slot(3), 8))].into_iter().cycle())
            .map(|(stage, active)| {
                Frame::Roles(Message::Beat(Beat {
                    incarnation: 1,
                    stage,
                    term: 9,
                    active,
                    copy,
                    can_lead: stage != Stage::Leaving,
                }))
            })
            .collect();
        let steps = [
            Handoff::Offer,
            Handoff::Ready,
            Handoff::Withdraw,
            Handoff::Final { sequence: 6 },
            Handoff::Taken,
        ];
        frames.extend(steps.map(|step| Frame::Roles(Message::Handoff { round: 4, step })));
        frames.extend([
            Frame::Roles(Message::Fetch { round: 4, copy }),
            Frame::Roles(Message::Fetched { round: 4 }),
            Frame::Join,
            Frame::Begin {
                stream,
                sequence: 7,
            },
            Frame::Dump {
                changes: every_change(),
            },
            Frame::Whole,
            Frame::Changes {
                stream,
                first: 8,
                changes: every_change(),
            },
            Frame::Applied {
                stream,
                sequence: 9,
            },
            Frame::Given {
                grants: every_change(),
            },
            Frame::Ended {
                tokens: vec![Token::new(1).expect("a token")],
            },
        ]);
        frames
    }

    #[test]
    fn every_frame_comes_back_as_it_was() {
        for frame in every_frame() {
            let mut bytes = Vec::new();
            frame.encode(NOW, &mut bytes);
            let unit = split_frame(&bytes).expect("short enough");
            let Unit::Whole { body, used } = unit else {
                panic!("{frame:?} is whole");
            };
            assert_eq!(used, bytes.len());
            assert_eq!(Frame::decode(body, NOW), Ok(frame));
        }
    }

    #[test]
    fn moments_travel_as_what_is_left_and_what_has_passed() {
        let frame = Frame::Dump {
            changes: every_change(),
        };
        let mut bytes = Vec::new();
        frame.encode(NOW, &mut bytes);
        let there = Time(77);
        let Ok(Frame::Dump { changes }) = Frame::decode(&bytes[4..], there) else {
            panic!("it is whole");
        };
        let Change::Granted { ends, .. } = &changes[0] else {
            panic!("the first is a grant");
        };
        assert_eq!(*ends, there.after(Millis(29_000)));
        let Change::Enqueued { since, ends, .. } = &changes[4] else {
            panic!("the fifth waits");
        };
        assert_eq!((*since, *ends), (Time(68), Time::NEVER));
    }

    #[test]
    fn a_frame_that_is_cut_longer_or_turned_is_an_error_or_another_frame() {
        for frame in every_frame() {
            let mut bytes = Vec::new();
            frame.encode(NOW, &mut bytes);
            let body = &bytes[4..];
            for end in 0..body.len() {
                assert!(Frame::decode(&body[..end], NOW).is_err(), "{frame:?}");
            }
            let longer = [body, b"x"].concat();
            assert_eq!(Frame::decode(&longer, NOW), Err(FrameError::LeftOver));
            for place in 0..body.len() {
                for value in [0, 1, 0x7F, 0xFF] {
                    let mut turned = body.to_vec();
                    turned[place] = value;
                    // Whatever it is now, nobody panics, and nothing is allocated for what is not there.
                    let _ = Frame::decode(&turned, NOW);
                }
            }
        }
    }

    #[test]
    fn a_length_that_no_frame_has_is_refused_before_anything_is_kept() {
        let length = (FRAME_BYTES as u32 + 1).to_le_bytes();
        let refused = Err(FrameError::TooLong(FRAME_BYTES as u32 + 1));
        assert_eq!(split_frame(&length), refused);
        assert_eq!(split_frame(&length[..3]), Ok(Unit::Partial));
    }

    #[test]
    fn a_change_is_never_longer_than_it_is_counted() {
        for change in every_change() {
            let mut bytes = Vec::new();
            let counted = change_bytes(&change);
            Frame::Dump {
                changes: vec![change],
            }
            .encode(NOW, &mut bytes);
            assert!(
                bytes.len() - 9 <= counted,
                "{} > {counted}",
                bytes.len() - 9
            );
        }
    }
}
