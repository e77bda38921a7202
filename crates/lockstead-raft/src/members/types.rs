//! What is asked and answered about the membership.

use std::fmt;
use std::str::FromStr;

use lockstead_core::{ClusterId, NodeId};
use serde::{Deserialize, Serialize};

use crate::peer::JoinAnswer;
use crate::types::LogId;

/// The log id of a membership: it changes whenever the membership does, and each time that a member is started again.
///
/// Shown and parsed as `<term>-<index>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembershipId {
    /// The term of its leader.
    pub term: u64,
    /// Its log index.
    pub index: u64,
}

/// A text that is no membership's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a membership's id is <term>-<index>")]
pub struct MembershipIdError;

impl MembershipId {
    pub(crate) fn of(log_id: &LogId) -> Self {
        Self { term: log_id.committed_leader_id().term, index: log_id.index() }
    }
}

impl fmt::Display for MembershipId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.term, self.index)
    }
}

impl FromStr for MembershipId {
    type Err = MembershipIdError;

    fn from_str(text: &str) -> Result<Self, MembershipIdError> {
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        };
        let (term, index) = text.split_once('-').ok_or(MembershipIdError)?;
        Ok(Self { term: number(term).ok_or(MembershipIdError)?, index: number(index).ok_or(MembershipIdError)? })
    }
}

/// A change of the membership, or of who leads. Repeating one that has taken effect changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberChange {
    /// Take a node in as a learner: it runs at `peer`, under this id, with an empty data directory.
    Add {
        /// Its id.
        id: NodeId,
        /// Where peers reach it.
        peer: String,
        /// Where clients reach it.
        api: String,
    },
    /// Reach a member at other addresses from now on.
    Move {
        /// Its id.
        id: NodeId,
        /// Where peers reach it.
        peer: String,
        /// Where clients reach it.
        api: String,
    },
    /// End a node's membership for good.
    Remove {
        /// Its id.
        id: NodeId,
    },
    /// Let a learner that has caught up vote.
    Promote {
        /// Its id.
        id: NodeId,
    },
    /// Make a voter a learner.
    Demote {
        /// Its id.
        id: NodeId,
    },
    /// Hand leadership over.
    Lead {
        /// To whom; `None`: to whoever is best.
        to: Option<NodeId>,
    },
}

/// A change as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRequest {
    /// The change.
    pub change: MemberChange,
    /// Only if the membership is still this one.
    pub if_match: Option<MembershipId>,
    /// How long to wait for the node to be there, or to catch up, in milliseconds.
    pub wait_ms: u64,
    /// Do it although the quorum would be lost: the id of the cluster, so that nobody forces the wrong one.
    pub force: Option<ClusterId>,
}

/// What a node still lacks of the leader's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToGo {
    /// Entries.
    pub entries: u64,
    /// Bytes, estimated from the mean of the log's entries.
    pub bytes: u64,
}

/// A change that has taken effect, now or before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReply {
    /// The membership now.
    pub membership: MembershipId,
    /// This very request has changed something; or may have, if an answer to it was lost on its way.
    pub changed: bool,
    /// Who leads now.
    pub leader: NodeId,
    /// What the node added still lacks.
    pub to_go: Option<ToGo>,
    /// What the operator should know of the new membership.
    pub warning: Option<String>,
}

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum MemberRefusal {
    /// Too few of the voters that would be left answer now.
    #[error("the cluster would lose its quorum: {0}")]
    WouldLoseQuorum(String),
    /// The node lacks entries of the log, or cannot be asked whether it does.
    #[error("the node has not caught up: {text}")]
    NotCaughtUp {
        /// In which way.
        text: String,
        /// How much it lacks, if that is known.
        to_go: Option<ToGo>,
    },
    /// Another change is under way.
    #[error("another change of the membership is in progress")]
    ChangeInProgress,
    /// The id belongs, or belonged, to another node.
    #[error("{0}")]
    NodeIdReused(String),
    /// Another member has one of the addresses.
    #[error("{0}")]
    AddressInUse(String),
    /// The node was not found where it should be.
    #[error("{0}")]
    NodeUnreachable(String),
    /// The membership is not the one that the caller means.
    #[error("the membership is {now} by now")]
    MembershipChanged {
        /// The membership now.
        now: MembershipId,
    },
    /// No member has, or had, this id.
    #[error("node {0} is not a member of this cluster")]
    UnknownNode(NodeId),
    /// The cluster id that was to force the change is another cluster's.
    #[error("force must be the id of this cluster, {0}")]
    WrongCluster(ClusterId),
    /// The node wants to be reached at another address than the one given: it would not run there.
    #[error("{kind} must be {advertised}, which node {id} advertises")]
    AddressDiffers {
        /// The node.
        id: NodeId,
        /// Which of its addresses.
        kind: AddressKind,
        /// What it is.
        advertised: String,
    },
}

/// One of the two addresses of a member, by its field in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressKind {
    /// Where peers reach it.
    Peer,
    /// Where clients reach it.
    Api,
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer => "peer",
            Self::Api => "api",
        })
    }
}

/// A change that brought no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum MemberError {
    /// It was refused: nothing was changed.
    #[error("{0}")]
    Refused(#[from] MemberRefusal),
    /// No leader with a quorum answered in time. Nothing was changed.
    #[error("no leader with a quorum answered in time; nothing was changed")]
    NoLeader,
    /// It may or may not have taken effect. Repeat it: what has taken effect is answered with success.
    #[error("the change may or may not have taken effect")]
    OutcomeUnknown,
}

/// What a node says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    /// Its table is the state of a moment.
    pub(crate) complete: bool,
    /// It may vote and stand for election: a peer has accepted its start, and none doubts its identity.
    pub(crate) votes: bool,
}

/// What a member answers to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MembersAnswer {
    /// About itself.
    Status(NodeStatus),
    /// What became of an announcement.
    Announced(JoinAnswer),
    /// What became of a change.
    Changed(Result<MemberReply, MemberError>),
    /// It does not lead (any more), and has done nothing; ask whoever does.
    NotLeader,
    /// It has handed leadership over because of this change; ask whoever leads now.
    HandedOver,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_membership_is_named_by_its_log_id() {
        let id = MembershipId { term: 3, index: 17 };
        assert_eq!(id.to_string(), "3-17");
        assert_eq!("3-17".parse(), Ok(id));
        for text in ["", "3", "3-", "-17", "3-17-1", "+3-17", "3-0x1", " 3-17", "99999999999999999999-1"] {
            assert_eq!(text.parse::<MembershipId>(), Err(MembershipIdError), "{text}");
        }
    }
}
