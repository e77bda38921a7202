//! A node that answers by a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockstead_core::{
    ClusterId, Fence, Grant, HolderView, LockKey, LockView, Metadata, Mode, Op, Outcome, OwnerName, Token, Ttl,
    WallTime,
};
use lockstead_raft::{
    ClusterView, LeaderView, MemberError, MemberReply, MemberRequest, NotReady, Reply, SnapshotError, SnapshotTaken,
    SubmitError,
};
use lockstead_server::Node;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

pub(crate) const CLUSTER: ClusterId = ClusterId(0x00ab_cdef);

/// What one submitted request gets.
pub(crate) enum Script {
    Answer(Result<Reply, SubmitError>),
    After(Duration, Outcome),
    Never,
}

/// What happened to submitted requests.
#[derive(Debug)]
pub(crate) enum Event {
    Submitted(Op, Duration),
    Withdrawn,
}

#[derive(Clone)]
pub(crate) struct FakeNode {
    scripts: Arc<Mutex<VecDeque<Script>>>,
    pub(crate) known: Arc<Mutex<Known>>,
    events: mpsc::UnboundedSender<Event>,
}

/// What the node knows; to be changed by tests.
pub(crate) struct Known {
    pub(crate) leader: Option<LeaderView>,
    pub(crate) cluster_id: Option<ClusterId>,
    pub(crate) readiness: Result<(), NotReady>,
    pub(crate) stale: Result<Option<LockView>, SubmitError>,
    pub(crate) view: ClusterView,
    pub(crate) members: Result<MemberReply, MemberError>,
    pub(crate) members_asked: Vec<MemberRequest>,
    pub(crate) snapshot: Result<SnapshotTaken, SnapshotError>,
    pub(crate) backup: Result<Vec<u8>, SubmitError>,
}

impl FakeNode {
    pub(crate) fn new(scripts: Vec<Script>) -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (events, receiver) = mpsc::unbounded_channel();
        let known = Known {
            leader: Some(LeaderView { node_id: 2, api: "10.0.0.2:7800".to_owned() }),
            cluster_id: Some(CLUSTER),
            readiness: Ok(()),
            stale: Ok(None),
            view: empty_view(),
            members: Err(MemberError::NoLeader),
            members_asked: Vec::new(),
            snapshot: Err(SnapshotError::NoLeader),
            backup: Err(SubmitError::CatchingUp),
        };
        let node = Self { scripts: Arc::new(Mutex::new(scripts.into())), known: Arc::new(Mutex::new(known)), events };
        (node, receiver)
    }
}

impl Node for FakeNode {
    async fn submit(&self, op: Op, time_left: Duration) -> Result<Reply, SubmitError> {
        let _sent = self.events.send(Event::Submitted(op, time_left));
        let script = self.scripts.lock().unwrap().pop_front().unwrap_or(Script::Never);
        let mut watch = Watch { events: self.events.clone(), answered: false };
        let result = match script {
            Script::Answer(result) => result,
            Script::After(time, outcome) => {
                tokio::time::sleep(time).await;
                Ok(Reply { outcome, waited_ms: u64::try_from(time.as_millis()).unwrap() })
            }
            Script::Never => std::future::pending().await,
        };
        watch.answered = true;
        result
    }

    fn read_stale(&self, _lock: &LockKey) -> Result<Option<LockView>, SubmitError> {
        self.known.lock().unwrap().stale.clone()
    }

    async fn change_members(&self, request: MemberRequest) -> Result<MemberReply, MemberError> {
        let mut known = self.known.lock().unwrap();
        known.members_asked.push(request);
        known.members.clone()
    }

    async fn snapshot(&self, _time_max: Duration) -> Result<SnapshotTaken, SnapshotError> {
        self.known.lock().unwrap().snapshot
    }

    fn back_up(&self) -> Result<Vec<u8>, SubmitError> {
        self.known.lock().unwrap().backup.clone()
    }

    fn view(&self) -> ClusterView {
        self.known.lock().unwrap().view.clone()
    }

    fn readiness(&self) -> Result<(), NotReady> {
        self.known.lock().unwrap().readiness.clone()
    }

    fn leader(&self) -> Option<LeaderView> {
        self.known.lock().unwrap().leader.clone()
    }

    fn cluster_id(&self) -> Option<ClusterId> {
        self.known.lock().unwrap().cluster_id
    }

    fn register_metrics(&self, registry: &mut Registry) {
        let gauge: Gauge = Gauge::default();
        gauge.set(7);
        registry.register("fake_of_the_node", "From the node", gauge);
    }
}

struct Watch {
    events: mpsc::UnboundedSender<Event>,
    answered: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.answered {
            let _sent = self.events.send(Event::Withdrawn);
        }
    }
}

pub(crate) fn answer(outcome: Outcome) -> Script {
    Script::Answer(Ok(Reply { outcome, waited_ms: 3 }))
}

pub(crate) fn grant(left_ms: u64) -> Outcome {
    Outcome::Granted(Grant {
        fence: Fence(41),
        token: Token([0xab; 16]),
        ttl: Ttl::DEFAULT,
        left_ms,
        renewed: false,
        term: 1,
        fresh: true,
    })
}

pub(crate) fn holder() -> HolderView {
    HolderView {
        fence: Fence(41),
        owner: Some(OwnerName::parse("ann").unwrap()),
        mode: Mode::Exclusive,
        acquired_at: WallTime(1_709_210_096_007),
        left_ms: 1_234,
        metadata: Metadata::parse(vec![("host".to_owned(), "h1".to_owned())]).unwrap(),
    }
}

pub(crate) fn empty_view() -> ClusterView {
    ClusterView {
        cluster_id: None,
        node_id: 3,
        bootstrapping: true,
        peer: "10.0.0.3:7900".to_owned(),
        leader: None,
        leads: false,
        term: 0,
        last_log: 0,
        committed: 0,
        applied: 0,
        lease_ms: 0,
        failures_tolerated: 0,
        snapshot: None,
        tail_entries: 0,
        tail_bytes: 0,
        live_records: 0,
        hold_off_ms: 0,
        disk_bytes: 0,
        membership: None,
        members: Vec::new(),
    }
}
