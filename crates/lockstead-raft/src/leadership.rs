//! Who leads, in which term and where, as this node knows.

use std::time::Duration;

use lockstead_core::NodeId;
use openraft::async_runtime::WatchReceiver as _;
use tokio::time::{sleep, timeout};

use crate::types::{Member, Raft, ServerMetricsWatch};

/// How long an answer of a former leader is still waited for once another leads.
const FORMER_LEADER_GRACE: Duration = Duration::from_millis(50);

/// One leader in one term.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    pub(crate) leader: NodeId,
    pub(crate) term: u64,
    /// Where the leader is reached.
    pub(crate) member: Member,
}

impl Leadership {
    /// The one that a node knows of; `None` also for a leader that its membership does not name.
    pub(crate) fn known(metrics: &ServerMetricsWatch) -> Option<Self> {
        let metrics = metrics.borrow_watched();
        let leader = metrics.current_leader?;
        let member = metrics.membership_config.membership().get_node(&leader)?.clone();
        Some(Self { leader, term: metrics.vote.leader_id.term, member })
    }

    /// Waits until this node knows of one; for ever if it has stopped.
    pub(crate) async fn any(raft: &Raft) -> Self {
        let mut metrics = raft.server_metrics();
        loop {
            if let Some(known) = Self::known(&metrics) {
                return known;
            }
            if metrics.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Resolves a little after this node has seen that another one follows it: no decision of the former leader can be
    /// on its way for long.
    pub(crate) async fn ended(&self, raft: &Raft) {
        let mut metrics = raft.server_metrics();
        loop {
            let (current_leader, current_term) = {
                let metrics = metrics.borrow_watched();
                (metrics.current_leader, metrics.vote.leader_id.term)
            };
            if current_leader.is_some_and(|current| current != self.leader || current_term > self.term) {
                break;
            }
            if metrics.changed().await.is_err() {
                break;
            }
        }
        sleep(FORMER_LEADER_GRACE).await;
    }
}

/// Resolves once this node sees a leader that `counts`, or has stopped.
pub(crate) async fn seen(raft: &Raft, counts: impl Fn(NodeId) -> bool) {
    let mut metrics = raft.server_metrics();
    while !metrics.borrow_watched().current_leader.is_some_and(&counts) {
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

/// Why nobody else was seen to lead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandOverError {
    #[error("openraft has stopped")]
    Stopped,
    /// The successor may still be about to.
    #[error("nobody else led in time")]
    NotInTime,
}

/// Hands leadership to another node; returns once this one sees that another leads.
pub(crate) async fn hand_over(raft: &Raft, successor: NodeId, time_max: Duration) -> Result<(), HandOverError> {
    raft.trigger().transfer_leader(successor).await.map_err(|_| HandOverError::Stopped)?;
    let succeeded = seen(raft, |leader| leader != *raft.node_id());
    timeout(time_max, succeeded).await.map_err(|_| HandOverError::NotInTime)
}
