//! Handing leadership over.

use std::time::Duration;

use lockstead_core::NodeId;
use openraft::async_runtime::WatchReceiver as _;
use tokio::time::Instant;

use super::quorum::{Voters, answering, coming_voters};
use super::types::{MemberError, MemberRefusal, MembersAnswer};
use crate::leadership::{HandOverError, hand_over};
use crate::node::member;
use crate::peer::{MembersCall, ask_about_members};
use crate::platform::Platform;
use crate::service::Service;
use crate::types::LogId;

/// How long a successor may take to lead: an election, and the way there.
const SUCCESSION_TIME_MAX: Duration = Duration::from_secs(2);

impl<P: Platform> Service<P> {
    /// Hands leadership to `to`, or to the best voter; [`MembersAnswer::HandedOver`] once another leads.
    pub(super) async fn hand_over_to(&self, to: Option<NodeId>, ends: Instant) -> MembersAnswer {
        let found = match to {
            Some(to) => self.check_successor(to).await.map(|()| to),
            None => self.best_successor().await,
        };
        match found {
            Ok(successor) => self.transfer(successor, ends).await,
            Err(refusal) => MembersAnswer::Changed(Err(refusal.into())),
        }
    }

    /// The voter other than this node that answers, is whole and is furthest.
    pub(super) async fn best_successor(&self) -> Result<NodeId, MemberRefusal> {
        let me = self.card.node_id;
        let voters = coming_voters(&self.raft);
        let wanted = |id: &NodeId| *id != me && voters.contains(id);
        let expected = voters.iter().filter(|id| wanted(id)).count();
        let all = |answering: &Voters| answering.iter().filter(|id| wanted(id)).count() == expected;
        let mut candidates: Vec<_> =
            answering(&self.raft, self.answer_time_max(), all).await.into_iter().filter(wanted).collect();
        candidates.sort_by_key(|id| self.matched(*id));
        while let Some(candidate) = candidates.pop() {
            if self.can_lead(candidate).await {
                return Ok(candidate);
            }
        }
        let why = if expected == 0 { "there is no other voter" } else { "no other voter answers that could lead" };
        Err(MemberRefusal::WouldLoseQuorum(why.to_owned()))
    }

    async fn check_successor(&self, to: NodeId) -> Result<(), MemberRefusal> {
        let refused = |text: String| Err(MemberRefusal::NotCaughtUp { text, to_go: self.to_go(to) });
        if member(&self.raft, to).is_none() {
            return Err(MemberRefusal::UnknownNode(to));
        }
        if !self.raft.voter_ids().any(|id| id == to) {
            return refused(format!("node {to} is a learner: it cannot lead"));
        }
        let answers = answering(&self.raft, self.answer_time_max(), |answering| answering.contains(&to)).await;
        if !answers.contains(&to) || !self.can_lead(to).await {
            return refused(format!("node {to} does not answer, or is not ready to lead"));
        }
        Ok(())
    }

    /// Whether a node says that it would take office.
    async fn can_lead(&self, node_id: NodeId) -> bool {
        self.status_of(node_id).await.is_some_and(|status| status.complete && status.votes)
    }

    /// What another node says of itself.
    pub(super) async fn status_of(&self, node_id: NodeId) -> Option<super::NodeStatus> {
        let member = member(&self.raft, node_id)?;
        let time_max = self.answer_time_max();
        match ask_about_members(&self.dialer, node_id, &member, &MembersCall::Status, time_max).await {
            Ok(MembersAnswer::Status(status)) => Some(status),
            other => {
                tracing::debug!(node_id, ?other, "no status");
                None
            }
        }
    }

    pub(super) async fn transfer(&self, successor: NodeId, ends: Instant) -> MembersAnswer {
        if Instant::now() >= ends {
            return MembersAnswer::Changed(Err(MemberError::NoLeader));
        }
        tracing::info!(successor, "handing leadership over");
        match hand_over(&self.raft, successor, SUCCESSION_TIME_MAX).await {
            Ok(()) => MembersAnswer::HandedOver,
            Err(HandOverError::Stopped) => MembersAnswer::Changed(Err(MemberError::NoLeader)),
            Err(HandOverError::NotInTime) => MembersAnswer::Changed(Err(MemberError::OutcomeUnknown)),
        }
    }

    /// The last log index known to be on a node, as this leader knows.
    pub(super) fn matched(&self, node_id: NodeId) -> Option<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.replication.as_ref()?.get(&node_id)?.as_ref().map(LogId::index)
    }
}
