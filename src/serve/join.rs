//! Joining a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use lockstead_client::api::ClusterAnswer;
use lockstead_client::{Client, ClientConfig, Endpoint};
use lockstead_raft::{JoinAs, JoinError, Replica};
use tokio::time::sleep;
use tracing::info;

use super::Addresses;
use super::found::ASK;
use crate::exit::{Exit, Failure};

const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LONGEST: Duration = Duration::from_secs(2);

/// Asks the members found through `addresses` to take this node in, until they have or refuse it for good.
pub(super) async fn join(
    replica: &Replica,
    own: &Addresses,
    members: &[Endpoint],
    join_as: JoinAs,
) -> Result<(), Failure> {
    let client = Client::new(members.to_vec(), ClientConfig { timeout: ASK });
    let (mut pause, mut last) = (PAUSE_FIRST, String::new());
    loop {
        let why = match once(replica, &client, own, join_as).await {
            Ok(()) => return Ok(()),
            Err(JoinError::Refused(why)) => return Err(Failure::new(Exit::IdentityRefused, JoinError::Refused(why))),
            Err(JoinError::NotYet(why)) => why,
        };
        if why != last {
            info!("not joined yet: {why}");
            last = why;
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_LONGEST);
    }
}

async fn once(replica: &Replica, client: &Client, own: &Addresses, join_as: JoinAs) -> Result<(), JoinError> {
    let peers = peers(client, &own.peer).await?;
    replica.join(&peers, join_as).await
}

/// The peer addresses of the members that the first answering member knows.
async fn peers(client: &Client, own: &str) -> Result<Vec<String>, JoinError> {
    let mut why = Vec::new();
    for endpoint in client.endpoints() {
        match client.cluster_at(endpoint, ASK).await {
            Ok(reply) => match peers_in(&reply.outcome, own) {
                peers if peers.is_empty() => why.push(format!("{endpoint} belongs to no cluster yet")),
                peers => return Ok(peers),
            },
            Err(error) => why.push(error.to_string()),
        }
    }
    Err(JoinError::NotYet(why.join("; ")))
}

fn peers_in(cluster: &ClusterAnswer, own: &str) -> Vec<String> {
    if cluster.cluster_id.is_none() {
        return Vec::new();
    }
    let members = cluster.members.iter().map(|member| member.peer.as_str());
    let peers: BTreeSet<_> = members.chain([cluster.peer.as_str()]).filter(|peer| *peer != own).collect();
    peers.into_iter().map(str::to_owned).collect()
}
