//! One call of a member to the leader: restate every live record, so that a snapshot can reach what the log holds now.

use std::io;
use std::time::Duration;

use lockstead_core::NodeId;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::dial::{DialError, Dialer};
use super::hello::Purpose;
use crate::types::Member;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RestateCall {
    /// How long the caller waits, in milliseconds.
    pub(crate) time_left_ms: u64,
}

/// Every live record has been restated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Restated {
    /// No live record was stated last at or before this log index.
    pub(crate) upto: u64,
    /// On every node that has applied so far.
    pub(crate) applied: u64,
}

/// What a member answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RestateAnswer {
    /// It is done.
    Restated(Restated),
    /// It goes on.
    NotInTime,
    /// The member asked does not lead, or no longer.
    NotLeader,
}

/// Why a call has no answer. Repeating it is harmless.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestateCallError {
    /// Nobody was reached.
    #[error(transparent)]
    NotSent(#[from] DialError),
    /// The connection broke, or no answer came in time.
    #[error(transparent)]
    Lost(#[from] io::Error),
}

/// Asks a member, in `time_max` at most.
///
/// # Errors
/// [`RestateCallError`].
pub(crate) async fn ask_to_restate(
    dialer: &Dialer,
    node_id: NodeId,
    member: &Member,
    time_max: Duration,
) -> Result<RestateAnswer, RestateCallError> {
    let mut connection = dialer.dial(node_id, member, Purpose::Restate, time_max).await?;
    let time_left_ms = u64::try_from(time_max.as_millis()).unwrap_or(u64::MAX);
    let exchange = async {
        connection.send(&RestateCall { time_left_ms }).await?;
        connection.receive().await
    };
    Ok(timeout(time_max, exchange).await.map_err(io::Error::from)??)
}
