//! A node: its parts, what it answers of itself, and how it stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockstead_core::{ClusterId, HolderView, Incarnation, Limits, LockKey, LockView, NodeId, Op};
use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver as _;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::ReplicaConfig;
use crate::identity::{Identity, SetClusterError};
use crate::local_clock::LocalClock;
use crate::metrics::ReplicaMetrics;
use crate::office::Ground;
use crate::offices::Offices;
use crate::peer::{Dialer, NodeCard, PeerNetworkFactory, PeerServer, RaftHandle, RequestLinks};
use crate::platform::{Host, Platform};
use crate::replica::{BootstrapError, NotReady, OpenError, Reply, StopReason, SubmitError};
use crate::router::Router;
use crate::service::Service;
use crate::start::{Files, card, dialer, start_raft};
use crate::store::{LogStore, Machine, StateMachine};
use crate::term::quorum;
use crate::types::{LogId, Member, Raft, StoredMembership};
use crate::view::{ClusterView, LeaderView};

/// A running node.
pub(crate) struct Node<P: Platform> {
    pub(crate) config: ReplicaConfig,
    pub(crate) platform: Arc<P>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) raft: Raft,
    pub(crate) log: LogStore,
    pub(crate) machine: StateMachine,
    pub(crate) router: Router<P>,
    pub(crate) dialer: Dialer,
    pub(crate) metrics: ReplicaMetrics,
    pub(crate) bootstrapping: AtomicBool,
    stop_reason: watch::Sender<Option<StopReason>>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Node<Host> {
    /// Opens the data directory and starts every task of the node.
    pub(crate) async fn open(config: ReplicaConfig, listener: TcpListener) -> Result<Arc<Self>, OpenError> {
        let metrics = ReplicaMetrics::new();
        let stop_reason = watch::Sender::new(None);
        let files = Files::open(&config, &metrics, &stop_reason).await?;
        let identity = Arc::new(files.identity);
        let platform = Arc::new(Host);
        let card = card(&identity, platform.as_ref());
        let dialer = dialer(&config, &identity, card, &stop_reason);
        let network = PeerNetworkFactory::new(dialer.clone());
        let raft = start_raft::<Host>(&config, network, files.log.clone(), files.machine.clone()).await?;
        let storage = (files.log, files.machine);
        let node = Self::assemble(config, platform, identity, raft, storage, dialer, metrics, stop_reason);
        node.check_addresses()?;
        node.start_tasks(listener, card);
        Ok(node)
    }

    #[expect(clippy::too_many_arguments, reason = "each part is made once and lives here")]
    fn assemble(
        config: ReplicaConfig,
        platform: Arc<Host>,
        identity: Arc<Identity>,
        raft: Raft,
        (log, machine): (LogStore, StateMachine),
        dialer: Dialer,
        metrics: ReplicaMetrics,
        stop_reason: watch::Sender<Option<StopReason>>,
    ) -> Arc<Self> {
        let stopping = CancellationToken::new();
        let local_clock = LocalClock::start();
        let ground = Ground {
            platform: Arc::clone(&platform),
            raft: raft.clone(),
            machine: machine.clone(),
            local_clock,
            limits: Limits { locks_max: config.locks_max, ..Limits::default() },
            tick_ms: config.tick_ms,
            gap_max: Duration::from_millis(config.election_max_ms),
            metrics: metrics.clone(),
        };
        let (offices, office) = Offices::new(ground, stop_reason.clone());
        let tasks = TaskTracker::new();
        tasks.spawn(offices.run(stopping.clone()));
        let router = Router {
            platform: Arc::clone(&platform),
            raft: raft.clone(),
            links: RequestLinks::new(dialer.clone(), tasks.clone(), stopping.clone()),
            local_clock,
            office,
            draining: CancellationToken::new(),
            last_number: Arc::new(AtomicU64::new(0)),
        };
        let bootstrapping = AtomicBool::new(false);
        Arc::new(Self {
            config,
            platform,
            identity,
            raft,
            log,
            machine,
            router,
            dialer,
            metrics,
            bootstrapping,
            stop_reason,
            stopping,
            tasks,
        })
    }

    fn start_tasks(&self, listener: TcpListener, card: NodeCard) {
        let (identity, raft) = (Arc::clone(&self.identity), self.raft.clone());
        let may_vote =
            move || member(&raft, identity.node_id()).is_some_and(|me| me.incarnation == identity.incarnation());
        let port = RaftHandle { raft: self.raft.clone(), may_vote: Arc::new(may_vote) };
        let service = Service {
            card,
            identity: Arc::clone(&self.identity),
            raft: self.raft.clone(),
            router: self.router.clone(),
            changing: Arc::default(),
        };
        let (tracker, stop) = (self.tasks.clone(), self.stopping.clone());
        PeerServer { service, raft: port, seen: self.dialer.seen_starts(), tracker, stop }.spawn(listener);
        let (counters, stop_reason) = (self.metrics.clone(), self.stop_reason.clone());
        self.tasks.spawn(watch_raft(self.raft.clone(), counters, stop_reason, self.stopping.clone()));
    }
}

