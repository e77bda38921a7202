//! The replicated table: what is in force, as the log says.
//!
//! Apply is unconditional: the leader has decided, and a replay of the log's tail over a snapshot's residue passes
//! through states of no moment, so a record is never tested against the table. The one rule that voids a batch reads
//! the entry alone.
//!
//! Invariants:
//! 1. `time`, `last_fence`, `ttl_max_ms` and `no_grant_before` never fall.
//! 2. A hold is keyed by (lock, fence); a lock's holds are sorted by fence; a lock without holds is not kept.
//! 3. Each live hold stands exactly once in the order of deadlines and once in the order of statements.
//! 4. The label of a snapshot lies below the newest statement of every live record, so that a replay of what follows
//!    the label states each of them again.
//! 5. A void batch changes nothing.
//! 6. Nothing in here reads a clock, and no hold ends but by a `Drop`.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::name::LockKey;
use crate::record::{Batch, Hold, Live, Record};
use crate::units::{Fence, LeaseTime};

/// What the table did with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Applied {
    /// Its facts are in force.
    Done,
    /// It was decided in another term than the entry's own: nothing changed.
    Void,
}

/// What a snapshot keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residue {
    /// Highest lease time.
    pub time: LeaseTime,
    /// Highest fence granted.
    pub last_fence: Fence,
    /// Longest TTL ever granted, in milliseconds.
    pub ttl_max_ms: u64,
    /// No office grants anything before this lease time.
    pub no_grant_before: LeaseTime,
}

/// The table. Two tables are equal if they hold the same records, stated at the same indexes, and the same residue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    residue: Residue,
    locks: HashMap<LockKey, LockHolds>,
    deadlines: BTreeSet<(LeaseTime, LockKey, Fence)>,
    statements: BTreeSet<(u64, LockKey, Fence)>,
    /// Derived: live holds of each namespace that has any.
    namespaces: HashMap<Box<str>, u64>,
}

/// The live holds of one lock, sorted by fence, and at which log index each was last stated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LockHolds {
    holds: Vec<Hold>,
    stated_at: Vec<u64>,
}

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

    /// The live holds of a lock, sorted by fence.
    #[must_use]
    pub fn holds(&self, lock: &LockKey) -> &[Hold] {
        self.locks.get(lock).map_or(&[], |of_lock| &of_lock.holds)
    }

    /// Every live hold, in no order.
    pub fn all_holds(&self) -> impl Iterator<Item = &Hold> {
        self.locks.values().flat_map(|of_lock| &of_lock.holds)
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

    /// Whether lease time has to go on being logged at `now`: something in force ends by it.
    #[must_use]
    pub fn needs_ticks(&self, now: LeaseTime) -> bool {
        self.live_records() > 0 || now < self.residue.no_grant_before
    }

    /// Live holds of a namespace.
    #[must_use]
    pub fn holds_in(&self, namespace: &str) -> u64 {
        self.namespaces.get(namespace).copied().unwrap_or(0)
    }

    /// The earliest deadline of a live hold.
    #[must_use]
    pub fn next_deadline(&self) -> Option<LeaseTime> {
        self.deadlines.first().map(|(deadline, ..)| *deadline)
    }

    /// Live holds whose deadline is at or before `now`, earliest first.
    pub fn expired(&self, now: LeaseTime) -> impl Iterator<Item = (&LockKey, Fence)> {
        self.deadlines.iter().take_while(move |(deadline, ..)| *deadline <= now).map(|(_, lock, fence)| (lock, *fence))
    }

    /// Live holds in the order of their newest statements, the longest unstated first: those keep the label back.
    pub fn by_statement(&self) -> impl Iterator<Item = (u64, &LockKey, Fence)> {
        self.statements.iter().map(|(stated_at, lock, fence)| (*stated_at, lock, *fence))
    }

    /// Log index of the newest statement of a hold.
    #[must_use]
    pub fn stated_at(&self, lock: &LockKey, fence: Fence) -> Option<u64> {
        let of_lock = self.locks.get(lock)?;
        of_lock.position(fence).ok().map(|position| of_lock.stated_at[position])
    }

    fn state(&mut self, index: u64, hold: Hold) {
        self.residue.last_fence = self.residue.last_fence.max(hold.fence);
        self.residue.ttl_max_ms = self.residue.ttl_max_ms.max(hold.ttl.as_ms());
        self.deadlines.insert((hold.deadline, hold.lock.clone(), hold.fence));
        self.statements.insert((index, hold.lock.clone(), hold.fence));
        let of_lock = self.locks.entry(hold.lock.clone()).or_default();
        match of_lock.position(hold.fence) {
            Ok(position) => {
                let stated_before = std::mem::replace(&mut of_lock.stated_at[position], index);
                let before = std::mem::replace(&mut of_lock.holds[position], hold);
                let now = &of_lock.holds[position];
                if before.deadline != now.deadline {
                    self.deadlines.remove(&(before.deadline, before.lock.clone(), before.fence));
                }
                if stated_before != index {
                    self.statements.remove(&(stated_before, before.lock, before.fence));
                }
            }
            Err(position) => {
                count_in(&mut self.namespaces, hold.lock.namespace());
                of_lock.holds.insert(position, hold);
                of_lock.stated_at.insert(position, index);
            }
        }
    }

    fn drop_hold(&mut self, lock: &LockKey, fence: Fence) {
        let Some(of_lock) = self.locks.get_mut(lock) else { return };
        let Ok(position) = of_lock.position(fence) else { return };
        let hold = of_lock.holds.remove(position);
        let stated_at = of_lock.stated_at.remove(position);
        if of_lock.holds.is_empty() {
            self.locks.remove(lock);
        }
        count_out(&mut self.namespaces, lock.namespace());
        self.deadlines.remove(&(hold.deadline, hold.lock.clone(), fence));
        self.statements.remove(&(stated_at, hold.lock, fence));
    }
}

impl LockHolds {
    fn position(&self, fence: Fence) -> Result<usize, usize> {
        self.holds.binary_search_by_key(&fence, |hold| hold.fence)
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
