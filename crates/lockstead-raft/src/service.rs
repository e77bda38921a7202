//! What peers may ask of this node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lockstead_core::{ClusterId, GiveBack, Incarnation, NodeId, Op};
use openraft::ChangeMembers;
use openraft::async_runtime::WatchReceiver as _;
use openraft::error::{ClientWriteError, RaftError};
use tokio::time::timeout;

use crate::identity::Identity;
use crate::node::{member, member_incarnation};
use crate::peer::{ForwardAnswer, JoinAnswer, JoinCall, JoinStep, NodeCard, PeerService};
use crate::platform::{Host, Platform};
use crate::router::Router;
use crate::types::{LogId, Raft, TypeConfig};

/// How long a leader waits for a learner to catch up with the log as it was when the call came.
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a change of membership may take until its caller is told to ask again.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(4);

type MembershipError = RaftError<TypeConfig, ClientWriteError<TypeConfig>>;

/// What peers may ask of this node.
pub(crate) struct Service<P = Host> {
    pub(crate) card: NodeCard,
    pub(crate) identity: Arc<Identity>,
    pub(crate) raft: Raft,
    pub(crate) router: Router<P>,
    /// openraft takes one change of membership at a time.
    pub(crate) changing: Arc<tokio::sync::Mutex<()>>,
}

impl<P> Clone for Service<P> {
    fn clone(&self) -> Self {
        let (identity, raft) = (Arc::clone(&self.identity), self.raft.clone());
        Self { card: self.card, identity, raft, router: self.router.clone(), changing: Arc::clone(&self.changing) }
    }
}

impl<P: Platform> PeerService for Service<P> {
    fn card(&self) -> NodeCard {
        self.card
    }

    fn cluster(&self) -> Option<ClusterId> {
        self.identity.cluster_id()
    }

    fn adopt_cluster(&self, cluster: ClusterId) -> Result<(), String> {
        self.identity.set_cluster(cluster).map_err(|why| why.to_string())
    }

    fn member_incarnation(&self, node_id: NodeId) -> Option<Incarnation> {
        member_incarnation(&self.raft, node_id)
    }

    async fn decide_here(&self, op: Op, time_left: Duration) -> ForwardAnswer {
        self.router.decide_forwarded(op, time_left).await
    }

    fn give_back(&self, give_back: GiveBack) {
        self.router.give_back(give_back);
    }

    async fn join(&self, call: JoinCall) -> JoinAnswer {
        let Ok(_one_at_a_time) = self.changing.try_lock() else {
            return JoinAnswer::TryAgain { text: "another node joins at this moment".to_owned() };
        };
        let step = async {
            match call.step {
                JoinStep::Add => self.add(call).await,
                JoinStep::Promote => self.promote(call).await,
            }
        };
        // Without a quorum a change has no end; the next try finds out what became of it.
        let too_long = || JoinAnswer::TryAgain { text: "the change was not committed in time".to_owned() };
        timeout(CHANGE_TIME_MAX, step).await.unwrap_or_else(|_| too_long())
    }
}

impl<P: Platform> Service<P> {
    async fn add(&self, call: JoinCall) -> JoinAnswer {
        let Some(cluster) = self.identity.cluster_id() else {
            return JoinAnswer::TryAgain { text: "the node asked belongs to no cluster yet".to_owned() };
        };
        if let Some(known) = member(&self.raft, call.node_id) {
            return if known.incarnation == call.incarnation {
                JoinAnswer::Accepted { cluster }
            } else {
                JoinAnswer::Refused { text: id_in_use(&call) }
            };
        }
        if let Some(text) = self.address_in_use(&call) {
            return JoinAnswer::Refused { text };
        }
        match self.raft.add_learner(call.node_id, call.member, false).await {
            Ok(_) => JoinAnswer::Accepted { cluster },
            Err(why) => self.not_changed(&why),
        }
    }

    /// Two members at one address would get each other's traffic.
    fn address_in_use(&self, call: &JoinCall) -> Option<String> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let mut members = metrics.membership_config.membership().nodes();
        let (id, _) = members.find(|(_, member)| member.peer == call.member.peer || member.api == call.member.api)?;
        Some(format!("node {id} is a member with one of the addresses {} and {}", call.member.peer, call.member.api))
    }

    async fn promote(&self, call: JoinCall) -> JoinAnswer {
        let Some(known) = member(&self.raft, call.node_id) else {
            return JoinAnswer::TryAgain { text: "this node is not a learner yet".to_owned() };
        };
        if known.incarnation != call.incarnation {
            return JoinAnswer::Refused { text: id_in_use(&call) };
        }
        if self.raft.voter_ids().any(|id| id == call.node_id) {
            return JoinAnswer::Promoted;
        }
        if !self.caught_up(call.node_id).await {
            return self.leader_or(JoinAnswer::NotCaughtUp);
        }
        let change = ChangeMembers::AddVoterIds(BTreeSet::from([call.node_id]));
        match self.raft.change_membership(change, true).await {
            Ok(_) => JoinAnswer::Promoted,
            Err(why) => self.not_changed(&why),
        }
    }

    /// Whether the learner has, within a while, all that the log held when the call came.
    async fn caught_up(&self, node_id: NodeId) -> bool {
        let mut metrics = self.raft.metrics();
        let Some(goal) = metrics.borrow_watched().last_log_index else { return false };
        let reached = async {
            loop {
                let matched = {
                    let metrics = metrics.borrow_watched();
                    let replication = metrics.replication.as_ref()?;
                    replication.get(&node_id).and_then(Option::as_ref).map(LogId::index)
                };
                if matched.is_some_and(|matched| matched >= goal) {
                    return Some(());
                }
                metrics.changed().await.ok()?;
            }
        };
        timeout(CATCH_UP_TIME_MAX, reached).await.is_ok_and(|reached| reached.is_some())
    }

    fn not_changed(&self, why: &MembershipError) -> JoinAnswer {
        match why {
            RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => {
                self.leader_or(JoinAnswer::TryAgain { text: "no leader is known".to_owned() })
            }
            // A change in progress, a leader too young, an unknown outcome: the next try finds out.
            RaftError::APIError(_) | RaftError::Fatal(_) => JoinAnswer::TryAgain { text: why.to_string() },
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
}

fn id_in_use(call: &JoinCall) -> String {
    format!(
        "node id {} is a member with another data directory: a node whose directory was lost comes back under a new id and \
         at new addresses",
        call.node_id
    )
}
