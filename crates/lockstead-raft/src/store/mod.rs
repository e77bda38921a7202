//! What a node keeps on disk: the log in sled with a journal in front of it, snapshots in files.
//!
//! Invariants:
//! 1. Nothing is reported durable before the journal's sync has returned ([`writer`]); sled follows behind
//!    ([`filler`]).
//! 2. A failed write, insert, flush or sync is final: it is reported once, and no sync follows it.
//! 3. On disk the log is contiguous from `last_purged + 1`, or from 0 if nothing was purged.
//! 4. A snapshot holds no lock, token or owner, only the residue ([`snapshot`]).

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use lockstead_core::WallTime;
use lockstead_core::record::BATCH_HEADER_BYTES;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

mod backlog;
mod change;
mod codec;
mod disk;
mod filler;
mod first;
mod journal;
mod log_store;
mod machine;
mod recovery;
mod seal;
mod snapshot;
mod tail;
#[cfg(test)]
mod tests;
mod trees;
mod writer;

pub(crate) use first::{first_snapshot, write_first_snapshot};
pub(crate) use log_store::LogStore;
pub(crate) use machine::{Machine, StateMachine};
pub(crate) use seal::newer;

/// What an entry of ours takes in the log beside its records, in bytes.
pub(crate) const ENTRY_EXTRA_BYTES: u64 = (codec::HEAD_BYTES + BATCH_HEADER_BYTES) as u64;

/// What a node counts of its log. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct StoreMetrics {
    /// How long one write and sync of the journal took, in seconds; their count is the number of groups.
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

/// When a file, or any of the files below a directory, was last written, by the wall clock of this machine then. What
/// is missing was never written.
///
/// # Errors
/// The system refuses to say.
pub(crate) fn newest_writing(path: &Path) -> io::Result<WallTime> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(WallTime::default()),
        Err(error) => return Err(error),
    };
    if !metadata.is_dir() {
        let since_epoch = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        return Ok(WallTime(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)));
    }
    let mut newest = WallTime::default();
    for item in std::fs::read_dir(path)? {
        newest = newest.max(newest_writing(&item?.path())?);
    }
    Ok(newest)
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
