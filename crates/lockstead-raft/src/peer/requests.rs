//! The request link as its acceptor serves it, and its messages.
//!
//! Invariants:
//! 1. Each `Submit` gets exactly one `LinkAnswer`, unless the connection ends.
//! 2. A cancelled call's future is dropped, which withdraws the request.
//! 3. A fresh grant whose answer was not handed to the socket is given back here; after that only the dialer may ask.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockstead_core::{GiveBack, LockKey, Op};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::frame::{Connection, FrameReader, append_frame, malformed};
use super::wire::LinkTiming;
use super::{ForwardAnswer, PeerService, lock};

/// The most calls in flight on one link.
pub(super) const CALLS_MAX: usize = 65_536;
/// With so many answer bytes unsent, no further call is read.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What the dialer sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LinkCall<'a> {
    Submit {
        call: u64,
        op: Cow<'a, Op>,
        time_left_ms: u64,
    },
    Cancel {
        call: u64,
    },
    GiveBack(GiveBack),
    /// Asks for a [`LinkAnswer::Pong`].
    Ping,
}

/// What the acceptor sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LinkAnswer {
    Answered {
        call: u64,
        answer: ForwardAnswer,
    },
    /// The call was cancelled before it was answered.
    Withdrawn {
        call: u64,
    },
    Pong,
}

/// The give-back that an answer calls for if it reaches nobody.
pub(super) fn give_back_of(lock: &LockKey, answer: &ForwardAnswer) -> Option<GiveBack> {
    match answer {
        ForwardAnswer::Reply { outcome, .. } => outcome.give_back(lock),
        _ => None,
    }
}

/// Serves a request link to its end.
pub(super) async fn serve_requests<P: PeerService>(
    connection: Connection,
    service: P,
    tracker: TaskTracker,
    timing: LinkTiming,
) -> io::Result<()> {
    let (reader, writer) = connection.into_halves();
    let desk = Arc::new(Desk { service, state: Mutex::default(), wake: Notify::new(), room: Notify::new() });
    let _closing = Closing(Arc::clone(&desk));
    tokio::select! {
        ended = read_calls(reader, &desk, &tracker, timing) => ended,
        ended = write_answers(writer, &desk, timing) => ended,
    }
}

/// One link at its acceptor.
struct Desk<P: PeerService> {
    service: P,
    state: Mutex<DeskState>,
    /// There is something to write.
    wake: Notify,
    /// Something was taken to be written.
    room: Notify,
}

#[derive(Default)]
struct DeskState {
    running: HashMap<u64, AbortHandle>,
    /// Encoded answers, not yet handed to the socket.
    unsent: Vec<u8>,
    /// The fresh grants among them.
    unsent_grants: Vec<GiveBack>,
    closed: bool,
}

/// Closes the desk however its connection ends, by cancellation too.
struct Closing<P: PeerService>(Arc<Desk<P>>);

impl<P: PeerService> Drop for Closing<P> {
    fn drop(&mut self) {
        self.0.close();
    }
}

async fn read_calls<P: PeerService>(
    mut reader: FrameReader,
    desk: &Arc<Desk<P>>,
    tracker: &TaskTracker,
    timing: LinkTiming,
) -> io::Result<()> {
    loop {
        desk.wait_for_room().await;
        match timeout(timing.silence_max, reader.receive()).await?? {
            LinkCall::Submit { call, op, time_left_ms } => {
                desk.start(tracker, call, op.into_owned(), Duration::from_millis(time_left_ms))?;
            }
            LinkCall::Cancel { call } => desk.cancel(call)?,
            LinkCall::GiveBack(give_back) => desk.service.give_back(give_back),
            LinkCall::Ping => desk.push(&mut lock(&desk.state), &LinkAnswer::Pong)?,
        }
    }
}

async fn write_answers<P: PeerService>(
    mut writer: OwnedWriteHalf,
    desk: &Desk<P>,
    timing: LinkTiming,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        desk.wake.notified().await;
        desk.take_unsent(&mut buffer);
        timeout(timing.silence_max, writer.write_all(&buffer)).await??;
    }
}

impl<P: PeerService> Desk<P> {
    fn start(self: &Arc<Self>, tracker: &TaskTracker, call: u64, op: Op, time_left: Duration) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.running.contains_key(&call) {
            return Err(malformed(format!("call {call} twice")));
        }
        if state.running.len() >= CALLS_MAX {
            return self.push(&mut state, &LinkAnswer::Answered { call, answer: ForwardAnswer::NoLeader });
        }
        let desk = Arc::clone(self);
        let task = tracker.spawn(async move {
            let name = op.lock().clone();
            let answer = desk.service.decide_here(op, time_left).await;
            desk.answer(call, &name, answer);
        });
        state.running.insert(call, task.abort_handle());
        Ok(())
    }

    /// Queues an answer, or gives its grant back if nobody waits for it any more.
    fn answer(&self, call: u64, name: &LockKey, answer: ForwardAnswer) {
        let give_back = give_back_of(name, &answer);
        let mut state = lock(&self.state);
        let waited_for = state.running.remove(&call).is_some() && !state.closed;
        if waited_for && self.push(&mut state, &LinkAnswer::Answered { call, answer }).is_ok() {
            state.unsent_grants.extend(give_back);
            return;
        }
        drop(state);
        if let Some(give_back) = give_back {
            self.service.give_back(give_back);
        }
    }

    /// A call that is no longer running has its answer on the way; the dialer deals with it.
    fn cancel(&self, call: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        match state.running.remove(&call) {
            Some(task) => {
                task.abort();
                self.push(&mut state, &LinkAnswer::Withdrawn { call })
            }
            None => Ok(()),
        }
    }

    fn push(&self, state: &mut DeskState, answer: &LinkAnswer) -> io::Result<()> {
        append_frame(&mut state.unsent, answer)?;
        self.wake.notify_one();
        Ok(())
    }

    fn take_unsent(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        let mut state = lock(&self.state);
        mem::swap(buffer, &mut state.unsent);
        state.unsent_grants.clear();
        drop(state);
        self.room.notify_one();
    }

    async fn wait_for_room(&self) {
        while lock(&self.state).unsent.len() >= ANSWER_BYTES_MAX {
            self.room.notified().await;
        }
    }

    fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let running = mem::take(&mut state.running);
        let grants = mem::take(&mut state.unsent_grants);
        drop(state);
        for task in running.into_values() {
            task.abort();
        }
        for give_back in grants {
            self.service.give_back(give_back);
        }
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
