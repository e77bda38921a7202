//! A node that is only what a test says, behind real sockets.

use std::collections::{BTreeMap, HashMap};
use std::future::{Future, pending};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockstead_core::{
    Acquire, ClusterId, Fence, GiveBack, Grant, Incarnation, LockKey, LockName, Metadata, NodeId, Op, Outcome, Token,
    Ttl,
};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::dial::Dialer;
use super::hello::{Advertised, NodeCard, VERSION, Welcome};
use super::join::{JoinAnswer, JoinCall};
use super::restate::{RestateAnswer, RestateCall, Restated};
use super::server::{PeerServer, RaftPort};
use super::starts::{Position, SeenStarts};
use super::{ForwardAnswer, MembersCall, PeerService, lock};
use crate::members::{MembersAnswer, NodeStatus};
use crate::types::{LogId, Member, Snapshot, TypeConfig, Vote};

/// No test waits longer for what must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn card(node_id: NodeId) -> NodeCard {
    let opened = Position::default();
    NodeCard { node_id, incarnation: Incarnation(node_id), starts: 1, process: node_id, opened }
}

pub(super) fn welcome(cluster: Option<ClusterId>, card: NodeCard) -> Welcome {
    Welcome { cluster, card, known: None, version: VERSION.to_owned() }
}

pub(super) fn dialer(node_id: NodeId, cluster: Option<ClusterId>) -> Dialer {
    Dialer::new(card(node_id), move || cluster, BTreeMap::new(), |_, _| (), Duration::ZERO)
}

pub(super) fn member_at(node_id: NodeId, address: SocketAddr) -> Member {
    Member { peer: address.to_string(), incarnation: card(node_id).incarnation, ..Member::default() }
}

pub(super) async fn socket_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

pub(super) fn lock_named(name: &str) -> LockKey {
    LockKey::in_default(&LockName::parse(name).unwrap())
}

pub(super) fn acquire(name: &str) -> Op {
    let (lock, metadata) = (lock_named(name), Metadata::default());
    let ttl = Ttl::from_request(None, 60_000).unwrap();
    Op::Acquire(Acquire { lock, ttl, wait_ms: 0, queued_ms: 0, owner: None, request_id: None, metadata })
}

pub(super) fn granted(fence: u64, fresh: bool) -> ForwardAnswer {
    let ttl = Ttl::from_request(None, 60_000).unwrap();
    let grant =
        Grant { fence: Fence(fence), token: Token([7; 16]), ttl, left_ms: 30_000, renewed: false, term: 3, fresh };
    ForwardAnswer::Reply { outcome: Outcome::Granted(grant), waited_ms: 0 }
}

pub(super) fn give_back(name: &str, fence: u64) -> GiveBack {
    GiveBack { lock: lock_named(name), fence: Fence(fence), term: 3 }
}

/// What a [`FakeNode`] is asked.
#[derive(Debug)]
pub(super) enum Asked {
    /// A request, to be answered by the test.
    Decide {
        lock: LockKey,
        time_left: Duration,
        answer: oneshot::Sender<ForwardAnswer>,
    },
    /// The future of a request was dropped before it was answered.
    Withdrawn(LockKey),
    GiveBack(GiveBack),
    /// A change of the membership, which is never answered.
    Change,
    /// The future of a change was dropped.
    ChangeGivenUp,
}

/// A node's service; the test reads what it is asked from [`FakeNode::asked`].
#[derive(Clone)]
pub(super) struct FakeNode(Arc<FakeState>);

struct FakeState {
    card: NodeCard,
    full_disk: bool,
    cluster: Mutex<Option<ClusterId>>,
    members: HashMap<NodeId, Incarnation>,
    retired: Vec<NodeId>,
    answering: Mutex<HashMap<NodeId, u64>>,
    joins: Mutex<Vec<JoinCall>>,
    called_as: Mutex<Vec<(ClusterId, Incarnation)>>,
    asked: mpsc::UnboundedSender<Asked>,
    asked_of: Mutex<Option<mpsc::UnboundedReceiver<Asked>>>,
}

