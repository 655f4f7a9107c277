//! Storage that gives each value a small number, in chunks that go back when they are empty. The
//! lowest free number is taken first, so that high chunks empty out.

use super::bits::BitSet;
use std::ops::{Index, IndexMut};

/// No number: the end of a list, the absence of a link.
pub(super) const NIL: u32 = u32::MAX;

const CHUNK_BITS: usize = 10;
const CHUNK: usize = 1 << CHUNK_BITS;

/// How many numbers of those that became free last are used again without looking for the lowest.
const RECENT: usize = 256;

/// Values by number.
pub(super) struct Slab<T> {
    /// Chunks without a value have no storage.
    chunks: Vec<Option<Chunk<T>>>,
    /// How many values each chunk has.
    used: Vec<u32>,
    /// The free numbers of all chunks that ever were, but for `recent`.
    free: BitSet,
    /// The numbers that became free last; what comes and goes gets them again, the latest first.
    recent: Vec<u32>,
    /// The storage of one empty chunk, kept so that a value that comes and goes at the border of a
    /// chunk does not ask the allocator each time.
    spare: Option<Chunk<T>>,
    len: usize,
}

type Chunk<T> = Box<[Option<T>; CHUNK]>;

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab {
            chunks: Vec::new(),
            used: Vec::new(),
            free: BitSet::new(),
            recent: Vec::new(),
            spare: None,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn insert(&mut self, value: T) -> u32 {
        let number = match self.recent.pop() {
            Some(number) => number,
            None => self.take_lowest(),
        };
        self.put(number, value);
        number
    }

    /// Stores a value under a number of the caller's choice. Gives it back if that is in use.
    pub(super) fn insert_at(&mut self, number: u32, value: T) -> Result<(), T> {
        if self.get(number).is_some() {
            return Err(value);
        }
        while self.chunks.len() <= number as usize >> CHUNK_BITS {
            self.add_chunk();
        }
        // Who copies another slab's numbers takes them in the same order, so it is mostly the last one.
        match self.recent.iter().rposition(|recent| *recent == number) {
            Some(place) => drop(self.recent.remove(place)),
            None => self.free.remove(number as usize),
        }
        self.put(number, value);
        Ok(())
    }

    #[inline]
    pub(super) fn remove(&mut self, number: u32) -> T {
        let value = self.place(number).take();
        self.free_up(number);
        value.expect("a number is removed once")
    }

    /// Removes a value of which whoever needed something has read it. Moving a value that was stored in
    /// pieces makes the processor wait until they have come together.
    #[inline]
    pub(super) fn discard(&mut self, number: u32) {
        let place = self.place(number);
        assert!(place.is_some(), "a number is removed once");
        *place = None;
        self.free_up(number);
    }

    #[inline]
    fn place(&mut self, number: u32) -> &mut Option<T> {
        let values = self.chunks[number as usize >> CHUNK_BITS].as_mut();
        let values = values.expect("a number is removed while its chunk has storage");
        &mut values[number as usize % CHUNK]
    }

    /// Notes that a number is free again.
    #[inline]
    fn free_up(&mut self, number: u32) {
        let chunk = number as usize >> CHUNK_BITS;
        self.used[chunk] -= 1;
        self.len -= 1;
        if self.used[chunk] == 0 {
            self.spare = self.chunks[chunk].take();
        }
        if self.recent.len() == RECENT {
            self.sort_in_older();
        }
        self.recent.push(number);
    }

    /// Makes room for further recent numbers.
    #[cold]
    #[inline(never)]
    fn sort_in_older(&mut self) {
        for number in self.recent.drain(..RECENT / 2) {
            self.free.insert(number as usize);
        }
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        let chunk = self.chunks.get(number as usize >> CHUNK_BITS)?.as_ref()?;
        chunk[number as usize % CHUNK].as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(number as usize >> CHUNK_BITS)?;
        chunk.as_mut()?[number as usize % CHUNK].as_mut()
    }

    /// The values in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let chunks = self.chunks.iter().zip(&self.used).enumerate();
        chunks.flat_map(|(index, (chunk, used))| {
            let places = chunk.iter().flat_map(|values| values.iter().enumerate());
            let values = places.filter_map(move |(place, value)| {
                Some((((index << CHUNK_BITS) + place) as u32, value.as_ref()?))
            });
            // The lowest numbers are taken first, so the rest of a chunk is mostly empty.
            values.take(*used as usize)
        })
    }

    /// How many chunks of numbers there are, with storage and without.
    pub(super) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// The values of one chunk.
    pub(super) fn chunk(&self, chunk: usize) -> impl Iterator<Item = (u32, &T)> {
        let values = self.chunks.get(chunk).and_then(Option::as_deref);
        let places = values.into_iter().flatten().enumerate();
        places.filter_map(move |(place, value)| {
            Some((((chunk << CHUNK_BITS) + place) as u32, value.as_ref()?))
        })
    }

    #[inline(never)]
    fn take_lowest(&mut self) -> u32 {
        let number = self.free.first().unwrap_or_else(|| {
            let number = self.chunks.len() << CHUNK_BITS;
            self.add_chunk();
            number
        });
        self.free.remove(number);
        number as u32
    }

    /// Stores a value under a number that is free and in neither `free` nor `recent` any more.
    #[inline]
    fn put(&mut self, number: u32, value: T) {
        let chunk = number as usize >> CHUNK_BITS;
        let spare = &mut self.spare;
        let values = self.chunks[chunk].get_or_insert_with(|| storage(spare));
        values[number as usize % CHUNK] = Some(value);
        self.used[chunk] += 1;
        self.len += 1;
    }

    fn add_chunk(&mut self) {
        let first = self.chunks.len() << CHUNK_BITS;
        assert!(
            first + CHUNK < NIL as usize,
            "limits keep numbers below NIL"
        );
        self.chunks.push(None);
        self.used.push(0);
        for number in first..first + CHUNK {
            self.free.insert(number);
        }
    }
}

