//! Deadlines: a wheel of three levels whose slots are lists through the values themselves.
//!
//! Level 0 has a slot for each millisecond of the present block (4.096 s) and the next one, level 1 a
//! slot for each block of the present era (2.3 h) and the next, level 2 a slot for each era of the
//! next year. When a block begins, the one after it is spread over level 0, a few values a call, long
//! before the first of them is due; eras likewise. So nothing comes late because of a neighbour, and a
//! deadline that is cancelled in time, as most are, costs one insertion and one removal.

use super::bits::BitSet;
use super::slab::{NIL, Slab};
use super::time::Time;

/// A value with a deadline.
pub(super) trait Timed {
    fn due(&self) -> Time;
    fn timer(&self) -> TimerLinks;
    fn timer_mut(&mut self) -> &mut TimerLinks;
}

/// A value's place in its slot. The first of a slot has `SLOT` and the slot's number as `previous`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TimerLinks {
    next: u32,
    previous: u32,
}

impl TimerLinks {
    /// Of a value that is in no slot.
    pub(super) const OFF: TimerLinks = TimerLinks {
        next: NIL,
        previous: NIL,
    };

    pub(super) fn is_on(self) -> bool {
        self.previous != NIL
    }
}

const SLOT: u32 = 1 << 31;

const BLOCK_BITS: u32 = 12;
const ERA_BITS: u32 = 23;

/// How many slots the levels have: two blocks of milliseconds, two eras of blocks, 397 days of eras.
const SLOTS: [usize; 3] = [2 << BLOCK_BITS, 2 << (ERA_BITS - BLOCK_BITS), 4096];
const OFFSETS: [usize; 3] = [0, SLOTS[0], SLOTS[0] + SLOTS[1]];

/// The deadlines of values in one slab. In the comments *now* is the last millisecond that was handled.
pub(super) struct Wheel {
    now: u64,
    heads: Box<[u32]>,
    /// Which slots of a level have values.
    occupied: [BitSet; 3],
    armed: usize,
    /// `pop` has nothing to do before this millisecond, and perhaps not then either: what is disarmed does not change it.
    idle_until: u64,
}

impl Wheel {
    pub(super) fn new() -> Wheel {
        Wheel {
            now: 0,
            heads: vec![NIL; SLOTS.iter().sum()].into(),
            occupied: [BitSet::new(), BitSet::new(), BitSet::new()],
            armed: 0,
            idle_until: u64::MAX,
        }
    }

    /// The first millisecond that is not before a deadline.
    #[inline]
    pub(super) fn tick(due: Time) -> u64 {
        due.0.div_ceil(1000)
    }

    /// How many deadlines there are.
    pub(super) fn len(&self) -> usize {
        self.armed
    }

    /// Arms a value whose timer is off, unless it is never due.
    #[inline]
    pub(super) fn insert<T: Timed>(&mut self, values: &mut Slab<T>, number: u32) {
        let value = &mut values[number];
        debug_assert!(!value.timer().is_on());
        let due = value.due();
        if due == Time::NEVER {
            return;
        }
        let tick = Wheel::tick(due).max(self.now);
        let (slot, begin) = self.slot_for(tick);
        self.idle_until = self.idle_until.min(begin);
        let first = std::mem::replace(&mut self.heads[slot], number);
        *value.timer_mut() = TimerLinks {
            next: first,
            previous: SLOT | slot as u32,
        };
        if first == NIL {
            let level = level_of(slot);
            self.occupied[level].insert(slot - OFFSETS[level]);
        } else {
            values[first].timer_mut().previous = number;
        }
        self.armed += 1;
    }

    /// Disarms a value if it is armed.
    pub(super) fn remove<T: Timed>(&mut self, values: &mut Slab<T>, number: u32) {
        let links = std::mem::replace(values[number].timer_mut(), TimerLinks::OFF);
        self.unlink(values, links);
    }

