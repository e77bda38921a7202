//! The request link as its dialer uses it: many calls in flight to one node over one connection.
//!
//! Invariants:
//! 1. A call that fails with [`LinkError::NotSent`] was never handed to the socket.
//! 2. Each call handed over keeps its entry until its one answer arrives, also when nobody waits for it any more.
//! 3. A fresh grant that arrives for a call nobody waits for is given back over the link.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use lockstead_core::{GiveBack, NodeId, Op};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dial::{DIAL_TIME_MAX, Dialer};
use super::frame::{Connection, FrameReader, append_frame, malformed};
use super::hello::Purpose;
use super::requests::{CALLS_MAX, LinkAnswer, LinkCall, give_back_of, lock_of};
use super::{ForwardAnswer, lock};
use crate::types::Member;

/// Why a request passed on has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkError {
    /// Nothing of it left this node: it may be sent again.
    #[error("the request was not sent")]
    NotSent,
    /// It may have arrived: its outcome is unknown.
    #[error("the connection was lost, or no answer came in time, after the request was sent")]
    Lost,
}

/// How a link tells a silent peer from an idle one.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkTiming {
    /// The dialer sends something at least this often.
    pub(super) ping_every: Duration,
    /// A link on which nothing arrives, or nothing can be written, for this long is lost.
    pub(super) silence_max: Duration,
}

impl Default for LinkTiming {
    fn default() -> Self {
        Self { ping_every: Duration::from_secs(1), silence_max: Duration::from_secs(5) }
    }
}

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

    /// Has a request decided by another node, in `time_left` at most.
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
    ) -> Result<ForwardAnswer, LinkError> {
        self.link(node_id, member).submit(op, time_left).await
    }

    /// Asks a node to give back a grant of its own whose answer could not be passed on. Nothing is known of the outcome.
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
type SharedDial = Shared<BoxFuture<'static, Option<Arc<Line>>>>;

impl RequestLink {
    async fn submit(&self, op: Op, time_left: Duration) -> Result<ForwardAnswer, LinkError> {
        let ends = Instant::now() + time_left;
        let line = timeout_at(ends, self.line()).await.ok().flatten().ok_or(LinkError::NotSent)?;
        let mut pending = line.submit(op, ends)?;
        match timeout_at(ends, &mut pending.answer).await {
            Ok(Ok(delivered)) => delivered.map(|delivered| delivered.answer),
            Ok(Err(_)) => Err(LinkError::Lost),
            Err(_) => Err(pending.line.error_now(pending.call)),
        }
    }

    async fn give_back(&self, give_back: GiveBack) {
        if let Some(line) = self.line().await {
            line.push(Queued::GiveBack(give_back));
        }
    }

    async fn line(&self) -> Option<Arc<Line>> {
        let dial = self.current_dial();
        dial.await
    }

