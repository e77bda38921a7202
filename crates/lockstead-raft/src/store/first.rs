//! The first snapshot of a lineage that goes on from another's residue.
//!
//! A plain founder's log begins with the membership at index 0. Here this entry counts as purged, behind a snapshot
//! that names it as its label and holds the residue: whoever joins gets the residue, since the log lacks what comes
//! before index 1.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use lockstead_core::{ClusterId, NodeId, Residue, WallTime};
use openraft::storage::RaftLogReader as _;

use super::disk::sync_dir;
use super::snapshot::{Contents, SnapshotFiles};
use super::{Machine, StateMachine};
use crate::OpenError;
use crate::types::{LogId, Member, Membership, Snapshot, SnapshotMeta, StoredMembership};

/// The first snapshot of a lineage that one node founds.
pub(crate) fn first_snapshot(residue: Residue, founder: NodeId, member: Member) -> Snapshot {
    let first = Some(LogId::new_term_index(0, 0));
    let membership = Membership::new(vec![BTreeSet::from([founder])], BTreeMap::from([(founder, member)]))
        .expect("one voter that is a member is a membership");
    let meta = SnapshotMeta { last_log_id: first, last_membership: StoredMembership::new(first, membership) };
    Snapshot { meta, snapshot: Contents { built_at: 0, residue }.encode() }
}

/// Writes the first snapshot of `cluster` durably into the directory `dir`, which is made if missing. Blocks.
///
/// # Errors
/// [`OpenError::Io`].
pub(crate) fn write_first_snapshot(dir: &Path, cluster: ClusterId, snapshot: &Snapshot) -> Result<(), OpenError> {
    let files = SnapshotFiles::open(dir, Arc::new(OnceLock::from(cluster)))?;
    let written = files.persist(&snapshot.meta, &snapshot.snapshot).and_then(|_| sync_dir(dir));
    written.map_err(|source| OpenError::Io { path: dir.to_owned(), source })
}

impl StateMachine {
    /// Applies all that the log has, committed or not. Only for a log that nobody appends to any more.
    ///
    /// # Errors
    /// The log cannot be read, or holds what this build does not understand.
    pub(crate) async fn apply_whole_log(&self) -> io::Result<()> {
        let mut log = self.log.clone();
        loop {
            let next = self.with(|machine| machine.last_applied.map_or(0, |last| last.index() + 1));
            let entries = log.limited_get_log_entries(next, u64::MAX).await?;
            if entries.is_empty() {
                return Ok(());
            }
            let mut machine = self.lock();
            entries.into_iter().try_for_each(|entry| machine.apply(entry).map(drop))?;
        }
    }

    /// The log entry that the label of a snapshot taken now names.
    pub(crate) fn label_now(&self, machine: &Machine) -> Option<LogId> {
        self.label(machine, machine.label()?)
    }
}

impl Machine {
    /// The newest moment on any wall clock that the table knows of.
    pub(crate) fn newest_wall_time(&self) -> WallTime {
        self.table.all_holds().map(|hold| hold.acquired_at).max().unwrap_or_default()
    }
}
