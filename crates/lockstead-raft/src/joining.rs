//! How a new node gets into a cluster: a learner first, a voter once it has caught up.

use std::time::Duration;

use openraft::async_runtime::WatchReceiver as _;
use tokio::time::{Instant, sleep};

use crate::identity::SetClusterError;
use crate::node::{Node, member, stop};
use crate::peer::{JoinAnswer, JoinCall, JoinStep, MembersCall, PeerService as _, ask_about_members, ask_to_join};
use crate::platform::Platform;
use crate::replica::{JoinAs, JoinError, StopReason};
use crate::store::Machine;
use crate::types::Member;

/// How long one call to a member may take.
const CALL_TIME_MAX: Duration = Duration::from_secs(5);
/// How long one try may take to catch up and be promoted.
const TRY_TIME_MAX: Duration = Duration::from_mins(1);
/// How long to wait before a member is asked once more.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// How long to wait before the leader is told of this start once more.
const ANNOUNCE_AGAIN_AFTER: Duration = Duration::from_millis(500);

impl<P: Platform> Node<P> {
    /// Asks to be taken in; see [`crate::Replica::join`].
    ///
    /// The answer to an earlier try may be lost: what the log says since then counts.
    pub(crate) async fn join(&self, peers: &[String], join_as: JoinAs) -> Result<(), JoinError> {
        if self.has_joined() {
            return Ok(());
        }
        let refused = |why: SetClusterError| JoinError::Refused(why.to_string());
        self.keep(move |identity| identity.set_joining(join_as == JoinAs::Voter)).await.map_err(refused)?;
        match self.ask_members(peers, JoinStep::Add).await? {
            JoinAnswer::Accepted { cluster } => {
                self.keep(move |identity| identity.set_cluster(cluster)).await.map_err(refused)?;
            }
            other => return Err(not_yet(&other)),
        }
        match join_as {
            JoinAs::Learner => self.wait_until("be a learner", || self.knows_members()).await,
            JoinAs::Voter => {
                self.become_voter(peers).await?;
                self.keep(|identity| identity.set_joining(false)).await.map_err(refused)
            }
        }
    }

    async fn become_voter(&self, peers: &[String]) -> Result<(), JoinError> {
        self.wait_until("catch up", || self.knows_members() && self.machine.with(Machine::is_complete)).await?;
        let ends = Instant::now() + TRY_TIME_MAX;
        while Instant::now() < ends {
            match self.ask_members(peers, JoinStep::Promote).await? {
                JoinAnswer::Promoted => return self.wait_until("vote", || self.is_voter()).await,
                JoinAnswer::NotCaughtUp | JoinAnswer::TryAgain { .. } | JoinAnswer::NotLeader { .. } => {
                    sleep(ASK_AGAIN_AFTER).await;
                }
                other @ JoinAnswer::Accepted { .. } => return Err(not_yet(&other)),
                JoinAnswer::Refused { text } | JoinAnswer::Removed { text } => return Err(JoinError::Refused(text)),
            }
        }
        Err(JoinError::NotYet("it was not promoted in time".to_owned()))
    }

    /// Asks one member after another, and the leader that they name.
    async fn ask_members(&self, peers: &[String], step: JoinStep) -> Result<JoinAnswer, JoinError> {
        let mut addresses: Vec<String> = peers.iter().rev().cloned().collect();
        let (mut named_leaders, mut last) = (0, "no member was named".to_owned());
        while let Some(address) = addresses.pop() {
            match ask_to_join(&self.dialer, &address, &self.join_call(step), CALL_TIME_MAX).await {
                Ok(JoinAnswer::NotLeader { leader_peer: Some(leader) })
                    if named_leaders < 3 && leader != self.config.advertise_peer =>
                {
                    named_leaders += 1;
                    addresses.push(leader);
                }
                Ok(JoinAnswer::NotLeader { .. }) => "no leader is known".clone_into(&mut last),
                Ok(JoinAnswer::TryAgain { text }) => last = text,
                Ok(JoinAnswer::Removed { text }) => return Err(self.removed(text)),
                Ok(JoinAnswer::Refused { text }) => return Err(JoinError::Refused(text)),
                Ok(answer) => return Ok(answer),
                Err(why) => last = format!("{address}: {why}"),
            }
        }
        Err(JoinError::NotYet(last))
    }

    /// A node that was a member ends as a removed one; an empty node under a used id is refused.
    fn removed(&self, text: String) -> JoinError {
        if self.knows_members() {
            stop(&self.stop_reason, StopReason::Removed(text.clone()));
        }
        JoinError::Refused(text)
    }

    /// Tells the leader of this start until the membership records it: peers of later days shall know it, too.
    pub(crate) async fn announce_start(&self) {
        let mut metrics = self.raft.server_metrics();
        loop {
            match member(&self.raft, self.identity.node_id()) {
                Some(known) if self.is_recorded_in(&known) => return,
                Some(_) if self.standing.votes() => self.try_to_announce().await,
                _ => {}
            }
            tokio::select! {
                changed = metrics.changed() => if changed.is_err() { return },
                () = sleep(ANNOUNCE_AGAIN_AFTER) => {}
            }
        }
    }

    fn is_recorded_in(&self, known: &Member) -> bool {
        let own = self.own_member();
        known.incarnation == own.incarnation && (known.starts, &known.version) == (own.starts, &own.version)
    }

    async fn try_to_announce(&self) {
        let (me, leader) = (self.identity.node_id(), self.router.leader());
        let call = MembersCall::Announce { node_id: me, member: self.own_member() };
        let answered = match leader.and_then(|id| Some((id, member(&self.raft, id)?))) {
            Some((id, _)) if id == me => Ok(self.service().members(call).await),
            Some((id, leader)) => ask_about_members(&self.dialer, id, &leader, &call, CALL_TIME_MAX).await,
            None => return,
        };
        tracing::debug!(?answered, "told the leader of this start");
    }

    fn join_call(&self, step: JoinStep) -> JoinCall {
        let (node_id, incarnation) = (self.identity.node_id(), self.identity.incarnation());
        JoinCall { node_id, incarnation, member: self.own_member(), step }
    }

    async fn wait_until(&self, what: &str, reached: impl Fn() -> bool) -> Result<(), JoinError> {
        let mut metrics = self.raft.metrics();
        let waiting = async {
            while !reached() {
                if metrics.changed().await.is_err() {
                    return;
                }
            }
        };
        let in_time = tokio::time::timeout(TRY_TIME_MAX, waiting).await;
        in_time.map_err(|_| JoinError::NotYet(format!("it did not {what} in time")))
    }
}

fn not_yet(answer: &JoinAnswer) -> JoinError {
    match answer {
        JoinAnswer::Refused { text } | JoinAnswer::Removed { text } => JoinError::Refused(text.clone()),
        JoinAnswer::TryAgain { text } => JoinError::NotYet(text.clone()),
        JoinAnswer::NotCaughtUp => JoinError::NotYet("it has not caught up".to_owned()),
        JoinAnswer::Accepted { .. } | JoinAnswer::Promoted => {
            JoinError::NotYet("an answer to another question".to_owned())
        }
        JoinAnswer::NotLeader { .. } => JoinError::NotYet("no leader is known".to_owned()),
    }
}
