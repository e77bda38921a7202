//! A node that was wiped, copied, put back or removed is not the node that it was.

use std::fs;
use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use crate::harness::api::Api;
use crate::harness::clock::{eventually, now, secs};
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::locker::{Held, insist, take, take_from_any};
use crate::harness::node::Node;
use crate::harness::ports::free_address;
use crate::harness::proxy::Mode;

const DAMAGED: i32 = 10;
const REMOVED: i32 = 12;
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

/// Neither a silent member without what it acknowledged, nor a second founding.
#[test]
fn a_member_whose_log_was_removed_refuses_to_start_with_exit_10() {
    for nodes in [1, 3] {
        let mut cluster = Cluster::start(nodes);
        take(&cluster.api(1), "L", secs(60));
        for snapshot in [false, true] {
            if snapshot {
                insist(&[cluster.api(1)], secs(10), Api::snapshot).must_be_ok();
            }
            let kept = cluster.node(1).dir.with_extension("kept");
            cluster.node(1).kill();
            let log = cluster.node(1).dir.join("log");
            fs::rename(&log, &kept).unwrap();
            for start in ["at once", "and the next time"] {
                cluster.node(1).start();
                let status = cluster.node(1).wait_for_exit(secs(30));
                assert_eq!(status.code(), Some(DAMAGED), "{start}: {}", cluster.node(1).output());
            }
            fs::remove_dir_all(&log).unwrap();
            fs::rename(&kept, &log).unwrap();
            cluster.node(1).start();
            cluster.wait_until_ready();
        }
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
    cluster.each(&[2, 3], Node::start);
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

/// Copies a directory tree, as a backup of the file system would.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for item in std::fs::read_dir(from).unwrap() {
        let (item, to) = (item.as_ref().unwrap(), to.join(item.as_ref().unwrap().file_name()));
        if item.file_type().unwrap().is_dir() {
            copy(&item.path(), &to);
        } else {
            std::fs::copy(item.path(), to).unwrap();
        }
    }
}

/// A copy of a node's directory from while the node was down; the node is up again and goes on.
fn copy_while_down(cluster: &mut Cluster, id: u64) -> TempDir {
    let copied = TempDir::new().unwrap();
    cluster.node(id).kill();
    copy(&cluster.node(id).dir, copied.path());
    cluster.node(id).start();
    cluster.wait_until_ready();
    copied
}

/// A copy of a running node's directory: it and the original go on from the same start.
fn copy_while_up(cluster: &mut Cluster, id: u64) -> TempDir {
    let copied = TempDir::new().unwrap();
    cluster.node(id).freeze();
    copy(&cluster.node(id).dir, copied.path());
    cluster.node(id).thaw();
    copied
}

/// Puts a copy of the directory of a node that is down in its place.
fn put_back(copied: &TempDir, cluster: &mut Cluster, id: u64) {
    let dir = &cluster.node(id).dir;
    std::fs::remove_dir_all(dir).unwrap();
    copy(copied.path(), dir);
}

/// A lock is taken and renewed a few times, so that there is something to forget.
fn write_on(cluster: &Cluster, name: &str) -> Held {
    let apis = cluster.apis();
    let held = take_from_any(&apis, name, secs(60));
    for _ in 0..5 {
        insist(&apis, secs(10), |api| api.renew(name, &held.token, 60_000)).must_be_ok();
    }
    held
}

#[test]
fn an_older_copy_of_a_directory_does_not_vote_and_says_why() {
    let mut cluster = Cluster::start(3);
    let copied = copy_while_down(&mut cluster, 3);
    let held = write_on(&cluster, "L");
    cluster.node(3).kill();
    put_back(&copied, &mut cluster, 3);
    cluster.node(3).start();
    let status = cluster.node(3).wait_for_exit(secs(30));
    let output = cluster.node(3).output();
    assert_eq!(status.code(), Some(IDENTITY_REFUSED), "{output}");
    assert!(output.contains("another process has been node 3 at start"), "{output}");
    let alive = cluster.apis_without(3);
    insist(&alive, secs(10), |api| api.renew("L", &held.token, 60_000)).must_be_ok();
}

#[test]
fn an_older_copy_is_known_by_the_membership_after_every_node_was_started_again() {
    let mut cluster = Cluster::start(3);
    let copied = copy_while_down(&mut cluster, 3);
    eventually("the membership records the second start", secs(10), || {
        let view = cluster.api(1).cluster().ok()?;
        let members = view.body["members"].as_array()?.clone();
        members.iter().any(|member| member["id"] == 3 && member["starts"] == 2).then_some(())
    });
    cluster.kill_all();
    put_back(&copied, &mut cluster, 3);
    cluster.each(&[1, 2], Node::start);
    insist(&cluster.apis_without(3), secs(30), |api| api.acquire(&json!({"name": "L"}))).must_be_ok();
    cluster.node(3).start();
    let status = cluster.node(3).wait_for_exit(secs(30));
    assert_eq!(status.code(), Some(IDENTITY_REFUSED), "{}", cluster.node(3).output());
}

#[test]
fn a_copy_from_before_the_cluster_grew_does_not_lead_on_its_own() {
    let mut cluster = Cluster::start(1);
    let copied = copy_while_down(&mut cluster, 1);
    cluster.grow();
    cluster.grow();
    cluster.wait_until_ready();
    cluster.node(1).kill();
    put_back(&copied, &mut cluster, 1);
    insist(&cluster.apis_without(1), secs(20), |api| api.acquire(&json!({"name": "L"}))).must_be_ok();
    cluster.node(1).start();
    let status = cluster.node(1).wait_for_exit(secs(20));
    let output = cluster.node(1).output();
    assert_eq!(status.code(), Some(IDENTITY_REFUSED), "{output}");
    assert!(output.contains("the only voter"), "{output}");
}

