//! The leader's part: whether a change may be made, and making it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lockstead_core::NodeId;
use openraft::ReadPolicy;
use openraft::async_runtime::WatchReceiver as _;
use openraft::error::{ChangeMembershipError, ClientWriteError, RaftError};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::plan::Plan;
use super::quorum::{Voters, answering, are_quorums, voters_in_force, warning_about};
use super::types::{
    MemberChange, MemberError, MemberRefusal, MemberReply, MemberRequest, MembersAnswer, MembershipId, ToGo,
};
use crate::node::member;
use crate::peer::Found;
use crate::platform::Platform;
use crate::service::{MembershipError, Service};
use crate::types::{Member, TypeConfig};
use crate::view::membership_id;

/// How long another change may take to make room for this one.
const TURN_TIME_MAX: Duration = Duration::from_millis(500);
/// How long to wait before a new node is looked for, or a learner's progress looked at, once more.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A step towards an answer.
pub(super) type Step<T> = Result<T, MembersAnswer>;

pub(super) fn refuse<T>(refusal: MemberRefusal) -> Step<T> {
    Err(MembersAnswer::Changed(Err(refusal.into())))
}

impl<P: Platform> Service<P> {
    /// Decides and makes a change, if this node leads.
    pub(crate) async fn change(&self, request: MemberRequest, time_left: Duration) -> MembersAnswer {
        let ends = Instant::now() + time_left;
        match self.try_change(&request, ends).await {
            Ok(reply) => MembersAnswer::Changed(Ok(reply)),
            Err(answer) => answer,
        }
    }

    async fn try_change(&self, request: &MemberRequest, ends: Instant) -> Step<MemberReply> {
        self.check_force(request)?;
        self.check_leadership(ends).await?;
        let wait_ends = Instant::now() + Duration::from_millis(request.wait_ms);
        let newcomer = match &request.change {
            MemberChange::Lead { to } => return self.lead(request, *to).await,
            MemberChange::Add { id, peer, api } => {
                if member(&self.raft, *id).is_none() {
                    self.check_match(request)?;
                    self.check_addresses(*id, (peer, api))?;
                }
                self.newcomer(*id, peer, api, wait_ends.min(ends)).await?
            }
            MemberChange::Promote { id } => {
                self.check_caught_up(*id, request, wait_ends.min(ends)).await?;
                None
            }
            MemberChange::Move { .. } | MemberChange::Remove { .. } | MemberChange::Demote { .. } => None,
        };
        let changed = self.in_turn(request, newcomer, ends).await?;
        let to_go = match request.change {
            MemberChange::Add { id, .. } => self.progress(id, wait_ends.min(ends)).await,
            _ => None,
        };
        Ok(self.reply(changed, to_go))
    }

    fn reply(&self, changed: bool, to_go: Option<ToGo>) -> MemberReply {
        let warning = warning_about(self.raft.voter_ids().count());
        MemberReply { membership: self.membership_id(), changed, leader: self.card.node_id, to_go, warning }
    }

    fn membership_id(&self) -> MembershipId {
        membership_id(&self.raft).unwrap_or(MembershipId { term: 0, index: 0 })
    }

    /// How long a question to others may take so that a refusal is out within twice the maximum election timeout.
    pub(super) fn answer_time_max(&self) -> Duration {
        self.election_max * 3 / 2
    }

    // ---- whether it may be made

    fn check_force(&self, request: &MemberRequest) -> Step<()> {
        match (request.force, self.identity.cluster_id()) {
            (Some(said), Some(mine)) if said != mine => refuse(MemberRefusal::WrongCluster(mine)),
            _ => Ok(()),
        }
    }

    /// Everything committed is applied here, and a quorum takes this node for the leader: only then are the ids that
    /// were ever used known.
    pub(super) async fn check_leadership(&self, ends: Instant) -> Step<()> {
        let time_max = (2 * self.election_max).min(ends.saturating_duration_since(Instant::now()));
        match timeout(time_max, self.raft.ensure_linearizable(ReadPolicy::ReadIndex)).await {
            Ok(Ok(_)) => Ok(()),
            _ if self.router.leader() == Some(self.card.node_id) => {
                Err(MembersAnswer::Changed(Err(MemberError::NoLeader)))
            }
            _ => Err(MembersAnswer::NotLeader),
        }
    }

