//! What a node shows of itself and its cluster.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Who leads, if the answering node has heard of it within twice the maximum election timeout.
    pub leader: Option<NodeId>,
    /// The answering node leads, and a quorum has answered it within twice the maximum election timeout.
    pub leads: bool,
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
    /// How many more voters may fail without loss of the quorum. A leader counts the voters that are not
    /// [`reachable`](MemberView::reachable) as failed; any other node, which knows of none, counts none.
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
    let leader = metrics.current_leader.filter(|leader| node.is_followed(*leader));
    let members = members(&metrics, leader, node.identity.node_id(), node.config.election_max_ms);
    ClusterView {
        cluster_id: node.identity.cluster_id(),
        node_id: node.identity.node_id(),
        bootstrapping: node.bootstrapping.load(Ordering::SeqCst),
        peer: node.config.advertise_peer.clone(),
        leader,
        leads: leader == Some(node.identity.node_id()),
        term: metrics.current_term,
        last_log: metrics.last_log_index.unwrap_or(0),
        committed: metrics.local_committed.as_ref().map_or(0, LogId::index),
        applied: metrics.last_applied.as_ref().map_or(0, LogId::index),
        lease_ms: time.0,
        failures_tolerated: failures_tolerated(metrics.membership_config.get_joint_config(), &members),
        snapshot,
        tail_entries,
        tail_bytes,
        live_records: u64::try_from(live_records).unwrap_or(u64::MAX),
        hold_off_ms: no_grant_before.ms_since(time),
        disk_bytes: u64::try_from(node.metrics.compaction.disk_bytes.get()).unwrap_or(0),
        membership: metrics.membership_config.log_id().as_ref().map(MembershipId::of),
        members,
    }
}

/// How many of those not known to be silent may fail so that each of these sets of voters still has a majority.
fn failures_tolerated(sets: &[BTreeSet<NodeId>], members: &[MemberView]) -> u64 {
    let silent: BTreeSet<_> =
        members.iter().filter(|member| member.reachable == Some(false)).map(|member| member.id).collect();
    let spare = |voters: &BTreeSet<NodeId>| voters.difference(&silent).count().saturating_sub(voters.len() / 2 + 1);
    sets.iter().map(spare).min().and_then(|spare| u64::try_from(spare).ok()).unwrap_or(0)
}

fn members(metrics: &RaftMetrics, leader: Option<NodeId>, me: NodeId, reachable_within_ms: u64) -> Vec<MemberView> {
    let membership = metrics.membership_config.membership();
    let voters: Vec<NodeId> = membership.voter_ids().collect();
    let contact = LeaderKnowledge::of(metrics);
    let view = |(id, member): (&NodeId, &Member)| {
        let role = match leader {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sets: &[&[NodeId]], silent: &[NodeId], expected: u64) {
        let member = |(id, reachable)| MemberView {
            id,
            role: Role::Follower,
            api: String::new(),
            peer: String::new(),
            incarnation: Incarnation(0),
            version: String::new(),
            starts: 1,
            reachable,
            last_contact_ms: None,
            matched: None,
            lag: None,
        };
        let known = silent.iter().map(|id| (*id, Some(false))).chain([(90, Some(true)), (91, None)]);
        let members: Vec<_> = known.map(member).collect();
        let sets: Vec<BTreeSet<_>> = sets.iter().map(|set| set.iter().copied().collect()).collect();
        assert_eq!(failures_tolerated(&sets, &members), expected, "{sets:?} without {silent:?}");
    }

    #[test]
    fn as_many_may_fail_as_answer_beyond_a_majority() {
        check(&[], &[], 0);
        check(&[&[1]], &[], 0);
        check(&[&[1, 2]], &[], 0);
        check(&[&[1, 2, 3]], &[], 1);
        check(&[&[1, 2, 3, 4]], &[], 1);
        check(&[&[1, 2, 3, 4, 5]], &[], 2);
    }

    #[test]
    fn a_voter_that_is_silent_has_failed_already_and_a_silent_learner_counts_for_nothing() {
        check(&[&[1, 2, 3]], &[3], 0);
        check(&[&[1, 2, 3, 4, 5]], &[3], 1);
        check(&[&[1, 2, 3, 4, 5]], &[3, 4], 0);
        check(&[&[1, 2, 3]], &[9], 1);
    }

    #[test]
    fn without_a_majority_nothing_is_left_to_fail() {
        check(&[&[1, 2, 3]], &[2, 3], 0);
    }

    #[test]
    fn while_the_voters_change_both_majorities_have_to_stand() {
        check(&[&[1, 2, 3, 4, 5], &[1, 2, 3]], &[], 1);
        check(&[&[1, 2, 3], &[1, 2, 3, 4, 5]], &[3], 0);
    }
}
