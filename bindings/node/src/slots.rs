//! Values under small numbers that are used again, so that JavaScript can hold them in arrays. What a number meant before
//! is told apart by a generation.

/// A number and what it means now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotId {
    pub(crate) number: u32,
    generation: u32,
}

#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// The number that the next [`insert`](Self::insert) uses.
    pub(crate) fn next(&mut self) -> SlotId {
        let number = match self.free.last() {
            Some(number) => *number,
            None => {
                self.slots.push((0, None));
                let number = u32::try_from(self.slots.len() - 1)
                    .expect("memory ends long before the numbers do");
                self.free.push(number);
                number
            }
        };
        SlotId {
            number,
            generation: self.slots[number as usize].0,
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> SlotId {
        let id = self.next();
        self.free.pop();
        self.slots[id.number as usize].1 = Some(value);
        id
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(number as usize)?.1.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number as usize)?.1.as_mut()
    }

    /// What a number means now.
    pub(crate) fn id(&self, number: u32) -> Option<SlotId> {
        let (generation, value) = self.slots.get(number as usize)?;
        value.as_ref().map(|_| SlotId {
            number,
            generation: *generation,
        })
    }

    /// Takes what a number stands for, whatever its generation.
    pub(crate) fn remove_number(&mut self, number: u32) -> Option<T> {
        let (generation, slot) = self.slots.get_mut(number as usize)?;
        let value = slot.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(number);
        Some(value)
    }

    /// Takes what an id stands for, unless its number means something else by now.
    pub(crate) fn remove(&mut self, id: SlotId) -> Option<T> {
        let (generation, _) = self.slots.get(id.number as usize)?;
        (*generation == id.generation)
            .then(|| self.remove_number(id.number))
            .flatten()
    }

    /// Takes everything.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        std::mem::take(&mut self.slots)
            .into_iter()
            .filter_map(|(_, slot)| slot)
    }
}
