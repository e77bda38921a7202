//! `lockstead status`.

use lockstead_client::api::{ClusterAnswer, MemberBody, MemberRole};
use lockstead_client::{CallError, Client, Reply};

use crate::args::{Reach, StatusArgs};
use crate::calls::{block_on, client, print, print_refusal, until_signal};
use crate::exit::{Exit, Failure};
use crate::text::{length_ms, plain};

const HEADINGS: [&str; 8] = ["node", "role", "reachable", "matched", "lag", "api", "peer", "version"];

/// Shows the cluster.
pub(crate) fn run(args: &StatusArgs) -> Result<Exit, Failure> {
    show(&args.reach, description)
}

/// Prints what `describe` makes of the cluster, or with `--json` the answer as it came.
pub(crate) fn show(reach: &Reach, describe: impl Fn(&ClusterAnswer) -> String) -> Result<Exit, Failure> {
    block_on(async {
        let client = client(reach);
        let call = async { view(&client).await.map_err(|error| print_refusal(error, reach)) };
        let reply = until_signal(call).await?;
        if reach.json {
            print(&reply.body)?;
        } else {
            print(describe(&reply.outcome).as_bytes())?;
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
    let Some(cluster_id) = &cluster.cluster_id else { return no_cluster(cluster) };
    let snapshot = cluster
        .snapshot
        .map_or_else(|| "none".to_owned(), |snapshot| format!("at {} ({})", snapshot.index, bytes(snapshot.bytes)));
    let facts = [
        ("cluster", format!("{}, as node {} sees it", plain(cluster_id), cluster.node_id)),
        ("leader", format!("{}, term {}", leader(cluster), cluster.term)),
        ("membership", cluster.membership.as_deref().map_or_else(|| "none known".to_owned(), plain)),
        ("health", health(cluster)),
        ("held", format!("{} records, lease time {}", cluster.live_records, length_ms(cluster.lease_ms))),
        ("log", format!("applied {} of {}, {} kept", cluster.applied, cluster.last_log, tail(cluster))),
        ("snapshot", snapshot),
        ("disk", bytes(cluster.disk_bytes)),
    ];
    let facts: Vec<_> = facts.into_iter().map(|(name, fact)| [name.to_owned(), fact]).collect();
    format!("{}\n\n{}", table(&facts), member_table(cluster))
}

/// The members alone.
pub(crate) fn members(cluster: &ClusterAnswer) -> String {
    match &cluster.membership {
        Some(membership) => {
            format!("membership {}, leader {}\n\n{}", plain(membership), leader(cluster), member_table(cluster))
        }
        None => no_cluster(cluster),
    }
}

fn no_cluster(cluster: &ClusterAnswer) -> String {
    format!("node {} belongs to no cluster yet", cluster.node_id)
}

fn leader(cluster: &ClusterAnswer) -> String {
    cluster.leader.map_or_else(|| "none known".to_owned(), |id| format!("node {id}"))
}

/// The one line that an operator looks for first.
fn health(cluster: &ClusterAnswer) -> String {
    let silent: Vec<_> = cluster.members.iter().filter(|member| member.reachable == Some(false)).collect();
    let does_not_answer = does_not_answer(&silent.iter().map(|member| member.id).collect::<Vec<_>>());
    let tolerates = match cluster.failures_tolerated {
        0 => "tolerates no failure".to_owned(),
        1 => "tolerates 1 failed voter".to_owned(),
        more => format!("tolerates {more} failed voters"),
    };
    match (cluster.leader, has_quorum(cluster), does_not_answer) {
        (None, ..) => "NO LEADER: nothing is granted or renewed".to_owned(),
        (Some(_), false, silent) => format!("NO QUORUM: nothing is granted or renewed; {}", silent.unwrap_or_default()),
        (Some(_), true, None) => tolerates,
        (Some(_), true, Some(silent)) => format!("{silent}; beside that the cluster {tolerates}"),
    }
}

/// Whether more than half of the voters answer, as far as the answering node knows: only the leader does.
fn has_quorum(cluster: &ClusterAnswer) -> bool {
    let voters: Vec<_> = cluster.members.iter().filter(|member| member.role != MemberRole::Learner).collect();
    let silent = voters.iter().filter(|voter| voter.reachable == Some(false)).count();
    silent == 0 || silent * 2 < voters.len()
}

fn does_not_answer(ids: &[u64]) -> Option<String> {
    let (last, others) = ids.split_last()?;
    let others: Vec<_> = others.iter().map(u64::to_string).collect();
    Some(if others.is_empty() {
        format!("node {last} DOES NOT ANSWER")
    } else {
        format!("nodes {} and {last} DO NOT ANSWER", others.join(", "))
    })
}

fn tail(cluster: &ClusterAnswer) -> String {
    format!("{} entries ({})", cluster.tail.entries, bytes(cluster.tail.bytes))
}

/// Bytes in the unit that leaves at most four digits.
fn bytes(bytes: u64) -> String {
    let (mut rest, mut units) = (bytes, ["KiB", "MiB", "GiB", "TiB"].iter());
    let mut unit = "B";
    while rest >= 10_240 {
        let Some(next) = units.next() else { break };
        (rest, unit) = (rest / 1_024, next);
    }
    format!("{rest} {unit}")
}

fn member_table(cluster: &ClusterAnswer) -> String {
    let rows = std::iter::once(HEADINGS.map(str::to_owned)).chain(cluster.members.iter().map(row));
    table(&rows.collect::<Vec<_>>())
}

fn row(member: &MemberBody) -> [String; HEADINGS.len()] {
    let role = match member.role {
        MemberRole::Leader => "leader",
        MemberRole::Follower => "follower",
        MemberRole::Learner => "learner",
    };
    let reachable = match (member.reachable, member.last_contact_ms) {
        (Some(true), _) => "yes".to_owned(),
        (Some(false), Some(ms)) => format!("no, for {}", length_ms(ms / 1_000 * 1_000)),
        (Some(false), None) => "no".to_owned(),
        (None, _) => "?".to_owned(),
    };
    let number = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let (api, peer, version) = (plain(&member.api), plain(&member.peer), plain(&member.version));
    let (matched, lag) = (number(member.matched), number(member.lag));
    [member.id.to_string(), role.to_owned(), reachable, matched, lag, api, peer, version]
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

    #[test]
    fn sizes_have_units() {
        let sizes = [0, 10_239, 10_240, 64 << 20, u64::MAX].map(bytes);
        assert_eq!(sizes, ["0 B", "10239 B", "10 KiB", "64 MiB", "16777215 TiB"]);
    }

    #[test]
    fn silent_nodes_are_named_in_a_sentence() {
        let expected = ["node 2 DOES NOT ANSWER", "nodes 2 and 3 DO NOT ANSWER", "nodes 2, 3 and 4 DO NOT ANSWER"];
        let said = [&[2][..], &[2, 3], &[2, 3, 4]].map(|ids| does_not_answer(ids).unwrap());
        assert_eq!(said, expected);
        assert_eq!(does_not_answer(&[]), None);
    }

    #[test]
    fn the_state_of_a_cluster_is_read_at_a_glance() {
        let mut cluster: ClusterAnswer = serde_json::from_str(
            r#"{"cluster_id":"c","node_id":1,"peer":"h1:2","bootstrapping":false,"leader":1,"term":3,"last_log":9,
            "committed":9,"applied":9,"lease_ms":61000,"failures_tolerated":0,"snapshot":null,
            "tail":{"entries":9,"bytes":900},"live_records":2,"disk_bytes":20480,"membership":"3-7","members":[
            {"id":1,"role":"leader","api":"h1:1","peer":"h1:2","incarnation":"i","version":"0.1.0","reachable":true,
             "last_contact_ms":0,"matched":9,"lag":0},
            {"id":2,"role":"follower","api":"h2:1","peer":"h2:2","incarnation":"i","version":"0.1.0","reachable":false,
             "last_contact_ms":61234,"matched":4,"lag":5}]}"#,
        )
        .unwrap();
        let expected = "\
cluster   c, as node 1 sees it
leader    node 1, term 3
membership 3-7
health    NO QUORUM: nothing is granted or renewed; node 2 DOES NOT ANSWER
held      2 records, lease time 1m 1s
log       applied 9 of 9, 9 entries (900 B) kept
snapshot  none
disk      20 KiB

node  role      reachable     matched  lag  api   peer  version
1     leader    yes           9        0    h1:1  h1:2  0.1.0
2     follower  no, for 1m 1s  4        5    h2:1  h2:2  0.1.0";
        let normal = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(normal(&description(&cluster)), normal(expected));
        cluster.members[1].role = MemberRole::Learner;
        assert_eq!(health(&cluster), "node 2 DOES NOT ANSWER; beside that the cluster tolerates no failure");
        cluster.leader = None;
        assert!(description(&cluster).contains("NO LEADER"));
        assert!(members(&cluster).starts_with("membership 3-7, leader none known\n"));
    }
}
