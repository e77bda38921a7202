//! The replicated table: what is in force, as the log says.
//!
//! Apply is unconditional: the leader has decided, and a replay of the log's tail over a snapshot's residue passes
//! through states of no moment, so a record is never tested against the table. The one rule that voids a batch reads
//! the entry alone.
//!
//! Invariants:
//! 1. Nothing of the residue falls, and no retired id comes back.
//! 2. A hold is keyed by (lock, fence); a lock's holds are sorted by fence; a lock without holds is not kept.
//! 3. Each live hold stands exactly once in the order of deadlines and once in the order of statements.
//! 4. The label of a snapshot lies below the newest statement of every live record, so that a replay of what follows
//!    the label states each of them again.
//! 5. A void batch changes nothing.
//! 6. Nothing in here reads a clock, and no hold ends but by a `Drop`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::identity::NodeId;
use crate::name::LockKey;
use crate::record::{Batch, Hold, Live, Record};
use crate::residue::Residue;
use crate::units::{Fence, LeaseTime};

use slots::{Left, LockHolds, Slot, Slots, shrunk};

mod slots;

/// What the table did with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Applied {
    /// Its facts are in force.
    Done,
    /// It was decided in another term than the entry's own: nothing changed.
    Void,
}

/// The table. Two tables are equal if they hold the same records, stated at the same indexes, and the same residue.
#[derive(Clone, Debug, Default)]
pub struct Table {
    residue: Residue,
    locks: HashMap<LockKey, Slot>,
    slots: Slots,
    /// Fences are unique, so a slot orders nothing here or below.
    deadlines: BTreeSet<(LeaseTime, Fence, Slot)>,
    statements: BTreeSet<(u64, Fence, Slot)>,
    /// Derived: live holds of each namespace that has any.
    namespaces: HashMap<Box<str>, u64>,
    /// Derived: what restating every live record would take.
    live_bytes: u64,
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        let same = |(lock, slot): (&LockKey, &Slot)| {
            let of_lock = self.slots.of(*slot);
            let other = other.of_lock(lock);
            other.is_some_and(|other| of_lock.holds() == other.holds() && of_lock.stated_at() == other.stated_at())
        };
        self.residue == other.residue && self.locks.len() == other.locks.len() && self.locks.iter().all(same)
    }
}

impl Eq for Table {}

impl Table {
    /// An empty table that goes on from a snapshot's residue.
    #[must_use]
    pub fn from_residue(residue: &Residue) -> Self {
        Self { residue: residue.clone(), ..Self::default() }
    }

    /// Applies the entry at `index`, unconditionally but for the term.
    ///
    /// # Panics
    /// If the table broke its invariant 3.
    pub fn apply(&mut self, index: u64, entry_term: u64, batch: Batch) -> Applied {
        if batch.term != entry_term {
            return Applied::Void;
        }
        self.residue.time = self.residue.time.max(batch.time);
        for record in batch.records {
            match record {
                Record::Hold(hold) | Record::Restate(Live::Hold(hold)) => self.state(index, hold),
                Record::Drop { lock, fence, reason: _ } => self.drop_hold(&lock, fence),
            }
        }
        assert_eq!(self.deadlines.len(), self.statements.len(), "invariant 3 of the table");
        Applied::Done
    }

    /// What a snapshot keeps.
    #[must_use]
    pub fn residue(&self) -> Residue {
        self.residue.clone()
    }

    /// The label of a snapshot taken now: below the newest statement of every live record.
    ///
    /// # Panics
    /// If an entry after `last_applied` was applied.
    #[must_use]
    pub fn label(&self, last_applied: u64) -> u64 {
        let Some((stated_at, ..)) = self.statements.first() else { return last_applied };
        assert!(*stated_at <= last_applied, "invariant 4 of the table: a statement after the last applied entry");
        stated_at.saturating_sub(1)
    }

    /// Log index of the oldest of the newest statements: the entry that keeps the label back. `None` without live
    /// records.
    #[must_use]
    pub fn oldest_statement(&self) -> Option<u64> {
        self.statements.first().map(|(stated_at, ..)| *stated_at)
    }

    /// Bytes that all live records would take in the log, each restated once.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Takes note that a node is no member any more. Its id is never used again in this lineage.
    pub fn retire(&mut self, node: NodeId) {
        self.residue.retired.insert(node);
    }

    /// Whether a node of this id was a member and is none any more.
    #[must_use]
    pub fn is_retired(&self, node: NodeId) -> bool {
        self.residue.retired.contains(&node)
    }

    /// Ids of nodes that were members and are none any more.
    #[must_use]
    pub fn retired(&self) -> &BTreeSet<NodeId> {
        &self.residue.retired
    }

    /// The live holds of a lock, sorted by fence.
    #[must_use]
    pub fn holds(&self, lock: &LockKey) -> &[Hold] {
        self.of_lock(lock).map_or(&[], LockHolds::holds)
    }

    /// Every live hold, in no order.
    pub fn all_holds(&self) -> impl Iterator<Item = &Hold> {
        self.slots.iter().flat_map(LockHolds::holds)
    }

    /// The highest lease time applied.
    #[must_use]
    pub fn time(&self) -> LeaseTime {
        self.residue.time
    }