#[cold]
#[inline(never)]
fn storage<T>(spare: &mut Option<Chunk<T>>) -> Chunk<T> {
    if let Some(empty) = spare.take() {
        return empty;
    }
    let empty: Box<[Option<T>]> = (0..CHUNK).map(|_| None).collect();
    let Ok(chunk) = empty.try_into() else {
        unreachable!("as many values as a chunk has");
    };
    chunk
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: u32) -> &T {
        self.get(number).expect("links lead to values that exist")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        self.get_mut(number)
            .expect("links lead to values that exist")
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, RECENT, Slab};

    #[test]
    fn the_lowest_free_number_is_taken_and_empty_chunks_go_back() {
        let mut slab = Slab::new();
        for value in 0..3 * CHUNK {
            assert_eq!(slab.insert(value), value as u32);
        }
        for number in (CHUNK..3 * CHUNK).chain(0..10) {
            assert_eq!(slab.remove(number as u32), number);
        }
        let with_storage = |slab: &Slab<usize>| {
            let kept = slab.chunks.iter().filter(|chunk| chunk.is_some());
            kept.count() + usize::from(slab.spare.is_some())
        };
        assert_eq!((slab.len(), with_storage(&slab)), (CHUNK - 10, 2));
        assert_eq!((slab.insert(7), slab.insert(7)), (9, 8), "the latest first");
        for _ in 0..RECENT {
            slab.insert(7);
        }
        let lowest = (0..).find(|number| slab.get(*number).is_none());
        assert_eq!(Some(slab.insert(7)), lowest, "then the lowest");
        slab.insert_at(2 * CHUNK as u32 + 5, 8).expect("free");
        assert_eq!(slab.insert_at(2 * CHUNK as u32 + 5, 9), Err(9));
        assert_eq!(slab[2 * CHUNK as u32 + 5], 8);
        assert_eq!(slab.get(2 * CHUNK as u32 + 4), None);
        assert_eq!(slab.iter().count(), slab.len());
    }
}
