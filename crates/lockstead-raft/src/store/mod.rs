//! What a node keeps on disk: the log in sled, snapshots in files.
//!
//! Invariants:
//! 1. Nothing is reported durable before `flush` and a sync of our own have returned ([`writer`]).
//! 2. A failed insert, flush or sync is final: it is reported once, and no sync follows it.
//! 3. On disk the log is contiguous from `last_purged + 1`, or from 0 if nothing was purged.
//! 4. A snapshot holds no lock, token or owner, only the residue ([`snapshot`]).

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

mod codec;
mod disk;
mod log_store;
mod machine;
mod snapshot;
mod tail;
#[cfg(test)]
mod tests;
mod trees;
mod writer;

pub(crate) use log_store::LogStore;
pub(crate) use machine::{Machine, StateMachine};

/// What a node counts of its log. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct StoreMetrics {
    /// How long one flush and sync took, in seconds; their count is the number of syncs.
    pub(crate) sync_seconds: Histogram,
    /// How many appends, votes, truncations and purges one sync made durable.
    pub(crate) group_size: Histogram,
}

impl StoreMetrics {
    pub(crate) fn new() -> Self {
        Self {
            sync_seconds: Histogram::new(exponential_buckets(0.000_05, 2.0, 16)),
            group_size: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
        }
    }
}

/// What the files below `dir` occupy on disk, in bytes. Files that vanish meanwhile count as nothing.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn disk_bytes(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for item in std::fs::read_dir(dir)? {
        let item = item?;
        bytes += match item.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&item.path())?,
            Ok(metadata) => metadata.blocks() * 512,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
    }
    Ok(bytes)
}
