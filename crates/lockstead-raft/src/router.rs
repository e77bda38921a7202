//! The way of a request to the leader: decided here or passed on, and never sent twice on a doubt.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockstead_core::{GiveBack, LocalTime, NodeId, Op, Outcome, RequestId, RequestNumber};
use openraft::async_runtime::WatchReceiver as _;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::leadership::Leadership;
use crate::local_clock::LocalClock;
use crate::peer::{ForwardAnswer, LinkError, RequestLinks};
use crate::platform::{ClockPair, Platform};
use crate::replica::{Reply, SubmitError};
use crate::restating::RestatingRule;
use crate::ticket::{Claim, Decision, Delivery, Letter, Note, pair};
use crate::types::{Raft, ServerMetricsWatch};

/// How long a request waits before it is sent once more to a leader that it was sent to already.
const RESEND_AFTER: Duration = Duration::from_millis(20);
/// How much earlier a leader is asked to answer than the forwarding node ends the request.
const FORWARD_MARGIN: Duration = Duration::from_millis(50);

/// How long a node that stops still waits for the answers of what is in flight.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// The open office of this node.
#[derive(Clone, Debug)]
pub(crate) struct OfficeDoor {
    pub(crate) term: u64,
    pub(crate) letters: mpsc::Sender<Letter>,
    pub(crate) notes: mpsc::UnboundedSender<Note>,
}

/// Carries requests to the leader. Cheap to clone.
pub(crate) struct Router<P> {
    pub(crate) platform: Arc<P>,
    pub(crate) raft: Raft,
    pub(crate) links: RequestLinks,
    pub(crate) local_clock: LocalClock,
    pub(crate) restating: RestatingRule,
    pub(crate) office: watch::Receiver<Option<OfficeDoor>>,
    pub(crate) draining: CancellationToken,
    pub(crate) last_number: Arc<AtomicU64>,
}

impl<P> Clone for Router<P> {
    fn clone(&self) -> Self {
        Self {
            platform: Arc::clone(&self.platform),
            raft: self.raft.clone(),
            links: self.links.clone(),
            local_clock: self.local_clock,
            restating: self.restating.clone(),
            office: self.office.clone(),
            draining: self.draining.clone(),
            last_number: Arc::clone(&self.last_number),
        }
    }
}

/// Where a request can go.
enum Destination {
    Here(OfficeDoor),
    There(Leadership),
}

impl Destination {
    /// Leader and term, which name one office of the cluster.
    fn office(&self, me: NodeId) -> (NodeId, u64) {
        match self {
            Self::Here(door) => (me, door.term),
            Self::There(leadership) => (leadership.leader, leadership.term),
        }
    }
}

/// What one sending gave.
enum Leg {
    Answered(Reply),
    /// Surely without effect: it may be sent elsewhere.
    NotLeader,
    Failed(SubmitError),
}

/// A request under way.
struct Journey {
    op: Op,
    arrived: LocalTime,
    arrived_clocks: ClockPair,
    deadline: Instant,
    /// The id made here for a request that came without one.
    own_id: Option<RequestId>,
}

impl<P: Platform> Router<P> {
    /// Carries a client's request; see [`crate::Replica::submit`].
    pub(crate) async fn submit(&self, op: Op, time_left: Duration) -> Result<Reply, SubmitError> {
        let mut journey = self.set_out(op, time_left);
        let mut sent_to = None;
        loop {
            let found = tokio::select! {
                biased;
                () = self.draining.cancelled() => return Err(SubmitError::NoLeader),
                found = timeout_at(journey.deadline, self.destination(sent_to)) => found,
            };
            let Ok(destination) = found else { return Err(SubmitError::NoLeader) };
            sent_to = Some(destination.office(*self.raft.node_id()));
            let leg = match destination {
                Destination::Here(door) => self.decide_here(&door, &journey).await,
                Destination::There(leadership) => self.forward(&leadership, &mut journey).await,
            };
            match leg {
                Leg::Answered(reply) => return Ok(reply),
                Leg::Failed(SubmitError::OutcomeUnknown) if matches!(journey.op, Op::Get(_)) => {}
                Leg::Failed(why) => return Err(why),
                Leg::NotLeader => {}
            }
        }
    }

    /// Decides a request that another node passed on; it is not passed on again.
    pub(crate) async fn decide_forwarded(&self, op: Op, time_left: Duration) -> ForwardAnswer {
        let journey = self.set_out(op, time_left);
        let Ok(Some(door)) = timeout_at(journey.deadline, self.own_office()).await else {
            return ForwardAnswer::NotLeader { leader: self.leader() };
        };
        match self.decide_here(&door, &journey).await {
            Leg::Answered(reply) => ForwardAnswer::Reply { outcome: reply.outcome, waited_ms: reply.waited_ms },
            Leg::Failed(SubmitError::OutcomeUnknown) => ForwardAnswer::OutcomeUnknown,
            Leg::Failed(SubmitError::NoLeader) if !self.draining.is_cancelled() => ForwardAnswer::NoLeader,
            Leg::Failed(SubmitError::CatchingUp) => ForwardAnswer::CatchingUp,
            Leg::Failed(SubmitError::NoLeader) | Leg::NotLeader => ForwardAnswer::NotLeader { leader: self.leader() },
        }
    }

