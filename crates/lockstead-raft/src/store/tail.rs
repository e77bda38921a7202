//! The log as memory knows it: where it begins and ends, how large it is, and its newest entries.
//!
//! Invariants:
//! 1. An entry leaves the window only once it is in sled, so every entry of the log is in one of the two.
//! 2. The window is the end of the log: its last entry is the log's last.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use super::change::Witness;
use super::codec::entry_bytes;
use super::seal::Why;
use crate::types::{Entry, LogId, Vote};

/// The most entries kept in memory beyond those not yet in sled.
const WINDOW_ENTRIES_MAX: usize = 20_000;
/// The most bytes of entries kept in memory beyond those not yet in sled.
const WINDOW_BYTES_MAX: u64 = 16 << 20;

/// Names an append; rises with each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AppendNumber(u64);

#[derive(Default)]
pub(super) struct Tail {
    /// Index of the first entry, if there is one.
    first: u64,
    /// Where each entry ends, in bytes of all that this process has seen before it.
    ends: VecDeque<u64>,
    /// Where the first entry begins.
    begin: u64,
    window: VecDeque<(AppendNumber, Entry)>,
    window_bytes: u64,
    purged: Option<LogId>,
    last: Option<LogId>,
    appended: AppendNumber,
    written: AppendNumber,
    /// Rises whenever entries go, so that a reader of sled sees that it read too late.
    cuts: u64,
    pub(super) vote: Option<Vote>,
    committed: Option<LogId>,
    committed_unsaved: bool,
}

/// What a read has to fetch from sled, and what follows it from memory.
pub(super) struct ReadPlan {
    pub(super) cold: Range<u64>,
    pub(super) hot: Vec<Entry>,
    pub(super) cuts: u64,
}

impl Tail {
    /// A log without entries.
    pub(super) fn new(purged: Option<LogId>, vote: Option<Vote>, committed: Option<LogId>) -> Self {
        Self { purged, last: purged, vote, committed, ..Self::default() }
    }

    /// Adds entries that sled does not have yet.
    pub(super) fn append(&mut self, entries: &[Entry]) -> io::Result<AppendNumber> {
        self.check(entries)?;
        self.appended.0 += 1;
        for entry in entries {
            self.push(entry.clone());
        }
        Ok(self.appended)
    }

    /// Adds an entry found in sled.
    pub(super) fn load(&mut self, entry: Entry) -> Result<(), Why> {
        self.check_loaded(entry.log_id)?;
        self.push(entry);
        self.evict();
        Ok(())
    }

    /// Everything up to this append is in sled.
    pub(super) fn written(&mut self, append: AppendNumber) {
        self.written = self.written.max(append);
        self.evict();
    }

    /// Takes the entries above `keep` away; gives the first index that goes.
    pub(super) fn truncate_after(&mut self, keep: Option<LogId>) -> u64 {
        let from = keep.map_or(0, |keep| keep.index() + 1).max(self.purged.map_or(0, |purged| purged.index() + 1));
        if from < self.next_index() {
            while self.next_index() > from.max(self.first) {
                self.pop_back();
            }
            self.last = if self.ends.is_empty() { self.purged } else { keep };
            self.cuts += 1;
        }
        from
    }

    /// Takes the entries up to `purged` away.
    pub(super) fn purge(&mut self, purged: LogId) {
        if self.purged >= Some(purged) {
            return;
        }
        while !self.ends.is_empty() && self.first <= purged.index() {
            self.pop_front();
        }
        self.purged = Some(purged);
        if self.ends.is_empty() {
            self.last = self.purged;
        }
        self.cuts += 1;
    }

    pub(super) fn purged(&self) -> Option<LogId> {
        self.purged
    }

    pub(super) fn last(&self) -> Option<LogId> {
        self.last
    }

    /// Its ends and the vote.
    pub(super) fn witness(&self) -> Witness {
        Witness { vote: self.vote, purged: self.purged, last: self.last }
    }

