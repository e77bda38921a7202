//! member list, add, promote, demote, remove, transfer.

use crate::harness::cluster::Cluster;
use crate::run::run;

#[test]
fn a_cluster_is_grown_and_shrunk_by_the_command_line() {
    let mut cluster = Cluster::start(1);
    let apis = cluster.apis();
    let id = cluster.start_standby();
    let (name, api) = (id.to_string(), cluster.api(id).address.to_string());
    let peer = cluster.node(id).peer_address().to_owned();
    let add = ["member", "add", &name, "--peer", &peer, "--api", &api, "--wait", "20s"];
    let added = run(&apis, &add).must_exit(0);
    assert!(added.only_line().starts_with(&format!("node {id} is a learner; leader node 1, membership ")), "{added:?}");
    assert!(run(&apis, &add).must_exit(0).stdout.contains("it was so already"));
    let promoted = run(&apis, &["member", "promote", &name, "--wait", "20s"]).must_exit(0);
    assert!(promoted.stdout.contains("votes") && promoted.stderr.contains("2 voters"), "{promoted:?}");
    let again = run(&apis, &add).must_exit(0);
    assert!(again.only_line().starts_with(&format!("node {id} is a voter (it was so already)")), "{again:?}");

    let listed = run(&apis, &["member", "list"]).must_exit(0);
    assert!(listed.stdout.contains(&api) && listed.stdout.contains("follower"), "{listed:?}");
    let json: serde_json::Value =
        serde_json::from_str(run(&apis, &["member", "list", "--json"]).must_exit(0).only_line()).unwrap();
    assert_eq!(json["members"].as_array().map(Vec::len), Some(2));

    let moved = run(&apis, &["member", "transfer", &name]).must_exit(0);
    assert!(moved.only_line().contains(&format!("leader node {id}")), "{moved:?}");
    run(&apis, &["member", "transfer", "1"]).must_exit(0);
    let stays = run(&apis, &["member", "transfer", "1"]).must_exit(0);
    assert!(stays.only_line().starts_with("node 1 leads already; leader node 1, membership "), "{stays:?}");
    let quoted = stays.only_line().split("membership ").nth(1).map(|membership| format!("\"{membership}\"")).unwrap();
    run(&apis, &["member", "transfer", "1", "--if-membership", &quoted]).must_exit(0);
    run(&apis, &["member", "demote", &name]).must_exit(0);
    run(&apis, &["member", "remove", &name]).must_exit(0);
    assert!(run(&apis, &["member", "remove", &name]).must_exit(0).stdout.contains("it was so already"));
}

#[test]
fn a_refusal_that_time_may_change_is_75_and_a_mistake_is_2() {
    let cluster = Cluster::start(1);
    let apis = cluster.apis();
    for (args, code, expected) in [
        (&["member", "remove", "1"][..], 75, "would_lose_quorum"),
        (
            &["member", "add", "2", "--peer", "127.0.0.1:1", "--api", "127.0.0.1:2", "--wait", "0s"],
            75,
            "node_unreachable",
        ),
        (&["member", "transfer"], 75, "there is no other voter"),
        (&["member", "promote", "9"], 2, "unknown_node"),
        (&["member", "demote", "1", "--if-membership", "latest"], 2, "TERM-INDEX"),
        (&["member", "demote", "1", "--if-membership", "1-1000"], 75, "would_lose_quorum"),
        (&["member", "remove", "9", "--force", "not an id"], 2, "force"),
        (&["member", "promote", "0"], 2, "1 to 9007199254740991"),
        (&["member", "add", "2"], 2, "--peer"),
    ] {
        let ran = run(&apis, args).must_exit(code);
        assert!(ran.stdout.is_empty() && ran.stderr.contains(expected), "{args:?}: {ran:?}");
    }
}
