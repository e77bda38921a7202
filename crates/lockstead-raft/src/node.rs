//! A node: its parts, what it answers of itself, and how it stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockstead_core::{ClusterId, HolderView, Limits, LockKey, LockView, NodeId, Op};
use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver as _;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::compaction::{Compaction, CompactionLimits};
use crate::config::ReplicaConfig;
use crate::identity::{Identity, Origin, SetClusterError};
use crate::leadership::hand_over;
use crate::local_clock::LocalClock;
use crate::members::finish_joint_changes;
use crate::metrics::ReplicaMetrics;
use crate::office::Ground;
use crate::offices::Offices;
use crate::peer::{Advertised, Dialer, NodeCard, PeerNetworkFactory, PeerServer, RaftHandle, RequestLinks};
use crate::plant;
use crate::platform::{Host, Platform};
use crate::reach::Reach;
use crate::replica::{BootstrapError, OpenError, Reply, StopReason, SubmitError};
use crate::restating::RestatingRule;
use crate::router::Router;
use crate::service::Service;
use crate::standing::{Standing, Watchman};
use crate::start::{Files, card, dialer, start_raft};
use crate::store::{LogStore, StateMachine};
use crate::types::{LogId, Member, Membership, Raft, StoredMembership};
use crate::view::ClusterView;

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
    pub(crate) standing: Standing,
    pub(crate) reach: Reach,
    card: NodeCard,
    /// openraft takes one change of membership at a time.
    changing: Arc<tokio::sync::Mutex<()>>,
    pub(crate) stop_reason: watch::Sender<Option<StopReason>>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Node<Host> {
    /// Opens the data directory and starts every task of the node.
    pub(crate) async fn open(config: ReplicaConfig, listener: TcpListener) -> Result<Arc<Self>, OpenError> {
        plant::sow()?;
        let metrics = ReplicaMetrics::new(config.locks_max);
        let stop_reason = watch::Sender::new(None);
        let files = Files::open(&config, &metrics, &stop_reason).await?;
        let identity = Arc::new(files.identity);
        let platform = Arc::new(Host);
        let card = card(&identity, platform.as_ref(), &files.log, &files.machine).await?;
        let (peer, api) = (config.advertise_peer.clone(), config.advertise_api.clone());
        let own = Member { peer, api, ..Member::default() };
        let standing = Standing::new(identity.node_id(), own, stop_reason.clone());
        let dialer = dialer(&config, &identity, card, &standing);
        let network = PeerNetworkFactory::new(dialer.clone());
        let raft = start_raft::<Host>(&config, network.clone(), files.log.clone(), files.machine.clone()).await?;
        network.look_members_up(members_in_force(&raft));
        let storage = (files.log, files.machine);
        let names = (card, standing, dialer);
        let node = Self::assemble(config, platform, identity, raft, storage, names, metrics, stop_reason);
        node.check_addresses()?;
        node.start_tasks(listener);
        Ok(node)
    }

    #[expect(clippy::too_many_arguments, reason = "each part is made once and lives here")]
    fn assemble(
        config: ReplicaConfig,
        platform: Arc<Host>,
        identity: Arc<Identity>,
        raft: Raft,
        (log, machine): (LogStore, StateMachine),
        (card, standing, dialer): (NodeCard, Standing, Dialer),
        metrics: ReplicaMetrics,
        stop_reason: watch::Sender<Option<StopReason>>,
    ) -> Arc<Self> {
        let stopping = CancellationToken::new();
        let local_clock = LocalClock::start();
        let restating = RestatingRule::new(log.clone(), config.tail_bytes_max);
        let ground = Ground {
            platform: Arc::clone(&platform),
            raft: raft.clone(),
            machine: machine.clone(),
            local_clock,
            limits: Limits { locks_max: config.locks_max, ..Limits::default() },
            tick_ms: config.tick_ms,
            gap_max: config.election_max(),
            metrics: metrics.clone(),
            restating: restating.clone(),
        };
        let (offices, office) = Offices::new(ground, stop_reason.clone());
        let tasks = TaskTracker::new();
        tasks.spawn(offices.run(stopping.clone()));
        let router = Router {
            platform: Arc::clone(&platform),
            raft: raft.clone(),
            links: RequestLinks::new(dialer.clone(), tasks.clone(), stopping.clone()),
            local_clock,
            restating,
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
            standing,
            reach: Reach::default(),
            card,
            changing: Arc::default(),
            stop_reason,
            stopping,
            tasks,
        })
    }

    fn start_tasks(self: &Arc<Self>, listener: TcpListener) {
        let (identity, raft, standing) = (Arc::clone(&self.identity), self.raft.clone(), self.standing.clone());
        let is_member =
            move || member(&raft, identity.node_id()).is_some_and(|me| me.incarnation == identity.incarnation());
        let may_vote = Arc::new(move || standing.votes() && is_member());
        let heard = self.standing.clone();
        let port = RaftHandle { raft: self.raft.clone(), may_vote, heard: Arc::new(move || heard.heard_leader()) };
        let (tracker, stop) = (self.tasks.clone(), self.stopping.clone());
        let (service, seen) = (self.service(), self.dialer.seen_starts());
        PeerServer { service, raft: port, seen, tracker, stop }.spawn(listener);
        let watchman = Watchman {
            standing: self.standing.clone(),
            raft: self.raft.clone(),
            machine: self.machine.clone(),
            dialer: self.dialer.clone(),
            silence_max: self.config.election_max() * 2,
        };
        let stop = self.stopping.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(watchman.run()).await });
        let asking = self.reach.clone().keep_asking(self.router.clone(), self.config.election_max() * 2);
        let stop = self.stopping.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(asking).await });
        let finisher = finish_joint_changes(self.service());
        let stop = self.stopping.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(finisher).await });
        let (node, stop) = (Arc::clone(self), self.stopping.clone());
        self.tasks.spawn(async move { stop.run_until_cancelled(node.announce_start()).await });
        let (node, stop) = (Arc::clone(self), self.stopping.clone());
        self.tasks.spawn(async move { stop.run_until_cancelled(node.note_membership()).await });
        let (counters, stop_reason) = (self.metrics.clone(), self.stop_reason.clone());
        self.tasks.spawn(watch_raft(
            self.raft.clone(),
            self.machine.clone(),
            counters,
            stop_reason,
            self.stopping.clone(),
        ));
        self.tasks.spawn(self.compaction().run(self.stopping.clone()));
    }
}

