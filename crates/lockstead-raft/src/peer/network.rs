//! Raft calls to other nodes.
//!
//! openraft makes one network for appends, one for heartbeats and one for snapshots per target, and a new one for each
//! vote; each opens its own connection when it is first used. A call takes the connection out and puts it back once its
//! own answer has arrived: a call that fails or is dropped leaves none behind, so no later call can read its answer.
//! What it leaves is a connection that is still being opened, or was just opened: that takes longer than a call, and
//! openraft drops a heartbeat after the time between two.
//!
//! openraft keeps a network for as long as its node leads, so where the target is reached is looked up at each call.
//! What is connected elsewhere is left: a member that was moved is away until it is where it shall be, and counts as
//! that.

use std::future::Future;
use std::io;
use std::iter;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::Stream;
use lockstead_core::NodeId;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetworkFactory, RaftNetworkV2, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{EntryPayload, OptionalSend};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::dial::{DialError, Dialer};
use super::frame::{Connection, malformed};
use super::hello::Purpose;
use super::starts::Position;
use crate::types::{Entry, LogId, Member, Snapshot, SnapshotData, SnapshotMeta, TypeConfig, Vote};

/// The least time for an append: openraft's own (one heartbeat) would re-send whenever a follower's disk is slow, and
/// make it slower. Heartbeats, which tell whether the follower lives, go over another connection.
const APPEND_TIME_MIN: Duration = Duration::from_millis(500);
/// Of a call that is waited for as long as it is given time.
const PATIENT: Duration = Duration::MAX;
/// The least time for a snapshot, which the target writes and syncs before it answers.
const SNAPSHOT_TIME_MIN: Duration = Duration::from_secs(2);
/// Entries beyond these bytes are left to the next append.
const APPEND_BYTES_MAX: usize = 4 << 20;
/// What an entry may take beside its batch; memberships are counted as this.
const ENTRY_EXTRA_BYTES: usize = 256;
const BACKOFF: Duration = Duration::from_millis(50);

/// A call, under its number on the connection.
#[derive(Serialize, Deserialize)]
pub(super) enum RaftCall {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<TypeConfig>),
    PreVote(VoteRequest<TypeConfig>),
    Snapshot(SnapshotCall),
    Transfer(TransferLeaderRequest<TypeConfig>),
}

/// A whole snapshot.
#[derive(Serialize, Deserialize)]
pub(super) struct SnapshotCall {
    pub(super) vote: Vote,
    pub(super) meta: SnapshotMeta,
    #[serde(with = "snapshot_bytes")]
    pub(super) data: SnapshotData,
}

/// The answer, by the kind of the call.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum RaftAnswer {
    Append(AppendEntriesResponse<TypeConfig>),
    Vote(VoteResponse<TypeConfig>),
    PreVote(VoteResponse<TypeConfig>),
    Snapshot(SnapshotResponse<TypeConfig>),
    Transfer(TransferLeaderResponse<TypeConfig>),
}

/// A byte string at once; serde's own way for `Vec<u8>` goes byte by byte.
mod snapshot_bytes {
    use std::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(bytes)
            }
        }
        deserializer.deserialize_byte_buf(Bytes)
    }
}

/// What the membership in force says of a node.
type LookUp = dyn Fn(NodeId) -> Option<Member> + Send + Sync;

/// Makes the networks of one node. All clones look in one membership.
#[derive(Clone)]
pub(crate) struct PeerNetworkFactory {
    dialer: Dialer,
    look_up: Arc<OnceLock<Box<LookUp>>>,
}

impl PeerNetworkFactory {
    /// Networks that dial in the name of this node.
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self { dialer, look_up: Arc::default() }
    }

    /// From now on the networks made and to be made dial whom `look_up` names; only the first call counts. Without it,
    /// or for a node that it does not know, they dial whom they were made for.
    pub(crate) fn look_members_up(&self, look_up: impl Fn(NodeId) -> Option<Member> + Send + Sync + 'static) {
        self.look_up.get_or_init(|| Box::new(look_up));
    }

    fn in_force(&self, target: NodeId) -> Option<Member> {
        self.look_up.get().and_then(|look_up| look_up(target))
    }

    fn dial(&self, target: NodeId, to: (String, Member)) -> Dialing {
        let (dialer, member) = (self.dialer.clone(), to.1.clone());
        let opened = async move { dialer.dial(target, &member, Purpose::Raft, dialer.dial_time_max()).await };
        Dialing { to, opened: Mutex::new(Box::pin(opened)) }
    }
}

