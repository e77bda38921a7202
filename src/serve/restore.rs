//! Founding a cluster from a backup.

use lockstead_raft::{Replica, RestoreError};
use tracing::warn;

use crate::config::Restoring;
use crate::exit::{Exit, Failure};
use crate::lineage;

/// Founds a cluster that goes on from a backup.
pub(super) async fn restore(replica: &Replica, restoring: &Restoring) -> Result<(), Failure> {
    let restored = replica.restore(&restoring.backup, restoring.lineage).await.map_err(|error| match error {
        RestoreError::Lineage(error) => Failure::usage(lineage::refusal(&error)),
        RestoreError::Bootstrap(_) => Failure::new(Exit::IdentityRefused, error),
    });
    let begun = restored?;
    warn!(
        "founded cluster {} from a backup of {}: {}",
        begun.cluster_id,
        restoring.backup.cluster_id,
        lineage::announcement(&begun)
    );
    Ok(())
}

/// A node that belongs to a cluster restores nothing. One that was restored from this very backup was only started again.
pub(super) fn must_be_done(replica: &Replica, restoring: &Restoring) -> Result<(), Failure> {
    if replica.restored_from() == Some(restoring.backup.checksum()) {
        return Ok(());
    }
    Err(Failure::usage(
        "restore (--restore, LOCKSTEAD_RESTORE): the data directory belongs to a cluster, and nothing was restored: to \
         restore, give an empty directory; to start this node, leave the option out",
    ))
}
