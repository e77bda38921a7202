//! Without a quorum nothing is granted and nothing is lost.

use std::time::Duration;

use serde_json::json;

use crate::harness::api::{Api, REQUEST_GRACE};
use crate::harness::clock::{NOISE, ms, now, pause_until, secs};
use crate::harness::cluster::Cluster;
use crate::harness::gather::{all, client};
use crate::harness::http::Answer;
use crate::harness::locker::{Held, insist, take};
use crate::harness::node::Node;

const TTL: Duration = secs(2);

/// The answer of a node without a quorum: a 503 that says when to ask again, in time.
#[track_caller]
fn must_be_unavailable(answer: &Answer, wait: Duration) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(["no_leader", "outcome_unknown"].contains(&answer.code()), "{answer:?}");
    let after: u64 = answer.header("retry-after").expect("a Retry-After").parse().expect("a number of seconds");
    assert!(after >= 1, "{answer:?}");
    let took = answer.received.duration_since(answer.sent);
    assert!(took <= wait + REQUEST_GRACE + NOISE, "after {took:?}: {answer:?}");
}

/// Everything that a node without a quorum may be asked, at once.
fn ask_everything(api: Api, held: &Held) {
    let wait = secs(1);
    let (name, token) = (held.name.clone(), held.token.clone());
    let (name_too, token_too) = (name.clone(), token.clone());
    let read = name.clone();
    let asked = vec![
        client(move || (api.acquire(&json!({"name": "free", "ttl_ms": 60_000})), Duration::ZERO)),
        client(move || (api.acquire(&json!({"name": "free too", "ttl_ms": 60_000, "wait_ms": 1_000})), wait)),
        client(move || (api.renew(&name, &token, 2_000), Duration::ZERO)),
        client(move || (api.release(&name_too, &(token_too + "0")), Duration::ZERO)),
        client(move || (api.get(&read), Duration::ZERO)),
    ];
    for (answer, wait) in all(asked) {
        must_be_unavailable(&answer.expect("an answer"), wait);
    }
}

/// Two of three are dead for longer than a TTL; then one of them comes back.
fn check(leader_survives: bool) {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let survivor = if leader_survives { leader } else { cluster.others(leader)[0] };
    let dead = cluster.others(survivor);
    let held = take(&cluster.api(survivor), "L", TTL);
    let lost = now();
    for id in &dead {
        cluster.node(*id).kill();
    }
    ask_everything(cluster.api(survivor), &held);
    // The wall clock is well past the deadline now.
    pause_until(lost + TTL + secs(2));
    ask_everything(cluster.api(survivor), &held);

    cluster.node(dead[0]).start();
    let alive = [cluster.api(survivor), cluster.api(dead[0])];
    let renewal = insist(&alive, secs(20), |api| api.patient_for(secs(1)).renew("L", &held.token, 5_000));
    held.renewed(&renewal.must_be_ok());
    for name in ["free", "free too"] {
        // Asked for by clients that were never told of a grant.
        let seen = insist(&alive, secs(5), |api| api.get(name));
        assert!(seen.status == 404 || seen.holder_fences()[0] > held.fence, "{seen:?}");
    }
    cluster.node(dead[1]).start();
    cluster.wait_until_ready();
    let next = insist(&cluster.apis(), secs(10), |api| api.acquire(&json!({"name": "another"}))).must_be_ok();
    assert!(next.number("fence") > held.fence);
}

#[test]
fn a_leader_without_followers_grants_nothing_and_its_holders_can_renew_when_one_comes_back() {
    check(true);
}

#[test]
fn a_follower_alone_grants_nothing_and_holders_can_renew_when_another_comes_back() {
    check(false);
}

#[test]
fn a_live_holder_renews_after_the_quorum_was_away_for_longer_than_its_ttl_under_the_same_leader() {
    let cluster = Cluster::start(3);
    let leader = cluster.leader();
    let followers = cluster.others(leader);
    let stopped_nodes = || cluster.nodes().filter(|node| followers.contains(&node.id));
    let held = take(&cluster.api(leader), "L", TTL);
    let stopped = now();
    stopped_nodes().for_each(Node::freeze);
    pause_until(stopped + TTL + ms(1_500));
    stopped_nodes().for_each(Node::thaw);
    let renewal = insist(&cluster.apis(), secs(20), |api| api.patient_for(secs(1)).renew("L", &held.token, 5_000));
    held.renewed(&renewal.must_be_ok());
    cluster.must_work();
}
