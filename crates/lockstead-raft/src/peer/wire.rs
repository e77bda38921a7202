//! One connection of a request link as its dialer uses it: many calls in flight, answered in any order.
//!
//! Invariants:
//! 1. A call that fails with [`LinkError::NotSent`] was never handed to the socket.
//! 2. Each call handed over keeps its entry until its one answer arrives, also when nobody waits for it any more.
//! 3. A fresh grant that arrives for a call nobody waits for is given back over the link.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockstead_core::{GiveBack, Op};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::frame::{Connection, FrameReader, append_frame, malformed};
use super::requests::{CALLS_MAX, LinkAnswer, LinkCall, give_back_of};
use super::{ForwardAnswer, lock};

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
    /// The dialer asks for a sign of life this often.
    pub(super) ping_every: Duration,
    /// A link on which nothing arrives, or nothing can be written, for this long is lost.
    pub(super) silence_max: Duration,
}

impl Default for LinkTiming {
    fn default() -> Self {
        Self { ping_every: Duration::from_secs(1), silence_max: Duration::from_secs(5) }
    }
}

/// One connection and the calls on it.
pub(super) struct Wire {
    pub(super) state: Mutex<WireState>,
    /// Something was queued.
    wake: Notify,
}

#[derive(Default)]
pub(super) struct WireState {
    calls_made: u64,
    pub(super) calls: HashMap<u64, Call>,
    /// At most one entry per call and kind, so it is bounded by the calls.
    queue: Vec<Queued>,
    closed: bool,
}

pub(super) struct Call {
    op: Op,
    ends: Instant,
    /// Its bytes were handed to the socket, or are about to be.
    handed: bool,
    answer: oneshot::Sender<Result<Delivered, LinkError>>,
}

pub(super) enum Queued {
    /// Dropped when its turn comes if the call is gone.
    Submit(u64),
    Cancel(u64),
    GiveBack(GiveBack),
}

/// An answer, and what to do if nobody takes it.
pub(super) struct Delivered {
    pub(super) answer: ForwardAnswer,
    give_back: Option<GiveBack>,
}

impl Wire {
    /// A wire and the task that serves it; the wire is closed when that task has ended, or is dropped.
    pub(super) fn new(connection: Connection, timing: LinkTiming) -> (Arc<Self>, impl Future<Output = ()> + Send) {
        let wire = Arc::new(Self { state: Mutex::default(), wake: Notify::new() });
        let closing = Closing(Arc::clone(&wire));
        let running = async move {
            let ended = closing.0.run(connection, timing).await;
            tracing::debug!(?ended, "a request link ended");
        };
        (wire, running)
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
        // Pings go out between calls too: waiting calls get no answers, and only a pong shows that the peer lives.
        let mut pings = interval_at(Instant::now() + timing.ping_every, timing.ping_every);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            buffer.clear();
            tokio::select! {
                () = self.wake.notified() => self.hand_over(&mut buffer)?,
                _ = pings.tick() => append_frame(&mut buffer, &LinkCall::Ping)?,
            }
            timeout(timing.silence_max, writer.write_all(&buffer)).await??;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !lock(&self.state).closed
    }

    pub(super) fn submit(self: &Arc<Self>, op: Op, ends: Instant) -> Result<Pending, LinkError> {
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
        Ok(Pending { wire: Arc::clone(self), call, answer })
    }

    pub(super) fn push(&self, queued: Queued) {
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
        let WireState { calls, queue, .. } = &mut *state;
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

    pub(super) fn deliver(&self, call: u64, answer: ForwardAnswer) -> io::Result<()> {
        let call = self.take(call)?;
        let give_back = give_back_of(call.op.lock(), &answer);
        if let Err(Ok(untaken)) = call.answer.send(Ok(Delivered { answer, give_back })) {
            self.give_back(untaken);
        }
        Ok(())
    }

    fn give_back(&self, untaken: Delivered) {
        if let Some(give_back) = untaken.give_back {
            self.push(Queued::GiveBack(give_back));
        }
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

    /// Gives a call up; what that means for its caller. One that was not handed over never will be.
    pub(super) fn give_up(&self, call: u64) -> LinkError {
        let mut state = lock(&self.state);
        match state.calls.get(&call).map(|call| call.handed) {
            Some(false) => {
                drop(state.calls.remove(&call));
                LinkError::NotSent
            }
            Some(true) | None => LinkError::Lost,
        }
    }

    pub(super) fn close(&self) {
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

/// Closes the wire however its task ends, by an abort too.
struct Closing(Arc<Wire>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A call whose answer is awaited; dropping it withdraws the call.
pub(super) struct Pending {
    pub(super) wire: Arc<Wire>,
    pub(super) call: u64,
    pub(super) answer: oneshot::Receiver<Result<Delivered, LinkError>>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.answer.close();
        match self.answer.try_recv() {
            // It had arrived, but was never read.
            Ok(Ok(untaken)) => self.wire.give_back(untaken),
            Ok(Err(_)) => {}
            Err(_) => self.wire.cancel(self.call),
        }
    }
}
