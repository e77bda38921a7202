//! A node of the cluster, as the rest of the program sees it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lockstead_core::{ClusterId, LockKey, LockView, NodeId, Op, Outcome};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::backup::Backup;
use crate::config::ReplicaConfig;
use crate::identity::Identity;
use crate::lineage::{Begun, NewLineage};
use crate::members::{MemberError, MemberReply, MemberRequest};
use crate::node::Node;
use crate::platform::Host;
use crate::restore::RestoreError;
use crate::snapshot_now::{SnapshotError, SnapshotTaken};
use crate::view::{ClusterView, LeaderView};

/// Why a data directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses the directory (exit 14).
    #[error("the data directory {path} is in use by another process: {holder}")]
    InUse {
        /// The directory.
        path: PathBuf,
        /// What is known of the other process.
        holder: String,
    },
    /// What was acknowledged is damaged or missing (exit 10).
    #[error(
        "{file} is damaged: {why}. The way out: stop this node, remove it from the cluster, empty its directory and join it again under a new id; with no majority left, restore a backup or recover a survivor"
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A newer version of Lockstead wrote what lies there (exit 2).
    #[error("{file}: {why}. The way out: start that version again; nothing was changed")]
    Newer {
        /// The file.
        file: PathBuf,
        /// Which version it is of, and which one is known.
        why: String,
    },
    /// The directory belongs to another node (exit 13).
    #[error("the data directory {path} belongs to node {found}, not to node {asked}")]
    OtherNode {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        found: NodeId,
        /// Who asks.
        asked: NodeId,
    },
    /// It would run at other addresses than its cluster knows (exit 2).
    #[error(
        "the cluster reaches this node at {known_api} and {known_peer} (peers), not at {api} and {peer}: start it there"
    )]
    Moved {
        /// Where clients reach it, as its membership says.
        known_api: String,
        /// Where peers reach it, as its membership says.
        known_peer: String,
        /// Where clients would reach it.
        api: String,
        /// Where peers would reach it.
        peer: String,
    },
    /// The fault that is to be planted does not exist; only builds with debug assertions look for one (exit 2).
    #[error("LOCKSTEAD_PLANT: {said:?} is no fault; allowed: {allowed}")]
    Plant {
        /// What the variable says.
        said: String,
        /// What it may say.
        allowed: String,
    },
    /// The disk refuses (exit 11).
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Why a cluster could not be founded.
#[derive(Debug, thiserror::Error)]
#[error("this node could not found a cluster: {0}")]
pub struct BootstrapError(pub String);

/// What one try to join gave.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The cluster refuses this node for good (exit 13).
    #[error("the cluster refuses this node: {0}")]
    Refused(String),
    /// Nobody who could decide was reached; try again.
    #[error("not joined yet: {0}")]
    NotYet(String),
}

/// How a node takes part after joining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinAs {
    /// Promoted once it has caught up.
    Voter,
    /// Stays a learner.
    Learner,
}

/// What a request got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The outcome; each `left_ms` in it is what is left now, already lowered by the time since the decision.
    pub outcome: Outcome,
    /// How long the request lay with the nodes that carried it before the decision, in milliseconds.
    pub waited_ms: u64,
}

/// A request whose outcome could not be found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// No leader with a quorum was found in time. Nothing was changed; send it again.
    #[error("no leader with a quorum answered in time; nothing was changed")]
    NoLeader,
    /// It may or may not have taken effect. Send it again with the same request id, or read.
    #[error("the request may or may not have taken effect")]
    OutcomeUnknown,
    /// This node has not replayed enough of the log. Send it to another, or later.
    #[error("this node is still catching up with the log")]
    CatchingUp,
}

/// Why a node is not ready to serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// It belongs to no cluster yet.
    #[error("this node has not joined a cluster yet")]
    NotJoined,
    /// It does not vote.
    #[error("this node is not a voter")]
    NotVoter,
    /// A voter takes it for another node, or for an older copy of itself.
    #[error("this node's identity is in doubt: {0}")]
    Doubted(String),
    /// It has not replayed enough of the log.
    #[error("this node is still catching up with the log")]
    CatchingUp,
    /// It knows no leader.
    #[error("this node knows no leader")]
    NoLeader,
    /// It was started, and another voter that it asks whether it may vote has neither answered nor been given up.
    #[error("this node has still to hear from the other voters whether it may vote")]
    Unproven,
}

/// Why a running node has to stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    /// A write or sync failed (exit 11).
    #[error("storage failed: {0}")]
    Storage(String),
    /// Its cluster has removed it (exit 12).
    #[error("this node was removed from its cluster, and its id is never used again: {0}")]
    Removed(String),
    /// Its cluster reaches it at other addresses (exit 2).
    #[error("{0}")]
    Moved(String),
    /// Its identity was refused by its cluster (exit 13).
    #[error("the identity of this node was refused: {0}")]
    Identity(String),
    /// Anything else that must not go on.
    #[error("{0}")]
    Fatal(String),
}

/// A node. Cheap to clone; all clones are one node.
#[derive(Clone)]
pub struct Replica {
    node: Arc<Node<Host>>,
}

impl Replica {
    /// Says who uses a data directory if another process does ([`OpenError::InUse`]). Blocks; is no start of the node.
    #[must_use]
    pub fn in_use(data_dir: &Path) -> Option<OpenError> {
        Identity::reopen(data_dir).err().filter(|error| matches!(error, OpenError::InUse { .. }))
    }