    /// Disarms a value that has left `values` already.
    #[inline]
    pub(super) fn unlink<T: Timed>(&mut self, values: &mut Slab<T>, links: TimerLinks) {
        if !links.is_on() {
            return;
        }
        self.armed -= 1;
        if links.next != NIL {
            values[links.next].timer_mut().previous = links.previous;
        }
        if links.previous & SLOT == 0 {
            values[links.previous].timer_mut().next = links.next;
            return;
        }
        let slot = (links.previous & !SLOT) as usize;
        self.heads[slot] = links.next;
        if links.next == NIL {
            let level = level_of(slot);
            self.occupied[level].remove(slot - OFFSETS[level]);
        }
    }

    /// Takes out a value that is due at `time`, the earliest millisecond first. Each value that is
    /// taken or moved between levels uses up one of `budget`; with none left, nothing comes.
    pub(super) fn pop<T: Timed>(
        &mut self,
        values: &mut Slab<T>,
        time: Time,
        budget: &mut usize,
    ) -> Option<u32> {
        let end = time.0 / 1000;
        while *budget > 0 {
            let here = self.now as usize % SLOTS[0];
            let block_end = here | (SLOTS[0] / 2 - 1);
            if let Some(slot) = self.occupied[0].first_from(here)
                && slot <= block_end
            {
                let tick = self.now + (slot - here) as u64;
                if tick > end {
                    break;
                }
                self.now = tick;
                let number = self.heads[slot];
                self.remove(values, number);
                *budget -= 1;
                return Some(number);
            }
            let block = self.now >> BLOCK_BITS;
            let end_block = end >> BLOCK_BITS;
            if end_block <= block {
                break;
            }
            let next = self.next_block().filter(|next| *next <= end_block);
            match next {
                Some(next) => {
                    if !self.enter(values, next, budget) {
                        return None;
                    }
                }
                None => break,
            }
        }
        if *budget > 0 {
            self.now = self.now.max(end);
            self.spread(values, budget);
        }
        None
    }

    /// Moves *now* to `time` if nothing is to be done before, so that deadlines are filed by how far
    /// away they are and not by how long nothing has been due.
    #[inline]
    pub(super) fn catch_up(&mut self, time: Time) {
        let tick = time.0 / 1000;
        let same_block = tick >> BLOCK_BITS == self.now >> BLOCK_BITS;
        if !same_block && self.next_deadline().is_none_or(|deadline| deadline > time) {
            self.now = self.now.max(tick);
        }
    }