    fn set_out(&self, op: Op, time_left: Duration) -> Journey {
        Journey {
            op,
            arrived: self.local_clock.arrival(),
            arrived_clocks: self.platform.clocks(),
            deadline: Instant::now() + time_left,
            own_id: None,
        }
    }

    // ---- where to

    /// Waits for a leader that the request was not sent to yet, or sends it to the same one again after 20 ms.
    async fn destination(&self, sent_to: Option<(NodeId, u64)>) -> Destination {
        let again = Instant::now() + RESEND_AFTER;
        let mut office = self.office.clone();
        let mut metrics = self.raft.server_metrics();
        loop {
            let known = self.known_destination(&mut office, &metrics);
            let fresh = known.as_ref().is_some_and(|known| Some(known.office(*self.raft.node_id())) != sent_to);
            match known {
                Some(known) if fresh || Instant::now() >= again => return known,
                Some(_) => {
                    let _ = timeout_at(again, news(&mut office, &mut metrics)).await;
                }
                None => news(&mut office, &mut metrics).await,
            }
        }
    }

    fn known_destination(
        &self,
        office: &mut watch::Receiver<Option<OfficeDoor>>,
        metrics: &ServerMetricsWatch,
    ) -> Option<Destination> {
        if let Some(door) = office.borrow_and_update().clone() {
            return Some(Destination::Here(door));
        }
        let known = Leadership::known(metrics).filter(|known| known.leader != *self.raft.node_id());
        known.map(Destination::There)
    }

    /// Waits for this node's own office while it is the leader; `None` once it is not.
    pub(crate) async fn own_office(&self) -> Option<OfficeDoor> {
        let mut office = self.office.clone();
        let mut metrics = self.raft.server_metrics();
        loop {
            if let Some(door) = office.borrow_and_update().clone() {
                return Some(door);
            }
            if metrics.borrow_watched().current_leader != Some(*self.raft.node_id()) {
                return None;
            }
            news(&mut office, &mut metrics).await;
        }
    }

    /// Gives back a grant that reached nobody, if the office that made it is still open.
    pub(crate) fn give_back(&self, give_back: GiveBack) {
        if let Some(door) = self.office.borrow().as_ref().filter(|door| door.term == give_back.term) {
            // No receiver: the office has just ended, and with it the term in which the grant may be given back.
            let _ = door.notes.send(Note::GiveBack(give_back));
        }
    }

    /// Whether requests are decided here.
    pub(crate) fn has_office(&self) -> bool {
        self.office.borrow().is_some()
    }

    /// Who leads, as this node knows.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.raft.server_metrics().borrow_watched().current_leader
    }

    // ---- decided here

    async fn decide_here(&self, door: &OfficeDoor, journey: &Journey) -> Leg {
        // The place is taken first: a request that never gets one leaves no note behind either.
        let place = match timeout_at(journey.deadline, door.letters.reserve()).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return Leg::NotLeader,
            Err(_) => return Leg::Failed(SubmitError::NoLeader),
        };
        let number = RequestNumber(self.last_number.fetch_add(1, Ordering::Relaxed) + 1);
        let (ticket, mut claim) = pair(number, journey.op.lock().clone(), door.notes.clone());
        let ends = self.local_clock.local(journey.deadline);
        place.send(Letter { number, arrived: journey.arrived, ends, op: journey.own_op(), ticket });
        let delivery = tokio::select! {
            biased;
            delivery = claim.answer() => delivery,
            () = sleep_until(journey.deadline) => return Leg::Failed(given_up(&claim)),
            () = self.draining.cancelled() => return self.last_answer(&mut claim).await,
        };
        self.received(delivery)
    }

    /// Resolves a while after this node has begun to stop.
    async fn drained(&self) {
        self.draining.cancelled().await;
        sleep(DRAIN_GRACE).await;
    }

    /// This node stops: what is in flight still gets its answer, the rest goes elsewhere.
    async fn last_answer(&self, claim: &mut Claim) -> Leg {
        if claim.withdraw() {
            return Leg::Failed(SubmitError::NoLeader);
        }
        match tokio::time::timeout(DRAIN_GRACE, claim.answer()).await {
            Ok(delivery) => self.received(delivery),
            Err(_) => Leg::Failed(SubmitError::OutcomeUnknown),
        }
    }

    fn received(&self, delivery: Delivery) -> Leg {
        match delivery {
            Delivery::Decided(Decision { outcome, waited_ms, decided_at }) => {
                let passed_ms = self.platform.clocks().ms_since_at_most(decided_at);
                answered(outcome, waited_ms, |left_ms| left_ms.saturating_sub(passed_ms))
            }
            Delivery::NotLeader => Leg::NotLeader,
            Delivery::Unknown => Leg::Failed(SubmitError::OutcomeUnknown),
        }
    }

    // ---- passed on

    async fn forward(&self, to: &Leadership, journey: &mut Journey) -> Leg {
        let sent_at = self.platform.clocks();
        let lain_ms = sent_at.us_since_at_least(journey.arrived_clocks) / 1_000;
        let time_left = journey.deadline.saturating_duration_since(Instant::now());
        let op = journey.forwarded_op(lain_ms, || self.platform.random());
        let asked = time_left.saturating_sub(FORWARD_MARGIN.min(time_left / 2));
        // What was not sent by then may still go elsewhere.
        let given_up = async {
            tokio::select! {
                () = self.drained() => {}
                () = to.ended(&self.raft) => {}
            }
        };
        match self.links.submit_to(to.leader, &to.member, op, asked, given_up).await {
            Ok(ForwardAnswer::Reply { outcome, waited_ms }) => {
                let passed_ms = self.platform.clocks().ms_since_at_most(sent_at);
                let unread = outcome.give_back(journey.op.lock());
                let leg =
                    answered(outcome, lain_ms + waited_ms, |left_ms| (waited_ms + left_ms).saturating_sub(passed_ms));
                if let (Leg::Failed(_), Some(give_back)) = (&leg, unread) {
                    self.links.give_back_to(to.leader, &to.member, give_back);
                }
                leg
            }
            Ok(ForwardAnswer::NotLeader { .. }) | Err(LinkError::NotSent) => Leg::NotLeader,
            Ok(ForwardAnswer::NoLeader) => Leg::Failed(SubmitError::NoLeader),
            Ok(ForwardAnswer::CatchingUp) => Leg::Failed(SubmitError::CatchingUp),
            Ok(ForwardAnswer::OutcomeUnknown) | Err(LinkError::Lost) => Leg::Failed(SubmitError::OutcomeUnknown),
        }
    }
}

