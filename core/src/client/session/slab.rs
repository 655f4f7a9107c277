//! Values in numbered places that are used again; a number never names two values.

use std::marker::PhantomData;

/// A place and how often it had been used before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Slot {
    pub(super) index: u32,
    generation: u32,
}

/// Names an operation under way; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct OperationId(pub(super) Slot);

/// Names a held lock; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct LockId(pub(super) Slot);

/// Names who is told the result of an operation; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct FaceId(Slot);

/// What names values of one kind.
pub(crate) trait Id: Copy {
    fn of(slot: Slot) -> Self;
    fn slot(self) -> Slot;
}

impl Id for OperationId {
    fn of(slot: Slot) -> OperationId {
        OperationId(slot)
    }

    fn slot(self) -> Slot {
        self.0
    }
}

impl Id for FaceId {
    fn of(slot: Slot) -> FaceId {
        FaceId(slot)
    }

    fn slot(self) -> Slot {
        self.0
    }
}

impl Id for LockId {
    fn of(slot: Slot) -> LockId {
        LockId(slot)
    }

    fn slot(self) -> Slot {
        self.0
    }
}

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

pub(crate) struct Slab<I, T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    id: PhantomData<I>,
}

impl<I: Id, T> Slab<I, T> {
    pub(crate) fn new() -> Slab<I, T> {
        Slab {
            entries: Vec::new(),
            free: Vec::new(),
            id: PhantomData,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> I {
        self.insert_with(|| value)
    }

    /// The value is made where it stays: to move one that has just been put together means to wait until all of it is there.
    #[inline(always)]
    pub(super) fn insert_with(&mut self, make: impl FnOnce() -> T) -> I {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow(),
        };
        let entry = &mut self.entries[index as usize];
        entry.value.get_or_insert_with(make);
        I::of(Slot {
            index,
            generation: entry.generation,
        })
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let index = u32::try_from(self.entries.len())
            .expect("fewer than four billion values: each is limited elsewhere");
        self.entries.push(Entry {
            generation: 0,
            value: None,
        });
        index
    }

    pub(crate) fn get(&self, id: I) -> Option<&T> {
        let slot = id.slot();
        let entry = self.entries.get(slot.index as usize)?;
        entry
            .value
            .as_ref()
            .filter(|_| entry.generation == slot.generation)
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        let slot = id.slot();
        let entry = self.entries.get_mut(slot.index as usize)?;
        let current = entry.generation == slot.generation;
        entry.value.as_mut().filter(|_| current)
    }

    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        let slot = id.slot();
        let entry = self.entries.get_mut(slot.index as usize)?;
        if entry.generation != slot.generation || entry.value.is_none() {
            return None;
        }
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot.index);
        // Last, so that the value is moved once.
        entry.value.take()
    }

    /// Removes a value where it is, for whom it need not be moved.
    pub(super) fn discard(&mut self, id: I) {
        let slot = id.slot();
        if let Some(entry) = self.entries.get_mut(slot.index as usize)
            && entry.generation == slot.generation
            && entry.value.is_some()
        {
            entry.value = None;
            entry.generation = entry.generation.wrapping_add(1);
            self.free.push(slot.index);
        }
    }

    /// What is in a place.
    pub(super) fn at(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.value.as_ref()
    }

    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.value.as_mut()
    }

    /// The name of what is in a place.
    pub(super) fn id_at(&self, index: u32) -> Option<I> {
        let entry = self.entries.get(index as usize)?;
        entry.value.as_ref()?;
        Some(I::of(Slot {
            index,
            generation: entry.generation,
        }))
    }

    /// All values in the order of their places.
    pub(super) fn all(&self) -> impl Iterator<Item = (I, &T)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| {
                let value = entry.value.as_ref()?;
                let slot = Slot {
                    index: index as u32,
                    generation: entry.generation,
                };
                Some((I::of(slot), value))
            })
    }

    pub(super) fn ids(&self) -> Vec<I> {
        self.all().map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_under_another_name() {
        let mut slab: Slab<LockId, &str> = Slab::new();
        let first = slab.insert("a");
        assert_eq!(slab.remove(first), Some("a"));
        assert_eq!(slab.remove(first), None);
        let second = slab.insert("b");
        assert_eq!(first.0.index, second.0.index);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.get(second), Some(&"b"));
        assert_eq!((slab.len(), slab.ids()), (1, vec![second]));
        slab.discard(first);
        assert_eq!(slab.get(second), Some(&"b"));
        slab.discard(second);
        assert_eq!((slab.get(second), slab.len()), (None, 0));
        slab.discard(second);
        assert_ne!(slab.insert("c"), slab.insert("d"));
    }
}