impl RaftNetworkFactory<TypeConfig> for PeerNetworkFactory {
    type Network = PeerNetwork;

    async fn new_client(&mut self, target: NodeId, node: &Member) -> PeerNetwork {
        PeerNetwork { factory: self.clone(), target, made_for: node.clone(), connection: None, dialing: None, calls: 0 }
    }
}

/// Calls to one node over at most one connection.
pub(crate) struct PeerNetwork {
    factory: PeerNetworkFactory,
    target: NodeId,
    /// What the membership said of the target when this was made.
    made_for: Member,
    /// Where it goes, and itself.
    connection: Option<(String, Connection)>,
    dialing: Option<Dialing>,
    calls: u64,
}

/// A connection to a member that is being opened.
struct Dialing {
    to: (String, Member),
    /// Never locked: a future that is [`Send`] alone may be part of what is [`Sync`] there.
    opened: Mutex<BoxFuture<'static, Result<Connection, DialError>>>,
}

/// Why a call has no answer.
enum CallError {
    Dial(DialError),
    Lost(io::Error),
    /// The target answers that it does not do this now.
    Remote(String),
}

impl PeerNetwork {
    /// One call, of which openraft may be tired after `turn` already.
    async fn call(&mut self, call: RaftCall, turn: Duration, time_max: Duration) -> Result<RaftAnswer, CallError> {
        match timeout(time_max, self.call_unlimited(call, turn)).await {
            Ok(answered) => answered,
            Err(elapsed) => Err(CallError::Lost(elapsed.into())),
        }
    }

    async fn call_unlimited(&mut self, call: RaftCall, turn: Duration) -> Result<RaftAnswer, CallError> {
        let begun = Instant::now();
        let (address, mut connection) = self.take_connection().await.map_err(CallError::Dial)?;
        // An answer takes a round trip, as at least the hello did: rather the whole of the next turn than none.
        if begun.elapsed() > turn / 2 {
            self.connection = Some((address, connection));
            return Err(CallError::Lost(io::Error::other("the connection was opened too late for this call")));
        }
        self.calls += 1;
        let promise = Promise::of(&call);
        let peer = connection.peer().cloned();
        let exchanged = exchange(&mut connection, self.calls, call);
        let overtaken = peer.as_ref().map(|peer| peer.overtaken().clone()).unwrap_or_default();
        let answered = overtaken.run_until_cancelled(exchanged).await;
        // What an overtaken process says does not count any more, also if it came in the same moment.
        let answered = answered.filter(|_| !overtaken.is_cancelled()).unwrap_or_else(|| Err(is_overtaken()));
        let answered = answered.map_err(CallError::Lost)?;
        self.connection = Some((address, connection));
        if let (Some(peer), Ok(answer)) = (&peer, &answered)
            && let Some(position) = promise.kept_by(answer)
        {
            peer.acknowledged(position);
        }
        answered.map_err(CallError::Remote)
    }

    async fn take_connection(&mut self) -> Result<(String, Connection), DialError> {
        let member = self.factory.in_force(self.target).unwrap_or_else(|| self.made_for.clone());
        let address = self.factory.dialer.address(self.target, &member).to_owned();
        let is_overtaken =
            |connection: &Connection| connection.peer().is_some_and(|peer| peer.overtaken().is_cancelled());
        match self.connection.take() {
            Some((there, connection)) if there == address && !is_overtaken(&connection) => Ok((there, connection)),
            _ => {
                let connection = self.dialed((address.clone(), member)).await?;
                Ok((address, connection))
            }
        }
    }

    /// Goes on with what an earlier call began, if it was to the same.
    async fn dialed(&mut self, to: (String, Member)) -> Result<Connection, DialError> {
        let begun = self.dialing.take().filter(|dialing| dialing.to == to);
        let dialing = self.dialing.insert(begun.unwrap_or_else(|| self.factory.dial(self.target, to)));
        let dialed = dialing.opened.get_mut().unwrap_or_else(PoisonError::into_inner).await;
        self.dialing = None;
        dialed
    }
}

fn is_overtaken() -> io::Error {
    io::Error::other("a later start of that node was accepted")
}

/// What a node will have on its disk once it has answered a call with success.
struct Promise {
    vote: Vote,
    last_log: Option<LogId>,
}

