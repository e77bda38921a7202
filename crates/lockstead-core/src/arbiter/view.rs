//! The table as the requests of one drain see it: what is applied, and over it what the batch says so far.

use std::collections::HashMap;

use crate::name::LockKey;
use crate::record::Hold;
use crate::table::Table;
use crate::units::{Fence, LeaseTime};

/// A small overlay over the table.
#[derive(Debug)]
pub(super) struct View<'a> {
    table: &'a Table,
    /// All holds of each lock that the batch changes.
    changed: HashMap<LockKey, Vec<Hold>>,
    /// Live holds that the batch adds to a namespace, or takes from it.
    live_added: HashMap<Box<str>, i64>,
    last_fence: Fence,
    /// What stood at (lock, fence) before each change, oldest first.
    journal: Vec<(LockKey, Fence, Option<Hold>)>,
}

/// A state of a view to which it can go back.
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewMark {
    journal_len: usize,
    last_fence: Fence,
}

impl<'a> View<'a> {
    pub(super) fn new(table: &'a Table) -> Self {
        Self {
            table,
            changed: HashMap::new(),
            live_added: HashMap::new(),
            last_fence: table.last_fence(),
            journal: Vec::new(),
        }
    }

    /// What is applied.
    pub(super) fn table(&self) -> &'a Table {
        self.table
    }

    pub(super) fn holds(&self, lock: &LockKey) -> &[Hold] {
        self.changed.get(lock).map_or_else(|| self.table.holds(lock), Vec::as_slice)
    }

    pub(super) fn hold(&self, lock: &LockKey, fence: Fence) -> Option<&Hold> {
        self.holds(lock).iter().find(|hold| hold.fence == fence)
    }

    pub(super) fn is_free(&self, lock: &LockKey) -> bool {
        self.holds(lock).is_empty()
    }

    /// The highest fence granted, this batch's included.
    pub(super) fn last_fence(&self) -> Fence {
        self.last_fence
    }

    /// Live holds of a namespace, this batch's included.
    pub(super) fn live_in(&self, namespace: &str) -> u64 {
        let added = self.live_added.get(namespace).copied().unwrap_or(0);
        self.table.holds_in(namespace).saturating_add_signed(added)
    }

    pub(super) fn put(&mut self, hold: Hold) {
        self.last_fence = self.last_fence.max(hold.fence);
        let (lock, fence) = (hold.lock.clone(), hold.fence);
        let before = self.replace(&lock, fence, Some(hold));
        self.journal.push((lock, fence, before));
    }

    pub(super) fn remove(&mut self, lock: &LockKey, fence: Fence) {
        let before = self.replace(lock, fence, None);
        self.journal.push((lock.clone(), fence, before));
    }

    pub(super) fn mark(&self) -> ViewMark {
        ViewMark { journal_len: self.journal.len(), last_fence: self.last_fence }
    }

    pub(super) fn roll_back(&mut self, mark: ViewMark) {
        for (lock, fence, before) in self.journal.split_off(mark.journal_len).into_iter().rev() {
            self.replace(&lock, fence, before);
        }
        self.last_fence = mark.last_fence;
    }

    /// Puts `hold` where (lock, fence) stands, or takes away what stands there; gives what stood there.
    fn replace(&mut self, lock: &LockKey, fence: Fence, hold: Option<Hold>) -> Option<Hold> {
        let table = self.table;
        let holds = self.changed.entry(lock.clone()).or_insert_with(|| table.holds(lock).to_vec());
        let position = holds.binary_search_by_key(&fence, |hold| hold.fence);
        match (position, hold) {
            (Ok(position), Some(hold)) => Some(std::mem::replace(&mut holds[position], hold)),
            (Ok(position), None) => {
                let before = holds.remove(position);
                self.count(lock, -1);
                Some(before)
            }
            (Err(position), Some(hold)) => {
                holds.insert(position, hold);
                self.count(lock, 1);
                None
            }
            (Err(_), None) => None,
        }
    }

    fn count(&mut self, lock: &LockKey, added: i64) {
        if let Some(live_added) = self.live_added.get_mut(lock.namespace()) {
            *live_added += added;
        } else {
            self.live_added.insert(Box::from(lock.namespace()), added);
        }
    }
}

/// Whether a hold may be dropped.
pub(super) fn is_expired(hold: &Hold, now: LeaseTime) -> bool {
    now >= hold.deadline
}
