//! Version 1 of the HTTP interface: JSON bodies, queries, error codes. Shared by server and client.
//!
//! Client side: the `…Body` types and [`GetQuery`] are written, the `…Answer` types and [`ErrorBody`] are read.
//! Server side: [`parse_acquire`] and its siblings turn bytes into what the core understands, checked once and for all;
//! the `…Answer` types are made from what the core answered.

mod answer;
mod error;
mod fields;
mod members;
mod parse;
mod query;
mod request;

pub use answer::{
    AcquireAnswer, ClusterAnswer, GetAnswer, HolderBody, LockMode, MemberBody, MemberRole, ReleaseAnswer, RenewAnswer,
    SnapshotAnswer, SnapshotBody, TailBody, WaiterBody,
};
pub use error::{ErrorBody, ErrorCode, ErrorDetail};
pub use members::{
    AddMemberBody, AddressesBody, AskedAddresses, AskedTerms, ChangeTerms, LeaderBody, MemberAnswer, ToGoBody,
    is_every_address, parse_add_member, parse_addresses, parse_if_match, parse_leader, parse_member_id, parse_terms,
};
pub use parse::{parse_acquire, parse_release, parse_renew};
pub use query::{Consistency, GetQuery};
pub use request::{AcquireBody, ReleaseBody, RenewBody, Secret};

/// The longest wait of one request, in milliseconds. Longer waits are the caller's loop.
pub const WAIT_MS_MAX: u64 = 300_000;
/// The most that a request may say it has already waited, in milliseconds: the largest integer exact in every JSON
/// reader.
pub const QUEUED_MS_MAX: u64 = (1 << 53) - 1;
/// How much longer than its `wait_ms` a request may take, in milliseconds, before it ends with an error.
pub const REQUEST_GRACE_MS: u64 = 5_000;

/// The highest node id: the largest integer exact in every JSON reader.
pub const NODE_ID_MAX: u64 = (1 << 53) - 1;

/// The path of acquire.
pub const ACQUIRE_PATH: &str = "/v1/locks/acquire";
/// The path of release.
pub const RELEASE_PATH: &str = "/v1/locks/release";
/// The path of renew.
pub const RENEW_PATH: &str = "/v1/locks/renew";
/// The path of get.
pub const GET_PATH: &str = "/v1/locks/get";
/// The path of the answering node's view of the cluster.
pub const CLUSTER_PATH: &str = "/v1/admin/cluster";
/// Where a node gives a backup.
pub const BACKUP_PATH: &str = "/v1/admin/backup";
/// Where a snapshot is asked for.
pub const SNAPSHOT_PATH: &str = "/v1/admin/snapshot";

/// Where members are added; below it, each member has its own path.
pub const MEMBERS_PATH: &str = "/v1/admin/members";
/// The path of one member.
pub const MEMBER_PATH: &str = "/v1/admin/members/{id}";
/// Where a learner is made a voter.
pub const PROMOTE_PATH: &str = "/v1/admin/members/{id}/promote";
/// Where a voter is made a learner.
pub const DEMOTE_PATH: &str = "/v1/admin/members/{id}/demote";
/// Where leadership is handed over.
pub const LEADER_PATH: &str = "/v1/admin/leader";

/// The header that names the leader, `http://host:port`, when it is known.
pub const LEADER_HEADER: &str = "lockstead-leader";
/// The header that names the cluster (the lineage), 32 hex digits, once the node has joined one.
pub const CLUSTER_HEADER: &str = "lockstead-cluster";
