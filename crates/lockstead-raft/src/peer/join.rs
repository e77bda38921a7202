//! Joining: one call of a new node to a member.

use std::io;
use std::time::Duration;

use lockstead_core::{ClusterId, Incarnation, NodeId};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::dial::{DialError, Dialer};
use super::hello::{Purpose, RefusedWhy};
use crate::types::Member;

/// What a new node asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JoinCall {
    /// Its id.
    pub(crate) node_id: NodeId,
    /// Its data directory.
    pub(crate) incarnation: Incarnation,
    /// How the membership shall name it.
    pub(crate) member: Member,
    /// What is asked.
    pub(crate) step: JoinStep,
}

/// The steps of joining. Repeating one is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JoinStep {
    /// Take the node in as a learner.
    Add,
    /// Make the learner a voter, if it has caught up.
    Promote,
}

/// What a member answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JoinAnswer {
    /// The node is a member.
    Accepted {
        /// Of this lineage.
        cluster: ClusterId,
    },
    /// The node is a voter.
    Promoted,
    /// The learner has not caught up yet.
    NotCaughtUp,
    /// The member asked does not lead.
    NotLeader {
        /// Where the leader's peers reach it, as the member knows.
        leader_peer: Option<String>,
    },
    /// Never: the node was a member and was removed.
    Removed {
        /// Why.
        text: String,
    },
    /// Never.
    Refused {
        /// Why.
        text: String,
    },
    /// Not now.
    TryAgain {
        /// Why.
        text: String,
    },
}

/// Asks the node at a peer address. A refusal for good, already at the hello, is [`JoinAnswer::Refused`].
///
/// # Errors
/// Nobody answered in `time_max`, or the connection broke: whether the step was taken is unknown, so repeat it.
pub(crate) async fn ask_to_join(
    dialer: &Dialer,
    peer_address: &str,
    call: &JoinCall,
    time_max: Duration,
) -> io::Result<JoinAnswer> {
    timeout(time_max, ask(dialer, peer_address, call, time_max)).await?
}

async fn ask(dialer: &Dialer, peer_address: &str, call: &JoinCall, time_max: Duration) -> io::Result<JoinAnswer> {
    match dialer.dial_at(peer_address, None, Purpose::Join, time_max).await {
        Ok((mut connection, _)) => {
            connection.send(call).await?;
            connection.receive().await
        }
        Err(DialError::Io(error)) => Err(error),
        Err(DialError::Stranger(text)) => Err(io::Error::other(text)),
        Err(DialError::Refused { why, text }) => Ok(refused(why, text)),
    }
}

fn refused(why: RefusedWhy, text: String) -> JoinAnswer {
    match why {
        RefusedWhy::Storage | RefusedWhy::WrongNode | RefusedWhy::Itself => JoinAnswer::TryAgain { text },
        RefusedWhy::Removed => JoinAnswer::Removed { text },
        RefusedWhy::Protocol
        | RefusedWhy::WrongCluster
        | RefusedWhy::WrongIncarnation
        | RefusedWhy::OldStart
        | RefusedWhy::SecondProcess => JoinAnswer::Refused { text },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::fakes::{FakeNode, card, dialer, serve};

    fn call(node_id: NodeId) -> JoinCall {
        let incarnation = card(node_id).incarnation;
        JoinCall { node_id, incarnation, member: Member { incarnation, ..Member::default() }, step: JoinStep::Add }
    }

    #[tokio::test]
    async fn a_node_without_a_cluster_asks_and_is_answered() {
        let node = serve(FakeNode::new(1, Some(ClusterId(7))).with_member(1)).await;
        let asked = ask_to_join(&dialer(3, None), &node.address(), &call(3), Duration::from_secs(5)).await;
        assert_eq!(asked.unwrap(), JoinAnswer::Accepted { cluster: ClusterId(7) });
        assert_eq!(node.service.joins(), [call(3)]);
    }

    #[tokio::test]
    async fn a_wiped_member_is_refused_for_good() {
        let node = FakeNode::new(1, Some(ClusterId(7))).with_member_incarnation(3, Incarnation(33));
        let node = serve(node).await;
        let asked = ask_to_join(&dialer(3, None), &node.address(), &call(3), Duration::from_secs(5)).await;
        assert!(matches!(asked.unwrap(), JoinAnswer::Refused { text } if text.contains("member with directory")));
        assert_eq!(node.service.joins(), []);
    }

    #[tokio::test]
    async fn nobody_there_is_an_error() {
        let asked = ask_to_join(&dialer(3, None), "127.0.0.1:1", &call(3), Duration::from_secs(5)).await;
        assert_eq!(asked.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
