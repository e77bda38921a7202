//! How a node runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

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
    /// Milliseconds between heartbeats (50).
    pub heartbeat_ms: u64,
    /// Lower bound of the election timeout in milliseconds (150).
    pub election_min_ms: u64,
    /// Upper bound of the election timeout in milliseconds (300).
    pub election_max_ms: u64,
    /// While any live record exists, a batch is logged at least this often, in milliseconds (250).
    pub tick_ms: u64,
    /// The most live locks in the namespace `default` (1,000,000).
    pub locks_max: u64,
}