    fn check_match(&self, request: &MemberRequest) -> Step<()> {
        let now = self.membership_id();
        match request.if_match {
            Some(meant) if meant != now => refuse(MemberRefusal::MembershipChanged { now }),
            _ => Ok(()),
        }
    }

    /// Who is to be taken in, as it says itself; `None` if it is a member already, or cannot become one.
    async fn newcomer(&self, id: NodeId, peer: &str, api: &str, ends: Instant) -> Step<Option<Member>> {
        if member(&self.raft, id).is_some() || self.machine.with(|state| state.table.is_retired(id)) {
            return Ok(None);
        }
        loop {
            let why = match self.dialer.look_at(peer).await {
                Ok(found) => match self.fits(&found, id) {
                    Ok(()) => return Ok(Some(found.as_member(peer, api))),
                    Err(why) => return refuse(MemberRefusal::NodeUnreachable(why)),
                },
                Err(why) => format!("nobody answers at {peer} as node {id}: {why}"),
            };
            if Instant::now() + LOOK_AGAIN > ends {
                return refuse(MemberRefusal::NodeUnreachable(why));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    fn fits(&self, found: &Found, id: NodeId) -> Result<(), String> {
        let mine = self.identity.cluster_id();
        match found.cluster {
            _ if found.node_id != id => Err(format!("node {} answers there, not node {id}", found.node_id)),
            Some(cluster) if Some(cluster) != mine => Err(format!("node {id} belongs to cluster {cluster}")),
            _ => Ok(()),
        }
    }

    async fn check_caught_up(&self, id: NodeId, request: &MemberRequest, ends: Instant) -> Step<()> {
        if member(&self.raft, id).is_none() {
            return refuse(MemberRefusal::UnknownNode(id));
        }
        if self.raft.voter_ids().any(|voter| voter == id) {
            return Ok(());
        }
        self.check_match(request)?;
        let goal = self.raft.metrics().borrow_watched().last_log_index.unwrap_or(0);
        let ends = ends.max(Instant::now() + self.answer_time_max() / 2);
        let answers = answering(&self.raft, self.answer_time_max() / 2, |answering| answering.contains(&id)).await;
        if !answers.contains(&id) {
            return refuse(self.not_caught_up(id, format!("node {id} does not answer")));
        }
        while self.matched(id).is_none_or(|matched| matched < goal) || !self.is_whole(id).await {
            if Instant::now() + LOOK_AGAIN > ends {
                return refuse(self.not_caught_up(id, format!("node {id} lacks part of the log")));
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    async fn is_whole(&self, id: NodeId) -> bool {
        self.status_of(id).await.is_some_and(|status| status.complete)
    }

    fn not_caught_up(&self, id: NodeId, text: String) -> MemberRefusal {
        MemberRefusal::NotCaughtUp { text, to_go: self.to_go(id) }
    }

    // ---- making it

    /// Makes the change that is asked for when its turn comes; says whether there was anything to do.
    pub(super) async fn in_turn(&self, request: &MemberRequest, newcomer: Option<Member>, ends: Instant) -> Step<bool> {
        let planned = || match self.plan(request, newcomer.clone())? {
            Some(plan) => self.check_match(request).map(|()| Some(Plan { forced: request.force.is_some(), ..plan })),
            None => Ok(None),
        };
        self.in_turn_with(ends, planned).await
    }

    /// Makes what `plan` says when it is this change's turn; says whether there was anything to do.
    pub(super) async fn in_turn_with(&self, ends: Instant, plan: impl FnOnce() -> Step<Option<Plan>>) -> Step<bool> {
        let turn = timeout(TURN_TIME_MAX, Arc::clone(&self.changing).lock_owned()).await;
        let Ok(turn) = turn else { return refuse(MemberRefusal::ChangeInProgress) };
        let Some(plan) = plan()? else { return Ok(false) };
        if !plan.forced {
            self.check_quorum(&plan).await?;
        }
        if !plan.voters.contains(&self.card.node_id) {
            // Its successor goes on from here.
            drop(turn);
            return match self.best_successor().await {
                Ok(successor) => Err(self.transfer(successor).await),
                Err(refusal) => refuse(refusal),
            };
        }
        tracing::info!(change = %plan.change, "changing the membership");
        // A change that is begun is gone through with, whoever waits for it: it may take two steps.
        let raft = self.raft.clone();
        let made = tokio::spawn(async move {
            let made = raft.change_membership(plan.change, plan.retain).await.map(drop);
            drop(turn);
            made
        });
        match timeout_at(ends, made).await {
            Ok(Ok(Ok(()))) => Ok(true),
            Ok(Ok(Err(why))) => Err(not_made(&why)),
            Ok(Err(_)) | Err(_) => Err(MembersAnswer::Changed(Err(MemberError::OutcomeUnknown))),
        }
    }

    /// Both the voters of now and those of then have to reach a majority of theirs.
    async fn check_quorum(&self, plan: &Plan) -> Step<()> {
        let mut sets = voters_in_force(&self.raft);
        if sets.len() == 1 && sets[0] == plan.voters && plan.away.is_none() {
            return Ok(());
        }
        sets.push(plan.voters.clone());
        let there = |answering: &Voters| {
            let mut there = answering.clone();
            plan.away.map(|away| there.remove(&away));
            there
        };
        let enough = |answering: &Voters| are_quorums(&sets, &there(answering));
        let answering = answering(&self.raft, self.answer_time_max(), enough).await;
        if enough(&answering) {
            return Ok(());
        }
        let silent: Vec<_> = plan.voters.difference(&answering).collect();
        let text = format!("of the voters {:?} that there would be, {silent:?} do not answer now", plan.voters);
        refuse(MemberRefusal::WouldLoseQuorum(text))
    }

    // ---- how far a node is

    /// What a node lacks; waits until that is nothing, or `ends`.
    async fn progress(&self, id: NodeId, ends: Instant) -> Option<ToGo> {
        loop {
            let to_go = self.to_go(id);
            if to_go.is_some_and(|to_go| to_go.entries == 0) || Instant::now() + LOOK_AGAIN > ends {
                return to_go;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    pub(super) fn to_go(&self, id: NodeId) -> Option<ToGo> {
        let last = self.raft.metrics().borrow_watched().last_log_index.unwrap_or(0);
        let entries = last.saturating_sub(self.matched(id).unwrap_or(0));
        let (tail_entries, tail_bytes) = self.log.tail_stats();
        let bytes = entries.saturating_mul(tail_bytes.checked_div(tail_entries).unwrap_or(0));
        member(&self.raft, id).map(|_| ToGo { entries, bytes })
    }
}

fn not_made(why: &MembershipError) -> MembersAnswer {
    match why {
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => MembersAnswer::NotLeader,
        RaftError::APIError(ClientWriteError::ChangeMembershipError(why)) => not_planned(why),
        RaftError::APIError(ClientWriteError::PreconditionFailed(_) | ClientWriteError::LogEntryDiscarded(_))
        | RaftError::Fatal(_) => MembersAnswer::Changed(Err(MemberError::OutcomeUnknown)),
    }
}

fn not_planned(why: &ChangeMembershipError<openraft::alias::CommittedLeaderIdOf<TypeConfig>, NodeId>) -> MembersAnswer {
    let refusal = match why {
        ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_) => {
            MemberRefusal::ChangeInProgress
        }
        ChangeMembershipError::LearnerNotFound(missing) => MemberRefusal::UnknownNode(missing.node_id),
        ChangeMembershipError::EmptyMembership(_)
        | ChangeMembershipError::UnsupportedMembershipTransition(_)
        | ChangeMembershipError::NodeMetadataChanged(_) => MemberRefusal::WouldLoseQuorum(why.to_string()),
    };
    MembersAnswer::Changed(Err(refusal.into()))
}

impl<P: Platform> Service<P> {
    /// A request to lead: success is seen by the node that was asked, once the target leads.
    async fn lead(&self, request: &MemberRequest, to: Option<NodeId>) -> Step<MemberReply> {
        if to == Some(self.card.node_id) {
            return Ok(self.reply(false, None));
        }
        self.check_match(request)?;
        Err(self.hand_over_to(to).await)
    }
}

#[expect(dead_code, reason = "keeps the future of a change Send, checked at compile time")]
fn change_is_send<P: Platform>(
    service: &Service<P>,
    request: MemberRequest,
) -> impl Future<Output = MembersAnswer> + Send {
    service.change(request, Duration::ZERO)
}
