//! The way of a change to the leader, whoever that is, and back.

use std::time::Duration;

use lockstead_core::NodeId;
use openraft::async_runtime::WatchReceiver as _;
use tokio::time::{Instant, sleep, timeout_at};

use super::types::{MemberChange, MemberError, MemberReply, MemberRequest, MembersAnswer};
use crate::node::{Node, member};
use crate::peer::{MembersCall, MembersCallError, ask_about_members};
use crate::platform::Platform;
use crate::types::Member;
use crate::view::membership_id;

/// How much longer than its `wait_ms` a request may take.
const GRACE: Duration = Duration::from_secs(5);
/// How long to wait before the leader is looked for once more.
const ASK_AGAIN: Duration = Duration::from_millis(20);

impl<P: Platform> Node<P> {
    /// Has the leader make a change; see [`crate::Replica::change_members`].
    ///
    /// A change that has taken effect is answered with success however often it is asked for, so after a lost answer it
    /// is simply asked for again.
    pub(crate) async fn change_members(&self, request: MemberRequest) -> Result<MemberReply, MemberError> {
        let ends = Instant::now() + Duration::from_millis(request.wait_ms) + GRACE;
        let (mut first_leader, mut unknown, mut changed) = (None, false, false);
        loop {
            let Ok((leader, known)) = timeout_at(ends, self.any_leader()).await else {
                return Err(if unknown { MemberError::OutcomeUnknown } else { MemberError::NoLeader });
            };
            let started_with = *first_leader.get_or_insert(leader);
            if leader != started_with && matches!(request.change, MemberChange::Lead { to: None }) {
                return self.moved_on(leader);
            }
            match self.ask_leader(leader, &known, &request, ends).await {
                Ok(MembersAnswer::Changed(Ok(reply))) => {
                    changed |= reply.changed || leader != started_with;
                    return self.once_seen(MemberReply { changed, ..reply }, &request, ends).await;
                }
                Ok(MembersAnswer::Changed(Err(MemberError::OutcomeUnknown))) | Err(MembersCallError::Lost(_)) => {
                    unknown = true;
                }
                Ok(MembersAnswer::Changed(Err(why))) => return Err(why),
                Ok(_) | Err(MembersCallError::NotSent(_)) => {}
            }
            sleep(ASK_AGAIN).await;
        }
    }

    async fn ask_leader(
        &self,
        leader: NodeId,
        known: &Member,
        request: &MemberRequest,
        ends: Instant,
    ) -> Result<MembersAnswer, MembersCallError> {
        let time_left = ends.saturating_duration_since(Instant::now());
        if leader == self.identity.node_id() {
            return Ok(self.service().change(request.clone(), time_left).await);
        }
        let time_left_ms = u64::try_from(time_left.as_millis()).unwrap_or(u64::MAX);
        let call = MembersCall::Change { request: request.clone(), time_left_ms };
        ask_about_members(&self.dialer, leader, known, &call, time_left).await
    }

    async fn any_leader(&self) -> (NodeId, Member) {
        loop {
            let leader = self.router.leader();
            if let Some(found) = leader.and_then(|id| Some((id, member(&self.raft, id)?))) {
                return found;
            }
            sleep(ASK_AGAIN).await;
        }
    }

    /// Whoever asks for any other leader has got one.
    fn moved_on(&self, leader: NodeId) -> Result<MemberReply, MemberError> {
        let membership = membership_id(&self.raft).ok_or(MemberError::OutcomeUnknown)?;
        Ok(MemberReply { membership, changed: true, leader, to_go: None, warning: None })
    }

    /// A change of leader counts once this very node sees it.
    async fn once_seen(
        &self,
        reply: MemberReply,
        request: &MemberRequest,
        ends: Instant,
    ) -> Result<MemberReply, MemberError> {
        if !matches!(request.change, MemberChange::Lead { .. }) {
            return Ok(reply);
        }
        let mut metrics = self.raft.server_metrics();
        let seen = async {
            while metrics.borrow_watched().current_leader != Some(reply.leader) {
                if metrics.changed().await.is_err() {
                    return;
                }
            }
        };
        timeout_at(ends, seen).await.map_err(|_| MemberError::OutcomeUnknown)?;
        Ok(reply)
    }
}
