//! What the store promises, tried on real directories.

use std::path::Path;
use std::sync::Arc;

use openraft::EntryPayload;
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt};

use super::writer::OnFault;
use super::{LogStore, StoreMetrics};
use crate::OpenError;
use crate::types::{BatchBytes, Entry, LogId};

mod damage;
mod durability;
mod log;
mod snapshots;

mod suite;

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
    LogStore::open(dir, StoreMetrics::new(), no_fault())
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
