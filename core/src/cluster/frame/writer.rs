//! From what is said to bytes.

use super::STAGES;
use crate::cluster::message::{Copy, Handoff, Message, Stage, Stream};
use crate::engine::{Change, Holding, Owner, Time};
use crate::protocol::Tag;

pub(super) struct Writer<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) now: Time,
}

impl Writer<'_> {
    pub(super) fn u8(&mut self, number: u8) {
        self.out.push(number);
    }

    pub(super) fn u16(&mut self, number: u16) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn text(&mut self, bytes: &[u8]) {
        self.u16(bytes.len() as u16);
        self.out.extend_from_slice(bytes);
    }

    /// A moment to come, as what is left until it.
    pub(super) fn until(&mut self, moment: Time) {
        self.u64(self.left(moment));
    }

    pub(super) fn left(&self, moment: Time) -> u64 {
        if moment == Time::NEVER {
            u64::MAX
        } else {
            moment.0.saturating_sub(self.now.0)
        }
    }

    /// A moment that was, as what has passed since it.
    pub(super) fn since(&mut self, moment: Time) {
        self.u64(self.now.0.saturating_sub(moment.0));
    }

    pub(super) fn stream(&mut self, stream: Stream) {
        self.u32(stream.term);
        self.u8(stream.slot);
    }

    pub(super) fn copy(&mut self, copy: &Copy) {
        self.stream(copy.stream);
        self.u64(copy.sequence);
        self.u64(copy.oldest);
        self.u8(u8::from(copy.complete));
    }

    pub(super) fn message(&mut self, message: &Message) {
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

    pub(super) fn owner(&mut self, owner: &Owner) {
        match owner.client {
            None => self.u8(0),
            Some(client) => {
                self.u8(1);
                self.out.extend_from_slice(&client.0);
            }
        }
        self.text(owner.name_spelling());
        self.text(owner.address().as_bytes());
    }

    pub(super) fn tag(&mut self, tag: Option<Tag>) {
        match tag {
            None => self.u8(0),
            Some(tag) => {
                self.u8(1);
                self.u64(tag.number);
                self.u32(tag.attempt);
            }
        }
    }

    pub(super) fn changes(&mut self, changes: &[Change]) {
        self.u32(changes.len() as u32);
        for change in changes {
            self.change(change);
        }
    }

    /// A grant.
    pub(super) fn holding(&mut self, held: &Holding<'_>) {
        let key = held.key.spelling();
        let [a, b, c, d] = held.claim.number().to_le_bytes();
        let [low, high] = (key.len() as u16).to_le_bytes();
        self.out.extend_from_slice(&[0, a, b, c, d, low, high]);
        self.out.extend_from_slice(key);
        self.u64(held.token.get());
        self.owner(held.owner);
        self.tag(held.tag);
        self.u64(held.lease.0);
        self.until(held.ends);
    }

    pub(super) fn change(&mut self, change: &Change) {
        match change {
            Change::Granted {
                claim,
                key,
                token,
                owner,
                tag,
                lease,
                ends,
            } => self.holding(&Holding {
                claim: *claim,
                key: key.as_ref(),
                token: *token,
                owner,
                tag: *tag,
                lease: *lease,
                ends: *ends,
            }),
            Change::Released { claim, token } => {
                let mut fields = [1; 13];
                fields[1..5].copy_from_slice(&claim.number().to_le_bytes());
                fields[5..].copy_from_slice(&token.get().to_le_bytes());
                self.out.extend_from_slice(&fields);
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

pub(super) fn stage_number(stage: Stage) -> u8 {
    STAGES
        .iter()
        .position(|known| *known == stage)
        .expect("all stages are in the list") as u8
}