impl<P: Platform> Node<P> {
    fn compaction(&self) -> Compaction {
        let config = &self.config;
        Compaction {
            raft: self.raft.clone(),
            log: self.log.clone(),
            machine: self.machine.clone(),
            limits: CompactionLimits {
                entries: config.snapshot_entries,
                bytes: config.snapshot_bytes,
                age: Duration::from_millis(config.snapshot_age_ms),
            },
            reach: config.election_max(),
            data_dir: config.data_dir.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// This node as its peers see it.
    pub(crate) fn service(&self) -> Service<P> {
        let (peer, api) = (self.config.advertise_peer.clone(), self.config.advertise_api.clone());
        Service {
            card: self.card,
            advertised: Advertised { peer, api },
            identity: Arc::clone(&self.identity),
            raft: self.raft.clone(),
            log: self.log.clone(),
            machine: self.machine.clone(),
            dialer: self.dialer.clone(),
            standing: self.standing.clone(),
            router: self.router.clone(),
            election_max: self.config.election_max(),
            changing: Arc::clone(&self.changing),
            tasks: self.tasks.clone(),
        }
    }

    /// A member at other addresses would lead and not be found.
    fn check_addresses(&self) -> Result<(), OpenError> {
        let (own, me) = (self.own_member(), self.identity.node_id());
        match member(&self.raft, me) {
            // It may have been moved while it was down: the others know.
            _ if self.raft.voter_ids().any(|id| id != me) => Ok(()),
            Some(known) if known.incarnation == own.incarnation && !known.is_where(&own) => {
                Err(OpenError::Moved { known_api: known.api, known_peer: known.peer, api: own.api, peer: own.peer })
            }
            _ => Ok(()),
        }
    }

    /// A member that need not join (any more). A voter has joined, whether it got the answer that said so or not.
    pub(crate) fn is_initialised(&self) -> bool {
        self.knows_members() && (!self.identity.is_joining() || self.is_voter())
    }

    /// The same for good: a vote that is not committed may go away again.
    pub(crate) fn has_joined(&self) -> bool {
        self.knows_members() && (!self.identity.is_joining() || self.is_committed_voter())
    }

    /// What its log says of this node, its identity says from then on: once it holds a membership, an empty log is
    /// damage; once this node votes, as was committed, it has joined.
    async fn note_membership(&self) {
        let mut metrics = self.raft.server_metrics();
        while !self.knows_members() {
            if metrics.changed().await.is_err() {
                return;
            }
        }
        self.note(Identity::set_has_log).await;
        let mut metrics = self.raft.metrics();
        while self.identity.is_joining() && !self.is_committed_voter() {
            if metrics.changed().await.is_err() {
                return;
            }
        }
        self.note(|identity| identity.set_joining(false)).await;
    }

    async fn note(&self, write: impl FnOnce(&Identity) -> Result<(), SetClusterError> + Send + 'static) {
        if let Err(why) = self.keep(write).await {
            stop(&self.stop_reason, StopReason::Storage(why.to_string()));
        }
    }

    fn is_committed_voter(&self) -> bool {
        self.machine.with(|state| self.is_voter_of(state.membership.membership()))
    }

    /// Its log or snapshot holds a membership.
    pub(crate) fn knows_members(&self) -> bool {
        has_members(&self.raft.server_metrics().borrow_watched().membership_config)
    }

    pub(crate) fn is_voter(&self) -> bool {
        self.is_voter_of(self.raft.server_metrics().borrow_watched().membership_config.membership())
    }

    /// Whether a membership lets this node vote, with its very directory.
    fn is_voter_of(&self, membership: &Membership) -> bool {
        let me = self.identity.node_id();
        let is_listed = membership.get_node(&me).is_some_and(|known| known.incarnation == self.identity.incarnation());
        is_listed && membership.voter_ids().any(|id| id == me)
    }

    pub(crate) fn announce_bootstrap(&self) {
        self.bootstrapping.store(true, Ordering::SeqCst);
    }

    /// Founds a cluster of this node alone.
    ///
    /// The cluster id goes to disk first. A node that is killed between the two steps comes back uninitialised, asks
    /// its join addresses once more, and goes on with the same id.
    pub(crate) async fn bootstrap(&self) -> Result<(), BootstrapError> {
        if self.knows_members() {
            return Err(BootstrapError("it belongs to a cluster already".to_owned()));
        }
        let cluster = ClusterId(self.platform.random());
        let founded = self.keep(move |identity| identity.found_cluster(cluster, Origin::Nothing)).await;
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
            starts: self.card.starts,
            process: self.card.process,
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

    /// Writes to the identity file, off the tasks that must not wait for a disk.
    pub(crate) async fn keep(
        &self,
        write: impl FnOnce(&Identity) -> Result<(), SetClusterError> + Send + 'static,
    ) -> Result<(), SetClusterError> {
        let identity = Arc::clone(&self.identity);
        let written = tokio::task::spawn_blocking(move || write(&identity)).await;
        written.expect("a panic ends the process, and nothing cancels this task")
    }

    pub(crate) fn cluster_id(&self) -> Option<ClusterId> {
        self.identity.cluster_id()
    }

    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    pub(crate) async fn hand_over(&self, time_max: Duration) {
        if let Some(successor) = self.successor()
            && let Err(why) = hand_over(&self.raft, successor, time_max).await
        {
            tracing::info!(successor, %why, "leadership was not handed over");
        }
        self.router.draining.cancel();
    }

    /// Of the voters that answered lately, the one whose log is furthest, if this node leads.
    fn successor(&self) -> Option<NodeId> {
        let me = self.identity.node_id();
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let (replication, heard) = (metrics.replication.as_ref()?, metrics.heartbeat.as_ref()?);
        let lately = self.config.election_max();
        let answers = |id: &NodeId| heard.get(id).and_then(Option::as_ref).is_some_and(|at| at.elapsed() <= lately);
        let voters = metrics.membership_config.membership().voter_ids();
        voters
            .filter(|id| *id != me && answers(id))
            .max_by_key(|id| replication.get(id).and_then(Option::as_ref).map(LogId::index))
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

/// As [`member`], for what may outlive the node.
fn members_in_force(raft: &Raft) -> impl Fn(NodeId) -> Option<Member> + Send + Sync + 'static {
    let metrics = raft.server_metrics();
    move |node_id| metrics.borrow_watched().membership_config.membership().get_node(&node_id).cloned()
}

/// What the node's own effective membership says of a node.
pub(crate) fn member(raft: &Raft, node_id: NodeId) -> Option<Member> {
    raft.server_metrics().borrow_watched().membership_config.membership().get_node(&node_id).cloned()
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
    machine: StateMachine,
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
                let storage = machine.fault().map(|fault| StopReason::Storage(fault.to_owned()));
                stop(&stop_reason, storage.unwrap_or_else(|| StopReason::Fatal(format!("openraft stopped: {why}"))));
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
