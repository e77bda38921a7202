//! How a node with an empty directory comes to a cluster.

use std::time::Duration;

use lockstead_raft::{JoinError, Replica};
use tokio::time::sleep;
use tracing::{info, warn};

use super::{Addresses, found, join, restore};
use crate::config::{Entry, NodeConfig};
use crate::exit::{Exit, Failure};

const POLL: Duration = Duration::from_millis(50);

/// Founds or joins a cluster; a node that belongs to one already has nothing to do.
pub(super) async fn enter(replica: &Replica, config: &NodeConfig, addresses: &Addresses) -> Result<(), Failure> {
    if replica.is_initialised() {
        return match &config.entry {
            Entry::Restore(..) => restore::must_be_done(replica),
            Entry::Found(_) | Entry::Join(..) | Entry::Standby | Entry::Unsaid => Ok(()),
        };
    }
    match &config.entry {
        Entry::Found(others) => {
            found::warn_if_nobody_is_asked(others);
            found::ask_everybody(replica, config.node_id, addresses, others).await?;
            found::found(replica, config.node_id).await
        }
        Entry::Restore(others, restoring) => {
            let backup = restoring.backup.as_ref().map_err(Failure::usage)?;
            found::ask_everybody(replica, config.node_id, addresses, others).await?;
            restore::restore(replica, backup, restoring.lineage).await?;
            found::warn_if_nobody_is_asked(others);
            Ok(())
        }
        Entry::Join(members, join_as) => join::join(replica, addresses, members, *join_as).await,
        Entry::Standby => until_added(replica, config.node_id, addresses).await,
        Entry::Unsaid if replica.knows_members() => {
            warn!(
                "it was to become a voter and is a learner: give it its vote with lockstead member promote {}",
                config.node_id
            );
            Ok(())
        }
        Entry::Unsaid => Err(Failure::usage(format!(
            "the data directory {} belongs to no cluster: give --join HOST:PORT,… to join one, --standby to be added to one, \
             or --bootstrap to found one",
            config.data_dir.display()
        ))),
    }
}

/// The leader brings the membership to a node that was added. A node that lost its directory is told so.
async fn until_added(replica: &Replica, node_id: u64, Addresses { api, peer }: &Addresses) -> Result<(), Failure> {
    info!("waiting to be added: lockstead member add {node_id} --peer {peer} --api {api}");
    while !replica.knows_members() {
        if let Some(why) = replica.was_member() {
            return Err(Failure::new(Exit::IdentityRefused, JoinError::Refused(why.to_owned())));
        }
        sleep(POLL).await;
    }
    Ok(())
}