impl Journey {
    /// The request as this node's own office gets it. The wait counts from its arrival here.
    fn own_op(&self) -> Op {
        let mut op = self.op.clone();
        if let (Op::Acquire(acquire), Some(own_id)) = (&mut op, &self.own_id) {
            acquire.request_id = Some(own_id.clone());
            acquire.queued_ms = 0;
        }
        op
    }

    /// The request as another node gets it: what it has waited here is taken off its wait and kept as its place in the
    /// queue.
    fn forwarded_op(&mut self, lain_ms: u64, random: impl FnOnce() -> u128) -> Op {
        let mut op = self.op.clone();
        if let Op::Acquire(acquire) = &mut op {
            acquire.wait_ms = acquire.wait_ms.saturating_sub(lain_ms);
            if acquire.request_id.is_some() {
                acquire.queued_ms = acquire.queued_ms.saturating_add(lain_ms);
            } else {
                let own_id = self.own_id.get_or_insert_with(|| request_id(random()));
                acquire.request_id = Some(own_id.clone());
                acquire.queued_ms = lain_ms;
            }
        }
        op
    }
}

fn request_id(random: u128) -> RequestId {
    RequestId::parse(&format!("{random:032x}")).expect("32 bytes are within a request id's bounds")
}

fn given_up(claim: &Claim) -> SubmitError {
    if claim.withdraw() { SubmitError::NoLeader } else { SubmitError::OutcomeUnknown }
}

/// The reply of an outcome whose remaining times are aged; a hold with nothing left is no good to its caller.
fn answered(mut outcome: Outcome, waited_ms: u64, age: impl Fn(u64) -> u64) -> Leg {
    match &mut outcome {
        Outcome::Granted(grant) => grant.left_ms = age(grant.left_ms),
        Outcome::Renewed(renewal) => renewal.left_ms = age(renewal.left_ms),
        Outcome::Held(held) => {
            held.holders.iter_mut().for_each(|holder| holder.left_ms = age(holder.left_ms));
            held.hold_off_ms = age(held.hold_off_ms);
        }
        Outcome::Got(view) => view.holders.iter_mut().for_each(|holder| holder.left_ms = age(holder.left_ms)),
        Outcome::LimitExceeded { .. }
        | Outcome::RequestIdReused
        | Outcome::TooLarge
        | Outcome::Released
        | Outcome::NotHolder
        | Outcome::NotHeld
        | Outcome::GaveBack => {}
    }
    match &outcome {
        Outcome::Granted(grant) if grant.left_ms == 0 => Leg::Failed(SubmitError::OutcomeUnknown),
        Outcome::Renewed(renewal) if renewal.left_ms == 0 => Leg::Failed(SubmitError::OutcomeUnknown),
        _ => Leg::Answered(Reply { outcome, waited_ms }),
    }
}

/// Waits for a change of this node's office or of what it knows of the cluster.
async fn news(office: &mut watch::Receiver<Option<OfficeDoor>>, metrics: &mut ServerMetricsWatch) {
    let office_changed = std::pin::pin!(office.changed());
    let metrics_changed = std::pin::pin!(metrics.changed());
    futures::future::select(office_changed, metrics_changed).await;
}

#[expect(dead_code, reason = "keeps the future of a request Send, checked at compile time")]
fn submit_is_send<P: Platform>(router: &Router<P>, op: Op) -> impl Future<Output = Result<Reply, SubmitError>> + Send {
    router.submit(op, Duration::ZERO)
}