    fn current_dial(&self) -> SharedDial {
        let mut state = lock(&self.state);
        match &state.dial {
            Some(dial) if dial.peek().is_none_or(|dialed| dialed.as_ref().is_some_and(|line| line.is_open())) => {
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
            let dialing = context.dialer.dial(node_id, &member, Purpose::Requests, DIAL_TIME_MAX);
            match context.stop.run_until_cancelled(dialing).await? {
                Ok(connection) => Some(Line::start(connection, &context)),
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

/// One connection and the calls on it.
struct Line {
    state: Mutex<LineState>,
    /// Something was queued.
    wake: Notify,
}

#[derive(Default)]
struct LineState {
    calls_made: u64,
    calls: HashMap<u64, Call>,
    /// At most one entry per call and kind, so it is bounded by the calls.
    queue: Vec<Queued>,
    closed: bool,
}

struct Call {
    op: Op,
    ends: Instant,
    /// Its bytes were handed to the socket, or are about to be.
    handed: bool,
    answer: oneshot::Sender<Result<Delivered, LinkError>>,
}

enum Queued {
    /// Dropped when its turn comes if the call is gone.
    Submit(u64),
    Cancel(u64),
    GiveBack(GiveBack),
}

/// An answer, and what to do if nobody takes it.
struct Delivered {
    answer: ForwardAnswer,
    give_back: Option<GiveBack>,
}

impl Line {
    fn start(connection: Connection, context: &LinkContext) -> Arc<Self> {
        let line = Arc::new(Self { state: Mutex::default(), wake: Notify::new() });
        let (stop, timing, running) = (context.stop.clone(), context.timing, Closing(Arc::clone(&line)));
        context.tracker.spawn_on(
            async move {
                let ended = stop.run_until_cancelled(running.0.run(connection, timing)).await;
                tracing::debug!(?ended, "a request link ended");
            },
            &context.runtime,
        );
        line
    }

    async fn run(&self, connection: Connection, timing: LinkTiming) -> io::Result<()> {
        let (reader, writer) = connection.into_halves();
        tokio::select! {
            ended = self.read_answers(reader, timing) => ended,
            ended = self.write_calls(writer, timing) => ended,
        }
    }

    async fn read_answers(&self, mut reader: FrameReader, timing: LinkTiming) -> io::Result<()> {
        loop {
            match timeout(timing.silence_max, reader.receive()).await?? {
                LinkAnswer::Answered { call, answer } => self.deliver(call, answer)?,
                LinkAnswer::Withdrawn { call } => drop(self.take(call)?),
                LinkAnswer::Pong => {}
            }
        }
    }

    async fn write_calls(&self, mut writer: OwnedWriteHalf, timing: LinkTiming) -> io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            match timeout(timing.ping_every, self.wake.notified()).await {
                Ok(()) => self.hand_over(&mut buffer)?,
                Err(_) => append_frame(&mut buffer, &LinkCall::Ping)?,
            }
            timeout(timing.silence_max, writer.write_all(&buffer)).await??;
        }
    }

    fn is_open(&self) -> bool {
        !lock(&self.state).closed
    }

    fn submit(self: &Arc<Self>, op: Op, ends: Instant) -> Result<Pending, LinkError> {
        let (sender, answer) = oneshot::channel();
        let mut state = lock(&self.state);
        if state.closed || state.calls.len() >= CALLS_MAX {
            return Err(LinkError::NotSent);
        }
        state.calls_made += 1;
        let call = state.calls_made;
        state.calls.insert(call, Call { op, ends, handed: false, answer: sender });
        state.queue.push(Queued::Submit(call));
        drop(state);
        self.wake.notify_one();
        Ok(Pending { line: Arc::clone(self), call, answer })
    }

    fn push(&self, queued: Queued) {
        let mut state = lock(&self.state);
        if !state.closed {
            state.queue.push(queued);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Encodes all that is queued, as one write.
    fn hand_over(&self, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut state = lock(&self.state);
        let LineState { calls, queue, .. } = &mut *state;
        let now = Instant::now();
        for queued in queue.drain(..) {
            match queued {
                Queued::Submit(number) => {
                    let Some(call) = calls.get_mut(&number) else { continue };
                    call.handed = true;
                    append_frame(buffer, &call.message(number, now))?;
                }
                Queued::Cancel(call) => append_frame(buffer, &LinkCall::Cancel { call })?,
                Queued::GiveBack(give_back) => append_frame(buffer, &LinkCall::GiveBack(give_back))?,
            }
        }
        Ok(())
    }

    fn take(&self, call: u64) -> io::Result<Call> {
        let taken = lock(&self.state).calls.remove(&call);
        taken.ok_or_else(|| malformed(format!("an answer to call {call}, which is not in flight")))
    }

    fn deliver(&self, call: u64, answer: ForwardAnswer) -> io::Result<()> {
        let call = self.take(call)?;
        let give_back = give_back_of(lock_of(&call.op), &answer);
        if let Err(Ok(untaken)) = call.answer.send(Ok(Delivered { answer, give_back })) {
            self.give_back(untaken);
        }
        Ok(())
    }

    fn give_back(&self, untaken: Delivered) {
        untaken.give_back.into_iter().for_each(|give_back| self.push(Queued::GiveBack(give_back)));
    }

    /// Nobody waits for a call any more. Without an entry it was answered.
    fn cancel(&self, call: u64) {
        let mut state = lock(&self.state);
        match state.calls.get(&call).map(|call| call.handed) {
            Some(true) => {
                state.queue.push(Queued::Cancel(call));
                drop(state);
                self.wake.notify_one();
            }
            Some(false) => drop(state.calls.remove(&call)),
            None => {}
        }
    }

    /// What giving a call up now means for its caller.
    fn error_now(&self, call: u64) -> LinkError {
        match lock(&self.state).calls.get(&call) {
            Some(Call { handed: false, .. }) => LinkError::NotSent,
            _ => LinkError::Lost,
        }
    }

    fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.queue.clear();
        for (_, call) in state.calls.drain() {
            let error = if call.handed { LinkError::Lost } else { LinkError::NotSent };
            // Nobody waits for it any more: nothing to tell.
            drop(call.answer.send(Err(error)));
        }
    }
}

impl Call {
    fn message(&self, call: u64, now: Instant) -> LinkCall<'_> {
        let time_left = self.ends.saturating_duration_since(now);
        let time_left_ms = u64::try_from(time_left.as_millis()).unwrap_or(u64::MAX);
        LinkCall::Submit { call, op: Cow::Borrowed(&self.op), time_left_ms }
    }
}

/// Closes the line however its task ends, by an abort too.
struct Closing(Arc<Line>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A call whose answer is awaited; dropping it withdraws the call.
struct Pending {
    line: Arc<Line>,
    call: u64,
    answer: oneshot::Receiver<Result<Delivered, LinkError>>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.answer.close();
        match self.answer.try_recv() {
            // It had arrived, but was never read.
            Ok(Ok(untaken)) => self.line.give_back(untaken),
            Ok(Err(_)) => {}
            Err(_) => self.line.cancel(self.call),
        }
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