    /// When `pop` has something to do, if nothing changes before; `Time(0)` if that is now.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        if self.armed == 0 {
            return None;
        }
        let block = self.now >> BLOCK_BITS;
        if self.has_block(block + 1) || self.has_era((self.now >> ERA_BITS) + 1) {
            return Some(Time(0));
        }
        let tick = self.first_tick().unwrap_or_else(|| {
            // Whatever is left has to be spread one block or era ahead of its own.
            let block = self.first_block().map(|block| (block - 1) << BLOCK_BITS);
            let era = self.first_era().map(|era| (era - 1) << ERA_BITS);
            let both = block.into_iter().chain(era);
            both.min().expect("an armed value is in some level")
        });
        Some(Time(tick.saturating_mul(1000)))
    }

    /// As [`next_deadline`](Wheel::next_deadline), but only if that is before `moment`; which is told without a search where
    /// nothing has come that is as early.
    #[inline]
    pub(super) fn next_deadline_before(&mut self, moment: Time) -> Option<Time> {
        if self.idle_until.saturating_mul(1000) >= moment.0 {
            return None;
        }
        let next = self.next_deadline();
        self.idle_until = next.map_or(u64::MAX, |next| next.0 / 1000);
        next.filter(|next| *next < moment)
    }

    /// The slot for a millisecond, and the one in which `pop` has something to do with it: there, or where it is spread.
    #[inline]
    fn slot_for(&self, tick: u64) -> (usize, u64) {
        let (block, era) = (tick >> BLOCK_BITS, tick >> ERA_BITS);
        let now_era = self.now >> ERA_BITS;
        if block - (self.now >> BLOCK_BITS) <= 1 {
            (tick as usize % SLOTS[0], tick)
        } else if era - now_era <= 1 {
            let slot = OFFSETS[1] + block as usize % SLOTS[1];
            (slot, (block - 1) << BLOCK_BITS)
        } else {
            // What is beyond the last era waits there and then moves on.
            let era = era.min(now_era + SLOTS[2] as u64 - 1);
            let slot = OFFSETS[2] + era as usize % SLOTS[2];
            (slot, (era - 1) << ERA_BITS)
        }
    }

    /// The block after the present one that has to be entered next.
    fn next_block(&self) -> Option<u64> {
        let block = self.now >> BLOCK_BITS;
        if self.first_tick().is_some() {
            return Some(block + 1);
        }
        let first_of_era = self.first_era().map(|era| era << (ERA_BITS - BLOCK_BITS));
        self.first_block().into_iter().chain(first_of_era).min()
    }

    /// Moves *now* to the beginning of a block before which nothing is left. False if the budget ended
    /// before everything of that block was in level 0.
    fn enter<T: Timed>(&mut self, values: &mut Slab<T>, block: u64, budget: &mut usize) -> bool {
        // Everything of the block belongs to level 0 as soon as the block before it is the present one.
        self.now = self.now.max((block - 1) << BLOCK_BITS);
        if !self.spread(values, budget) {
            return false;
        }
        self.now = block << BLOCK_BITS;
        true
    }

    /// Moves what belongs to the next era and the next block to lower levels; false if the budget
    /// ended before that was done.
    fn spread<T: Timed>(&mut self, values: &mut Slab<T>, budget: &mut usize) -> bool {
        let era = ((self.now >> ERA_BITS) + 1) as usize % SLOTS[2];
        let block = ((self.now >> BLOCK_BITS) + 1) as usize % SLOTS[1];
        for slot in [OFFSETS[2] + era, OFFSETS[1] + block] {
            while self.heads[slot] != NIL {
                if *budget == 0 {
                    return false;
                }
                *budget -= 1;
                let number = self.heads[slot];
                self.remove(values, number);
                self.insert(values, number);
            }
        }
        true
    }

    fn has_block(&self, block: u64) -> bool {
        self.heads[OFFSETS[1] + block as usize % SLOTS[1]] != NIL
    }

    fn has_era(&self, era: u64) -> bool {
        self.heads[OFFSETS[2] + era as usize % SLOTS[2]] != NIL
    }

    fn first_tick(&self) -> Option<u64> {
        self.first_in(0, self.now)
    }

    fn first_block(&self) -> Option<u64> {
        self.first_in(1, (self.now >> BLOCK_BITS) + 1)
    }

    fn first_era(&self) -> Option<u64> {
        self.first_in(2, (self.now >> ERA_BITS) + 1)
    }

    /// The first occupied slot of a level, going around once from that of `from`, as the number that
    /// it stands for.
    fn first_in(&self, level: usize, from: u64) -> Option<u64> {
        let start = from as usize % SLOTS[level];
        let slot = self.occupied[level]
            .first_from(start)
            .or_else(|| self.occupied[level].first())?;
        Some(from + ((slot + SLOTS[level] - start) % SLOTS[level]) as u64)
    }
}

