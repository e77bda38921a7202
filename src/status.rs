//! `lockstead status`.

use lockstead_client::api::{ClusterAnswer, MemberBody, MemberRole};
use lockstead_client::{CallError, Client, Reply};

use crate::args::StatusArgs;
use crate::calls::{block_on, client, print, print_refusal, until_signal};
use crate::exit::{Exit, Failure};
use crate::text::{length_ms, plain};

const HEADINGS: [&str; 7] = ["node", "role", "reachable", "lag", "api", "peer", "version"];

/// Shows the cluster.
pub(crate) fn run(args: &StatusArgs) -> Result<Exit, Failure> {
    block_on(async {
        let client = client(&args.reach);
        let call = async { view(&client).await.map_err(|error| print_refusal(error, &args.reach)) };
        let reply = until_signal(call).await?;
        if args.reach.json {
            print(&reply.body)?;
        } else {
            print(description(&reply.outcome).as_bytes())?;
        }
        Ok(Exit::Done)
    })
}

/// The leader's view if it can be had, since only the leader knows how far the others are.
async fn view(client: &Client) -> Result<Reply<ClusterAnswer>, CallError> {
    let first = client.cluster().await?;
    match first.outcome.leader {
        // By now the client knows the leader's address.
        Some(leader) if leader != first.outcome.node_id => Ok(client.cluster().await.unwrap_or(first)),
        Some(_) | None => Ok(first),
    }
}

fn description(cluster: &ClusterAnswer) -> String {
    let Some(cluster_id) = &cluster.cluster_id else {
        return format!("node {} belongs to no cluster yet", cluster.node_id);
    };
    let leader = cluster.leader.map_or_else(|| "none known".to_owned(), |id| format!("node {id}"));
    let rows = std::iter::once(HEADINGS.map(str::to_owned)).chain(cluster.members.iter().map(row));
    format!(
        "cluster {} as node {} sees it\nleader {leader}, term {}, applied {} of {}, lease time {}, live records {}, tolerates {} failed\n\n{}",
        plain(cluster_id),
        cluster.node_id,
        cluster.term,
        cluster.applied,
        cluster.last_log,
        length_ms(cluster.lease_ms),
        cluster.live_records,
        cluster.failures_tolerated,
        table(&rows.collect::<Vec<_>>()),
    )
}

fn row(member: &MemberBody) -> [String; HEADINGS.len()] {
    let role = match member.role {
        MemberRole::Leader => "leader",
        MemberRole::Follower => "follower",
        MemberRole::Learner => "learner",
    };
    let reachable = match member.reachable {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    };
    let lag = member.lag.map_or_else(|| "?".to_owned(), |lag| lag.to_string());
    let (api, peer, version) = (plain(&member.api), plain(&member.peer), plain(&member.version));
    [member.id.to_string(), role.to_owned(), reachable.to_owned(), lag, api, peer, version]
}

/// Columns as wide as their widest cell, two spaces apart.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells: Vec<_> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned() {
        let rows = [["node", "role"], ["1", "leader"], ["12345", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "node   role\n1      leader\n12345");
    }
}
