//! The nodes of a cluster: an ordered list of addresses, the same on every node.

use crate::protocol::limits;
use std::fmt;

/// The most nodes a cluster can have: a token has four bits for the node.
pub const MAX_NODES: usize = 16;

/// A node's place in the list. The lower the place, the higher the priority.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u8);

impl Slot {
    /// The place as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) const fn bit(self) -> u16 {
        1 << self.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a list of nodes cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MembersError {
    /// No node at all.
    #[error("the list of peers is empty")]
    Empty,
    /// More nodes than a token can tell apart.
    #[error("{0} peers are too many: a cluster has at most {MAX_NODES} nodes")]
    TooMany(usize),
    /// The same address in two places.
    #[error("{0} stands twice in the list of peers")]
    Twice(String),
    /// The own address is not there.
    #[error("{0}, which this node is to be, is not in the list of peers")]
    NotListed(String),
    /// Not an address.
    #[error("{0:?} in the list of peers is not an address (host:port)")]
    NotAnAddress(String),
}

/// The list, and which of its nodes this is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    addresses: Vec<Option<Box<str>>>,
    own: Slot,
}

impl Members {
    /// Reads a list. `-` keeps the place of a node that was removed, so that slots stay.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new<'a>(
        list: impl IntoIterator<Item = &'a str>,
        own: &str,
    ) -> Result<Members, MembersError> {
        let mut addresses: Vec<Option<Box<str>>> = Vec::new();
        for text in list {
            if text == "-" {
                addresses.push(None);
                continue;
            }
            let listable = text.len() <= limits::ADDRESS_BYTES
                && text.rsplit_once(':').is_some_and(|(host, port)| {
                    !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)
                })
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b',');
            if !listable {
                return Err(MembersError::NotAnAddress(text.to_owned()));
            }
            if addresses.iter().any(|known| known.as_deref() == Some(text)) {
                return Err(MembersError::Twice(text.to_owned()));
            }
            addresses.push(Some(text.into()));
        }
        if addresses.is_empty() {
            return Err(MembersError::Empty);
        }
        if addresses.len() > MAX_NODES {
            return Err(MembersError::TooMany(addresses.len()));
        }
        let own = addresses
            .iter()
            .position(|address| address.as_deref() == Some(own))
            .and_then(|place| u8::try_from(place).ok())
            .ok_or_else(|| MembersError::NotListed(own.to_owned()))?;
        Ok(Members {
            addresses,
            own: Slot(own),
        })
    }

    /// A cluster of one.
    #[must_use]
    pub fn alone(own: &str) -> Members {
        Members {
            addresses: vec![Some(own.into())],
            own: Slot(0),
        }
    }

    /// The place of this node.
    #[must_use]
    pub fn own(&self) -> Slot {
        self.own
    }

    /// The address of a node, if there is one in that place.
    #[must_use]
    pub fn address(&self, slot: Slot) -> Option<&str> {
        self.addresses.get(slot.index())?.as_deref()
    }

    /// How many places the list has, the empty ones included.
    #[must_use]
    pub fn places(&self) -> usize {
        self.addresses.len()
    }

    /// The place of an address.
    #[must_use]
    pub fn slot(&self, address: &str) -> Option<Slot> {
        let place = self
            .addresses
            .iter()
            .position(|known| known.as_deref() == Some(address))?;
        Some(Slot(place as u8))
    }

    /// The places of the other nodes, the highest priority first.
    pub fn others(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.addresses.len() as u8)
            .map(Slot)
            .filter(|slot| *slot != self.own && self.address(*slot).is_some())
    }

    /// The whole list in one field, `-` for an empty place.
    #[must_use]
    pub fn field(&self) -> String {
        let addresses: Vec<&str> = self
            .addresses
            .iter()
            .map(|address| address.as_deref().unwrap_or("-"))
            .collect();
        addresses.join(",")
    }

    /// Whether two nodes can be in one cluster although their lists may differ: each is in both lists
    /// in the same place, and the addresses that both know stand in the same order.
    #[must_use]
    pub fn agrees_with(&self, other: &Members) -> bool {
        let known_to_both = |a: &Members, b: &Members| {
            let common = a.addresses.iter().flatten();
            common
                .filter(|address| b.slot(address).is_some())
                .cloned()
                .collect::<Vec<_>>()
        };
        let place = |of: &Members| {
            let address = of.address(of.own).expect("the own place has an address");
            self.slot(address) == Some(of.own) && other.slot(address) == Some(of.own)
        };
        place(self) && place(other) && known_to_both(self, other) == known_to_both(other, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(list: &str, own: &str) -> Result<Members, MembersError> {
        Members::new(list.split(','), own)
    }

    #[test]
    fn a_list_that_cannot_be_used_says_why() {
        let many: Vec<String> = (1..=17).map(|port| format!("a:{port}")).collect();
        for (list, own, expected) in [
            ("a:1,b:2", "c:3", MembersError::NotListed("c:3".into())),
            ("a:1,a:1", "a:1", MembersError::Twice("a:1".into())),
            ("a:1,,b:2", "a:1", MembersError::NotAnAddress(String::new())),
            ("a", "a", MembersError::NotAnAddress("a".into())),
            ("a:0", "a:0", MembersError::NotAnAddress("a:0".into())),
            (
                "a:99999",
                "a:99999",
                MembersError::NotAnAddress("a:99999".into()),
            ),
            ("-", "-", MembersError::NotListed("-".into())),
            (&many.join(","), "a:1", MembersError::TooMany(17)),
        ] {
            assert_eq!(members(list, own), Err(expected), "{list}");
        }
        assert_eq!(Members::new([], "a:1"), Err(MembersError::Empty));
    }

    #[test]
    fn an_empty_place_keeps_the_slots_of_the_others() {
        let cluster = members("a:1,-,c:3", "c:3").expect("a list");
        assert_eq!(cluster.own(), Slot(2));
        assert_eq!(cluster.others().collect::<Vec<_>>(), [Slot(0)]);
        assert_eq!(cluster.field(), "a:1,-,c:3");
    }

    #[test]
    fn lists_agree_as_long_as_slots_and_order_do() {
        let ours = members("a:1,b:2,c:3", "a:1").expect("a list");
        for (theirs, agree) in [
            ("a:1,b:2,c:3", true),
            ("a:1,b:2,c:3,d:4", true),
            ("a:1,b:2", true),
            ("a:1,b:2,-,d:4", true),
            ("a:1,c:3,b:2", false),
            ("b:2,a:1,c:3", false),
            ("b:2,c:3", false),
            ("x:9,b:2,c:3", false),
        ] {
            let theirs = members(theirs, "b:2").expect("a list");
            assert_eq!(ours.agrees_with(&theirs), agree, "{theirs:?}");
            assert_eq!(theirs.agrees_with(&ours), agree, "{theirs:?}");
        }
    }
}
