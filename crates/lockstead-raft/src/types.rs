//! The types that openraft works with.

use std::fmt;
use std::sync::Arc;

use lockstead_core::{Applied, Incarnation, NodeId};
use openraft::impls::leader_id_std;
use serde::{Deserialize, Serialize};

/// What the membership says of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    /// Where its peers reach it, `host:port`.
    pub peer: String,
    /// Where clients reach it, `host:port`.
    pub api: String,
    /// The data directory it joined with.
    pub incarnation: Incarnation,
    /// The version of Lockstead that it runs.
    pub version: String,
    /// How often it was started on that directory, as far as it has told.
    pub starts: u64,
    /// Its process, a random number: tells two processes with one directory apart.
    pub process: u64,
}

impl Member {
    /// Whether both are reached at the same addresses.
    pub(crate) fn is_where(&self, other: &Self) -> bool {
        (&self.peer, &self.api) == (&other.peer, &other.api)
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.peer, self.incarnation)
    }
}

/// An encoded batch ([`lockstead_core::Batch`]): encoded once by the arbiter, carried as it is by log, wire and memory.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BatchBytes(#[serde(with = "shared_bytes")] pub(crate) Arc<[u8]>);

impl fmt::Debug for BatchBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BatchBytes({})", self.0.len())
    }
}

impl fmt::Display for BatchBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch of {} bytes", self.0.len())
    }
}

/// What applying an entry answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryApplied(pub(crate) Applied);

impl fmt::Display for EntryApplied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

openraft::declare_raft_types!(
    pub(crate) TypeConfig:
        D = BatchBytes,
        R = EntryApplied,
        NodeId = NodeId,
        Node = Member,
        Term = u64,
        LeaderId = leader_id_std::LeaderId<u64, NodeId>,
);

pub(crate) type Entry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<NodeId, Member>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
/// A snapshot's data as it travels and lies on disk: an encoded residue.
pub(crate) type SnapshotData = Vec<u8>;
pub(crate) type Snapshot = openraft::alias::SnapshotOf<TypeConfig, SnapshotData>;

pub(crate) type CommittedLeaderId = openraft::alias::CommittedLeaderIdOf<TypeConfig>;
pub(crate) type Raft = openraft::Raft<TypeConfig, crate::store::StateMachine>;
pub(crate) type RaftMetrics = openraft::RaftMetrics<TypeConfig>;
pub(crate) type ServerMetricsWatch =
    openraft::alias::WatchReceiverOf<TypeConfig, openraft::metrics::RaftServerMetrics<TypeConfig>>;

mod shared_bytes {
    use std::fmt;
    use std::sync::Arc;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &Arc<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[u8]>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Arc<[u8]>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Arc<[u8]>, E> {
                Ok(Arc::from(bytes))
            }

            fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Arc<[u8]>, E> {
                Ok(Arc::from(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Bytes)
    }
}
