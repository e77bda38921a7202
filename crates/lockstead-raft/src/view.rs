//! What a node shows of itself and its cluster.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use lockstead_core::{ClusterId, Incarnation, NodeId};
use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver as _;

use crate::members::MembershipId;
use crate::node::Node;
use crate::platform::Platform;
use crate::types::{LogId, Member, Raft, RaftMetrics};

/// Who leads, as this node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderView {
    /// Its id.
    pub node_id: NodeId,
    /// Where clients reach it, `host:port`.
    pub api: String,
}

/// A member's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Leader,
    /// It votes.
    Follower,
    /// It does not vote.
    Learner,
}

/// What the answering node knows of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Its id.
    pub id: NodeId,
    /// Its part.
    pub role: Role,
    /// Where clients reach it.
    pub api: String,
    /// Where peers reach it.
    pub peer: String,
    /// The data directory it joined with.
    pub incarnation: Incarnation,
    /// The version it runs.
    pub version: String,
    /// How often it was started, as far as the membership knows.
    pub starts: u64,
    /// Answered within the maximum election timeout; known to the leader only (and always true of the node itself).
    pub reachable: Option<bool>,
    /// Milliseconds since it last answered; known to the leader only.
    pub last_contact_ms: Option<u64>,
    /// Last log index known to be on it; known to the leader only.
    pub matched: Option<u64>,
    /// Entries that it lacks; known to the leader only.
    pub lag: Option<u64>,
}

/// The answering node's view of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    /// The lineage; `None` before the node has joined one.
    pub cluster_id: Option<ClusterId>,
    /// The answering node.
    pub node_id: NodeId,
    /// It is empty and about to found a cluster.
    pub bootstrapping: bool,
    /// Where its peers reach it.
    pub peer: String,
    /// Who leads.
    pub leader: Option<NodeId>,
    /// Its term.
    pub term: u64,
    /// Last log index.
    pub last_log: u64,
    /// Last committed index that it knows.
    pub committed: u64,
    /// Last applied index.
    pub applied: u64,
    /// Highest lease time applied, in milliseconds.
    pub lease_ms: u64,
    /// How many voters may fail without loss of the quorum.
    pub failures_tolerated: u64,
    /// Its newest snapshot: index of its label, `built_at`, size in bytes.
    pub snapshot: Option<SnapshotView>,
    /// Log entries that were not purged.
    pub tail_entries: u64,
    /// Bytes of them.
    pub tail_bytes: u64,
    /// Records in force.
    pub live_records: u64,
    /// For how long nothing is granted, in milliseconds of lease time: holders of an earlier lineage may still count on
    /// their holds.
    pub hold_off_ms: u64,
    /// Bytes on disk, as of some seconds ago.
    pub disk_bytes: u64,
    /// The log id of the membership; `None` before the node knows one.
    pub membership: Option<MembershipId>,
    /// The members.
    pub members: Vec<MemberView>,
}

/// A snapshot on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotView {
    /// Log index of its label.
    pub index: u64,
    /// The index below which a table built from it is the state of no moment.
    pub built_at: u64,
    /// Its size.
    pub bytes: u64,
}

/// The log id of the membership in force.
pub(crate) fn membership_id(raft: &Raft) -> Option<MembershipId> {
    raft.server_metrics().borrow_watched().membership_config.log_id().as_ref().map(MembershipId::of)
}

