//! Consensus under the lock table: the only crate that names openraft or sled.

mod config;
mod identity;
mod joining;
mod linger;
mod local_clock;
mod metrics;
mod node;
mod office;
mod offices;
mod peer;
mod platform;
mod replica;
mod router;
mod service;
mod start;
mod store;
mod term;
#[cfg(test)]
mod tests;
mod ticket;
mod types;
mod view;

pub use config::ReplicaConfig;
pub use replica::{BootstrapError, JoinAs, JoinError, NotReady, OpenError, Replica, Reply, StopReason, SubmitError};
pub use types::Member;
pub use view::{ClusterView, LeaderView, MemberView, Role, SnapshotView};