fn level_of(slot: usize) -> usize {
    match slot {
        _ if slot < OFFSETS[1] => 0,
        _ if slot < OFFSETS[2] => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BITS, ERA_BITS, Slab, Time, Timed, TimerLinks, Wheel};
    use std::collections::BTreeMap;

    struct Alarm {
        due: Time,
        timer: TimerLinks,
    }

    impl Timed for Alarm {
        fn due(&self) -> Time {
            self.due
        }

        fn timer(&self) -> TimerLinks {
            self.timer
        }

        fn timer_mut(&mut self) -> &mut TimerLinks {
            &mut self.timer
        }
    }

    fn set(wheel: &mut Wheel, alarms: &mut Slab<Alarm>, due: Time) -> u32 {
        let timer = TimerLinks::OFF;
        let number = alarms.insert(Alarm { due, timer });
        wheel.insert(alarms, number);
        number
    }

    /// Goal: every deadline comes out, in the first millisecond that is not before it, in order, and
    /// `next_deadline` never promises a later moment. Method: random deadlines from a millisecond to
    /// beyond the last era, random removals, steps from one microsecond to months, random budgets,
    /// compared with a sorted map.
    #[test]
    fn agrees_with_a_sorted_map() {
        let mut random = 0x1234_5678_u64;
        let mut below = |limit: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % limit
        };
        let mut wheel = Wheel::new();
        let mut alarms = Slab::new();
        let mut expected: BTreeMap<u32, Time> = BTreeMap::new();
        let mut now = Time(below(1 << 50));
        for _ in 0..300_000 {
            match below(8) {
                0..=3 => {
                    let reach = 1 << (7 + below(40));
                    let due = Time(now.0 + below(reach));
                    wheel.catch_up(now);
                    let number = set(&mut wheel, &mut alarms, due);
                    expected.insert(number, due);
                }
                4 => {
                    if let Some((&number, _)) = expected.range(below(3000) as u32..).next() {
                        wheel.remove(&mut alarms, number);
                        alarms.remove(number);
                        expected.remove(&number);
                    }
                }
                kind => {
                    let reach = if kind == 5 {
                        1 << below(47)
                    } else {
                        1 << below(20)
                    };
                    now = Time(now.0 + below(reach));
                    let mut budget = below(50) as usize;
                    let given = budget;
                    let mut last = 0;
                    while let Some(number) = wheel.pop(&mut alarms, now, &mut budget) {
                        let due = expected.remove(&number).expect("armed");
                        let tick = due.0.div_ceil(1000);
                        assert!(tick <= now.0 / 1000, "early");
                        assert!(tick >= last, "out of order");
                        last = tick;
                        alarms.remove(number);
                    }
                    let left = expected.values().map(|due| due.0.div_ceil(1000)).min();
                    match (wheel.next_deadline(), left) {
                        (None, None) => {}
                        (Some(deadline), Some(tick)) => assert!(deadline.0 <= tick * 1000),
                        other => panic!("{other:?}"),
                    }
                    // Whoever is told of nothing before a moment has to look again by then.
                    let moment = Time(now.0 + below(1 << 30));
                    match wheel.next_deadline_before(moment) {
                        Some(deadline) => {
                            assert!(deadline < moment);
                            assert_eq!(Some(deadline), wheel.next_deadline());
                        }
                        None => {
                            let next = wheel.next_deadline();
                            assert!(
                                next.is_none_or(|next| next >= moment),
                                "{next:?} {moment:?}"
                            );
                        }
                    }
                    if budget > 0 || given == 0 {
                        assert!(
                            given == 0 || left.is_none_or(|tick| tick > now.0 / 1000),
                            "late"
                        );
                    }
                }
            }
            assert_eq!(wheel.len(), expected.len());
        }
    }

    #[test]
    fn a_block_is_spread_a_few_at_a_time_before_its_first_deadline() {
        let mut wheel = Wheel::new();
        let mut alarms = Slab::new();
        let block = 1000 << BLOCK_BITS;
        for place in 0..4096 {
            set(&mut wheel, &mut alarms, Time((block + place) * 1000));
        }
        let begin = Time(wheel.next_deadline().expect("armed").0);
        assert!(begin.0 / 1000 <= block - (1 << BLOCK_BITS));
        let mut calls = 0;
        let mut now = begin;
        while let Some(deadline) = wheel.next_deadline()
            && deadline <= now
        {
            assert_eq!(wheel.pop(&mut alarms, now, &mut 64), None);
            calls += 1;
            now.0 += 1;
        }
        assert!(calls >= 64 && now.0 / 1000 < block);
        assert_eq!(wheel.next_deadline(), Some(Time(block * 1000)));
    }

    #[test]
    fn an_idle_wheel_jumps() {
        let mut wheel = Wheel::new();
        let mut alarms = Slab::<Alarm>::new();
        for step in 0..100 {
            let now = Time((step << ERA_BITS) * 37_000);
            assert_eq!(wheel.pop(&mut alarms, now, &mut 1), None);
            assert_eq!(wheel.next_deadline(), None);
        }
    }
}
