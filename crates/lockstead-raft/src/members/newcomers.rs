//! What nodes ask for themselves: to be taken in, to vote, to be known under their newest start.

use std::time::Duration;

use lockstead_core::NodeId;
use openraft::async_runtime::WatchReceiver as _;
use tokio::time::Instant;

use super::change::Step;
use super::plan::Plan;
use super::types::{MemberChange, MemberError, MemberRefusal, MemberRequest, MembersAnswer};
use crate::node::member;
use crate::peer::{JoinAnswer, JoinCall, JoinStep};
use crate::platform::Platform;
use crate::service::Service;
use crate::term::Term;
use crate::types::Member;

/// How long a leader waits for a learner to catch up with the log as it was when the call came.
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(2);
/// How long a change that no operator asks for is waited for; it goes on however long it takes.
pub(super) const CHANGE_TIME_MAX: Duration = Duration::from_secs(4);

impl<P: Platform> Service<P> {
    /// One step of a node that joins by itself.
    pub(crate) async fn take_in(&self, call: JoinCall) -> JoinAnswer {
        let Some(cluster) = self.identity.cluster_id() else { return try_again("it belongs to no cluster yet") };
        match member(&self.raft, call.node_id) {
            Some(known) if known.incarnation != call.incarnation => return self.other_directory(&call),
            Some(_) if call.step == JoinStep::Add => return JoinAnswer::Accepted { cluster },
            None if call.step == JoinStep::Promote => return self.leader_or(try_again("this node is no learner yet")),
            _ => {}
        }
        match call.step {
            JoinStep::Add => match self.add(call).await {
                Ok(()) => JoinAnswer::Accepted { cluster },
                Err(answer) => self.as_join_answer(answer),
            },
            JoinStep::Promote => self.promote(call.node_id).await,
        }
    }

    /// Another directory has the id: for good, once that was committed.
    fn other_directory(&self, call: &JoinCall) -> JoinAnswer {
        let committed = self.machine.with(|state| state.membership.membership().get_node(&call.node_id).cloned());
        match committed {
            Some(known) if known.incarnation != call.incarnation => {
                JoinAnswer::Refused { text: id_in_use(call.node_id) }
            }
            _ => self.leader_or(try_again("another node is about to be taken in under its id")),
        }
    }

    async fn add(&self, call: JoinCall) -> Step<()> {
        let ends = Instant::now() + CHANGE_TIME_MAX;
        let (peer, api) = (call.member.peer.clone(), call.member.api.clone());
        let request = request(MemberChange::Add { id: call.node_id, peer, api }, Duration::ZERO);
        let added = async |_: &mut Term| self.in_turn(&request, Some(call.member), ends).await;
        self.in_office(ends, added, |changed| *changed).await.map(drop)
    }

    async fn promote(&self, id: NodeId) -> JoinAnswer {
        let request = request(MemberChange::Promote { id }, CATCH_UP_TIME_MAX);
        match self.change(request, CATCH_UP_TIME_MAX + CHANGE_TIME_MAX).await {
            MembersAnswer::Changed(Ok(_)) => JoinAnswer::Promoted,
            MembersAnswer::Changed(Err(MemberError::Refused(MemberRefusal::NotCaughtUp { .. }))) => {
                self.leader_or(JoinAnswer::NotCaughtUp)
            }
            answer => self.as_join_answer(answer),
        }
    }

    /// Records what a member says of itself after a start; where it is reached only an operator changes.
    pub(crate) async fn record(&self, node_id: NodeId, said: Member) -> JoinAnswer {
        let (Some(cluster), Some(known)) = (self.identity.cluster_id(), member(&self.raft, node_id)) else {
            return self.leader_or(try_again("this node is no member here"));
        };
        if known.incarnation != said.incarnation {
            return JoinAnswer::Refused { text: id_in_use(node_id) };
        }
        match self.in_turn_with(Instant::now() + CHANGE_TIME_MAX, || Ok(self.plan_record(node_id, &said))).await {
            Ok(_) => JoinAnswer::Accepted { cluster },
            Err(answer) => self.as_join_answer(answer),
        }
    }

    fn plan_record(&self, node_id: NodeId, said: &Member) -> Option<Plan> {
        let known = member(&self.raft, node_id)?;
        let newest = Member { peer: known.peer.clone(), api: known.api.clone(), ..said.clone() };
        let voters = self.raft.voter_ids().collect();
        (newest.starts >= known.starts && newest != known).then(|| Plan::recording(node_id, newest, voters))
    }

    fn as_join_answer(&self, answer: MembersAnswer) -> JoinAnswer {
        match answer {
            MembersAnswer::Changed(Err(MemberError::Refused(
                why @ (MemberRefusal::NodeIdReused(_) | MemberRefusal::AddressInUse(_)),
            ))) => JoinAnswer::Refused { text: why.to_string() },
            // A change in progress, a leader too young, an unknown outcome: the next try finds out.
            MembersAnswer::Changed(Err(why)) => self.leader_or(try_again(&why.to_string())),
            _ => self.leader_or(try_again("no leader is known")),
        }
    }

    /// Points to the leader if it is another node.
    fn leader_or(&self, otherwise: JoinAnswer) -> JoinAnswer {
        match self.router.leader() {
            Some(leader) if leader == self.card.node_id => otherwise,
            leader => {
                let leader_peer = leader.and_then(|leader| member(&self.raft, leader)).map(|leader| leader.peer);
                JoinAnswer::NotLeader { leader_peer }
            }
        }
    }

    /// Another member that is reached at one of these addresses.
    pub(super) fn who_is_at(&self, id: NodeId, peer: &str, api: &str) -> Option<NodeId> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let mut members = metrics.membership_config.membership().nodes();
        let is_there = |known: &Member| [peer, api].iter().any(|asked| known.peer == **asked || known.api == **asked);
        let (other, _) = members.find(|(other, known)| **other != id && is_there(known))?;
        Some(*other)
    }
}

fn request(change: MemberChange, wait: Duration) -> MemberRequest {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    MemberRequest { change, if_match: None, wait_ms, force: None }
}

fn try_again(why: &str) -> JoinAnswer {
    JoinAnswer::TryAgain { text: why.to_owned() }
}

fn id_in_use(node_id: NodeId) -> String {
    format!(
        "node id {node_id} is a member with another data directory: a node whose directory was lost comes back under a \
         new id and at new addresses"
    )
}
