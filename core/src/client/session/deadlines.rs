//! When something is due next: a heap in which each place has at most one entry. Most deadlines are put off or taken away
//! long before their time, so that only notes the new time and leaves the entry where it is, too early; what is found too early
//! when it comes to the top is put right then. No place ever has two entries, so nothing piles up.

use super::Micros;

/// Not in the heap.
const NOWHERE: u32 = u32::MAX;
/// Children of a node; four keep the heap flat and a node's children in one cache line.
const ARITY: usize = 4;

#[derive(Default)]
pub(super) struct Deadlines {
    /// None of these times is later than the deadline of its place.
    heap: Vec<(Micros, u32)>,
    places: Vec<Place>,
    /// How many places have a deadline.
    set: usize,
    /// [`next`](Self::next) has become earlier since somebody asked for that.
    hastened: bool,
}

/// Instead of a deadline.
const NEVER: Micros = Micros::MAX;

#[derive(Clone, Copy)]
struct Place {
    deadline: Micros,
    /// Where its entry stands in the heap.
    position: u32,
}

impl Deadlines {
    /// When the earliest deadline may come; the deadline itself may be later.
    pub(super) fn next(&self) -> Option<Micros> {
        if self.set == 0 {
            return None;
        }
        self.heap.first().map(|(at, _)| *at)
    }

    /// The deadline of a place.
    pub(super) fn get(&self, index: u32) -> Option<Micros> {
        let deadline = self.places.get(index as usize)?.deadline;
        (deadline != NEVER).then_some(deadline)
    }

    /// Whether [`next`](Self::next) has become earlier since the last time that this was asked.
    pub(super) fn take_hastened(&mut self) -> bool {
        std::mem::take(&mut self.hastened)
    }

    /// Takes the place with the earliest deadline if that has come. If not, [`next`](Self::next) is exact after this.
    pub(super) fn take_due(&mut self, now: Micros) -> Option<u32> {
        while let Some((at, index)) = self.heap.first().copied() {
            let place = &mut self.places[index as usize];
            match place.deadline {
                NEVER => self.remove_first(),
                deadline if deadline > at => {
                    self.heap[0].0 = deadline;
                    self.sink(0);
                }
                deadline if deadline > now => return None,
                _ => {
                    place.deadline = NEVER;
                    self.set -= 1;
                    self.remove_first();
                    return Some(index);
                }
            }
        }
        None
    }

    /// Gives a place its deadline, or none.
    pub(super) fn set(&mut self, index: u32, at: Option<Micros>) {
        let Some(at) = at else {
            return self.clear(index);
        };
        if self.places.len() <= index as usize {
            let nothing = Place {
                deadline: NEVER,
                position: NOWHERE,
            };
            self.places.resize(index as usize + 1, nothing);
        }
        let place = &mut self.places[index as usize];
        let before = std::mem::replace(&mut place.deadline, at.min(NEVER - 1));
        if before == NEVER {
            self.set += 1;
            // What stands at the top counts again.
            self.hastened |= self.set == 1;
        }
        let position = place.position as usize;
        if place.position == NOWHERE {
            self.heap.push((at, index));
            self.rise(self.heap.len() - 1);
        } else if at < self.heap[position].0 {
            self.heap[position].0 = at;
            self.rise(position);
        }
    }

    /// Takes the deadline of a place away.
    pub(super) fn clear(&mut self, index: u32) {
        if let Some(place) = self.places.get_mut(index as usize)
            && place.deadline != NEVER
        {
            place.deadline = NEVER;
            self.set -= 1;
        }
    }

    fn remove_first(&mut self) {
        let (_, index) = self.heap.swap_remove(0);
        self.places[index as usize].position = NOWHERE;
        if !self.heap.is_empty() {
            self.sink(0);
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
        self.hastened |= position == 0;
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
        self.places[entry.1 as usize].position = position as u32;
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
        // What somebody knows who asks again only when it has become earlier.
        let mut known = None;
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
                known = deadlines.next();
                // It may ask to be looked at too early, never too late, and never if there is nothing.
                assert_eq!(deadlines.next().is_some(), first.is_some());
                assert!(deadlines.next() <= first);
                match deadlines.take_due(at) {
                    Some(index) => assert_eq!(model.remove(&index), first),
                    None => {
                        assert!(first.is_none_or(|first| first > at));
                        assert_eq!(deadlines.next(), first);
                    }
                }
            } else {
                deadlines.set(index, Some(at));
                model.insert(index, at);
            }
            assert_eq!(deadlines.get(index), model.get(&index).copied());
            let never = Micros::MAX;
            if deadlines.take_hastened() {
                known = deadlines.next();
            }
            assert!(known.unwrap_or(never) <= deadlines.next().unwrap_or(never));
        }
    }

    #[test]
    fn what_is_taken_away_and_set_again_leaves_nothing_behind() {
        let mut deadlines = Deadlines::default();
        for nth in 0..100_000 {
            let index = (nth % 7) as u32;
            deadlines.set(index, Some(1000 + nth));
            deadlines.set(index, None);
        }
        assert_eq!(deadlines.next(), None);
        assert!(deadlines.heap.len() <= 7);
    }
}
