//! One call of a member to a member about the membership.

use std::io;
use std::time::Duration;

use lockstead_core::NodeId;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::dial::{DialError, Dialer};
use super::hello::Purpose;
use crate::members::{MemberRequest, MembersAnswer};
use crate::types::Member;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MembersCall {
    /// How are you?
    Status,
    /// Record this newest start and version of a member.
    Announce {
        /// Which member.
        node_id: NodeId,
        /// What it says of itself.
        member: Member,
    },
    /// Make a change.
    Change {
        /// Which.
        request: MemberRequest,
        /// How long its caller still waits, in milliseconds.
        time_left_ms: u64,
    },
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MembersCallError {
    /// Nothing of it was sent.
    #[error("{0}")]
    NotSent(#[from] DialError),
    /// It may have arrived.
    #[error("{0}")]
    Lost(#[from] io::Error),
}

/// Asks a member, in `time_max` at most.
///
/// # Errors
/// [`MembersCallError`].
pub(crate) async fn ask_about_members(
    dialer: &Dialer,
    node_id: NodeId,
    member: &Member,
    call: &MembersCall,
    time_max: Duration,
) -> Result<MembersAnswer, MembersCallError> {
    let mut connection = dialer.dial(node_id, member, Purpose::Members, time_max).await?;
    let exchange = async {
        connection.send(call).await?;
        connection.receive().await
    };
    Ok(timeout(time_max, exchange).await.map_err(io::Error::from)??)
}
