//! Founding a cluster from a backup.

use lockstead_raft::{Backup, NewLineage, Replica, RestoreError};
use tracing::{info, warn};

use crate::exit::{Exit, Failure};
use crate::lineage;

/// Founds a cluster that goes on from a backup.
pub(super) async fn restore(replica: &Replica, backup: &Backup, lineage: NewLineage) -> Result<(), Failure> {
    let restored = replica.restore(backup, lineage).await.map_err(|error| match error {
        RestoreError::Lineage(error) => Failure::usage(lineage::refusal(&error)),
        RestoreError::Bootstrap(_) => Failure::new(Exit::IdentityRefused, error),
    });
    let begun = restored?;
    warn!(
        "founded cluster {} from a backup of {}: {}",
        begun.cluster_id,
        backup.cluster_id,
        lineage::announcement(&begun)
    );
    Ok(())
}

/// A node that belongs to a cluster restores nothing. One whose cluster it founded from a backup was only started
/// again: its file may be gone by then, or hold a later backup.
pub(super) fn must_be_done(replica: &Replica) -> Result<(), Failure> {
    if replica.restored_from().is_some() {
        info!(
            "restore (--restore, LOCKSTEAD_RESTORE) is ignored: this node has founded its cluster from a backup already"
        );
        return Ok(());
    }
    Err(Failure::usage(
        "restore (--restore, LOCKSTEAD_RESTORE): the data directory belongs to a cluster, and nothing was restored: to \
         restore, give an empty directory; to start this node, leave the option out",
    ))
}
