//! A node that was wiped is not the node that it was.

use crate::harness::clock::{eventually, now, secs};
use crate::harness::cluster::Cluster;
use crate::harness::locker::{insist, take};

const IDENTITY_REFUSED: i32 = 13;

/// The wiped node never speaks for a cluster, as long as it runs.
fn must_found_nothing(cluster: &Cluster, wiped: u64, cluster_id: &str) {
    let api = cluster.api(wiped).patient_for(secs(1));
    assert!(!api.is_ready(), "a wiped node must not become ready");
    if let Ok(view) = api.cluster() {
        let seen = &view.body["cluster_id"];
        assert!(seen.is_null() || seen == cluster_id, "a second cluster: {view:?}");
        assert!(view.body["leader"].as_u64() != Some(wiped), "it leads: {view:?}");
    }
    if let Ok(answer) = api.acquire(&serde_json::json!({"name": "from the wiped node"})) {
        assert_eq!(answer.status, 503, "{answer:?}");
    }
}

#[test]
fn a_wiped_first_node_founds_nothing_beside_a_running_cluster() {
    let mut cluster = Cluster::start(3);
    let cluster_id = cluster.api(2).cluster().unwrap().string("cluster_id").to_owned();
    let held = take(&cluster.api(2), "L", secs(60));
    cluster.node(1).kill();
    cluster.node(1).wipe();
    cluster.node(1).start();
    let status = eventually("the wiped node ends by itself", secs(30), || {
        must_found_nothing(&cluster, 1, &cluster_id);
        (!cluster.node(1).is_running()).then(|| cluster.node(1).wait_for_exit(secs(1)))
    });
    assert_eq!(status.code(), Some(IDENTITY_REFUSED), "{}", cluster.node(1).output());
    let alive = cluster.apis_without(1);
    insist(&alive, secs(10), |api| api.renew("L", &held.token, 60_000)).must_be_ok();
    for api in alive {
        assert_eq!(api.cluster().unwrap().string("cluster_id"), cluster_id);
    }
}

#[test]
fn a_wiped_first_node_founds_nothing_while_the_others_are_silent() {
    let mut cluster = Cluster::start(3);
    let cluster_id = cluster.api(2).cluster().unwrap().string("cluster_id").to_owned();
    let held = take(&cluster.api(2), "L", secs(60));
    cluster.kill_all();
    cluster.node(1).wipe();
    cluster.node(1).start();
    let until = now() + secs(4);
    eventually("some time passes with nobody to ask", secs(10), || {
        must_found_nothing(&cluster, 1, &cluster_id);
        (now() > until).then_some(())
    });
    assert!(cluster.node(1).is_running(), "it waits for the others: {}", cluster.node(1).output());
    cluster.node(2).start();
    cluster.node(3).start();
    let alive = cluster.apis_without(1);
    let renewal = insist(&alive, secs(20), |api| api.renew("L", &held.token, 60_000));
    held.renewed(&renewal.must_be_ok());
    let status = cluster.node(1).wait_for_exit(secs(30));
    assert_eq!(status.code(), Some(IDENTITY_REFUSED), "{}", cluster.node(1).output());
}

#[test]
fn a_wiped_follower_does_not_vote_and_says_why() {
    let mut cluster = Cluster::start(3);
    let held = take(&cluster.api(1), "L", secs(60));
    cluster.node(3).kill();
    cluster.node(3).wipe();
    cluster.node(3).start();
    let status = cluster.node(3).wait_for_exit(secs(30));
    assert_eq!(status.code(), Some(IDENTITY_REFUSED), "{}", cluster.node(3).output());
    let alive = cluster.apis_without(3);
    insist(&alive, secs(10), |api| api.renew("L", &held.token, 60_000)).must_be_ok();
}

#[test]
fn a_directory_in_use_is_refused() {
    let cluster = Cluster::start(1);
    let node = cluster.nodes().next().unwrap();
    let free = crate::harness::ports::free_address;
    let mut twin = std::process::Command::new(crate::harness::node::LOCKSTEAD);
    twin.args(["serve", "--node-id", "1", "--bootstrap", "--data-dir"]).arg(&node.dir);
    twin.args(["--listen", &free().to_string(), "--peer-listen", &free().to_string()]);
    let output = twin.output().unwrap();
    assert_eq!(output.status.code(), Some(14), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    let holder = format!("pid {}", node.pid());
    assert!(said.contains(&holder) && said.contains("since 20"), "it names who holds the directory: {said}");
    cluster.must_work();
}

#[test]
fn a_member_started_at_other_addresses_is_told_where_the_cluster_looks_for_it() {
    let mut cluster = Cluster::start(1);
    let node = cluster.node(1);
    node.kill();
    let free = crate::harness::ports::free_address;
    let mut moved = std::process::Command::new(crate::harness::node::LOCKSTEAD);
    moved.args(["serve", "--node-id", "1", "--data-dir"]).arg(&node.dir);
    moved.args(["--listen", &free().to_string(), "--peer-listen", &free().to_string()]);
    let output = moved.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&node.api_address.to_string()), "{said}");
    node.start();
    cluster.wait_until_ready();
    cluster.must_work();
}
