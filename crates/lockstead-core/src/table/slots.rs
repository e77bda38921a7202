//! Where the live holds lie, lock by lock, each lock under a small number that the orders of the table point with.
//!
//! Holds are nearly all that a node has in memory, and there may be a million of them. So the one hold that nearly
//! every lock has lies in place, a name is kept once, and what a peak took is given back after it.
//!
//! Invariants:
//! 1. A slot in use has at least one hold; `Several` has at least two.
//! 2. The last slot is in use.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::record::Hold;
use crate::units::Fence;

/// Capacity that is never given back, in elements.
const CAPACITY_KEPT: usize = 1_024;

/// Names a lock within one table. Another table may give the same lock another number: nothing is decided by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(u32);

/// The live holds of one lock, sorted by fence, and at which log index each was last stated.
#[derive(Clone, Debug)]
pub(super) enum LockHolds {
    One(Hold, u64),
    Several { holds: Vec<Hold>, stated_at: Vec<u64> },
}

/// The live holds of all locks.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<LockHolds>>,
    /// Slots to use again, the lowest first, so that the last ones become free; may name some beyond the end.
    free: BinaryHeap<Reverse<Slot>>,
}

impl Slot {
    fn at(self) -> usize {
        self.0 as usize
    }
}

impl Slots {
    /// The holds of a lock.
    pub(super) fn of(&self, slot: Slot) -> &LockHolds {
        self.slots[slot.at()].as_ref().expect("orders and names point only to locks with holds")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LockHolds> {
        self.slots.iter().flatten()
    }

    /// Makes room for a lock, with its first hold.
    pub(super) fn add(&mut self, hold: Hold, index: u64) -> Slot {
        let of_lock = Some(LockHolds::One(hold, index));
        while let Some(Reverse(slot)) = self.free.pop() {
            if let Some(place) = self.slots.get_mut(slot.at()) {
                *place = of_lock;
                return slot;
            }
        }
        let slot = Slot(u32::try_from(self.slots.len()).expect("memory ends before there are 2^32 locks"));
        self.slots.push(of_lock);
        slot
    }

    /// Puts a hold in the place of the one with its fence, and gives that one and when it was stated; or adds it.
    pub(super) fn put(&mut self, slot: Slot, hold: Hold, index: u64) -> Option<(Hold, u64)> {
        let of_lock = self.slots[slot.at()].as_mut()?;
        match of_lock.position(hold.fence) {
            Ok(position) => {
                let (before, stated_at) = of_lock.at_mut(position);
                Some((std::mem::replace(before, hold), std::mem::replace(stated_at, index)))
            }
            Err(position) => {
                of_lock.insert(position, hold, index);
                None
            }
        }
    }

    /// Takes a hold away; gives it, when it was stated, and whether it was the last of its lock.
    pub(super) fn remove(&mut self, slot: Slot, fence: Fence) -> Option<(Hold, u64, Left)> {
        let place = &mut self.slots[slot.at()];
        let position = place.as_ref()?.position(fence).ok()?;
        let ((hold, stated_at), rest) = place.take()?.without(position);
        *place = rest;
        let left = if place.is_some() { Left::Others } else { Left::Nothing };
        if left == Left::Nothing {
            self.free(slot);
        }
        Some((hold, stated_at, left))
    }

    fn free(&mut self, slot: Slot) {
        self.free.push(Reverse(slot));
        while self.slots.pop_if(|last| last.is_none()).is_some() {}
        if let Some(capacity) = shrunk(self.slots.len(), self.slots.capacity()) {
            self.slots.shrink_to(capacity);
            let len = self.slots.len();
            self.free.retain(|Reverse(slot)| slot.at() < len);
            self.free.shrink_to(capacity);
        }
    }
}

/// What is left of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Others,
    Nothing,
}

/// The capacity to shrink to, if less than an eighth of it is used: seldom enough to cost nothing.
pub(super) fn shrunk(len: usize, capacity: usize) -> Option<usize> {
    (capacity > CAPACITY_KEPT && len < capacity / 8).then_some(capacity / 4)
}

impl LockHolds {
    pub(super) fn holds(&self) -> &[Hold] {
        match self {
            Self::One(hold, _) => std::slice::from_ref(hold),
            Self::Several { holds, .. } => holds,
        }
    }

    pub(super) fn stated_at(&self) -> &[u64] {
        match self {
            Self::One(_, stated_at) => std::slice::from_ref(stated_at),
            Self::Several { stated_at, .. } => stated_at,
        }
    }

    pub(super) fn position(&self, fence: Fence) -> Result<usize, usize> {
        self.holds().binary_search_by_key(&fence, |hold| hold.fence)
    }