#[test]
fn a_copy_that_lacks_what_was_acknowledged_is_refused_though_its_start_is_a_new_one() {
    let mut cluster = Cluster::start(3);
    let copied = copy_while_up(&mut cluster, 3);
    cluster.wait_until_ready();
    let held = write_on(&cluster, "L");
    cluster.node(3).kill();
    put_back(&copied, &mut cluster, 3);
    cluster.node(3).start();
    eventually("the copy is refused, or keeps out of elections", secs(20), || {
        let output = cluster.node(3).output();
        output.contains("lacks what it has acknowledged").then_some(())
    });
    assert!(!cluster.node(3).api().is_ready());
    let alive = cluster.apis_without(3);
    insist(&alive, secs(10), |api| api.renew("L", &held.token, 60_000)).must_be_ok();
}

#[test]
fn a_copy_beside_the_original_is_refused_and_the_original_goes_on() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let id = cluster.others(leader)[0];
    let copied = copy_while_up(&mut cluster, id);
    let held = write_on(&cluster, "L");
    let node = cluster.nodes().find(|node| node.id == id).unwrap();
    let mut twin = std::process::Command::new(crate::harness::node::LOCKSTEAD);
    twin.args(["serve", "--node-id", &id.to_string(), "--data-dir"]).arg(copied.path());
    twin.args(["--listen", &free_address().to_string(), "--peer-listen", &free_address().to_string()]);
    twin.args(["--advertise", &node.api_address.to_string(), "--advertise-peer", node.peer_address()]);
    let output = twin.output().unwrap();
    assert_eq!(output.status.code(), Some(IDENTITY_REFUSED), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(cluster.node(id).is_running(), "{}", cluster.node(id).output());
    insist(&[cluster.api(id)], secs(10), |api| api.renew("L", &held.token, 60_000)).must_be_ok();
    cluster.wait_until_ready();
}

#[test]
fn a_wiped_node_helps_nobody_to_lead_when_the_leader_dies() {
    let mut cluster = Cluster::start(3);
    let (leader, [wiped, left]) = cluster.leader_and_others();
    let held = write_on(&cluster, "L");
    cluster.node(wiped).kill();
    cluster.node(wiped).wipe();
    cluster.node(leader).kill();
    cluster.node(wiped).start();
    let until = now() + secs(4);
    eventually("nobody leads without a second node that knows its votes", secs(10), || {
        for id in [wiped, left] {
            let answer = cluster.api(id).patient_for(secs(6)).acquire(&json!({"name": "from the minority"}));
            assert!(answer.is_err() || answer.as_ref().is_ok_and(|answer| answer.status == 503), "{answer:?}");
        }
        (now() > until).then_some(())
    });
    cluster.node(leader).start();
    let alive = [cluster.api(leader), cluster.api(left)];
    insist(&alive, secs(20), |api| api.renew("L", &held.token, 60_000)).must_be_ok();
    assert_eq!(cluster.node(wiped).wait_for_exit(secs(30)).code(), Some(IDENTITY_REFUSED));
}

#[test]
fn a_removed_node_that_is_started_again_says_so_and_ends() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let id = cluster.others(leader)[0];
    cluster.node(id).kill();
    cluster.api(leader).remove(id).unwrap().must_be_ok();
    cluster.node(id).start();
    let status = cluster.node(id).wait_for_exit(secs(20));
    assert_eq!(status.code(), Some(REMOVED), "{}", cluster.node(id).output());
    assert!(cluster.node(id).output().contains("was removed from"), "{}", cluster.node(id).output());
}

#[test]
fn a_node_that_was_removed_while_it_was_cut_off_changes_no_term() {
    let mut cluster = Setup::of(3).with_proxied_peers().start();
    let leader = cluster.leader();
    let id = cluster.others(leader)[0];
    let rest = cluster.others(id);
    cluster.links_of(id).for_each(|link| link.set(Mode::Cut));
    insist(&[cluster.api(leader)], secs(10), |api| api.remove(id)).must_be_ok();
    let before = cluster.api(leader).cluster().unwrap().number("term");
    let until = now() + secs(2);
    eventually("the zombie tries to be elected for a while", secs(10), || (now() > until).then_some(()));
    assert!(cluster.node(id).is_running(), "it cannot know yet: {}", cluster.node(id).output());
    cluster.links_of(id).for_each(|link| link.set(Mode::Pass));
    let status = cluster.node(id).wait_for_exit(secs(20));
    assert_eq!(status.code(), Some(REMOVED), "{}", cluster.node(id).output());
    let leader_now = cluster.leader_among(&rest);
    assert_eq!((leader_now, cluster.api(leader).cluster().unwrap().number("term")), (leader, before));
}

#[test]
fn an_id_that_was_removed_is_never_taken_in_again() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let id = cluster.others(leader)[0];
    insist(&[cluster.api(leader)], secs(10), |api| api.remove(id)).must_be_ok();
    assert_eq!(cluster.node(id).wait_for_exit(secs(20)).code(), Some(REMOVED), "{}", cluster.node(id).output());
    cluster.node(id).wipe();
    cluster.node(id).start();
    let status = cluster.node(id).wait_for_exit(secs(20));
    assert_eq!(status.code(), Some(IDENTITY_REFUSED), "by itself, too: {}", cluster.node(id).output());
}
