//! When the leader says old records once more.
//!
//! A label lies before the oldest live record, so one lock that is held for long would keep the whole log. Once the log
//! behind the label it could have is longer than the bound, the oldest records are restated at its head, a few with
//! each batch, as a log-structured store cleans its segments. The bound is never below twice what all live records take
//! in the log: of the bytes that go by, at most every second one is a restated one.
//!
//! Sources: Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File System" (1992), 3.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockstead_core::Restating;

use crate::store::{ENTRY_EXTRA_BYTES, LogStore, Machine};

/// The most bytes restated with one batch: a renewal in the same batch waits no longer for it than for its sync.
const PIECE_BYTES_MAX: usize = 16 << 10;

/// Decides what has to be restated. Clones are one.
#[derive(Clone)]
pub(crate) struct RestatingRule {
    log: LogStore,
    tail_bytes_max: u64,
    /// Up to where an operator wants everything restated.
    asked_upto: Arc<AtomicU64>,
}

impl RestatingRule {
    /// A tail of at most `tail_bytes_max` bytes, or twice the live records if they are more.
    pub(crate) fn new(log: LogStore, tail_bytes_max: u64) -> Self {
        Self { log, tail_bytes_max, asked_upto: Arc::default() }
    }

    /// Wants all live records restated; gives the log index up to which. While an earlier wish is not fulfilled, it is
    /// that one: whoever asks again and again must see an end.
    pub(crate) fn ask(&self, state: &Machine) -> u64 {
        let asked = self.asked_upto.load(Ordering::SeqCst);
        if state.table.oldest_statement().is_some_and(|oldest| oldest <= asked) {
            return asked;
        }
        self.asked_upto.fetch_max(state.applied_index(), Ordering::SeqCst).max(state.applied_index())
    }

    /// What the next batch has to restate.
    pub(crate) fn due(&self, state: &Machine) -> Option<Restating> {
        let oldest = state.table.oldest_statement()?;
        let by_length = self.log.index_before_last(self.bound(state)).unwrap_or(0);
        let upto = by_length.max(self.asked_upto.load(Ordering::SeqCst));
        (oldest <= upto).then_some(Restating { upto, bytes_max: PIECE_BYTES_MAX })
    }

    /// What live records take is counted as if each were an entry of its own, so that a log of nothing else is never
    /// above half the bound: or restating would make room for restating.
    fn bound(&self, state: &Machine) -> u64 {
        let records = u64::try_from(state.table.live_records()).unwrap_or(u64::MAX);
        let live_bytes = state.table.live_bytes().saturating_add(records.saturating_mul(ENTRY_EXTRA_BYTES));
        self.tail_bytes_max.max(live_bytes.saturating_mul(2))
    }
}
