//! The accepting side of the peer port.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use openraft::Raft;
use openraft::async_runtime::WatchReceiver as _;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use openraft::storage::RaftStateMachine;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::PeerService;
use super::frame::Connection;
use super::hello::{Hello, HelloAnswer, Purpose, answer_hello};
use super::network::{RaftAnswer, RaftCall};
use super::requests::serve_requests;
use super::starts::{Acquaintance, SeenStarts};
use super::wire::LinkTiming;
use crate::types::{Snapshot, SnapshotData, TypeConfig, Vote};

/// A Raft connection on which nothing came for so long is closed: its dialer may be gone without a sign, and dials anew
/// when it needs to.
const RAFT_SILENCE_MAX: Duration = Duration::from_mins(10);
/// The most peer connections at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 1_024;
/// How long the dialer's hello may take.
const HELLO_TIME_MAX: Duration = Duration::from_secs(2);
/// The wait after an error of accept, which is mostly a lack of descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Raft as its peers reach it. Each `Err` is told to the caller in words.
pub(crate) trait RaftPort: Clone + Send + Sync + 'static {
    /// Whether this node may grant votes and stand for election: its own membership lists its id with its data
    /// directory, and its voters take it for the node that it was.
    fn may_vote(&self) -> bool;

    /// Append entries, or a heartbeat.
    fn append(
        &self,
        rpc: AppendEntriesRequest<TypeConfig>,
    ) -> impl Future<Output = Result<AppendEntriesResponse<TypeConfig>, String>> + Send;

    /// A vote; asked only while [`Self::may_vote`].
    fn vote(
        &self,
        rpc: VoteRequest<TypeConfig>,
    ) -> impl Future<Output = Result<VoteResponse<TypeConfig>, String>> + Send;

    /// Whether a vote would be granted; asked only while [`Self::may_vote`].
    fn pre_vote(
        &self,
        rpc: VoteRequest<TypeConfig>,
    ) -> impl Future<Output = Result<VoteResponse<TypeConfig>, String>> + Send;

    /// Replace the whole state.
    fn install_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot,
    ) -> impl Future<Output = Result<SnapshotResponse<TypeConfig>, String>> + Send;

    /// The leader hands over; asked only while [`Self::may_vote`].
    fn transfer_leader(
        &self,
        rpc: TransferLeaderRequest<TypeConfig>,
    ) -> impl Future<Output = Result<TransferLeaderResponse<TypeConfig>, String>> + Send;
}

/// The [`RaftPort`] of a running Raft node.
pub(crate) struct RaftHandle<SM: RaftStateMachine<TypeConfig, SnapshotData = SnapshotData>> {
    /// The node.
    pub(crate) raft: Raft<TypeConfig, SM>,
    /// See [`RaftPort::may_vote`].
    pub(crate) may_vote: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Told each time that a leader has called that this node follows.
    pub(crate) heard: Arc<dyn Fn() + Send + Sync>,
}

impl<SM: RaftStateMachine<TypeConfig, SnapshotData = SnapshotData>> Clone for RaftHandle<SM> {
    fn clone(&self) -> Self {
        Self { raft: self.raft.clone(), may_vote: Arc::clone(&self.may_vote), heard: Arc::clone(&self.heard) }
    }
}

impl<SM: RaftStateMachine<TypeConfig, SnapshotData = SnapshotData>> RaftPort for RaftHandle<SM> {
    fn may_vote(&self) -> bool {
        (self.may_vote)()
    }

    async fn append(&self, rpc: AppendEntriesRequest<TypeConfig>) -> Result<AppendEntriesResponse<TypeConfig>, String> {
        // One of an earlier term is no leader. The answer would come only once the disk has what was sent before.
        if rpc.vote >= self.raft.server_metrics().borrow_watched().vote {
            (self.heard)();
        }
        self.raft.append_entries(rpc).await.map_err(|error| error.to_string())
    }

    async fn vote(&self, rpc: VoteRequest<TypeConfig>) -> Result<VoteResponse<TypeConfig>, String> {
        self.raft.vote(rpc).await.map_err(|error| error.to_string())
    }

    async fn pre_vote(&self, rpc: VoteRequest<TypeConfig>) -> Result<VoteResponse<TypeConfig>, String> {
        self.raft.pre_vote(rpc).await.map_err(|error| error.to_string())
    }

    async fn install_snapshot(&self, vote: Vote, snapshot: Snapshot) -> Result<SnapshotResponse<TypeConfig>, String> {
        self.raft.install_full_snapshot(vote, snapshot).await.map_err(|error| error.to_string())
    }

    async fn transfer_leader(
        &self,
        rpc: TransferLeaderRequest<TypeConfig>,
    ) -> Result<TransferLeaderResponse<TypeConfig>, String> {
        self.raft.handle_transfer_leader(rpc).await.map_err(|error| error.to_string())
    }
}