impl FakeNode {
    pub(super) fn new(node_id: NodeId, cluster: Option<ClusterId>) -> Self {
        let (asked, asked_of) = mpsc::unbounded_channel();
        Self(Arc::new(FakeState {
            card: card(node_id),
            full_disk: false,
            cluster: Mutex::new(cluster),
            members: HashMap::new(),
            retired: Vec::new(),
            answering: Mutex::default(),
            joins: Mutex::default(),
            called_as: Mutex::default(),
            asked,
            asked_of: Mutex::new(Some(asked_of)),
        }))
    }

    fn change(mut self, change: impl FnOnce(&mut FakeState)) -> Self {
        change(Arc::get_mut(&mut self.0).unwrap());
        self
    }

    pub(super) fn with_member(self, node_id: NodeId) -> Self {
        self.with_member_incarnation(node_id, card(node_id).incarnation)
    }

    pub(super) fn with_member_incarnation(self, node_id: NodeId, incarnation: Incarnation) -> Self {
        self.change(|state| state.members.extend([(node_id, incarnation)]))
    }

    pub(super) fn with_retired(self, node_id: NodeId) -> Self {
        self.change(|state| state.retired.push(node_id))
    }

    /// From now on this process answers where the node is, or none.
    pub(super) fn let_answer(&self, node_id: NodeId, process: Option<u64>) {
        let mut answering = lock(&self.0.answering);
        answering.remove(&node_id);
        answering.extend(process.map(|process| (node_id, process)));
    }

    pub(super) fn with_full_disk(self) -> Self {
        self.change(|state| state.full_disk = true)
    }

    pub(super) fn joins(&self) -> Vec<JoinCall> {
        lock(&self.0.joins).clone()
    }

    pub(super) fn called_as(&self) -> Vec<(ClusterId, Incarnation)> {
        lock(&self.0.called_as).clone()
    }

    pub(super) fn asked(&self) -> mpsc::UnboundedReceiver<Asked> {
        lock(&self.0.asked_of).take().unwrap()
    }
}

/// Tells that a request was withdrawn, unless it was answered first.
struct Undecided {
    node: FakeNode,
    lock: Option<LockKey>,
}

impl Drop for Undecided {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            drop(self.node.0.asked.send(Asked::Withdrawn(lock)));
        }
    }
}

impl PeerService for FakeNode {
    fn card(&self) -> NodeCard {
        self.0.card
    }

    fn advertised(&self) -> Advertised {
        Advertised { peer: format!("peer:{}", self.0.card.node_id), api: format!("api:{}", self.0.card.node_id) }
    }

    fn cluster(&self) -> Option<ClusterId> {
        *lock(&self.0.cluster)
    }

    fn adopt_cluster(&self, cluster: ClusterId) -> Result<(), String> {
        if self.0.full_disk {
            return Err("no space".to_owned());
        }
        *lock(&self.0.cluster) = Some(cluster);
        Ok(())
    }

    fn member(&self, node_id: NodeId) -> Option<Member> {
        self.0.members.get(&node_id).map(|incarnation| Member { incarnation: *incarnation, ..Member::default() })
    }

    fn is_retired(&self, node_id: NodeId) -> bool {
        self.0.retired.contains(&node_id)
    }

    fn called_by_unknown(&self, _node_id: NodeId) {}

    fn called_as_member(&self, cluster: ClusterId, incarnation: Incarnation) {
        lock(&self.0.called_as).push((cluster, incarnation));
    }

    async fn answers_as(&self, node_id: NodeId, process: u64) -> bool {
        lock(&self.0.answering).get(&node_id) == Some(&process)
    }

    async fn decide_here(&self, op: Op, time_left: Duration) -> ForwardAnswer {
        let Op::Acquire(Acquire { lock, .. }) = op else { return ForwardAnswer::NoLeader };
        let mut undecided = Undecided { node: self.clone(), lock: Some(lock.clone()) };
        let (answer, answered) = oneshot::channel();
        drop(self.0.asked.send(Asked::Decide { lock, time_left, answer }));
        let Ok(answer) = answered.await else { pending().await };
        undecided.lock = None;
        answer
    }