    /// Entries and bytes of the log.
    pub(super) fn stats(&self) -> (u64, u64) {
        (self.ends.len() as u64, self.end() - self.begin)
    }

    /// Bytes of all entries that were ever in it.
    #[cfg(test)]
    pub(super) fn bytes_written(&self) -> u64 {
        self.end()
    }

    /// Bytes of the entries after `index`.
    pub(super) fn bytes_after(&self, index: u64) -> u64 {
        self.end() - self.end_of(index)
    }

    /// The first index from which at most `bytes_max` bytes follow.
    pub(super) fn index_before_last(&self, bytes_max: u64) -> Option<u64> {
        let limit = self.end().saturating_sub(bytes_max);
        if limit <= self.begin {
            return (self.first).checked_sub(1);
        }
        Some(self.first + self.ends.partition_point(|end| *end < limit) as u64)
    }

    pub(super) fn cuts(&self) -> u64 {
        self.cuts
    }

    pub(super) fn committed(&self) -> Option<LogId> {
        self.committed
    }

    pub(super) fn set_committed(&mut self, committed: Option<LogId>) {
        self.committed_unsaved |= self.committed != committed;
        self.committed = committed;
    }

    /// The committed log id if it was not saved since it changed and is not beyond `upto`.
    pub(super) fn take_unsaved_committed(&mut self, upto: Option<LogId>) -> Option<LogId> {
        if !self.committed_unsaved || self.committed > upto {
            return None;
        }
        self.committed_unsaved = false;
        self.committed
    }

    /// How to read the entries from `start` up to and without `end` that the log has, `bytes_max` of them and at least
    /// one.
    pub(super) fn plan(&self, start: u64, end: u64, bytes_max: u64) -> ReadPlan {
        let start = start.max(self.first);
        let end = self.limit(start, end.min(self.next_index()).max(start), bytes_max);
        let hot_first = self.next_index() - self.window.len() as u64;
        let at = |index: u64| index.saturating_sub(hot_first).try_into().unwrap_or(usize::MAX).min(self.window.len());
        let hot = self.window.range(at(start)..at(end)).map(|(_, entry)| entry.clone()).collect();
        ReadPlan { cold: start..end.min(hot_first).max(start), hot, cuts: self.cuts }
    }

    fn limit(&self, start: u64, end: u64, bytes_max: u64) -> u64 {
        if bytes_max == u64::MAX {
            return end;
        }
        let begin = self.end_before(start);
        let mut limit = start;
        while limit < end && (limit == start || self.end_before(limit) - begin < bytes_max) {
            limit += 1;
        }
        limit
    }

    fn next_index(&self) -> u64 {
        self.first + self.ends.len() as u64
    }

    /// Where the log ends.
    fn end(&self) -> u64 {
        self.ends.back().copied().unwrap_or(self.begin)
    }

    /// Where the entry at `index` ends; where the log begins or ends, if it lies beyond that.
    fn end_of(&self, index: u64) -> u64 {
        self.end_before(index.saturating_add(1))
    }

    /// Where the entry before `index` ends.
    fn end_before(&self, index: u64) -> u64 {
        match usize::try_from(index.saturating_sub(self.first)).unwrap_or(usize::MAX) {
            0 => self.begin,
            entries => self.ends.get(entries - 1).copied().unwrap_or(self.end()),
        }
    }

