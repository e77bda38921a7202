//! A node that hears of no leader is not ready and names none.

use crate::harness::api::Api;
use crate::harness::clock::{eventually, secs};
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::node::Node;
use crate::harness::proxy::Mode;

/// It says so, and goes on saying so.
fn must_know_no_leader(api: &Api) {
    eventually("a node without a leader is not ready", secs(10), || {
        (api.reason_not_ready().as_deref() == Some("no_leader")).then_some(())
    });
    for _ in 0..20 {
        assert_eq!(api.reason_not_ready().as_deref(), Some("no_leader"));
        let view = api.cluster().unwrap().must_be_ok();
        assert!(view.body["leader"].is_null(), "{view:?}");
        assert_eq!(api.metric("ready"), Some(0.0));
    }
}

#[test]
fn a_follower_whose_leader_calls_no_more_is_not_ready_also_after_a_restart() {
    let mut cluster = Cluster::start(3);
    let (leader, [left, other]) = cluster.leader_and_others();
    cluster.each(&[leader, other], Node::kill);
    must_know_no_leader(&cluster.api(left));
    cluster.kill_and_restart(left);
    must_know_no_leader(&cluster.api(left));
    cluster.each(&[leader, other], Node::start);
    cluster.wait_until_ready();
}

#[test]
fn a_follower_of_stopped_nodes_is_not_ready_until_they_go_on() {
    let mut cluster = Cluster::start(3);
    let (leader, [left, other]) = cluster.leader_and_others();
    cluster.each(&[other, leader], |node| node.freeze());
    must_know_no_leader(&cluster.api(left));
    cluster.each(&[leader, other], |node| node.thaw());
    cluster.wait_until_ready();
}

#[test]
fn a_follower_of_a_leader_that_lost_its_majority_is_not_ready() {
    let mut cluster = Cluster::start(5);
    let (leader, [left, gone @ ..]) = cluster.leader_and_others::<4>();
    cluster.each(&gone, |node| node.freeze());
    for id in [left, leader] {
        let api = cluster.api(id);
        eventually("neither of the two is ready", secs(10), || {
            (api.reason_not_ready().as_deref() == Some("no_leader")).then_some(())
        });
    }
    cluster.each(&gone, |node| node.thaw());
    cluster.wait_until_ready();
}

#[test]
fn a_follower_that_hears_the_leader_and_cannot_reach_it_is_not_ready() {
    let cluster = Setup::of(3).with_proxied_peers().start();
    let (leader, [follower, _]) = cluster.leader_and_others();
    let api = cluster.api(follower);
    for mode in [Mode::Cut, Mode::StallRequests] {
        cluster.link(follower, leader).set(mode);
        eventually("its requests do not get through", secs(20), || {
            (api.reason_not_ready().as_deref() == Some("no_leader")).then_some(())
        });
        assert_eq!(api.metric("ready"), Some(0.0));
        cluster.link(follower, leader).set(Mode::Pass);
        cluster.wait_until_ready();
    }
}
