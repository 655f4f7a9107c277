//! Storage that gives each value a small number, in chunks that go back when they are empty. The
//! lowest free number is taken first, so that high chunks empty out.

use super::bits::BitSet;
use std::ops::{Index, IndexMut};

/// No number: the end of a list, the absence of a link.
pub(super) const NIL: u32 = u32::MAX;

const CHUNK_BITS: usize = 10;
const CHUNK: usize = 1 << CHUNK_BITS;

/// Values by number.
pub(super) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// The free numbers of all chunks that ever were.
    free: BitSet,
    /// The storage of one empty chunk, kept so that a value that comes and goes at the border of a
    /// chunk does not ask the allocator each time.
    spare: Option<Vec<Option<T>>>,
    len: usize,
}

struct Chunk<T> {
    /// Grows with use, never beyond its first capacity; without storage while nothing is in use.
    values: Vec<Option<T>>,
    used: usize,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab {
            chunks: Vec::new(),
            free: BitSet::new(),
            spare: None,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        let number = match self.free.first() {
            Some(number) => number,
            None => {
                let number = self.chunks.len() << CHUNK_BITS;
                self.add_chunk();
                number
            }
        };
        self.put(number, value);
        number as u32
    }

    /// Stores a value under a number of the caller's choice. Gives it back if that is in use.
    pub(super) fn insert_at(&mut self, number: u32, value: T) -> Result<(), T> {
        let place = number as usize;
        if self.get(number).is_some() {
            return Err(value);
        }
        while self.chunks.len() <= place >> CHUNK_BITS {
            self.add_chunk();
        }
        self.put(place, value);
        Ok(())
    }

    pub(super) fn remove(&mut self, number: u32) -> T {
        let place = number as usize;
        let chunk = &mut self.chunks[place >> CHUNK_BITS];
        let value = chunk.values[place % CHUNK]
            .take()
            .expect("a number is removed once");
        chunk.used -= 1;
        self.len -= 1;
        self.free.insert(place);
        if chunk.used == 0 {
            let mut values = std::mem::take(&mut chunk.values);
            values.clear();
            self.spare = Some(values);
        }
        value
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        let place = number as usize;
        let chunk = self.chunks.get(place >> CHUNK_BITS)?;
        chunk.values.get(place % CHUNK)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let place = number as usize;
        let chunk = self.chunks.get_mut(place >> CHUNK_BITS)?;
        chunk.values.get_mut(place % CHUNK)?.as_mut()
    }

    /// The values in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.chunks.iter().enumerate().flat_map(|(index, chunk)| {
            let values = chunk.values.iter().enumerate();
            values.filter_map(move |(place, value)| {
                Some((((index << CHUNK_BITS) + place) as u32, value.as_ref()?))
            })
        })
    }

    fn put(&mut self, place: usize, value: T) {
        let chunk = &mut self.chunks[place >> CHUNK_BITS];
        if chunk.values.capacity() == 0 {
            chunk.values = self
                .spare
                .take()
                .unwrap_or_else(|| Vec::with_capacity(CHUNK));
        }
        let within = place % CHUNK;
        if within >= chunk.values.len() {
            chunk.values.resize_with(within + 1, || None);
        }
        chunk.values[within] = Some(value);
        chunk.used += 1;
        self.len += 1;
        self.free.remove(place);
    }

    fn add_chunk(&mut self) {
        let first = self.chunks.len() << CHUNK_BITS;
        assert!(
            first + CHUNK < NIL as usize,
            "limits keep numbers below NIL"
        );
        self.chunks.push(Chunk {
            values: Vec::new(),
            used: 0,
        });
        for number in first..first + CHUNK {
            self.free.insert(number);
        }
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        let place = number as usize;
        self.chunks[place >> CHUNK_BITS].values[place % CHUNK]
            .as_ref()
            .expect("links lead to values that exist")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        let place = number as usize;
        self.chunks[place >> CHUNK_BITS].values[place % CHUNK]
            .as_mut()
            .expect("links lead to values that exist")
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, Slab};

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
            let kept = slab
                .chunks
                .iter()
                .filter(|chunk| chunk.values.capacity() > 0);
            kept.count() + usize::from(slab.spare.is_some())
        };
        assert_eq!((slab.len(), with_storage(&slab)), (CHUNK - 10, 2));
        assert_eq!(slab.insert(7), 0);
        slab.insert_at(2 * CHUNK as u32 + 5, 8).expect("free");
        assert_eq!(slab.insert_at(2 * CHUNK as u32 + 5, 9), Err(9));
        assert_eq!(slab[2 * CHUNK as u32 + 5], 8);
        assert_eq!(slab.get(2 * CHUNK as u32 + 4), None);
        assert_eq!(slab.iter().count(), slab.len());
    }
}
