//! A cluster of nodes in this process.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use lockstead_core::{
    Acquire, Get, Grant, LockKey, LockName, Metadata, NodeId, Op, Outcome, OwnerName, Proof, Release, Renew, RequestId,
    Token, Ttl,
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use super::links::{Gate, Link};
use crate::{JoinAs, JoinError, Replica, ReplicaConfig, Reply, SubmitError};

/// How long a test waits for something that takes a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What goes into the log unasked, and when it is shortened.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLimits {
    pub(super) snapshot_entries: u64,
    pub(super) snapshot_bytes: u64,
    pub(super) snapshot_age_ms: u64,
    pub(super) tail_bytes_max: u64,
    pub(super) tick_ms: u64,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            snapshot_entries: 100_000,
            snapshot_bytes: 16 << 20,
            snapshot_age_ms: 600_000,
            tail_bytes_max: 64 << 20,
            tick_ms: 250,
        }
    }
}

pub(super) struct Cluster {
    /// `None` while it is stopped.
    nodes: Vec<Option<Replica>>,
    limits: LogLimits,
    ports: Vec<u16>,
    links: HashMap<(NodeId, NodeId), Link>,
    size: u64,
    dirs: Vec<TempDir>,
}

impl Cluster {
    /// Founds a cluster of `size` voters.
    pub(super) async fn start(size: u64) -> Self {
        Self::start_with(size, LogLimits::default()).await
    }

    /// Founds a cluster of `size` voters with logs of a length of their own.
    pub(super) async fn start_with(size: u64, limits: LogLimits) -> Self {
        let cluster = Self::start_empty_with(size, limits).await;
        cluster.node(1).bootstrap().await.unwrap();
        for id in 2..=size {
            cluster.join(id, JoinAs::Voter).await.unwrap();
        }
        until("every node knows that all vote", || {
            let ready = |node: &Replica| node.readiness().is_ok() && node.view().members.len() as u64 == size;
            cluster.nodes.iter().flatten().all(ready)
        })
        .await;
        cluster
    }

    /// Starts `size` nodes on empty directories.
    pub(super) async fn start_empty(size: u64) -> Self {
        Self::start_empty_with(size, LogLimits::default()).await
    }

    /// Starts `size` nodes on empty directories with logs of a length of their own.
    pub(super) async fn start_empty_with(size: u64, limits: LogLimits) -> Self {
        let mut links = HashMap::new();
        for from in 1..=size {
            for to in (1..=size).filter(|to| *to != from) {
                links.insert((from, to), Link::start().await);
            }
        }
        let mut cluster = Self { nodes: Vec::new(), limits, ports: Vec::new(), links, size, dirs: Vec::new() };
        for id in 1..=size {
            cluster.start_node(id).await;
        }
        cluster
    }

    async fn start_node(&mut self, node_id: NodeId) {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let to_me = self.links.iter().filter(|((_, to), _)| *to == node_id);
        to_me.for_each(|(_, link)| link.aim_at(port));
        let config = self.config(node_id, port, &dir);
        self.nodes.push(Some(Replica::open(config, listener).await.unwrap()));
        self.ports.push(port);
        self.dirs.push(dir);
    }

    fn config(&self, node_id: NodeId, port: u16, dir: &TempDir) -> ReplicaConfig {
        let from_me = self.links.iter().filter(|((from, _), _)| *from == node_id);
        ReplicaConfig {
            node_id,
            data_dir: dir.path().join("data"),
            advertise_peer: format!("127.0.0.1:{port}"),
            advertise_api: format!("127.0.0.1:{}", 1_000 + node_id),
            peer_routes: from_me.map(|((_, to), link)| (*to, link.address.clone())).collect::<BTreeMap<_, _>>(),
            heartbeat_ms: 50,
            election_min_ms: 300,
            election_max_ms: 600,
            tick_ms: self.limits.tick_ms,
            locks_max: 1_000,
            snapshot_entries: self.limits.snapshot_entries,
            snapshot_bytes: self.limits.snapshot_bytes,
            snapshot_age_ms: self.limits.snapshot_age_ms,
            tail_bytes_max: self.limits.tail_bytes_max,
        }
    }

