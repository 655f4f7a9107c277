//! What is to be sent to each peer and has not been given to a socket yet.

use super::frame::Frame;
use super::members::Slot;
use crate::engine::Time;

/// More than this unsent to a peer that follows nobody, and the oldest of it is of no use any more.
const UNSENT_BYTES: usize = 1 << 20;

/// Whole frames for each peer.
#[derive(Debug, Default)]
pub(super) struct Outgoing(Vec<(Slot, Link)>);

#[derive(Debug, Default)]
struct Link {
    open: bool,
    bytes: Vec<u8>,
}

impl Outgoing {
    pub(super) fn new(peers: impl Iterator<Item = Slot>) -> Outgoing {
        Outgoing(peers.map(|slot| (slot, Link::default())).collect())
    }

    /// The connection to a peer begins, or is gone with all that was to be sent over it.
    pub(super) fn set_open(&mut self, to: Slot, open: bool) {
        if let Some(link) = self.link(to) {
            link.open = open;
            link.bytes = Vec::new();
        }
    }

    /// Appends a frame, if there is a connection.
    pub(super) fn frame(&mut self, now: Time, to: Slot, frame: &Frame) {
        if let Some(link) = self.link(to).filter(|link| link.open) {
            frame.encode(now, &mut link.bytes);
        }
    }

    /// Appends a frame whose body came from elsewhere.
    pub(super) fn body(&mut self, to: Slot, body: &[u8]) {
        if let Some(link) = self.link(to).filter(|link| link.open) {
            link.bytes
                .extend_from_slice(&(body.len() as u32).to_le_bytes());
            link.bytes.extend_from_slice(body);
        }
    }

    /// Appends a frame that was spelled once for all.
    pub(super) fn body_to_all(&mut self, to: impl Iterator<Item = Slot>, body: &[u8]) {
        for slot in to {
            self.body(slot, body);
        }
    }

    pub(super) fn unsent(&self, to: Slot) -> usize {
        self.0
            .iter()
            .find(|(slot, _)| *slot == to)
            .map_or(0, |(_, link)| link.bytes.len())
    }

    /// Whether so much is unsent that a peer cannot be reading.
    pub(super) fn is_stuck(&self, to: Slot) -> bool {
        self.unsent(to) > UNSENT_BYTES
    }

    pub(super) fn drop_unsent(&mut self, to: Slot) {
        if let Some(link) = self.link(to) {
            link.bytes = Vec::new();
        }
    }

    /// Takes all that is to be sent to a peer.
    pub(super) fn take(&mut self, to: Slot, into: &mut Vec<u8>) {
        if let Some(link) = self.link(to) {
            if into.is_empty() {
                std::mem::swap(into, &mut link.bytes);
            } else {
                into.append(&mut link.bytes);
            }
        }
    }

    fn link(&mut self, to: Slot) -> Option<&mut Link> {
        self.0
            .iter_mut()
            .find(|(slot, _)| *slot == to)
            .map(|(_, link)| link)
    }
}
