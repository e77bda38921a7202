//! What the store promises, tried on real directories.

use std::path::Path;
use std::sync::Arc;

use openraft::EntryPayload;
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt};

use super::journal::Layout;
use super::writer::OnFault;
use super::{LogStore, StoreMetrics};
use crate::OpenError;
use crate::types::{BatchBytes, Entry, LogId};

mod damage;
mod durability;
mod journal;
mod journal_damage;
mod log;
mod snapshots;
mod suite;
mod trees;

/// So small that tests use segments again.
const SMALL: Layout = Layout { segment_bytes: 512 << 10, segments_min: 2, segments_max: 4 };

fn log_id(term: u64, index: u64) -> LogId {
    LogId::new_term_index(term, index)
}

fn blank(term: u64, index: u64) -> Entry {
    Entry { log_id: log_id(term, index), payload: EntryPayload::Blank }
}

fn blanks(term: u64, indexes: std::ops::Range<u64>) -> Vec<Entry> {
    indexes.map(|index| blank(term, index)).collect()
}

fn batch(term: u64, index: u64, bytes: &[u8]) -> Entry {
    Entry { log_id: log_id(term, index), payload: EntryPayload::Normal(BatchBytes(Arc::from(bytes))) }
}

fn no_fault() -> OnFault {
    Box::new(|why| panic!("{why}"))
}

fn try_open(dir: &Path) -> Result<LogStore, OpenError> {
    open_with(dir, SMALL)
}

fn open_with(dir: &Path, layout: Layout) -> Result<LogStore, OpenError> {
    LogStore::open_on(dir, layout, StoreMetrics::new(), no_fault(), |disk, segments| {
        (Box::new(disk), Box::new(segments))
    })
}

fn open(dir: &Path) -> LogStore {
    try_open(dir).unwrap()
}

async fn append(store: &mut LogStore, entries: Vec<Entry>) {
    store.blocking_append(entries).await.unwrap();
}

async fn read(store: &mut LogStore, range: std::ops::Range<u64>) -> Vec<Entry> {
    store.try_get_log_entries(range).await.unwrap()
}

/// Last purged and last log id.
async fn ends(store: &mut LogStore) -> (Option<LogId>, Option<LogId>) {
    let state = store.get_log_state().await.unwrap();
    (state.last_purged_log_id, state.last_log_id)
}