    /// Opens the data directory and starts the node; peers are served on `peer_listener`.
    ///
    /// # Errors
    /// [`OpenError`]; nothing runs then.
    pub async fn open(config: ReplicaConfig, peer_listener: TcpListener) -> Result<Self, OpenError> {
        Ok(Self { node: Node::open(config, peer_listener).await? })
    }

    /// Whether this node belongs to a cluster already: its log or snapshot holds a membership.
    #[must_use]
    pub fn is_initialised(&self) -> bool {
        self.node.is_initialised()
    }

    /// Whether its membership counts this node as a voter.
    #[must_use]
    pub fn is_voter(&self) -> bool {
        self.node.is_voter()
    }

    /// Says, in [`ClusterView::bootstrapping`], that this node is about to found a cluster.
    pub fn announce_bootstrap(&self) {
        self.node.announce_bootstrap();
    }

    /// Founds a cluster of this node alone. A cancelled or failed call may be repeated.
    ///
    /// # Errors
    /// [`BootstrapError`] if it belongs to one already.
    pub async fn bootstrap(&self) -> Result<(), BootstrapError> {
        self.node.bootstrap().await
    }

    /// Asks the members at `peers` (peer addresses) once to take this node in, and waits until it has caught up and,
    /// as a voter, is promoted. Repeating it is harmless.
    ///
    /// # Errors
    /// [`JoinError::NotYet`]: try again after a while; [`JoinError::Refused`]: never.
    pub async fn join(&self, peers: &[String], join_as: JoinAs) -> Result<(), JoinError> {
        self.node.join(peers, join_as).await
    }

    /// Whether this node's log or snapshot holds a membership: it is, or was, a member of a cluster.
    #[must_use]
    pub fn knows_members(&self) -> bool {
        self.node.knows_members()
    }

    /// Whether a cluster calls this empty node as a member of its own that had another data directory, in words: it is
    /// never added under this id.
    #[must_use]
    pub fn was_member(&self) -> Option<&str> {
        self.node.standing.was_member()
    }

    /// Has the leader, wherever it is, change the membership or who leads; takes `wait_ms` and 5 s at most.
    ///
    /// Repeating a request is harmless: what has taken effect is answered with success and changes nothing. Dropping
    /// the future does not undo a change that was begun.
    ///
    /// # Errors
    /// [`MemberError`].
    pub async fn change_members(&self, request: MemberRequest) -> Result<MemberReply, MemberError> {
        self.node.change_members(request).await
    }

    /// Carries a request to the leader, wherever it is, and waits for its outcome, `time_left` at most.
    ///
    /// Dropping the future withdraws the request: it is not decided later, or its grant is given back.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub async fn submit(&self, op: Op, time_left: Duration) -> Result<Reply, SubmitError> {
        self.node.submit(op, time_left).await
    }

    /// What this node's own table says of a lock, which may be old: `None` if nobody holds it. It knows no waiters.
    ///
    /// # Errors
    /// [`SubmitError::CatchingUp`].
    pub fn read_stale(&self, lock: &LockKey) -> Result<Option<LockView>, SubmitError> {
        self.node.read_stale(lock)
    }

    /// Has the leader log every live record once more, takes a snapshot here and purges the log behind it, in
    /// `time_max` at most. Repeating it is harmless; dropping the future leaves what was begun going on.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub async fn snapshot(&self, time_max: Duration) -> Result<SnapshotTaken, SnapshotError> {
        self.node.snapshot(time_max).await
    }

    /// Founds a cluster of this node alone that goes on from a backup, without any hold. A cancelled or failed call may
    /// be repeated with the same backup.
    ///
    /// # Errors
    /// [`RestoreError`] if the backup does not do, or if the node belongs to a cluster already.
    pub async fn restore(&self, backup: &Backup, lineage: NewLineage) -> Result<Begun, RestoreError> {
        self.node.restore(backup, lineage).await
    }

    /// [`Backup::checksum`] of the backup with which this node founded its cluster, if it did so from one.
    #[must_use]
    pub fn restored_from(&self) -> Option<u32> {
        self.node.identity.restored_from()
    }

    /// What this node has to give to a backup now: no hold is in it.
    ///
    /// # Errors
    /// [`SubmitError::CatchingUp`].
    pub fn back_up(&self) -> Result<Backup, SubmitError> {
        self.node.back_up()
    }

    /// Its inner parts.
    #[cfg(test)]
    pub(crate) fn node(&self) -> &Node<Host> {
        &self.node
    }

    /// This node's view of the cluster. Never blocks.
    #[must_use]
    pub fn view(&self) -> ClusterView {
        self.node.view()
    }

    /// Voter, caught up, knows a leader.
    ///
    /// # Errors
    /// [`NotReady`] with the first reason that applies.
    pub fn readiness(&self) -> Result<(), NotReady> {
        self.node.readiness()
    }

    /// Who leads, as this node knows.
    #[must_use]
    pub fn leader(&self) -> Option<LeaderView> {
        self.node.leader()
    }

    /// The lineage, once joined.
    #[must_use]
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.node.cluster_id()
    }

    /// Adds this node's metrics to a registry.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.node.register_metrics(registry);
    }

    /// Gives leadership to the voter that is furthest, if this node leads and another can; then ends what still waits
    /// here with [`SubmitError::NoLeader`]. Returns when another leads or after `time_max`.
    pub async fn hand_over(&self, time_max: Duration) {
        self.node.hand_over(time_max).await;
    }

    /// Resolves when this node has to stop.
    pub async fn stopped(&self) -> StopReason {
        self.node.stopped().await
    }

    /// Stops the node: no request is taken, files are synced.
    pub async fn shutdown(&self) {
        self.node.shutdown().await;
    }
}