    fn at_mut(&mut self, position: usize) -> (&mut Hold, &mut u64) {
        match self {
            Self::One(hold, stated_at) => (hold, stated_at),
            Self::Several { holds, stated_at } => (&mut holds[position], &mut stated_at[position]),
        }
    }

    fn insert(&mut self, position: usize, hold: Hold, index: u64) {
        let none = Self::Several { holds: Vec::new(), stated_at: Vec::new() };
        let (mut holds, mut stated_at) = match std::mem::replace(self, none) {
            Self::One(hold, stated_at) => (vec![hold], vec![stated_at]),
            Self::Several { holds, stated_at } => (holds, stated_at),
        };
        holds.insert(position, hold);
        stated_at.insert(position, index);
        *self = Self::Several { holds, stated_at };
    }

    fn without(self, position: usize) -> ((Hold, u64), Option<Self>) {
        match self {
            Self::One(hold, stated_at) => ((hold, stated_at), None),
            Self::Several { mut holds, mut stated_at } => {
                let removed = (holds.remove(position), stated_at.remove(position));
                let rest = if holds.len() > 1 {
                    Some(Self::Several { holds, stated_at })
                } else {
                    holds.pop().zip(stated_at.pop()).map(|(hold, stated_at)| Self::One(hold, stated_at))
                };
                (removed, rest)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{LockKey, LockName, Metadata};
    use crate::record::Mode;
    use crate::units::{LeaseTime, Token, Ttl, WallTime};

    fn hold(fence: u64) -> Hold {
        Hold {
            lock: LockKey::in_default(&LockName::parse("L").unwrap()),
            fence: Fence(fence),
            token: Token([0; 16]),
            owner: None,
            request_id: None,
            mode: Mode::Shared,
            permits: 1,
            session: None,
            ttl: Ttl::DEFAULT,
            deadline: LeaseTime(0),
            delay_ms: 0,
            acquired_at: WallTime(0),
            metadata: Metadata::default(),
        }
    }

    #[test]
    fn a_lock_with_one_hold_takes_no_memory_of_its_own_but_its_place() {
        assert_eq!(size_of::<Option<LockHolds>>(), size_of::<Hold>() + size_of::<u64>());
        assert!(size_of::<Hold>() <= 144, "{} bytes for each hold", size_of::<Hold>());
    }

    #[test]
    fn a_lock_has_as_many_holds_as_are_put_sorted_by_fence() {
        let mut slots = Slots::default();
        let slot = slots.add(hold(5), 50);
        assert_eq!(slots.put(slot, hold(7), 70), None);
        assert_eq!(slots.put(slot, hold(3), 30), None);
        assert_eq!(slots.put(slot, hold(5), 51), Some((hold(5), 50)));
        assert_eq!(slots.of(slot).holds(), [hold(3), hold(5), hold(7)]);
        assert_eq!(slots.of(slot).stated_at(), [30, 51, 70]);
        assert_eq!(slots.remove(slot, Fence(4)), None);
        assert_eq!(slots.remove(slot, Fence(5)), Some((hold(5), 51, Left::Others)));
        assert_eq!(slots.remove(slot, Fence(3)), Some((hold(3), 30, Left::Others)));
        assert!(matches!(slots.of(slot), LockHolds::One(..)), "one hold lies in place again");
        assert_eq!(slots.remove(slot, Fence(7)), Some((hold(7), 70, Left::Nothing)));
        assert_eq!(slots.iter().count(), 0);
    }

    #[test]
    fn the_lowest_free_slot_is_used_again_and_free_ones_at_the_end_are_given_back() {
        let mut slots = Slots::default();
        let all: Vec<_> = (1..=20_000).map(|fence| slots.add(hold(fence), fence)).collect();
        for fence in [900, 30, 400] {
            slots.remove(all[fence - 1], Fence(fence as u64));
        }
        let again: Vec<_> = (20_001..=20_004).map(|fence| slots.add(hold(fence), fence).at()).collect();
        assert_eq!(again, [29, 399, 899, 20_000]);
        for fence in (1_001..=20_000).rev() {
            slots.remove(all[fence - 1], Fence(fence as u64));
        }
        assert_eq!(slots.slots.len(), 20_001, "the last one is in use");
        slots.remove(Slot(20_000), Fence(20_004));
        assert_eq!((slots.slots.len(), slots.iter().count()), (1_000, 1_000));
        assert!(slots.slots.capacity() <= 8_192 && slots.free.is_empty());
        assert_eq!(slots.add(hold(1), 1).at(), 1_000);
    }
}