impl<P: Platform> Node<P> {
    /// A member at other addresses would lead and not be found.
    fn check_addresses(&self) -> Result<(), OpenError> {
        let own = self.own_member();
        match member(&self.raft, self.identity.node_id()) {
            Some(known)
                if known.incarnation == own.incarnation && (&known.api, &known.peer) != (&own.api, &own.peer) =>
            {
                Err(OpenError::Moved { known_api: known.api, known_peer: known.peer, api: own.api, peer: own.peer })
            }
            _ => Ok(()),
        }
    }

    /// A member that need not join (any more).
    pub(crate) fn is_initialised(&self) -> bool {
        self.knows_members() && !self.identity.is_joining()
    }

    /// Its log or snapshot holds a membership.
    pub(crate) fn knows_members(&self) -> bool {
        has_members(&self.raft.server_metrics().borrow_watched().membership_config)
    }

    pub(crate) fn is_voter(&self) -> bool {
        self.raft.voter_ids().any(|id| id == self.identity.node_id())
    }

    pub(crate) fn announce_bootstrap(&self) {
        self.bootstrapping.store(true, Ordering::SeqCst);
    }

    /// Founds a cluster of this node alone.
    ///
    /// The cluster id goes to disk first. A node that is killed between the two steps comes back uninitialised, asks its
    /// join addresses once more, and goes on with the same id.
    pub(crate) async fn bootstrap(&self) -> Result<(), BootstrapError> {
        if self.knows_members() {
            return Err(BootstrapError("it belongs to a cluster already".to_owned()));
        }
        let cluster = ClusterId(self.platform.random());
        let founded = self.keep(move |identity| identity.found_cluster(cluster)).await;
        founded.map_err(|why| BootstrapError(why.to_string()))?;
        let members = std::collections::BTreeMap::from([(self.identity.node_id(), self.own_member())]);
        self.raft.initialize(members).await.map_err(|why| BootstrapError(why.to_string()))?;
        self.bootstrapping.store(false, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn own_member(&self) -> Member {
        Member {
            peer: self.config.advertise_peer.clone(),
            api: self.config.advertise_api.clone(),
            incarnation: self.identity.incarnation(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    pub(crate) async fn submit(&self, op: Op, time_left: Duration) -> Result<Reply, SubmitError> {
        self.router.submit(op, time_left).await
    }

    pub(crate) fn read_stale(&self, lock: &LockKey) -> Result<Option<LockView>, SubmitError> {
        self.machine.with(|state| {
            if !state.is_complete() {
                return Err(SubmitError::CatchingUp);
            }
            let now = state.table.time();
            let holders: Vec<_> = state.table.holds(lock).iter().map(|hold| HolderView::of(hold, now)).collect();
            Ok((!holders.is_empty()).then_some(LockView { holders, waiters: Vec::new() }))
        })
    }

    pub(crate) fn view(&self) -> ClusterView {
        crate::view::of(self)
    }

    pub(crate) fn readiness(&self) -> Result<(), NotReady> {
        if self.identity.cluster_id().is_none() || !self.knows_members() {
            return Err(NotReady::NotJoined);
        }
        if !self.is_voter() {
            return Err(NotReady::NotVoter);
        }
        if !self.machine.with(Machine::is_complete) {
            return Err(NotReady::CatchingUp);
        }
        self.leader().filter(|leader| self.is_followed(leader)).map(|_| ()).ok_or(NotReady::NoLeader)
    }

    /// A leader that no quorum answers is none: a node that is cut off goes on believing that it leads.
    fn is_followed(&self, leader: &LeaderView) -> bool {
        if leader.node_id != self.identity.node_id() {
            return true;
        }
        let (quorum_age, sole_voter) = quorum(&self.raft);
        let age_max = Duration::from_millis(self.config.election_max_ms) * 2;
        sole_voter || quorum_age.is_some_and(|age| age <= age_max)
    }

    /// Writes to the identity file, off the tasks that must not wait for a disk.
    pub(crate) async fn keep(
        &self,
        write: impl FnOnce(&Identity) -> Result<(), SetClusterError> + Send + 'static,
    ) -> Result<(), SetClusterError> {
        let identity = Arc::clone(&self.identity);
        let written = tokio::task::spawn_blocking(move || write(&identity)).await;
        written.expect("a panic ends the process, and nothing cancels this task")
    }

    pub(crate) fn leader(&self) -> Option<LeaderView> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let node_id = metrics.current_leader?;
        let api = metrics.membership_config.membership().get_node(&node_id)?.api.clone();
        Some(LeaderView { node_id, api })
    }

    pub(crate) fn cluster_id(&self) -> Option<ClusterId> {
        self.identity.cluster_id()
    }

    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    pub(crate) async fn hand_over(&self, time_max: Duration) {
        if let Some(successor) = self.successor()
            && let Err(why) = self.transfer(successor, time_max).await
        {
            tracing::info!(successor, why, "leadership was not handed over");
        }
        self.router.draining.cancel();
    }

    /// Of the voters that answered lately, the one whose log is furthest, if this node leads.
    fn successor(&self) -> Option<NodeId> {
        let me = self.identity.node_id();
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let (replication, heard) = (metrics.replication.as_ref()?, metrics.heartbeat.as_ref()?);
        let lately = Duration::from_millis(self.config.election_max_ms);
        let answers = |id: &NodeId| heard.get(id).and_then(Option::as_ref).is_some_and(|at| at.elapsed() <= lately);
        let voters = metrics.membership_config.membership().voter_ids();
        voters
            .filter(|id| *id != me && answers(id))
            .max_by_key(|id| replication.get(id).and_then(Option::as_ref).map(LogId::index))
    }

    async fn transfer(&self, successor: NodeId, time_max: Duration) -> Result<(), &'static str> {
        let me = self.identity.node_id();
        self.raft.trigger().transfer_leader(successor).await.map_err(|_| "openraft has stopped")?;
        let mut metrics = self.raft.server_metrics();
        let handed_over = async {
            while metrics.borrow_watched().current_leader.is_none_or(|leader| leader == me) {
                if metrics.changed().await.is_err() {
                    return;
                }
            }
        };
        timeout(time_max, handed_over).await.map_err(|_| "nobody else led in time")
    }

    pub(crate) async fn stopped(&self) -> StopReason {
        let mut stop_reason = self.stop_reason.subscribe();
        let reason = stop_reason.wait_for(Option::is_some).await.map(|reason| reason.clone());
        match reason {
            Ok(Some(reason)) => reason,
            _ => unreachable!("the sender lives in this node, and wait_for returns only a reason"),
        }
    }

    pub(crate) async fn shutdown(&self) {
        self.router.draining.cancel();
        self.stopping.cancel();
        if let Err(why) = self.raft.shutdown().await {
            tracing::warn!(%why, "openraft did not stop cleanly");
        }
        self.tasks.close();
        self.tasks.wait().await;
    }
}

pub(crate) fn has_members(membership: &StoredMembership) -> bool {
    membership.membership().nodes().next().is_some()
}

/// What the node's own effective membership says of a node.
pub(crate) fn member(raft: &Raft, node_id: NodeId) -> Option<Member> {
    raft.server_metrics().borrow_watched().membership_config.membership().get_node(&node_id).cloned()
}

/// With which data directory a node is a member.
pub(crate) fn member_incarnation(raft: &Raft, node_id: NodeId) -> Option<Incarnation> {
    member(raft, node_id).map(|member| member.incarnation)
}

/// Keeps the first reason to stop.
pub(crate) fn stop(stop_reason: &watch::Sender<Option<StopReason>>, reason: StopReason) {
    stop_reason.send_if_modified(|known| {
        let first = known.is_none();
        if first {
            tracing::error!(%reason, "this node has to stop");
            *known = Some(reason);
        }
        first
    });
}

/// Counts changes of leader and ends the node when openraft has stopped by itself.
async fn watch_raft(
    raft: Raft,
    counters: ReplicaMetrics,
    stop_reason: watch::Sender<Option<StopReason>>,
    stopping: CancellationToken,
) {
    let mut metrics = raft.metrics();
    let mut leader = None;
    loop {
        let (now_leading, running) = {
            let metrics = metrics.borrow_watched();
            (metrics.current_leader.map(|id| (id, metrics.current_term)), metrics.running_state.clone())
        };
        if let Err(why) = running {
            if !stopping.is_cancelled() {
                stop(&stop_reason, StopReason::Fatal(format!("openraft stopped: {why}")));
            }
            return;
        }
        if now_leading.is_some() && now_leading != leader {
            tracing::info!(leader = ?now_leading, "leader (node, term)");
            leader = now_leading;
            counters.leader_changes.inc();
        }
        tokio::select! {
            changed = metrics.changed() => if changed.is_err() { return },
            () = stopping.cancelled() => return,
        }
    }
}