    fn check(&self, entries: &[Entry]) -> io::Result<()> {
        let mut next = match (self.ends.is_empty(), self.purged) {
            (false, _) => Some(self.next_index()),
            (true, Some(purged)) => Some(purged.index() + 1),
            // A log starts at 0. Opening refuses any other; openraft's own test suite starts some at 1.
            (true, None) => None,
        };
        for entry in entries {
            let index = entry.log_id.index();
            if next.is_some_and(|next| next != index) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("append of {index}, not of {next:?}")));
            }
            next = Some(index + 1);
        }
        Ok(())
    }

    fn check_loaded(&self, log_id: LogId) -> Result<(), Why> {
        let next = self.last.map_or(0, |last| last.index() + 1);
        if log_id.index() != next {
            return Err(format!("entry {next} is missing before {}", log_id.index()).into());
        }
        if self.last.is_some_and(|last| last.committed_leader_id() > log_id.committed_leader_id()) {
            return Err(format!("entry {next} is of an earlier term than the one before").into());
        }
        Ok(())
    }

    fn push(&mut self, entry: Entry) {
        if self.ends.is_empty() {
            self.first = entry.log_id.index();
        }
        let bytes = entry_bytes(&entry);
        self.ends.push_back(self.end() + u64::from(bytes));
        self.window_bytes += u64::from(bytes);
        self.last = Some(entry.log_id);
        self.window.push_back((self.appended, entry));
    }

    fn pop_back(&mut self) {
        let Some(end) = self.ends.pop_back() else { return };
        let bytes = end - self.end();
        if self.window.pop_back().is_some() {
            self.window_bytes -= bytes;
        }
    }

    fn pop_front(&mut self) {
        let in_window = self.window.len() == self.ends.len();
        let Some(end) = self.ends.pop_front() else { return };
        let bytes = end - std::mem::replace(&mut self.begin, end);
        self.first += 1;
        if in_window {
            self.window.pop_front();
            self.window_bytes -= bytes;
        }
    }

    fn evict(&mut self) {
        while self.window.len() > WINDOW_ENTRIES_MAX || self.window_bytes > WINDOW_BYTES_MAX {
            let Some((append, entry)) = self.window.front() else { return };
            if *append > self.written {
                return;
            }
            self.window_bytes -= u64::from(entry_bytes(entry));
            self.window.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use openraft::EntryPayload;

    use super::*;
    use crate::store::ENTRY_EXTRA_BYTES;
    use crate::types::BatchBytes;

    /// An entry with a batch of `bytes`.
    fn entry(index: u64, bytes: usize) -> Entry {
        let payload = EntryPayload::Normal(BatchBytes(Arc::from(vec![0; bytes])));
        Entry { log_id: LogId::new_term_index(1, index), payload }
    }

    #[test]
    fn the_bytes_behind_an_index_are_known_through_appends_purges_and_truncations() {
        let mut tail = Tail::default();
        assert_eq!((tail.stats(), tail.bytes_after(0), tail.index_before_last(0)), ((0, 0), 0, None));
        let entries: Vec<Entry> = (0..5).map(|index| entry(index, 100 * usize::try_from(index).unwrap())).collect();
        let each: Vec<u64> = entries.iter().map(|entry| u64::from(entry_bytes(entry))).collect();
        let overhead = each[0];
        assert!(overhead <= ENTRY_EXTRA_BYTES);
        tail.append(&entries).unwrap();
        assert_eq!(tail.stats(), (5, each.iter().sum()));
        let check = |tail: &Tail, from: u64| {
            for index in from..7 {
                let behind: u64 = (index + 1..5).map(|after| each[usize::try_from(after).unwrap()]).sum();
                assert_eq!(tail.bytes_after(index), behind, "after {index}");
                let smallest = tail.index_before_last(behind).unwrap();
                assert_eq!(smallest, index.min(4), "before the last {behind} bytes");
            }
        };
        check(&tail, 0);
        tail.purge(LogId::new_term_index(1, 1));
        assert_eq!(tail.stats(), (3, each[2..].iter().sum()));
        check(&tail, 1);
        assert_eq!(tail.index_before_last(u64::MAX), Some(1), "all that is there");
        tail.truncate_after(Some(LogId::new_term_index(1, 3)));
        assert_eq!((tail.stats(), tail.bytes_after(2)), ((2, each[2] + each[3]), each[3]));
        tail.append(&[entry(4, 400)]).unwrap();
        check(&tail, 1);
        tail.purge(LogId::new_term_index(1, 9));
        assert_eq!((tail.stats(), tail.bytes_after(3)), ((0, 0), 0));
    }
}
