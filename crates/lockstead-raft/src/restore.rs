//! Backing a node up, and founding a cluster from a backup.

use std::sync::atomic::Ordering;

use lockstead_core::ClusterId;

use crate::backup::{Backup, BackupMember};
use crate::identity::Origin;
use crate::lineage::{Begun, LineageError, NewLineage};
use crate::node::Node;
use crate::platform::Platform;
use crate::replica::{BootstrapError, SubmitError};
use crate::store::first_snapshot;
use crate::types::{StoredMembership, Vote};

/// In whose name the first snapshot is installed: node ids begin at 1, so nobody waits for this leader for long.
const NOBODY: u64 = 0;

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The backup does not do; nothing was changed.
    #[error(transparent)]
    Lineage(#[from] LineageError),
    /// As of a plain bootstrap. A node that fails in between goes on with the same backup.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
}

impl<P: Platform> Node<P> {
    /// What this node has to give to a backup now.
    pub(crate) fn back_up(&self) -> Result<Backup, SubmitError> {
        let cluster_id = self.identity.cluster_id().ok_or(SubmitError::CatchingUp)?;
        let machine = self.machine.lock();
        if !machine.is_complete() {
            return Err(SubmitError::CatchingUp);
        }
        let label = self.machine.label_now(&machine).ok_or(SubmitError::CatchingUp)?;
        Ok(Backup {
            cluster_id,
            taken_at: self.platform.wall(),
            index: label.index(),
            term: label.committed_leader_id().term,
            built_at: machine.applied_index(),
            residue: machine.table.residue(),
            members: backup_members(&machine.membership),
        })
    }

    /// Founds a cluster of this node alone that goes on from a backup.
    ///
    /// The cluster id goes to disk first, with the backup that it comes from. A node that is killed between the two
    /// steps comes back uninitialised and goes on with the same id, if it is given the same backup.
    pub(crate) async fn restore(&self, backup: &Backup, lineage: NewLineage) -> Result<Begun, RestoreError> {
        let failed = |why: &dyn std::fmt::Display| BootstrapError(why.to_string());
        if self.knows_members() {
            return Err(failed(&"it belongs to a cluster already").into());
        }
        let residue = lineage.residue(&backup.residue, backup.taken_at, self.platform.wall())?;
        let (cluster, origin) = (ClusterId(self.platform.random()), Origin::Backup(backup.checksum()));
        let founded = self.keep(move |identity| identity.found_cluster(cluster, origin)).await;
        founded.map_err(|why| failed(&why))?;
        let begun = Begun::new(self.identity.cluster_id().unwrap_or(cluster), &residue);
        let snapshot = first_snapshot(residue, self.identity.node_id(), self.own_member());
        let vote = Vote::new_committed(1, NOBODY);
        let installed = self.raft.install_full_snapshot(vote, snapshot).await.map_err(|why| failed(&why))?;
        if installed.vote != vote {
            return Err(failed(&format_args!("it has voted before: {}", installed.vote)).into());
        }
        self.bootstrapping.store(false, Ordering::SeqCst);
        Ok(begun)
    }
}

fn backup_members(membership: &StoredMembership) -> Vec<BackupMember> {
    let membership = membership.membership();
    let voters: Vec<_> = membership.voter_ids().collect();
    let member = |(id, member): (&u64, &crate::Member)| BackupMember {
        id: *id,
        api: member.api.clone(),
        peer: member.peer.clone(),
        is_voter: voters.contains(id),
    };
    membership.nodes().map(member).collect()
}
