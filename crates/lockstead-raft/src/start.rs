//! How a node's parts start: its files, its name to the peers, openraft.

use std::path::Path;
use std::sync::Arc;

use lockstead_core::NodeId;
use openraft::async_runtime::WatchReceiver as _;
use openraft::storage::{RaftLogReader as _, RaftLogStorage as _};
use openraft::{Config, SnapshotPolicy};
use tokio::sync::watch;

use crate::config::ReplicaConfig;
use crate::identity::Identity;
use crate::metrics::ReplicaMetrics;
use crate::node::{has_members, stop};
use crate::peer::{Dialer, NodeCard, Position, Word};
use crate::platform::Platform;
use crate::replica::{OpenError, StopReason};
use crate::standing::Standing;
use crate::store::{LogStore, StateMachine, StoreMetrics};
use crate::types::{Raft, TypeConfig};

/// A node's files, opened.
pub(crate) struct Files {
    pub(crate) identity: Identity,
    pub(crate) log: LogStore,
    pub(crate) machine: StateMachine,
}

impl Files {
    pub(crate) async fn open(
        config: &ReplicaConfig,
        metrics: &ReplicaMetrics,
        stop_reason: &watch::Sender<Option<StopReason>>,
    ) -> Result<Self, OpenError> {
        let (data_dir, node_id) = (config.data_dir.clone(), config.node_id);
        let (store_metrics, stop_reason) = (metrics.store.clone(), stop_reason.clone());
        let on_fault = move |why: String| stop(&stop_reason, StopReason::Storage(why));
        let open = move || Self::open_blocking(&data_dir, node_id, store_metrics, Box::new(on_fault));
        tokio::task::spawn_blocking(open).await.expect("a panic ends the process, and nothing cancels this task")
    }

    fn open_blocking(
        data_dir: &Path,
        node_id: NodeId,
        metrics: StoreMetrics,
        on_fault: Box<dyn FnOnce(String) + Send>,
    ) -> Result<Self, OpenError> {
        let identity = Identity::open(data_dir, node_id)?;
        let log = open_log(&identity, metrics, on_fault)?;
        let machine = StateMachine::open(&identity.snapshot_dir(), log.clone(), identity.cluster_cell())?;
        Ok(Self { identity, log, machine })
    }
}

/// Opens the log of a node. A member has voted, or was called by a leader: an empty log has lost that.
pub(crate) fn open_log(
    identity: &Identity,
    metrics: StoreMetrics,
    on_fault: Box<dyn FnOnce(String) + Send>,
) -> Result<LogStore, OpenError> {
    let log = LogStore::open(&identity.log_dir(), metrics, on_fault)?;
    if identity.has_log() && log.is_blank() {
        let why = "it is empty, but this node has voted and acknowledged entries: its content was removed or lost";
        return Err(OpenError::Damaged { file: identity.log_dir(), why: why.to_owned() });
    }
    Ok(log)
}

/// Who this process is, and what its disk holds as it starts.
pub(crate) async fn card(
    identity: &Identity,
    platform: &impl Platform,
    log: &LogStore,
    machine: &StateMachine,
) -> Result<NodeCard, OpenError> {
    let refused = |source| OpenError::Io { path: identity.log_dir(), source };
    let mut log = log.clone();
    let last_log = log.get_log_state().await.map_err(refused)?.last_log_id;
    let vote = log.read_vote().await.map_err(refused)?;
    // A snapshot is synced before the log behind it is purged.
    let last_log = last_log.max(machine.with(|state| state.last_applied));
    let opened = Position::new(vote.as_ref(), last_log.as_ref());
    let [process, _] = split(platform.random());
    let (node_id, incarnation, starts) = (identity.node_id(), identity.incarnation(), identity.starts());
    Ok(NodeCard { node_id, incarnation, starts, process, opened })
}

fn split(value: u128) -> [u64; 2] {
    let bytes = value.to_le_bytes();
    let half = |range: std::ops::Range<usize>| bytes[range].iter().fold(0, |half, byte| half << 8 | u64::from(*byte));
    [half(0..8), half(8..16)]
}

pub(crate) fn dialer(config: &ReplicaConfig, identity: &Arc<Identity>, card: NodeCard, standing: &Standing) -> Dialer {
    let (identity, standing) = (Arc::clone(identity), standing.clone());
    let on_word = move |by: NodeId, word: Word<'_>| standing.take_word(by, word);
    let cluster = move || identity.cluster_id();
    Dialer::new(card, cluster, config.peer_routes.clone(), on_word, config.election_max())
}

pub(crate) async fn start_raft<P: Platform>(
    config: &ReplicaConfig,
    network: P::Network,
    log: P::Log,
    machine: StateMachine,
) -> Result<Raft, OpenError> {
    let refused = |why: String| OpenError::Io { path: config.data_dir.clone(), source: std::io::Error::other(why) };
    let raft_config = raft_config(config).validate().map_err(|why| refused(why.to_string()))?;
    let raft = Raft::new(config.node_id, Arc::new(raft_config), network, log, machine).await;
    let raft = raft.map_err(|why| refused(why.to_string()))?;
    show_membership(&raft).await.map_err(|why| refused(why.to_string()))?;
    Ok(raft)
}

/// Until openraft's task has run once, its metrics show a node that knows nothing: a restarted member would take itself
/// for an empty node.
async fn show_membership(raft: &Raft) -> Result<(), openraft::error::Fatal<TypeConfig>> {
    let is_member = |state: &openraft::RaftState<TypeConfig>| has_members(state.membership_state.effective());
    if !raft.with_raft_state(is_member).await? {
        return Ok(());
    }
    let mut metrics = raft.server_metrics();
    while !has_members(&metrics.borrow_watched().membership_config) {
        if metrics.changed().await.is_err() {
            return Err(openraft::error::Fatal::Stopped);
        }
    }
    Ok(())
}

fn raft_config(config: &ReplicaConfig) -> Config {
    Config {
        cluster_name: "lockstead".to_owned(),
        heartbeat_interval: config.heartbeat_ms,
        election_timeout_min: config.election_min_ms,
        election_timeout_max: config.election_max_ms,
        // Our own trigger decides when a snapshot pays.
        snapshot_policy: SnapshotPolicy::Never,
        // And our own purges: what openraft keeps on its own it counts in entries, of any size.
        max_in_snapshot_log_to_keep: u64::MAX,
        max_payload_entries: 64,
        enable_pre_vote: Some(true),
        // Not before a peer has accepted this start: see the standing.
        enable_elect: false,
        // Every office is a new term, so that an office's clock can start from the table (ADR 1).
        enable_leader_restore: Some(false),
        ..Config::default()
    }
}
