//! One call of a member to a member about the membership.

use std::io;
use std::time::Duration;

use lockstead_core::NodeId;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::dial::{DialError, Dialer};
use super::frame::Connection;
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
    let link = MembersLink(dialer.dial(node_id, member, Purpose::Members, time_max).await?);
    Ok(timeout(time_max, link.ask(call)).await.map_err(io::Error::from)??)
}

/// The way to a member, on which nothing was asked yet.
pub(crate) struct MembersLink(Connection);

impl MembersLink {
    /// # Errors
    /// The member was not reached.
    pub(crate) async fn open(dialer: &Dialer, node_id: NodeId, member: &Member) -> Result<Self, MembersCallError> {
        Ok(Self(dialer.dial(node_id, member, Purpose::Members, dialer.dial_time_max()).await?))
    }

    /// Asks for a change. Whoever drops the future gives it up: the member does not begin it any more.
    ///
    /// # Errors
    /// It may have arrived.
    pub(crate) async fn change(
        self,
        request: MemberRequest,
        time_left_ms: u64,
    ) -> Result<MembersAnswer, MembersCallError> {
        Ok(self.ask(&MembersCall::Change { request, time_left_ms }).await?)
    }

    async fn ask(mut self, call: &MembersCall) -> io::Result<MembersAnswer> {
        self.0.send(call).await?;
        self.0.receive().await
    }
}

#[cfg(test)]
mod tests {
    use lockstead_core::ClusterId;

    use super::*;
    use crate::members::MemberChange;
    use crate::peer::fakes::{Asked, FakeNode, dialer, next, serve, within};

    #[tokio::test]
    async fn a_change_that_its_caller_has_given_up_is_not_begun_any_more() {
        let home = Some(ClusterId(7));
        let node = serve(FakeNode::new(1, home)).await;
        let mut asked = node.service.asked();
        let link = within(MembersLink::open(&dialer(2, home), 1, &node.member)).await.unwrap();
        let change = MemberChange::Remove { id: 3 };
        let request = MemberRequest { change, if_match: None, wait_ms: 0, force: None };
        let call = tokio::spawn(link.change(request, 5_000));
        assert!(matches!(next(&mut asked).await, Asked::Change));
        call.abort();
        assert!(matches!(next(&mut asked).await, Asked::ChangeGivenUp));
    }
}