    /// The highest fence granted.
    #[must_use]
    pub fn last_fence(&self) -> Fence {
        self.residue.last_fence
    }

    /// No office grants anything before this lease time: holders of an earlier lineage may still count on their TTLs.
    #[must_use]
    pub fn no_grant_before(&self) -> LeaseTime {
        self.residue.no_grant_before
    }

    /// Live records: holds.
    #[must_use]
    pub fn live_records(&self) -> usize {
        self.deadlines.len()
    }

    /// When the hold-off ends; `None` once the log says that it has: an office to come must not wait for it again.
    #[must_use]
    pub fn hold_off_end(&self) -> Option<LeaseTime> {
        (self.residue.time < self.residue.no_grant_before).then_some(self.residue.no_grant_before)
    }

    /// Whether lease time has to go on being logged: something in force ends by it.
    #[must_use]
    pub fn needs_ticks(&self) -> bool {
        self.live_records() > 0 || self.hold_off_end().is_some()
    }

    /// Live holds of a namespace.
    #[must_use]
    pub fn holds_in(&self, namespace: &str) -> u64 {
        self.namespaces.get(namespace).copied().unwrap_or(0)
    }

    /// When the next of what is in force ends: a live hold by its deadline, or the hold-off.
    #[must_use]
    pub fn next_end(&self) -> Option<LeaseTime> {
        let deadline = self.deadlines.first().map(|(deadline, ..)| *deadline);
        deadline.into_iter().chain(self.hold_off_end()).min()
    }

    /// Live holds whose deadline is at or before `now`, earliest first.
    pub fn expired(&self, now: LeaseTime) -> impl Iterator<Item = (&LockKey, Fence)> {
        let until_now = self.deadlines.iter().take_while(move |(deadline, ..)| *deadline <= now);
        until_now.map(|(_, fence, slot)| (self.lock_at(*slot), *fence))
    }

    /// Live holds in the order of their newest statements, the longest unstated first: those keep the label back.
    pub fn by_statement(&self) -> impl Iterator<Item = (u64, &LockKey, Fence)> {
        self.statements.iter().map(|(stated_at, fence, slot)| (*stated_at, self.lock_at(*slot), *fence))
    }

    /// Log index of the newest statement of a hold.
    #[must_use]
    pub fn stated_at(&self, lock: &LockKey, fence: Fence) -> Option<u64> {
        let of_lock = self.of_lock(lock)?;
        of_lock.position(fence).ok().map(|position| of_lock.stated_at()[position])
    }

    fn of_lock(&self, lock: &LockKey) -> Option<&LockHolds> {
        self.locks.get(lock).map(|slot| self.slots.of(*slot))
    }

    fn lock_at(&self, slot: Slot) -> &LockKey {
        &self.slots.of(slot).holds()[0].lock
    }

    fn state(&mut self, index: u64, mut hold: Hold) {
        self.residue.raise(&hold);
        self.live_bytes += Record::restated_bytes(&hold);
        let (deadline, fence) = (hold.deadline, hold.fence);
        let (slot, before) = match self.locks.entry(hold.lock.clone()) {
            Entry::Occupied(entry) => {
                // A name is kept once, however often its lock is stated.
                hold.lock = entry.key().clone();
                (*entry.get(), self.slots.put(*entry.get(), hold, index))
            }
            Entry::Vacant(entry) => (*entry.insert(self.slots.add(hold, index)), None),
        };
        match before {
            Some((before, stated_before)) => {
                self.live_bytes -= Record::restated_bytes(&before);
                self.deadlines.remove(&(before.deadline, fence, slot));
                self.statements.remove(&(stated_before, fence, slot));
            }
            None => count_in(&mut self.namespaces, self.slots.of(slot).holds()[0].lock.namespace()),
        }
        self.deadlines.insert((deadline, fence, slot));
        self.statements.insert((index, fence, slot));
    }

    fn drop_hold(&mut self, lock: &LockKey, fence: Fence) {
        let Some(slot) = self.locks.get(lock).copied() else { return };
        let Some((hold, stated_at, left)) = self.slots.remove(slot, fence) else { return };
        if left == Left::Nothing {
            self.locks.remove(lock);
            if let Some(capacity) = shrunk(self.locks.len(), self.locks.capacity()) {
                self.locks.shrink_to(capacity);
            }
        }
        count_out(&mut self.namespaces, lock.namespace());
        self.live_bytes -= Record::restated_bytes(&hold);
        self.deadlines.remove(&(hold.deadline, fence, slot));
        self.statements.remove(&(stated_at, fence, slot));
    }
}

fn count_in(namespaces: &mut HashMap<Box<str>, u64>, namespace: &str) {
    if let Some(holds) = namespaces.get_mut(namespace) {
        *holds += 1;
    } else {
        namespaces.insert(Box::from(namespace), 1);
    }
}

fn count_out(namespaces: &mut HashMap<Box<str>, u64>, namespace: &str) {
    let Some(holds) = namespaces.get_mut(namespace) else { return };
    *holds -= 1;
    if *holds == 0 {
        namespaces.remove(namespace);
    }
}

#[cfg(test)]
mod tests;