impl Promise {
    fn of(call: &RaftCall) -> Self {
        let (vote, last_log) = match call {
            RaftCall::Append(rpc) => (rpc.vote, rpc.entries.last().map(|entry| entry.log_id).or(rpc.prev_log_id)),
            RaftCall::Snapshot(call) => (call.vote, call.meta.last_log_id),
            RaftCall::Vote(rpc) | RaftCall::PreVote(rpc) => (rpc.vote, None),
            RaftCall::Transfer(rpc) => (*rpc.from_leader(), None),
        };
        Self { vote, last_log }
    }

    fn kept_by(&self, answer: &RaftAnswer) -> Option<Position> {
        let last_log = match answer {
            RaftAnswer::Append(AppendEntriesResponse::Success) => self.last_log,
            RaftAnswer::Append(AppendEntriesResponse::PartialSuccess(last_log)) => *last_log,
            RaftAnswer::Snapshot(response) if response.vote == self.vote => self.last_log,
            RaftAnswer::Vote(response) if response.vote_granted => None,
            _ => return None,
        };
        Some(Position::new(Some(&self.vote), last_log.as_ref()))
    }
}

async fn exchange(connection: &mut Connection, number: u64, call: RaftCall) -> io::Result<Result<RaftAnswer, String>> {
    connection.send(&(number, call)).await?;
    let (answers, answer): (u64, _) = connection.receive().await?;
    if answers != number {
        return Err(malformed(format!("an answer to call {answers} instead of {number}")));
    }
    Ok(answer)
}

impl From<CallError> for RPCError<TypeConfig> {
    /// openraft waits before it retries what is `Unreachable`, and retries a `NetworkError` at once.
    fn from(error: CallError) -> Self {
        match error {
            CallError::Dial(error) => Self::Unreachable(Unreachable::new(&error)),
            CallError::Lost(error) => Self::Network(NetworkError::new(&error)),
            CallError::Remote(text) => Self::Unreachable(Unreachable::from_string(text)),
        }
    }
}

fn unexpected(answer: &RaftAnswer) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(format!("an answer to another kind of call: {answer:?}")))
}

impl RaftNetworkV2<TypeConfig> for PeerNetwork {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        mut rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let sent_up_to = cut_to_size(&mut rpc.entries);
        let turn = option.hard_ttl();
        match self.call(RaftCall::Append(rpc), turn, turn.max(APPEND_TIME_MIN)).await? {
            RaftAnswer::Append(AppendEntriesResponse::Success) if sent_up_to.is_some() => {
                Ok(AppendEntriesResponse::PartialSuccess(sent_up_to))
            }
            RaftAnswer::Append(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    fn stream_append<S>(
        &mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<
        '_,
        Result<BoxStream<'_, Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>, RPCError<TypeConfig>>,
    >
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        stream_append_sequential(self, input, option)
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.call(RaftCall::Vote(rpc), PATIENT, option.hard_ttl()).await? {
            RaftAnswer::Vote(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.call(RaftCall::PreVote(rpc), PATIENT, option.hard_ttl()).await? {
            RaftAnswer::PreVote(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let call = RaftCall::Snapshot(SnapshotCall { vote, meta: snapshot.meta, data: snapshot.snapshot });
        let answer = tokio::select! {
            closed = cancel => return Err(StreamingError::Closed(closed)),
            answer = self.call(call, PATIENT, option.hard_ttl().max(SNAPSHOT_TIME_MIN)) => answer,
        };
        match answer.map_err(RPCError::from)? {
            RaftAnswer::Snapshot(response) => Ok(response),
            other => Err(unexpected(&other).into()),
        }
    }

    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.call(RaftCall::Transfer(rpc), PATIENT, option.hard_ttl()).await? {
            RaftAnswer::Transfer(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    fn backoff(&self) -> Option<Backoff> {
        Some(Backoff::new(iter::repeat(BACKOFF)))
    }
}

/// Drops the entries that would pass [`APPEND_BYTES_MAX`], the first never; tells the last one kept if any was dropped.
fn cut_to_size(entries: &mut Vec<Entry>) -> Option<LogId> {
    let mut bytes = 0;
    let fitting = entries.iter().take_while(|entry| {
        bytes += entry_bytes(entry);
        bytes <= APPEND_BYTES_MAX
    });
    let kept = fitting.count().max(1);
    if kept >= entries.len() {
        return None;
    }
    entries.truncate(kept);
    entries.last().map(|entry| entry.log_id)
}

fn entry_bytes(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(batch) => batch.0.len() + ENTRY_EXTRA_BYTES,
        EntryPayload::Blank | EntryPayload::Membership(_) => ENTRY_EXTRA_BYTES,
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
