//! Rule 4.3: over which connection a release or cancel of a key is under way. A table of chains that run through those operations
//! themselves: to enter one, to leave and to look cost a glance at one place, and no key is copied.

use super::hash::HashedKey;
use super::operation::{Kind, Operation};
use super::repeat::Repeat;
use super::slab::{OperationId, Slab};

/// Places of the table at first and at most.
const SMALLEST: usize = 64;
const LARGEST: usize = 65_536;

/// The end of a chain.
pub(super) const NOBODY: u32 = u32::MAX;

type Operations = Slab<OperationId, Operation>;

#[derive(Default)]
pub(super) struct BusyKeys {
    /// Empty, or as long as a power of two: the place of the latest operation in each chain.
    heads: Vec<u32>,
    count: usize,
}

impl BusyKeys {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The connection that the latest release or cancel of this key was sent on.
    pub(super) fn connection(&self, key: &HashedKey, operations: &Operations) -> Option<usize> {
        let mut next = *self.heads.get(self.place(key.hash))?;
        while let Some(repeat) = operations.at(next).and_then(repeat) {
            if repeat.key.hash == key.hash && *repeat.key == **key {
                return repeat.last;
            }
            next = repeat.next_busy;
        }
        None
    }

    /// The first copy of this release or cancel is sent.
    pub(super) fn enter(&mut self, id: OperationId, operations: &mut Operations) {
        if self.count >= self.heads.len() && self.heads.len() < LARGEST {
            self.grow(operations);
        }
        self.push(id.0.index, operations);
        self.count += 1;
    }

    /// This release or cancel is over.
    pub(super) fn leave(&mut self, id: OperationId, operations: &mut Operations) {
        let Some(leaving) = operations.at(id.0.index).and_then(repeat) else {
            return;
        };
        let (place, behind) = (self.place(leaving.key.hash), leaving.next_busy);
        self.count -= 1;
        let mut at = self.heads[place];
        if at == id.0.index {
            self.heads[place] = behind;
            return;
        }
        while let Some(before) = operations.at_mut(at).and_then(repeat_mut) {
            at = before.next_busy;
            if at == id.0.index {
                before.next_busy = behind;
                return;
            }
        }
    }

    fn push(&mut self, index: u32, operations: &mut Operations) {
        if let Some(repeat) = operations.at_mut(index).and_then(repeat_mut) {
            let place = self.place(repeat.key.hash);
            repeat.next_busy = std::mem::replace(&mut self.heads[place], index);
        }
    }

    fn place(&self, hash: u32) -> usize {
        hash as usize & self.heads.len().wrapping_sub(1)
    }

    fn grow(&mut self, operations: &mut Operations) {
        let size = (self.heads.len() * 2).max(SMALLEST);
        let before = std::mem::replace(&mut self.heads, vec![NOBODY; size]);
        for head in before {
            // From its end, so that the latest stays the first.
            let mut chain = Vec::new();
            let mut next = head;
            while let Some(repeat) = operations.at(next).and_then(repeat) {
                chain.push(next);
                next = repeat.next_busy;
            }
            for index in chain.into_iter().rev() {
                self.push(index, operations);
            }
        }
    }
}

fn repeat(operation: &Operation) -> Option<&Repeat> {
    match &operation.kind {
        Kind::Release(repeat, _) | Kind::Cancel(repeat, _) => Some(repeat),
        Kind::Acquire(_) | Kind::Query(_) | Kind::Keep(..) => None,
    }
}

fn repeat_mut(operation: &mut Operation) -> Option<&mut Repeat> {
    match &mut operation.kind {
        Kind::Release(repeat, _) | Kind::Cancel(repeat, _) => Some(repeat),
        Kind::Acquire(_) | Kind::Query(_) | Kind::Keep(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::Seeded;
    use super::super::repeat::Release;
    use super::*;
    use crate::protocol::{Key, Token};

    /// Random releases of a few keys against a list; each chain has several of them, also while the table grows.
    #[test]
    fn the_latest_release_of_a_key_says_the_connection() {
        let seeded = Seeded::new(7);
        let mut operations: Operations = Slab::new();
        let mut busy = BusyKeys::default();
        let mut model: Vec<(u64, usize, OperationId)> = Vec::new();
        let mut chance = 7_u64;
        for step in 0..50_000_u64 {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let named = (chance >> 33) % 300;
            let key = |number: u64| {
                let text = format!("key:{number}");
                seeded.hashed(Key::encode(text.as_bytes()).expect("a key"))
            };
            let most = if step % 10_000 < 8_000 { 400 } else { 5 };
            if model.len() < most && chance >> 62 != 0 {
                let connection = (chance >> 50) as usize % 4;
                let mut repeat = Repeat::new(key(named), 1, 1, 1);
                repeat.last = Some(connection);
                let release = Release {
                    token: Token::new(5).expect("a token"),
                    lock: None,
                    once_more: false,
                    fresh: None,
                };
                let id = operations.insert(Operation::new(Kind::Release(repeat, release), None));
                busy.enter(id, &mut operations);
                model.push((named, connection, id));
            } else if !model.is_empty() {
                let (_, _, id) = model.remove((chance >> 40) as usize % model.len());
                busy.leave(id, &mut operations);
                operations.discard(id);
            }
            let latest = model.iter().rev().find(|(known, _, _)| *known == named);
            assert_eq!(
                busy.connection(&key(named), &operations),
                latest.map(|(_, connection, _)| *connection)
            );
            assert_eq!(busy.is_empty(), model.is_empty());
        }
    }
}