    /// Stops a node and starts it again on its directory and at its address.
    pub(super) async fn restart(&mut self, node_id: NodeId) {
        self.stop(node_id).await;
        let at = at(node_id);
        let config = self.config(node_id, self.ports[at], &self.dirs[at]);
        let ends = Instant::now() + PATIENCE;
        loop {
            // openraft's own tasks let go of the address a moment later.
            let opened = match TcpListener::bind(("127.0.0.1", self.ports[at])).await {
                Ok(listener) => Replica::open(config.clone(), listener).await.map_err(|why| why.to_string()),
                Err(why) => Err(why.to_string()),
            };
            match opened {
                Ok(node) => break self.nodes[at] = Some(node),
                Err(why) => assert!(Instant::now() < ends, "{why}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops a node; gives its data directory.
    pub(super) async fn stop(&mut self, node_id: NodeId) -> PathBuf {
        let node = self.nodes[at(node_id)].take().unwrap();
        node.shutdown().await;
        drop(node);
        let dir = self.dirs[at(node_id)].path().join("data");
        until("openraft's own tasks let go of the directory", || Replica::in_use(&dir).is_none()).await;
        dir
    }

    pub(super) fn node(&self, node_id: NodeId) -> &Replica {
        self.nodes[at(node_id)].as_ref().unwrap()
    }

    pub(super) async fn join(&self, node_id: NodeId, join_as: JoinAs) -> Result<(), JoinError> {
        let peers: Vec<String> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let ends = Instant::now() + PATIENCE;
        loop {
            match self.node(node_id).join(&peers[..1], join_as).await {
                Err(JoinError::NotYet(_)) if Instant::now() < ends => sleep(Duration::from_millis(20)).await,
                joined => return joined,
            }
        }
    }

    /// The one leader that all nodes name.
    pub(super) async fn leader(&self) -> NodeId {
        let everybody: Vec<NodeId> = (1..=self.size).collect();
        self.leader_of(&everybody).await
    }

    /// The one leader that these nodes name, one of them.
    pub(super) async fn leader_of(&self, nodes: &[NodeId]) -> NodeId {
        let named = || {
            let mut named: Vec<_> =
                nodes.iter().map(|id| self.node(*id).leader().map(|leader| leader.node_id)).collect();
            named.dedup();
            (named.len() == 1).then(|| named[0]).flatten().filter(|leader| nodes.contains(leader))
        };
        until("the nodes name one leader of their own", || named().is_some()).await;
        named().unwrap_or(0)
    }

    /// The nodes other than `node_id`.
    pub(super) fn others(&self, node_id: NodeId) -> Vec<NodeId> {
        (1..=self.size).filter(|id| *id != node_id).collect()
    }

    /// Cuts a node off from all others, or ends that.
    pub(super) fn isolate(&self, node_id: NodeId, isolated: bool) {
        let touching = self.links.iter().filter(|((from, to), _)| *from == node_id || *to == node_id);
        let gate = if isolated { Gate::Closed } else { Gate::Open };
        touching.for_each(|(_, link)| link.set(gate));
    }

    /// Lets one node hear nothing of what another calls it.
    pub(super) fn silence(&self, from: NodeId, to: NodeId) {
        self.links[&(from, to)].set(Gate::Silent);
    }

    pub(super) async fn submit(&self, node_id: NodeId, op: Op) -> Result<Reply, SubmitError> {
        let wait_ms = if let Op::Acquire(acquire) = &op { acquire.wait_ms } else { 0 };
        self.node(node_id).submit(op, Duration::from_millis(wait_ms + 5_000)).await
    }

    /// Acquires and expects a grant.
    pub(super) async fn grant(&self, node_id: NodeId, op: Op) -> Grant {
        match self.submit(node_id, op).await {
            Ok(Reply { outcome: Outcome::Granted(grant), .. }) => grant,
            other => panic!("no grant: {other:?}"),
        }
    }
}

fn at(node_id: NodeId) -> usize {
    usize::try_from(node_id).unwrap() - 1
}

/// Waits until `reached`; the condition is looked at every few milliseconds.
pub(super) async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let ends = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < ends, "in time: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

pub(super) fn lock(name: &str) -> LockKey {
    LockKey::in_default(&LockName::parse(name).unwrap())
}

fn ttl(ttl_ms: i64) -> Ttl {
    Ttl::from_request(Some(ttl_ms), Ttl::MAX_MS_DEFAULT).unwrap()
}

/// An acquire of `name`; the rest by the builder's methods.
pub(super) fn acquire(name: &str) -> AcquireBuilder {
    AcquireBuilder(Acquire {
        lock: lock(name),
        ttl: ttl(30_000),
        wait_ms: 0,
        queued_ms: 0,
        owner: None,
        request_id: None,
        metadata: Metadata::default(),
    })
}

pub(super) struct AcquireBuilder(Acquire);

impl AcquireBuilder {
    pub(super) fn ttl_ms(mut self, ttl_ms: i64) -> Self {
        self.0.ttl = ttl(ttl_ms);
        self
    }

    pub(super) fn wait_ms(mut self, wait_ms: u64) -> Self {
        self.0.wait_ms = wait_ms;
        self
    }

    pub(super) fn owner(mut self, owner: &str) -> Self {
        self.0.owner = Some(OwnerName::parse(owner).unwrap());
        self
    }

    pub(super) fn request_id(mut self, request_id: &str) -> Self {
        self.0.request_id = Some(RequestId::parse(request_id).unwrap());
        self
    }

    pub(super) fn op(self) -> Op {
        Op::Acquire(self.0)
    }
}

pub(super) fn release(name: &str, token: Token) -> Op {
    Op::Release(Release { lock: lock(name), token: Some(token) })
}

pub(super) fn renew(name: &str, token: Token, ttl_ms: i64) -> Op {
    Op::Renew(Renew { lock: lock(name), proof: Proof::Token(Some(token)), ttl: ttl(ttl_ms) })
}

pub(super) fn get(name: &str) -> Op {
    Op::Get(Get { lock: lock(name) })
}
