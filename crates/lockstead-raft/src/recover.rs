//! Recovery: the one survivor of a lost majority becomes a cluster of its own, offline.
//!
//! Invariants
//! 1. Nothing of the old lineage is changed. The new one is written beside it, and `identity.json` then names it, by
//!    one rename: a process that is killed before that leaves the old lineage, after it the new one.
//! 2. Everything in the survivor's log counts, also what it did not know to be committed: an acknowledged grant may be
//!    among it, and its fence must not be granted again.
//! 3. No hold goes on. Grants that only the lost nodes knew of are covered by the wall clock ([`crate::lineage`]) and
//!    the hold-off.
//! 4. The wall clock is compared with the survivor's files before any of them is written, so that a second try with a
//!    wrong clock is refused as the first was.

use std::path::{Path, PathBuf};

use lockstead_core::{ClusterId, NodeId, WallTime};

use crate::OpenError;
use crate::identity::{Identity, SetClusterError};
use crate::lineage::{Begun, LineageError, NewLineage};
use crate::platform::{Host, Platform as _};
use crate::start::open_log;
use crate::store::{StateMachine, StoreMetrics, first_snapshot, newest_writing, write_first_snapshot};
use crate::types::Member;

/// Why a node was not recovered. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The directory cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no node in it.
    #[error("{0} holds no node that belongs to a cluster")]
    NoNode(PathBuf),
    /// It belongs to another cluster than was named.
    #[error("the node belongs to cluster {found}, not to {confirmed}")]
    OtherCluster {
        /// To which it belongs.
        found: ClusterId,
        /// Which was named.
        confirmed: ClusterId,
    },
    /// It never became a member, so it knows nothing.
    #[error("node {0} is no member of its cluster by what its log says")]
    NoMember(NodeId),
    /// Its log cannot be read.
    #[error("the log cannot be read: {0}")]
    Log(std::io::Error),
    /// No lineage can begin now.
    #[error(transparent)]
    Lineage(#[from] LineageError),
    /// The identity cannot be written.
    #[error("{0}")]
    Identity(String),
}

/// A node that is a cluster of its own now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The node.
    pub node_id: NodeId,
    /// Where its clients reach it.
    pub api: String,
    /// The lineage that has begun.
    pub begun: Begun,
    /// The last log index that was applied, committed or not.
    pub applied: u64,
    /// Where the old lineage lies: nothing needs it any more.
    pub left_behind: Vec<PathBuf>,
}

/// Makes the node in `data_dir`, a member of the cluster `confirmed`, the only member of a new cluster without any
/// hold. The node must not run.
///
/// # Errors
/// [`RecoverError`].
pub async fn recover(data_dir: &Path, confirmed: ClusterId, lineage: NewLineage) -> Result<Recovered, RecoverError> {
    let identity = Identity::reopen(data_dir)?.ok_or_else(|| RecoverError::NoNode(data_dir.to_owned()))?;
    match identity.cluster_id() {
        Some(found) if found == confirmed => {}
        Some(found) => return Err(RecoverError::OtherCluster { found, confirmed }),
        None => return Err(RecoverError::NoNode(data_dir.to_owned())),
    }
    let written_at = written_at(&identity)?;
    lineage.check_clock(written_at, Host.wall())?;
    let machine = whole_state(&identity).await?;
    let cluster = ClusterId(Host.random());
    let (member, residue, applied) = machine.with(|state| {
        let member = state.membership.membership().get_node(&identity.node_id()).cloned();
        let known = written_at.max(state.newest_wall_time());
        let residue = lineage.residue(&state.table.residue(), known, Host.wall());
        (member, residue, state.applied_index())
    });
    let member = member.ok_or(RecoverError::NoMember(identity.node_id()))?;
    let (residue, api) = (residue?, member.api.clone());
    let begun = Begun::new(cluster, &residue);
    let member = Member { starts: identity.starts(), ..member };
    let snapshot = first_snapshot(residue, identity.node_id(), member);
    let left_behind = vec![identity.log_dir(), identity.snapshot_dir()];
    let new_home = identity.prepare_home(cluster)?;
    write_first_snapshot(&new_home.snapshot_dir(), cluster, &snapshot)?;
    identity.move_to(new_home, cluster).map_err(|why| match why {
        SetClusterError::Io { path, source } => RecoverError::Open(OpenError::Io { path, source }),
        other => RecoverError::Identity(other.to_string()),
    })?;
    Ok(Recovered { node_id: identity.node_id(), api, begun, applied, left_behind })
}

/// When the node's log, snapshots and identity were last written, by its own wall clock.
fn written_at(identity: &Identity) -> Result<WallTime, OpenError> {
    let places = [identity.file(), identity.log_dir(), identity.snapshot_dir()];
    let newest = places.map(|path| newest_writing(&path).map_err(|source| OpenError::Io { path, source }));
    newest.into_iter().try_fold(WallTime::default(), |newest, written| Ok(newest.max(written?)))
}

/// The state after every entry of the log.
async fn whole_state(identity: &Identity) -> Result<StateMachine, RecoverError> {
    let on_fault = |why: String| tracing::error!(why, "the old log cannot be written");
    let log = open_log(identity, StoreMetrics::new(), Box::new(on_fault))?;
    let machine = StateMachine::open(&identity.snapshot_dir(), log, identity.cluster_cell())?;
    machine.apply_whole_log().await.map_err(RecoverError::Log)?;
    Ok(machine)
}
