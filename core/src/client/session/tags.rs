//! Which operation a tag belongs to. Tags are given out in a row and most are soon over, so nearly all that are in use have places of
//! their own in a table that is indexed by a tag's last bits; the few whose place is taken by another one stand in a map.

use super::OperationId;
use super::hash::Quick;
use std::collections::HashMap;

/// Places of the table at first and at most.
const SMALLEST: usize = 64;
const LARGEST: usize = 4096;

/// The tag of a free place: those of a client begin at one.
const FREE: u64 = 0;

#[derive(Default)]
pub(super) struct Tags {
    /// Empty, or as long as a power of two.
    table: Vec<(u64, OperationId)>,
    /// How many of its places are taken.
    taken: usize,
    rest: HashMap<u64, OperationId, Quick>,
}

impl Tags {
    pub(super) fn get(&self, tag: u64) -> Option<OperationId> {
        match self.table.get(self.place(tag)) {
            Some((known, id)) if *known == tag && tag != FREE => Some(*id),
            Some(_) if !self.rest.is_empty() => self.rest.get(&tag).copied(),
            Some(_) | None => None,
        }
    }

    /// A tag belongs to this operation from now on.
    pub(super) fn insert(&mut self, tag: u64, id: OperationId) {
        debug_assert!(tag != FREE, "tags begin at one");
        loop {
            let place = self.place(tag);
            let size = self.table.len();
            match self.table.get_mut(place) {
                Some(entry) if entry.0 == tag => return entry.1 = id,
                Some(entry) if entry.0 == FREE && self.rest.is_empty() => {
                    *entry = (tag, id);
                    self.taken += 1;
                    return;
                }
                Some(_) if !self.rest.is_empty() && self.rest.contains_key(&tag) => {
                    self.rest.insert(tag, id);
                    return;
                }
                Some(entry) if entry.0 == FREE => {
                    *entry = (tag, id);
                    self.taken += 1;
                    return;
                }
                // One that is in use for long is no reason to grow.
                Some(_) if size == LARGEST || self.taken * 2 < size => {
                    self.rest.insert(tag, id);
                    return;
                }
                Some(_) | None => self.grow(),
            }
        }
    }

    pub(super) fn remove(&mut self, tag: u64) {
        let place = self.place(tag);
        match self.table.get_mut(place) {
            Some(entry) if entry.0 == tag && tag != FREE => {
                entry.0 = FREE;
                self.taken -= 1;
            }
            Some(_) if !self.rest.is_empty() => {
                self.rest.remove(&tag);
            }
            Some(_) | None => {}
        }
    }

    /// Removes a tag if it belongs to this operation.
    pub(super) fn remove_of(&mut self, tag: u64, id: OperationId) {
        if self.get(tag) == Some(id) {
            self.remove(tag);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.taken == 0 && self.rest.is_empty()
    }

    fn place(&self, tag: u64) -> usize {
        tag as usize & self.table.len().wrapping_sub(1)
    }

    fn grow(&mut self) {
        let size = (self.table.len() * 2).max(SMALLEST);
        let nobody = (FREE, OperationId::default());
        let before = std::mem::replace(&mut self.table, vec![nobody; size]);
        self.taken = 0;
        // Twice as many places have room for all that had one.
        for (tag, id) in before.into_iter().filter(|(tag, _)| *tag != FREE) {
            let place = self.place(tag);
            self.table[place] = (tag, id);
            self.taken += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Slab;
    use super::*;
    use std::collections::BTreeMap;

    /// Random changes against a map: tags in a row, some of which stay for long.
    #[test]
    fn a_tag_belongs_to_whom_it_was_given_last() {
        let mut names: Slab<OperationId, ()> = Slab::new();
        let ids: Vec<OperationId> = (0..50).map(|_| names.insert(())).collect();
        let mut tags = Tags::default();
        let mut model: BTreeMap<u64, OperationId> = BTreeMap::new();
        let (mut chance, mut last) = (7_u64, 0);
        for step in 0..300_000_u64 {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let id = ids[(chance >> 40) as usize % ids.len()];
            // Ever more are in use at once, until nearly all end again.
            let most = if step % 50_000 < 40_000 { 6_000 } else { 10 };
            if model.len() < most && chance >> 62 != 0 {
                last += 1;
                tags.insert(last, id);
                model.insert(last, id);
            } else {
                let known = model.keys().next().copied().unwrap_or(FREE);
                let near = last.saturating_sub((chance >> 33) % 8_000);
                for tag in [near, if chance >> 61 == 0 { known } else { near }] {
                    match chance >> 60 & 1 {
                        0 => {
                            tags.remove_of(tag, id);
                            if model.get(&tag) == Some(&id) {
                                model.remove(&tag);
                            }
                        }
                        _ => {
                            tags.remove(tag);
                            model.remove(&tag);
                        }
                    }
                }
                if near != FREE && chance >> 59 & 1 == 0 {
                    tags.insert(near, id);
                    model.insert(near, id);
                }
            }
            let asked = last.saturating_sub((chance >> 20) % 9_000);
            assert_eq!(tags.get(asked), model.get(&asked).copied());
            assert!(tags.taken + tags.rest.len() == model.len());
        }
        assert_eq!(tags.get(FREE), None);
        assert_eq!(tags.table.len(), LARGEST);
    }
}