/// Serves the peer port of a node.
#[derive(Clone)]
pub(crate) struct PeerServer<P, R> {
    /// The node.
    pub(crate) service: P,
    /// Its Raft.
    pub(crate) raft: R,
    /// [`super::Dialer::seen_starts`] of the node's dialer.
    pub(crate) seen: SeenStarts,
    /// Every task of the port belongs to it.
    pub(crate) tracker: TaskTracker,
    /// Ends them all.
    pub(crate) stop: CancellationToken,
}

impl<P: PeerService, R: RaftPort> PeerServer<P, R> {
    /// Starts to accept, on the runtime that calls this.
    pub(crate) fn spawn(self, listener: TcpListener) {
        let (tracker, stop) = (self.tracker.clone(), self.stop.clone());
        tracker.spawn(async move { stop.run_until_cancelled(self.accept(listener)).await });
    }

    async fn accept(self, listener: TcpListener) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.take_in(stream, &room),
                Err(error) => {
                    tracing::warn!(%error, "a peer could not be accepted");
                    sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }

    fn take_in(&self, stream: TcpStream, room: &Arc<Semaphore>) {
        let Ok(place) = Arc::clone(room).try_acquire_owned() else { return };
        let (server, stop) = (self.clone(), self.stop.clone());
        self.tracker.spawn(async move {
            if let Some(Err(error)) = stop.run_until_cancelled(server.serve(stream)).await {
                tracing::debug!(%error, "a peer connection ended");
            }
            drop(place);
        });
    }

    async fn serve(self, stream: TcpStream) -> io::Result<()> {
        let mut connection = Connection::new(stream)?;
        let Some((purpose, peer)) = timeout(HELLO_TIME_MAX, self.greet(&mut connection)).await?? else { return Ok(()) };
        let served = self.serve_purpose(purpose, connection);
        match peer {
            // A process that is overtaken is cut off.
            Some(peer) => peer.overtaken().run_until_cancelled(served).await.unwrap_or(Ok(())),
            None => served.await,
        }
    }

    async fn serve_purpose(self, purpose: Purpose, mut connection: Connection) -> io::Result<()> {
        match purpose {
            Purpose::Raft => self.serve_raft(connection).await,
            Purpose::Requests => serve_requests(connection, self.service, self.tracker, LinkTiming::default()).await,
            Purpose::Join => {
                let call = timeout(HELLO_TIME_MAX, connection.receive()).await??;
                connection.send(&self.service.join(call).await).await
            }
            Purpose::Members => {
                let call = timeout(HELLO_TIME_MAX, connection.receive()).await??;
                let answer = tokio::select! {
                    biased;
                    // Nothing more is sent: the caller has given up, and what it asked for is not begun any more.
                    _ = connection.receive::<()>() => return Ok(()),
                    answer = self.service.members(call) => answer,
                };
                connection.send(&answer).await
            }
            Purpose::Restate => {
                let call = timeout(HELLO_TIME_MAX, connection.receive()).await??;
                connection.send(&self.service.restate(call).await).await
            }
            Purpose::Probe => connection.send(&self.service.advertised()).await,
        }
    }

    /// What the connection is for, and with whom; `None` if it was refused.
    async fn greet(&self, connection: &mut Connection) -> io::Result<Option<(Purpose, Option<Acquaintance>)>> {
        let hello: Hello = connection.receive().await?;
        let (answer, peer) = answer_hello(&self.service, &self.seen, &hello).await;
        connection.send(&answer).await?;
        match answer {
            HelloAnswer::Welcome(_) => {
                connection.trust();
                Ok(Some((hello.purpose, peer)))
            }
            HelloAnswer::Refused { why, text } => {
                tracing::debug!(from = hello.from.node_id, ?why, text, "a peer was refused");
                Ok(None)
            }
        }
    }

    async fn serve_raft(&self, mut connection: Connection) -> io::Result<()> {
        loop {
            let (number, call): (u64, RaftCall) = timeout(RAFT_SILENCE_MAX, connection.receive()).await??;
            connection.send(&(number, answer(&self.raft, call).await)).await?;
        }
    }
}

async fn answer<R: RaftPort>(raft: &R, call: RaftCall) -> Result<RaftAnswer, String> {
    match call {
        RaftCall::Append(rpc) => raft.append(rpc).await.map(RaftAnswer::Append),
        RaftCall::Snapshot(call) => {
            let snapshot = Snapshot { meta: call.meta, snapshot: call.data };
            raft.install_snapshot(call.vote, snapshot).await.map(RaftAnswer::Snapshot)
        }
        RaftCall::Vote(_) | RaftCall::PreVote(_) | RaftCall::Transfer(_) if !raft.may_vote() => {
            Err("this node does not vote: no voter has accepted its start yet, one refuses its identity, or its own \
                 membership does not list it with its data directory"
                .to_owned())
        }
        RaftCall::Vote(rpc) => raft.vote(rpc).await.map(RaftAnswer::Vote),
        RaftCall::PreVote(rpc) => raft.pre_vote(rpc).await.map(RaftAnswer::PreVote),
        RaftCall::Transfer(rpc) => raft.transfer_leader(rpc).await.map(RaftAnswer::Transfer),
    }
}
