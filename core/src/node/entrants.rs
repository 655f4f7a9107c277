//! Connections that have not shown yet what they are. There are only so many places for them, and one more pushes out who has
//! been there for longest: whoever means to speak does so at once, so a flood of those that say nothing keeps nobody out.

use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Entrants {
    places: u32,
    next: u64,
    inside: BTreeMap<u64, Arc<Notify>>,
}

/// A place that was given to somebody.
#[derive(Debug)]
pub(crate) struct Entry {
    number: u64,
    /// Told when the place is taken away.
    pub(crate) pushed_out: Arc<Notify>,
}

impl Entrants {
    pub(crate) fn new(places: u32) -> Entrants {
        Entrants {
            places,
            next: 0,
            inside: BTreeMap::new(),
        }
    }

    /// Gives a place, and says whether somebody had to go for it.
    pub(crate) fn enter(&mut self) -> (Entry, bool) {
        let full = self.inside.len() >= self.places as usize;
        if full && let Some((_, oldest)) = self.inside.pop_first() {
            oldest.notify_one();
        }
        let number = self.next;
        self.next += 1;
        let pushed_out = Arc::new(Notify::new());
        self.inside.insert(number, Arc::clone(&pushed_out));
        (Entry { number, pushed_out }, full)
    }

    /// Takes a place back, unless somebody else has it already.
    pub(crate) fn leave(&mut self, entry: &Entry) {
        self.inside.remove(&entry.number);
    }

    pub(crate) fn count(&self) -> u32 {
        self.inside.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_pushes_out_who_has_been_there_for_longest() {
        let mut entrants = Entrants::new(2);
        let (first, none) = entrants.enter();
        let (second, none_again) = entrants.enter();
        assert_eq!((none, none_again, entrants.count()), (false, false, 2));
        entrants.leave(&first);
        let (third, pushed) = entrants.enter();
        assert!(!pushed, "a place was free");
        let (_, pushed) = entrants.enter();
        assert_eq!((pushed, entrants.count()), (true, 2));
        let told = |entry: &Entry| {
            let mut told = Box::pin(Arc::clone(&entry.pushed_out).notified_owned());
            let waker = std::task::Waker::noop();
            Future::poll(told.as_mut(), &mut std::task::Context::from_waker(waker)).is_ready()
        };
        assert!(told(&second) && !told(&third));
        entrants.leave(&second);
        assert_eq!(entrants.count(), 2, "its place belongs to another one");
    }
}
