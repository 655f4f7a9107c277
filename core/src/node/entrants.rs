//! Connections that have not shown yet what they are. There are only so many places for them, and one more pushes out who has
//! been there for longest: whoever means to speak does so at once, so a flood of those that say nothing keeps nobody out.

use crate::engine::{ConnectionId, Time};
use std::collections::{BTreeMap, VecDeque};
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

/// Connections of which no whole line has come yet, in the order in which they came. Those that have spoken, or are gone, are
/// taken out when somebody looks, so that whoever speaks does not have to look here.
#[derive(Debug, Default)]
pub(crate) struct Undecided(VecDeque<(Time, ConnectionId)>);

/// This many are added without a look at what can be taken out.
const UNSEEN: usize = 64;

impl Undecided {
    /// One more has come. Where there are far more than `open` connections, those are taken out of which `is_undecided` does not
    /// hold any more.
    pub(crate) fn add(
        &mut self,
        now: Time,
        id: ConnectionId,
        open: u32,
        is_undecided: impl FnMut(&ConnectionId) -> bool,
    ) {
        if self.0.len() > 2 * open as usize + UNSEEN {
            let mut is_undecided = is_undecided;
            self.0.retain(|(_, id)| is_undecided(id));
        }
        self.0.push_back((now, id));
    }

    /// Takes out the one that has been here for longest, if it came before `moment`.
    pub(crate) fn pop_before(
        &mut self,
        moment: Time,
        mut is_undecided: impl FnMut(&ConnectionId) -> bool,
    ) -> Option<ConnectionId> {
        while let Some((came, id)) = self.0.front().copied() {
            let undecided = is_undecided(&id);
            if undecided && came >= moment {
                return None;
            }
            self.0.pop_front();
            if undecided {
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u32) -> ConnectionId {
        ConnectionId {
            index,
            generation: 1,
        }
    }

    #[test]
    fn the_oldest_that_has_not_spoken_goes_first_and_none_that_has_come_since() {
        let mut undecided = Undecided::default();
        for number in 0..4 {
            undecided.add(Time(number.into()), id(number), 4, |_| true);
        }
        let silent = |id: &ConnectionId| id.index != 1;
        assert_eq!(undecided.pop_before(Time(3), silent), Some(id(0)));
        assert_eq!(undecided.pop_before(Time(3), silent), Some(id(2)));
        assert_eq!(undecided.pop_before(Time(3), silent), None);
        assert_eq!(undecided.pop_before(Time(9), silent), Some(id(3)));
        assert_eq!(undecided.pop_before(Time(9), silent), None);
    }

    /// Method: the oldest stays silent, so that nothing is taken out by a look at it alone.
    #[test]
    fn those_that_have_spoken_take_no_room_however_many_they_are() {
        let mut undecided = Undecided::default();
        for number in 0..100_000 {
            undecided.add(Time(number.into()), id(number), 2, |id| id.index == 0);
            assert!(undecided.0.len() <= 4 + UNSEEN + 1);
        }
        assert_eq!(
            undecided.pop_before(Time::NEVER, |id| id.index == 0),
            Some(id(0))
        );
    }

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
