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
use super::quorum::{Voters, answering, are_quorums, coming_voters, voters_in_force, warning_about};
use super::types::{
    MemberChange, MemberError, MemberRefusal, MemberReply, MemberRequest, MembersAnswer, MembershipId, ToGo,
};
use crate::node::member;
use crate::platform::Platform;
use crate::service::{MembershipError, Service};
use crate::term::{Term, TermLost};
use crate::types::{Member, TypeConfig};
use crate::view::membership_id;

/// How long another change may take to make room for this one.
const TURN_TIME_MAX: Duration = Duration::from_millis(500);
/// How long to wait before a new node is looked for, or a learner's progress looked at, once more.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A step towards an answer.
pub(super) type Step<T> = Result<T, MembersAnswer>;

/// Whoever has it changes the membership: openraft takes one change at a time.
type Turn = tokio::sync::OwnedMutexGuard<()>;

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
        let decide = async |term: &mut Term| self.decide(request, term, ends).await;
        self.in_office(ends, decide, |reply| reply.changed).await
    }

    /// Decides as a leader that a quorum follows, before and, unless `is_change`, afterwards.
    ///
    /// What changed nothing rests on what this leader knows and on who answers it: one that was deposed meanwhile may
    /// be wrong.
    pub(super) async fn in_office<T>(
        &self,
        ends: Instant,
        decide: impl AsyncFnOnce(&mut Term) -> Step<T>,
        is_change: impl FnOnce(&T) -> bool,
    ) -> Step<T> {
        let mut term = Term::current(&self.raft).ok_or(MembersAnswer::NotLeader)?;
        self.check_leadership(ends).await?;
        let decided = decide(&mut term).await;
        let is_view = match &decided {
            Ok(decided) => !is_change(decided),
            Err(answer) => matches!(answer, MembersAnswer::Changed(Err(MemberError::Refused(_)))),
        };
        if is_view {
            self.check_leadership(ends).await?;
            term.check().map_err(not_leader)?;
        }
        decided
    }

    async fn decide(&self, request: &MemberRequest, term: &mut Term, ends: Instant) -> Step<MemberReply> {
        let wait_ends = Instant::now() + Duration::from_millis(request.wait_ms);
        let newcomer = match &request.change {
            MemberChange::Lead { to } => return self.lead(request, *to, ends).await,
            MemberChange::Add { id, peer, api } => {
                if member(&self.raft, *id).is_none() {
                    self.check_match(request)?;
                    self.check_addresses(*id, (peer, api))?;
                }
                term.hold(self.newcomer(*id, peer, api, wait_ends.min(ends))).await.map_err(not_leader)??
            }
            MemberChange::Promote { id } => {
                term.hold(self.check_caught_up(*id, request, wait_ends.min(ends))).await.map_err(not_leader)??;
                None
            }
            MemberChange::Move { id, peer, .. } => {
                term.hold(self.check_place(*id, peer)).await.map_err(not_leader)??;
                None
            }
            MemberChange::Remove { .. } | MemberChange::Demote { .. } => None,
        };
        let changed = self.in_turn(request, newcomer, ends).await?;
        let to_go = match request.change {
            MemberChange::Add { id, .. } => {
                let to_go = term.hold(self.progress(id, wait_ends.min(ends))).await.ok().flatten();
                self.check_not_retired(id)?;
                to_go
            }
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
        let is_led_here = || self.router.leader() == Some(self.card.node_id);
        let led = async {
            // A leader that has just been stopped for a while has still to hear who leads.
            while self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await.is_err() {
                if !is_led_here() {
                    return false;
                }
                sleep(LOOK_AGAIN).await;
            }
            true
        };
        match timeout(time_max, led).await {
            Ok(true) => Ok(()),
            _ if is_led_here() => Err(MembersAnswer::Changed(Err(MemberError::NoLeader))),
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

    /// It may be removed while it is waited for.
    fn check_member(&self, id: NodeId) -> Step<()> {
        match member(&self.raft, id) {
            Some(_) => Ok(()),
            None => refuse(MemberRefusal::UnknownNode(id)),
        }
    }

    async fn check_caught_up(&self, id: NodeId, request: &MemberRequest, ends: Instant) -> Step<()> {
        self.check_member(id)?;
        if coming_voters(&self.raft).contains(&id) {
            return Ok(());
        }
        self.check_match(request)?;
        let goal = self.raft.metrics().borrow_watched().last_log_index.unwrap_or(0);
        let ends = ends.max(Instant::now() + self.answer_time_max() / 2);
        while !self.is_heard(id).await {
            self.check_member(id)?;
            if Instant::now() + LOOK_AGAIN > ends {
                return refuse(self.not_caught_up(id, format!("node {id} does not answer")));
            }
            sleep(LOOK_AGAIN).await;
        }
        while self.matched(id).is_none_or(|matched| matched < goal) || !self.is_whole(id).await {
            self.check_member(id)?;
            if Instant::now() + LOOK_AGAIN > ends {
                return refuse(self.not_caught_up(id, format!("node {id} lacks part of the log")));
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    async fn is_heard(&self, id: NodeId) -> bool {
        answering(&self.raft, self.answer_time_max() / 2, |answering| answering.contains(&id)).await.contains(&id)
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
    ///
    /// What a former leader left half done is finished before: nobody plans from a membership that goes away.
    pub(super) async fn in_turn_with(&self, ends: Instant, plan: impl FnOnce() -> Step<Option<Plan>>) -> Step<bool> {
        let turn = timeout(TURN_TIME_MAX, Arc::clone(&self.changing).lock_owned()).await;
        let Ok(turn) = turn else { return refuse(MemberRefusal::ChangeInProgress) };
        let turn = match self.rest_of_a_change() {
            Some(rest) => {
                let turn = self.make(rest, turn, ends).await?;
                tracing::info!("finished a change of the membership that a former leader had begun");
                turn
            }
            None => turn,
        };
        let Some(plan) = plan()? else { return Ok(false) };
        if !plan.forced {
            self.check_quorum(&plan).await?;
        }
        self.make(plan, turn, ends).await.map(|_turn| true)
    }

    /// Makes a change in its turn, and gives the turn back.
    async fn make(&self, plan: Plan, turn: Turn, ends: Instant) -> Step<Turn> {
        let me = self.card.node_id;
        if !plan.voters.contains(&me) || (plan.away == Some(me) && !plan.forced) {
            // Its successor goes on from here.
            drop(turn);
            return match self.best_successor().await {
                Ok(successor) => Err(self.transfer(successor, ends).await),
                Err(refusal) => refuse(refusal),
            };
        }
        if Instant::now() >= ends {
            return Err(MembersAnswer::Changed(Err(MemberError::NoLeader)));
        }
        tracing::info!(change = %plan.change, "changing the membership");
        let before = self.membership_id();
        // A change that is begun is gone through with, whoever waits for it: it may take two steps.
        let raft = self.raft.clone();
        let made = self.tasks.spawn(async move {
            let made = raft.change_membership(plan.change, plan.retain).await;
            made.map(|_| turn)
        });
        match timeout_at(ends, made).await {
            Ok(Ok(Ok(turn))) => Ok(turn),
            // Of two steps, the first may have been made.
            Ok(Ok(Err(why))) if self.membership_id() == before => Err(not_made(&why)),
            Ok(Ok(Err(_)) | Err(_)) | Err(_) => Err(MembersAnswer::Changed(Err(MemberError::OutcomeUnknown))),
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
        let away = plan.away.filter(|away| plan.voters.contains(away));
        let away = away.map(|away| format!(", and node {away} will be away until it is started at its new addresses"));
        refuse(MemberRefusal::WouldLoseQuorum(text + &away.unwrap_or_default()))
    }

    // ---- how far a node is

    /// What a node lacks; waits until that is nothing, it is no member any more, or `ends`.
    async fn progress(&self, id: NodeId, ends: Instant) -> Option<ToGo> {
        loop {
            let to_go = self.to_go(id);
            if to_go.is_none_or(|to_go| to_go.entries == 0) || Instant::now() + LOOK_AGAIN > ends {
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

fn not_leader(TermLost: TermLost) -> MembersAnswer {
    MembersAnswer::NotLeader
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
    async fn lead(&self, request: &MemberRequest, to: Option<NodeId>, ends: Instant) -> Step<MemberReply> {
        if to == Some(self.card.node_id) {
            return Ok(self.reply(false, None));
        }
        self.check_match(request)?;
        Err(self.hand_over_to(to, ends).await)
    }
}

#[expect(dead_code, reason = "keeps the future of a change Send, checked at compile time")]
fn change_is_send<P: Platform>(
    service: &Service<P>,
    request: MemberRequest,
) -> impl Future<Output = MembersAnswer> + Send {
    service.change(request, Duration::ZERO)
}
