//! Consensus under the lock table: the only crate that names openraft or sled.

mod backup;
mod compaction;
mod compaction_metrics;
mod complaints;
mod config;
mod identity;
mod joining;
mod leadership;
mod lineage;
mod linger;
mod local_clock;
mod members;
mod metrics;
mod node;
mod office;
mod offices;
mod peer;
mod plant;
mod platform;
mod reach;
mod readiness;
mod recover;
mod replica;
mod restating;
mod restore;
mod router;
mod service;
mod snapshot_now;
mod standing;
mod start;
mod store;
mod term;
#[cfg(test)]
mod tests;
mod ticket;
mod types;
mod verdict;
mod view;

pub use backup::{Backup, BackupError, BackupMember};
pub use config::ReplicaConfig;
pub use identity::has_node;
pub use lineage::{Begun, LineageError, NewLineage};
pub use members::{
    AddressKind, MemberChange, MemberError, MemberRefusal, MemberReply, MemberRequest, MembershipId, ToGo,
};
pub use recover::{RecoverError, Recovered, recover};
pub use replica::{BootstrapError, JoinAs, JoinError, NotReady, OpenError, Replica, Reply, StopReason, SubmitError};
pub use restore::RestoreError;
pub use snapshot_now::{SnapshotError, SnapshotTaken};
pub use types::Member;
pub use view::{ClusterView, LeaderView, MemberView, Role, SnapshotView};
