//! What peers may ask of this node.

use std::sync::Arc;
use std::time::Duration;

use lockstead_core::{ClusterId, GiveBack, Incarnation, NodeId, Op};
use openraft::async_runtime::WatchReceiver as _;
use openraft::error::{ClientWriteError, RaftError};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::identity::Identity;
use crate::members::{MembersAnswer, NodeStatus};
use crate::node::member;
use crate::peer::{
    Advertised, Dialer, ForwardAnswer, JoinAnswer, JoinCall, MembersCall, NodeCard, PeerService, RestateAnswer,
    RestateCall,
};
use crate::platform::{Host, Platform};
use crate::router::Router;
use crate::standing::Standing;
use crate::store::{LogStore, Machine, StateMachine};
use crate::types::{Member, Raft, TypeConfig};

/// Why openraft did not change the membership.
pub(crate) type MembershipError = RaftError<TypeConfig, ClientWriteError<TypeConfig>>;

/// What peers may ask of this node.
pub(crate) struct Service<P = Host> {
    pub(crate) card: NodeCard,
    pub(crate) advertised: Advertised,
    pub(crate) identity: Arc<Identity>,
    pub(crate) raft: Raft,
    pub(crate) log: LogStore,
    pub(crate) machine: StateMachine,
    pub(crate) dialer: Dialer,
    pub(crate) standing: Standing,
    pub(crate) router: Router<P>,
    /// The maximum election timeout: who has not answered for so long does not answer.
    pub(crate) election_max: Duration,
    /// openraft takes one change of membership at a time.
    pub(crate) changing: Arc<tokio::sync::Mutex<()>>,
    /// Every task of the node belongs to it.
    pub(crate) tasks: TaskTracker,
}

impl<P> Clone for Service<P> {
    fn clone(&self) -> Self {
        Self {
            card: self.card,
            advertised: self.advertised.clone(),
            identity: Arc::clone(&self.identity),
            raft: self.raft.clone(),
            log: self.log.clone(),
            machine: self.machine.clone(),
            dialer: self.dialer.clone(),
            standing: self.standing.clone(),
            router: self.router.clone(),
            election_max: self.election_max,
            changing: Arc::clone(&self.changing),
            tasks: self.tasks.clone(),
        }
    }
}

impl<P: Platform> PeerService for Service<P> {
    fn card(&self) -> NodeCard {
        self.card
    }

    fn advertised(&self) -> Advertised {
        self.advertised.clone()
    }

    fn cluster(&self) -> Option<ClusterId> {
        self.identity.cluster_id()
    }

    fn adopt_cluster(&self, cluster: ClusterId) -> Result<(), String> {
        self.identity.set_cluster(cluster).map_err(|why| why.to_string())
    }

    fn member(&self, node_id: NodeId) -> Option<Member> {
        member(&self.raft, node_id)
    }

    fn is_retired(&self, node_id: NodeId) -> bool {
        self.machine.with(|state| state.table.is_retired(node_id))
    }

    fn called_by_unknown(&self, node_id: NodeId) {
        let in_force = self.raft.server_metrics().borrow_watched().membership_config.clone();
        // While a removal is under way, its node is neither a member nor retired yet.
        let is_stranger = self.machine.with(|state| {
            state.membership.log_id() == in_force.log_id()
                && state.membership.get_node(&node_id).is_none()
                && !state.table.is_retired(node_id)
        });
        if is_stranger && in_force.voter_ids().eq([self.card.node_id]) {
            self.standing.is_outgrown(node_id);
        }
    }

    fn called_as_member(&self, cluster: ClusterId, incarnation: Incarnation) {
        self.standing.is_called_as_member(cluster, incarnation);
    }

    async fn answers_as(&self, node_id: NodeId, process: u64) -> bool {
        let Some(member) = member(&self.raft, node_id) else { return false };
        self.dialer.process_of(node_id, &member).await == Some(process)
    }

    async fn decide_here(&self, op: Op, time_left: Duration) -> ForwardAnswer {
        self.router.decide_forwarded(op, time_left).await
    }

    fn give_back(&self, give_back: GiveBack) {
        self.router.give_back(give_back);
    }

    async fn join(&self, call: JoinCall) -> JoinAnswer {
        self.take_in(call).await
    }

    async fn restate(&self, call: RestateCall) -> RestateAnswer {
        let restated = self.router.restate_here(&self.machine);
        match timeout(Duration::from_millis(call.time_left_ms), restated).await {
            Ok(Some(restated)) => RestateAnswer::Restated(restated),
            Ok(None) => RestateAnswer::NotLeader,
            Err(_) => RestateAnswer::NotInTime,
        }
    }

    async fn members(&self, call: MembersCall) -> MembersAnswer {
        match call {
            MembersCall::Status => {
                let complete = self.machine.with(Machine::is_complete);
                MembersAnswer::Status(NodeStatus { complete, votes: self.standing.votes() })
            }
            MembersCall::Announce { node_id, member } => MembersAnswer::Announced(self.record(node_id, member).await),
            MembersCall::Change { request, time_left_ms } => {
                self.change(request, Duration::from_millis(time_left_ms)).await
            }
        }
    }
}