    fn give_back(&self, give_back: GiveBack) {
        drop(self.0.asked.send(Asked::GiveBack(give_back)));
    }

    async fn join(&self, call: JoinCall) -> JoinAnswer {
        lock(&self.0.joins).push(call);
        match self.cluster() {
            Some(cluster) => JoinAnswer::Accepted { cluster },
            None => JoinAnswer::TryAgain { text: "not joined".to_owned() },
        }
    }

    async fn members(&self, call: MembersCall) -> MembersAnswer {
        if matches!(call, MembersCall::Change { .. }) {
            drop(self.0.asked.send(Asked::Change));
            let _given_up = GivenUp(self);
            pending::<()>().await;
        }
        MembersAnswer::Status(NodeStatus { complete: true, votes: false })
    }

    async fn restate(&self, _call: RestateCall) -> RestateAnswer {
        RestateAnswer::Restated(Restated { upto: 7, applied: 9 })
    }
}

/// Tells that a change is given up.
struct GivenUp<'a>(&'a FakeNode);

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        drop(self.0.0.asked.send(Asked::ChangeGivenUp));
    }
}

/// A Raft that answers each kind of call with something of its own, and counts the votes it was asked for.
#[derive(Clone, Default)]
pub(super) struct FakeRaft {
    pub(super) no_votes: bool,
    pub(super) votes_asked: Arc<Mutex<Vec<&'static str>>>,
    pub(super) appended: Arc<Mutex<Vec<Option<LogId>>>>,
    pub(super) installed: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl FakeRaft {
    fn answer_vote(&self, kind: &'static str, rpc: &VoteRequest<TypeConfig>) -> VoteResponse<TypeConfig> {
        lock(&self.votes_asked).push(kind);
        VoteResponse::new(rpc.vote, None, kind == "vote")
    }
}

impl RaftPort for FakeRaft {
    fn may_vote(&self) -> bool {
        !self.no_votes
    }

    async fn append(&self, rpc: AppendEntriesRequest<TypeConfig>) -> Result<AppendEntriesResponse<TypeConfig>, String> {
        lock(&self.appended).push(rpc.entries.last().map(|entry| entry.log_id));
        Ok(AppendEntriesResponse::Success)
    }

    async fn vote(&self, rpc: VoteRequest<TypeConfig>) -> Result<VoteResponse<TypeConfig>, String> {
        Ok(self.answer_vote("vote", &rpc))
    }

    async fn pre_vote(&self, rpc: VoteRequest<TypeConfig>) -> Result<VoteResponse<TypeConfig>, String> {
        Ok(self.answer_vote("pre-vote", &rpc))
    }

    async fn install_snapshot(&self, vote: Vote, snapshot: Snapshot) -> Result<SnapshotResponse<TypeConfig>, String> {
        lock(&self.installed).push(snapshot.snapshot);
        Ok(SnapshotResponse::new(vote))
    }

    async fn transfer_leader(
        &self,
        _rpc: TransferLeaderRequest<TypeConfig>,
    ) -> Result<TransferLeaderResponse<TypeConfig>, String> {
        lock(&self.votes_asked).push("transfer");
        Ok(Ok(()))
    }
}

/// A fake node behind its peer port, until dropped.
pub(super) struct Served {
    pub(super) service: FakeNode,
    pub(super) member: Member,
    _stop: DropGuard,
}

impl Served {
    pub(super) fn address(&self) -> String {
        self.member.peer.clone()
    }
}

pub(super) async fn serve(service: FakeNode) -> Served {
    serve_raft(service, FakeRaft::default()).await
}

pub(super) async fn serve_raft(service: FakeNode, raft: FakeRaft) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = member_at(service.card().node_id, listener.local_addr().unwrap());
    let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
    let seen = SeenStarts::default();
    PeerServer { service: service.clone(), raft, seen, tracker, stop: stop.clone() }.spawn(listener);
    Served { service, member, _stop: stop.drop_guard() }
}

/// The next of a queue, which must come.
pub(super) async fn next<T>(queue: &mut mpsc::UnboundedReceiver<T>) -> T {
    within(queue.recv()).await.unwrap()
}

/// What must happen.
pub(super) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}
