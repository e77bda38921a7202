//! The request links of this node: to each other node one connection, dialed on demand.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use lockstead_core::{GiveBack, NodeId, Op};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dial::Dialer;
use super::frame::Connection;
use super::hello::Purpose;
use super::wire::{LinkError, LinkTiming, Queued, Wire};
use super::{ForwardAnswer, lock};
use crate::types::Member;

/// The links of this node to all others. All clones are one set.
#[derive(Clone)]
pub(crate) struct RequestLinks {
    context: Arc<LinkContext>,
    links: Arc<Mutex<HashMap<NodeId, Arc<RequestLink>>>>,
}

struct LinkContext {
    dialer: Dialer,
    timing: LinkTiming,
    runtime: Handle,
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl LinkContext {
    fn start_wire(&self, connection: Connection) -> Arc<Wire> {
        let overtaken = connection.peer().map(|peer| peer.overtaken().clone()).unwrap_or_default();
        let (wire, running) = Wire::new(connection, self.timing);
        let stop = self.stop.clone();
        let running = async move { stop.run_until_cancelled(overtaken.run_until_cancelled(running)).await };
        self.tracker.spawn_on(running, &self.runtime);
        wire
    }
}

impl RequestLinks {
    /// The tasks of the links run on the runtime that calls this, belong to `tracker` and end by `stop`.
    pub(crate) fn new(dialer: Dialer, tracker: TaskTracker, stop: CancellationToken) -> Self {
        Self::with_timing(dialer, tracker, stop, LinkTiming::default())
    }

    pub(super) fn with_timing(
        dialer: Dialer,
        tracker: TaskTracker,
        stop: CancellationToken,
        timing: LinkTiming,
    ) -> Self {
        let runtime = Handle::current();
        let context = Arc::new(LinkContext { dialer, timing, runtime, tracker, stop });
        Self { context, links: Arc::default() }
    }

    /// Has a request decided by another node, in `time_left` at most, and until `given_up`.
    ///
    /// Dropping the future withdraws the request; a fresh grant that was made nevertheless is given back.
    ///
    /// # Errors
    /// [`LinkError`].
    pub(crate) async fn submit_to(
        &self,
        node_id: NodeId,
        member: &Member,
        op: Op,
        time_left: Duration,
        given_up: impl Future<Output = ()>,
    ) -> Result<ForwardAnswer, LinkError> {
        self.link(node_id, member).submit(op, time_left, given_up).await
    }

    /// Asks a node to give back a grant of its own whose answer could not be passed on. It may get lost.
    pub(crate) fn give_back_to(&self, node_id: NodeId, member: &Member, give_back: GiveBack) {
        let link = self.link(node_id, member);
        self.context.tracker.spawn_on(async move { link.give_back(give_back).await }, &self.context.runtime);
    }

    fn link(&self, node_id: NodeId, member: &Member) -> Arc<RequestLink> {
        let mut links = lock(&self.links);
        let link = links.entry(node_id).or_insert_with(|| {
            let state = LinkState { member: member.clone(), dial: None };
            Arc::new(RequestLink { context: Arc::clone(&self.context), node_id, state: Mutex::new(state) })
        });
        let mut state = lock(&link.state);
        if state.member != *member {
            state.member = member.clone();
        }
        drop(state);
        Arc::clone(link)
    }
}

/// The link to one node.
struct RequestLink {
    context: Arc<LinkContext>,
    node_id: NodeId,
    state: Mutex<LinkState>,
}

struct LinkState {
    /// Where to dial next time.
    member: Member,
    dial: Option<SharedDial>,
}

/// A dial that all who need the connection wait for; `None`: it failed.
type SharedDial = Shared<BoxFuture<'static, Option<Arc<Wire>>>>;

impl RequestLink {
    async fn submit(
        &self,
        op: Op,
        time_left: Duration,
        given_up: impl Future<Output = ()>,
    ) -> Result<ForwardAnswer, LinkError> {
        let ends = Instant::now() + time_left;
        let mut over = pin!(async {
            let _in_time = timeout_at(ends, given_up).await;
        });
        let wire = tokio::select! {
            biased;
            wire = self.wire() => wire.ok_or(LinkError::NotSent)?,
            () = &mut over => return Err(LinkError::NotSent),
        };
        let mut pending = wire.submit(op, ends)?;
        tokio::select! {
            biased;
            answered = &mut pending.answer => match answered {
                Ok(delivered) => delivered.map(|delivered| delivered.answer),
                Err(_) => Err(LinkError::Lost),
            },
            () = over => Err(pending.wire.give_up(pending.call)),
        }
    }

    async fn give_back(&self, give_back: GiveBack) {
        if let Some(wire) = self.wire().await {
            wire.push(Queued::GiveBack(give_back));
        }
    }

    async fn wire(&self) -> Option<Arc<Wire>> {
        let dial = self.current_dial();
        dial.await
    }

    fn current_dial(&self) -> SharedDial {
        let mut state = lock(&self.state);
        match &state.dial {
            Some(dial) if dial.peek().is_none_or(|dialed| dialed.as_ref().is_some_and(|wire| wire.is_open())) => {
                dial.clone()
            }
            _ => {
                let dial = self.start_dial(state.member.clone());
                state.dial = Some(dial.clone());
                dial
            }
        }
    }

    fn start_dial(&self, member: Member) -> SharedDial {
        let (context, node_id) = (Arc::clone(&self.context), self.node_id);
        let dial = async move {
            let time_max = context.dialer.dial_time_max();
            let dialing = context.dialer.dial(node_id, &member, Purpose::Requests, time_max);
            match context.stop.run_until_cancelled(dialing).await? {
                Ok(connection) => Some(context.start_wire(connection)),
                Err(error) => {
                    tracing::debug!(node_id, %error, "no request link");
                    None
                }
            }
        };
        let task = self.context.tracker.spawn_on(dial, &self.context.runtime);
        task.map(|dialed| dialed.ok().flatten()).boxed().shared()
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
