//! One term in which this node leads, as openraft tells it.

use std::future::Future;
use std::time::Duration;

use lockstead_core::NodeId;
use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver as _;
use openraft::vote::RaftLeaderId as _;

use crate::types::{CommittedLeaderId, Raft, ServerMetricsWatch};

/// The term is over for this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TermLost;

/// A term in which this node leads.
pub(crate) struct Term {
    node_id: NodeId,
    number: u64,
    committed: CommittedLeaderId,
    watch: ServerMetricsWatch,
}

impl Term {
    /// Waits until this node leads in a term above `last`.
    ///
    /// A committed vote for this node is not enough: a restarted former leader still has one.
    pub(crate) async fn begun_after(raft: &Raft, last: u64) -> Option<Self> {
        let mut watch = raft.server_metrics();
        let node_id = *raft.node_id();
        loop {
            if let Some((number, committed)) = leading(&watch, node_id)
                && number > last
            {
                return Some(Self { node_id, number, committed, watch });
            }
            watch.changed().await.ok()?;
        }
    }

    /// The term in which this node leads now, as far as it knows.
    pub(crate) fn current(raft: &Raft) -> Option<Self> {
        let (watch, node_id) = (raft.server_metrics(), *raft.node_id());
        let (number, committed) = leading(&watch, node_id)?;
        Some(Self { node_id, number, committed, watch })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn committed(&self) -> CommittedLeaderId {
        self.committed
    }

    /// # Errors
    /// [`TermLost`] if this node does not lead in this term any more.
    pub(crate) fn check(&self) -> Result<(), TermLost> {
        match leading(&self.watch, self.node_id) {
            Some((number, _)) if number == self.number => Ok(()),
            _ => Err(TermLost),
        }
    }

    /// Resolves once this node does not lead in this term any more. Cancel-safe.
    pub(crate) async fn lost(&mut self) {
        while self.check().is_ok() {
            if self.watch.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits for `future` while the term lasts.
    pub(crate) async fn hold<F: Future>(&mut self, future: F) -> Result<F::Output, TermLost> {
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = self.lost() => Err(TermLost),
        }
    }
}

/// The age of the newest quorum answer to this leader, and whether this node alone is a quorum.
pub(crate) fn quorum(raft: &Raft) -> (Option<Duration>, bool) {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let age = metrics.last_quorum_acked.map(|acked| acked.elapsed());
    let sole = metrics.membership_config.membership().voter_ids().eq([*raft.node_id()]);
    drop(metrics);
    (age, sole)
}

fn leading(watch: &ServerMetricsWatch, node_id: NodeId) -> Option<(u64, CommittedLeaderId)> {
    let metrics = watch.borrow_watched();
    let leader_id = *metrics.vote.leader_id();
    let mine = metrics.vote.is_committed() && *leader_id.node_id() == node_id && metrics.state.is_leader();
    drop(metrics);
    mine.then(|| (leader_id.term(), leader_id.to_committed()))
}
