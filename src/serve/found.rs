//! Founding a cluster, once it is sure that there is none yet.

use std::time::Duration;

use lockstead_client::api::ClusterAnswer;
use lockstead_client::{Client, ClientConfig, Endpoint};
use lockstead_raft::Replica;
use tokio::time::sleep;
use tracing::{info, warn};

use super::Addresses;
use crate::exit::{Exit, Failure, say};

const POLL: Duration = Duration::from_millis(200);
/// How long one node may take to say what it knows.
pub(super) const ASK: Duration = Duration::from_secs(1);

/// What another address says about founding.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Says {
    /// It belongs to no cluster and founds none.
    Empty,
    /// It is this very node.
    Myself,
    /// It belongs to a cluster.
    Member(String),
    /// It is about to found one too.
    FoundsToo,
    /// It does not answer.
    Nothing(String),
}

/// Founds a cluster.
pub(super) async fn found(replica: &Replica, node_id: u64) -> Result<(), Failure> {
    replica.bootstrap().await.map_err(|error| Failure::new(Exit::IdentityRefused, error))?;
    info!(node_id, "founded a cluster");
    Ok(())
}

/// Says so if nobody is there to be asked.
pub(super) fn warn_if_nobody_is_asked(others: &[Endpoint]) {
    if others.is_empty() {
        say(&asks_nobody("anybody"));
    }
}

fn asks_nobody(whom: &str) -> String {
    format!(
        "founding a cluster without asking {whom}: if this is a first node that lost its data, stop it and start it with \
         --join, naming the others"
    )
}

/// Waits until every other address has said that it belongs to no cluster; says so if all are this very node.
pub(super) async fn ask_everybody(
    replica: &Replica,
    node_id: u64,
    addresses: &Addresses,
    others: &[Endpoint],
) -> Result<(), Failure> {
    replica.announce_bootstrap();
    let client = Client::new(others.to_vec(), ClientConfig { timeout: ASK });
    loop {
        let mut own = 0;
        for other in others {
            own += usize::from(until_empty(&client, other, node_id, &addresses.peer).await? == Says::Myself);
        }
        // The first of them may have joined another cluster while the last was waited for.
        if all_empty(&client, others, node_id, &addresses.peer).await? {
            if own > 0 && own == others.len() {
                say(&asks_nobody("anybody but itself"));
            }
            return Ok(());
        }
    }
}

/// Whether all of them answer, one right after the other, that they belong to no cluster.
async fn all_empty(client: &Client, others: &[Endpoint], node_id: u64, peer: &str) -> Result<bool, Failure> {
    for other in others {
        match ask(client, other, node_id, peer).await {
            Says::Empty | Says::Myself => {}
            says @ (Says::Member(_) | Says::FoundsToo) => return Err(refusal(other, &says)),
            Says::Nothing(_) => return Ok(false),
        }
    }
    Ok(true)
}

async fn ask(client: &Client, other: &Endpoint, node_id: u64, peer: &str) -> Says {
    match client.cluster_at(other, ASK).await {
        Ok(reply) => reading(&reply.outcome, node_id, peer),
        Err(error) => Says::Nothing(error.to_string()),
    }
}

/// Asks one address until it says that it belongs to no cluster; one line per change of what it says.
async fn until_empty(client: &Client, other: &Endpoint, node_id: u64, peer: &str) -> Result<Says, Failure> {
    let mut last = None;
    loop {
        let says = ask(client, other, node_id, peer).await;
        if last.as_ref() != Some(&says) {
            tell(other, &says);
        }
        match says {
            Says::Empty | Says::Myself => return Ok(says),
            Says::Member(_) | Says::FoundsToo => return Err(refusal(other, &says)),
            Says::Nothing(_) => last = Some(says),
        }
        sleep(POLL).await;
    }
}

fn reading(cluster: &ClusterAnswer, node_id: u64, peer: &str) -> Says {
    match &cluster.cluster_id {
        Some(cluster_id) => Says::Member(cluster_id.clone()),
        None if cluster.node_id == node_id && cluster.peer == peer => Says::Myself,
        None if cluster.bootstrapping => Says::FoundsToo,
        None => Says::Empty,
    }
}

fn tell(other: &Endpoint, says: &Says) {
    match says {
        Says::Nothing(why) => warn!("founding waits for {other}, which does not answer: {why}"),
        Says::Empty => info!("{other} belongs to no cluster"),
        Says::Myself => info!("{other} is this node itself"),
        Says::Member(_) | Says::FoundsToo => {}
    }
}

fn refusal(other: &Endpoint, says: &Says) -> Failure {
    let why = match says {
        Says::Member(cluster_id) => format!(
            "{other} belongs to cluster {cluster_id} already. A node that lost its data joins under a new id \
             and at new addresses: --node-id N --listen … --peer-listen … --join {}, without --bootstrap",
            other.authority()
        ),
        _ => format!("{other} is about to found a cluster too: give --bootstrap to one node only"),
    };
    Failure::new(Exit::IdentityRefused, format!("no cluster was founded: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cluster_id: &str, node_id: u64, peer: &str, bootstrapping: bool, expected: &Says) {
        let answer = format!(
            r#"{{"cluster_id":{cluster_id},"node_id":{node_id},"peer":"{peer}","bootstrapping":{bootstrapping},
            "leader":null,"term":0,"last_log":0,"committed":0,"applied":0,"lease_ms":0,"failures_tolerated":0,
            "snapshot":null,"tail":{{"entries":0,"bytes":0}},"live_records":0,"disk_bytes":0,"members":[]}}"#
        );
        assert_eq!(reading(&serde_json::from_str(&answer).unwrap(), 1, "me:1"), *expected);
    }

    #[test]
    fn only_an_empty_node_that_founds_nothing_lets_another_found() {
        check("null", 2, "h:2", false, &Says::Empty);
        check("null", 2, "h:2", true, &Says::FoundsToo);
        check("\"c\"", 2, "h:2", false, &Says::Member("c".into()));
    }

    #[test]
    fn a_node_knows_itself_by_id_and_address() {
        check("null", 1, "me:1", true, &Says::Myself);
        check("null", 1, "other:1", true, &Says::FoundsToo);
    }
}
