//! When something is due next: a heap in which each place has at most one deadline, which can be
//! moved and taken away, so that nothing stays behind for what is over long before its time.

use super::Micros;

const NONE: u32 = u32::MAX;
/// Children of a node; four keep the heap flat and a node's children in one cache line.
const ARITY: usize = 4;

#[derive(Default)]
pub(super) struct Deadlines {
    heap: Vec<(Micros, u32)>,
    /// For each place where it stands in the heap.
    position: Vec<u32>,
}

impl Deadlines {
    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Micros> {
        self.heap.first().map(|(at, _)| *at)
    }

    /// The deadline of a place.
    pub(super) fn get(&self, index: u32) -> Option<Micros> {
        let position = *self.position.get(index as usize)?;
        self.heap.get(position as usize).map(|(at, _)| *at)
    }

    /// Takes the place with the earliest deadline if that has come.
    pub(super) fn take_due(&mut self, now: Micros) -> Option<u32> {
        let (at, index) = *self.heap.first()?;
        if at > now {
            return None;
        }
        self.remove_at(0);
        Some(index)
    }

    /// Gives a place its deadline, or none.
    pub(super) fn set(&mut self, index: u32, at: Option<Micros>) {
        if self.position.len() <= index as usize {
            if at.is_none() {
                return;
            }
            self.position.resize(index as usize + 1, NONE);
        }
        let position = self.position[index as usize];
        match (at, position) {
            (None, NONE) => {}
            (None, position) => self.remove_at(position as usize),
            (Some(at), NONE) => {
                self.heap.push((at, index));
                self.rise(self.heap.len() - 1);
            }
            (Some(at), position) => {
                let position = position as usize;
                let before = std::mem::replace(&mut self.heap[position].0, at);
                if at < before {
                    self.rise(position);
                } else if at > before {
                    self.sink(position);
                }
            }
        }
    }

    fn remove_at(&mut self, position: usize) {
        let (removed_at, index) = self.heap.swap_remove(position);
        self.position[index as usize] = NONE;
        if let Some((at, _)) = self.heap.get(position) {
            if *at < removed_at {
                self.rise(position);
            } else {
                self.sink(position);
            }
        }
    }

    fn rise(&mut self, mut position: usize) {
        let moving = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if self.heap[parent].0 <= moving.0 {
                break;
            }
            self.put(position, self.heap[parent]);
            position = parent;
        }
        self.put(position, moving);
    }

    fn sink(&mut self, mut position: usize) {
        let moving = self.heap[position];
        loop {
            let first = position * ARITY + 1;
            let end = (first + ARITY).min(self.heap.len());
            let Some(least) = (first..end).min_by_key(|child| self.heap[*child].0) else {
                break;
            };
            if self.heap[least].0 >= moving.0 {
                break;
            }
            self.put(position, self.heap[least]);
            position = least;
        }
        self.put(position, moving);
    }

    fn put(&mut self, position: usize, entry: (Micros, u32)) {
        self.heap[position] = entry;
        self.position[entry.1 as usize] = position as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Random changes against a map that is searched.
    #[test]
    fn the_earliest_deadline_is_always_the_next() {
        let mut deadlines = Deadlines::default();
        let mut model: BTreeMap<u32, Micros> = BTreeMap::new();
        let mut chance = 7_u64;
        for _ in 0..200_000 {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let index = (chance >> 33) as u32 % 100;
            let at = (chance >> 45) % 1000;
            if chance >> 62 == 0 {
                deadlines.set(index, None);
                model.remove(&index);
            } else if chance >> 62 == 1 {
                let first = model.values().min().copied();
                assert_eq!(deadlines.next(), first);
                match deadlines.take_due(at) {
                    Some(index) => assert_eq!(model.remove(&index), first),
                    None => assert!(first.is_none_or(|first| first > at)),
                }
            } else {
                deadlines.set(index, Some(at));
                model.insert(index, at);
            }
            assert_eq!(deadlines.get(index), model.get(&index).copied());
        }
    }
}
