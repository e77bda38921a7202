//! How a node with an empty directory comes to a cluster.

use lockstead_raft::Replica;

use super::{Addresses, found, join};
use crate::config::{Entry, NodeConfig};
use crate::exit::Failure;

/// Founds or joins a cluster; a node that belongs to one already has nothing to do.
pub(super) async fn enter(replica: &Replica, config: &NodeConfig, addresses: &Addresses) -> Result<(), Failure> {
    if replica.is_initialised() {
        return Ok(());
    }
    match &config.entry {
        Entry::Found(others) => found::found(replica, config.node_id, addresses, others).await,
        Entry::Join(members, join_as) => join::join(replica, addresses, members, *join_as).await,
        Entry::Unsaid => Err(Failure::usage(format!(
            "the data directory {} belongs to no cluster: give --join HOST:PORT,… to join one, or --bootstrap to found one",
            config.data_dir.display()
        ))),
    }
}
