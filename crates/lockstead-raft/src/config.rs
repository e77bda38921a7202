//! How a node runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lockstead_core::NodeId;

/// How a node runs.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// This node's id, from 1, never used by another node of the lineage.
    pub node_id: NodeId,
    /// Where its files are; made if missing.
    pub data_dir: PathBuf,
    /// Where peers reach it, `host:port`.
    pub advertise_peer: String,
    /// Where clients reach it, `host:port`.
    pub advertise_api: String,
    /// For tests: dial node N at this address instead of the one its membership names.
    pub peer_routes: BTreeMap<NodeId, String>,
    /// Milliseconds between heartbeats (50); longer than a round trip between any two nodes.
    pub heartbeat_ms: u64,
    /// Lower bound of the election timeout in milliseconds (150).
    pub election_min_ms: u64,
    /// Upper bound of the election timeout in milliseconds (300).
    pub election_max_ms: u64,
    /// While any live record exists, a batch is logged at least this often, in milliseconds (250).
    pub tick_ms: u64,
    /// The most live locks in the namespace `default` (1,000,000).
    pub locks_max: u64,
    /// A snapshot is taken once so many log entries could be purged behind it (100,000). Raising it lets the log grow
    /// longer between snapshots.
    pub snapshot_entries: u64,
    /// A snapshot is taken once so many bytes of log entries could be purged behind it (4 MiB); also the most that is
    /// kept for followers that lag. Raising it lets the log grow longer, and a node that was away longer catch up
    /// without a snapshot.
    pub snapshot_bytes: u64,
    /// A snapshot is taken after this time, in milliseconds, if anything could be purged behind it (600,000).
    pub snapshot_age_ms: u64,
    /// The most bytes of log that are kept for held locks (64 MiB), or twice what the held locks take, if that is more;
    /// beyond it the leader logs the oldest ones once more. Raising it spares writes, and makes a restart read more.
    pub tail_bytes_max: u64,
}

impl ReplicaConfig {
    /// The maximum election timeout.
    pub(crate) fn election_max(&self) -> Duration {
        Duration::from_millis(self.election_max_ms)
    }
}