/// The node's view, as it is now.
pub(crate) fn of<P: Platform>(node: &Node<P>) -> ClusterView {
    let metrics = node.raft.metrics().borrow_watched().clone();
    let (time, no_grant_before, live_records, snapshot) = node.machine.with(|state| {
        let table = &state.table;
        (table.time(), table.no_grant_before(), table.live_records(), state.snapshot_view())
    });
    let (tail_entries, tail_bytes) = node.log.tail_stats();
    ClusterView {
        cluster_id: node.identity.cluster_id(),
        node_id: node.identity.node_id(),
        bootstrapping: node.bootstrapping.load(Ordering::SeqCst),
        peer: node.config.advertise_peer.clone(),
        leader: metrics.current_leader,
        term: metrics.current_term,
        last_log: metrics.last_log_index.unwrap_or(0),
        committed: metrics.local_committed.as_ref().map_or(0, LogId::index),
        applied: metrics.last_applied.as_ref().map_or(0, LogId::index),
        lease_ms: time.0,
        failures_tolerated: failures_tolerated(&metrics),
        snapshot,
        tail_entries,
        tail_bytes,
        live_records: u64::try_from(live_records).unwrap_or(u64::MAX),
        hold_off_ms: no_grant_before.ms_since(time),
        disk_bytes: u64::try_from(node.metrics.compaction.disk_bytes.get()).unwrap_or(0),
        membership: metrics.membership_config.log_id().as_ref().map(MembershipId::of),
        members: members(&metrics, node.identity.node_id(), node.config.election_max_ms),
    }
}

/// How many voters may fail so that each quorum of the effective membership still stands.
fn failures_tolerated(metrics: &RaftMetrics) -> u64 {
    let membership = metrics.membership_config.membership();
    let spare = membership.get_joint_config().iter().map(|voters| voters.len().saturating_sub(1) / 2).min();
    spare.and_then(|spare| u64::try_from(spare).ok()).unwrap_or(0)
}

fn members(metrics: &RaftMetrics, me: NodeId, reachable_within_ms: u64) -> Vec<MemberView> {
    let membership = metrics.membership_config.membership();
    let voters: Vec<NodeId> = membership.voter_ids().collect();
    let contact = LeaderKnowledge::of(metrics);
    let view = |(id, member): (&NodeId, &Member)| {
        let role = match metrics.current_leader {
            Some(leader) if leader == *id => Role::Leader,
            _ if voters.contains(id) => Role::Follower,
            _ => Role::Learner,
        };
        contact.member(*id, member, role, me, reachable_within_ms)
    };
    membership.nodes().map(view).collect()
}

/// What only a leader knows of the others.
#[derive(Default)]
struct LeaderKnowledge {
    leads: bool,
    last_log: u64,
    last_contact_ms: BTreeMap<NodeId, u64>,
    matched: BTreeMap<NodeId, u64>,
}

impl LeaderKnowledge {
    fn of(metrics: &RaftMetrics) -> Self {
        if !metrics.state.is_leader() {
            return Self::default();
        }
        let heard = metrics.heartbeat.iter().flatten();
        let age_ms = |age: std::time::Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let matched = metrics.replication.iter().flatten();
        Self {
            leads: true,
            last_log: metrics.last_log_index.unwrap_or(0),
            last_contact_ms: heard.filter_map(|(id, at)| at.as_ref().map(|at| (*id, age_ms(at.elapsed())))).collect(),
            matched: matched.map(|(id, log_id)| (*id, log_id.as_ref().map_or(0, LogId::index))).collect(),
        }
    }

    fn member(&self, id: NodeId, member: &Member, role: Role, me: NodeId, reachable_within_ms: u64) -> MemberView {
        let itself = id == me;
        let last_contact_ms = if itself { Some(0) } else { self.last_contact_ms.get(&id).copied() };
        let heard_lately = last_contact_ms.is_some_and(|age_ms| age_ms <= reachable_within_ms);
        let matched = if itself && self.leads { Some(self.last_log) } else { self.matched.get(&id).copied() };
        MemberView {
            id,
            role,
            api: member.api.clone(),
            peer: member.peer.clone(),
            incarnation: member.incarnation,
            version: member.version.clone(),
            starts: member.starts,
            reachable: (itself || self.leads).then_some(heard_lately),
            last_contact_ms,
            matched,
            lag: matched.map(|matched| self.last_log.saturating_sub(matched)),
        }
    }
}
