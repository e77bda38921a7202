//! The answer to an acquire is lost, and the client tries again.

use serde_json::{Value, json};

use crate::harness::api::{Api, fresh_request_id};
use crate::harness::clock::{NOISE, ms, now, pause_until, secs};
use crate::harness::cluster::Cluster;
use crate::harness::http::Answer;
use crate::harness::locker::{Held, insist, take};
use crate::harness::node::Node;
use crate::harness::proxy::Proxy;

/// Asks through a proxy that loses the answer; what the answer said.
fn lose_answer(api: Api, body: &Value) -> Value {
    let proxy = Proxy::to(api.address);
    proxy.swallow_next_answer();
    Api::at(proxy.address()).acquire(body).expect_err("the answer is lost");
    let answer = proxy.swallowed_answer();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").expect("a head").1).expect("a body of JSON")
}

fn request(name: &str, ttl_ms: u64) -> Value {
    json!({"name": name, "ttl_ms": ttl_ms, "request_id": fresh_request_id()})
}

#[track_caller]
fn must_be_the_same(retried: &Answer, lost: &Value) {
    assert_eq!((retried.status, &retried.body["token"], &retried.body["fence"]), (200, &lost["token"], &lost["fence"]));
}

#[test]
fn a_retry_gets_the_same_grant_at_every_node_and_takes_no_other_fence() {
    let cluster = Cluster::through_proxies(3);
    let apis = cluster.apis();
    for first_at in 0..3 {
        let body = request(&format!("first at {first_at}"), 30_000);
        let lost = lose_answer(apis[first_at], &body);
        for api in [apis[first_at], apis[(first_at + 1) % 3], apis[(first_at + 2) % 3]] {
            must_be_the_same(&api.acquire(&body).unwrap(), &lost);
        }
        let next = take(&apis[0], &format!("next {first_at}"), secs(1));
        assert_eq!(next.fence, lost["fence"].as_u64().unwrap() + 1, "retries are no grants");
    }
}

#[test]
fn a_retry_does_not_lengthen_the_hold() {
    let cluster = Cluster::through_proxies(3);
    let api = cluster.api(1);
    let body = request("L", 2_000);
    let begin = now();
    let lost = lose_answer(api, &body);
    pause_until(begin + ms(1_200));
    let retried = api.acquire(&body).unwrap().must_be_ok();
    must_be_the_same(&retried, &lost);
    assert!(retried.number("expires_in_ms") <= 800 + 200, "its time counts from the grant: {retried:?}");
}

#[test]
fn a_retry_while_the_first_try_is_still_uncommitted_gets_the_same_grant() {
    let cluster = Cluster::through_proxies(3);
    let leader = cluster.leader();
    let api = cluster.api(leader);
    let followers = || cluster.nodes().filter(|node| node.id != leader);
    for round in 0..5 {
        let body = request(&format!("round {round}"), 30_000);
        followers().for_each(Node::freeze);
        let mut first = cluster.api(leader).start_acquire(&body).unwrap();
        let mut second = cluster.api(leader).start_acquire(&body).unwrap();
        pause_until(now() + ms(40));
        assert!(!first.has_bytes() && !second.has_bytes(), "nothing is granted without a quorum");
        followers().for_each(Node::thaw);
        let answers = [first.answer(secs(7)).unwrap(), second.answer(secs(7)).unwrap()];
        let decided = insist(&[api], secs(10), |api| api.acquire(&body)).must_be_ok();
        for answer in answers {
            if answer.status != 503 {
                must_be_the_same(&answer, &decided.body);
            }
        }
        cluster.wait_until_ready();
    }
}

#[test]
fn a_retry_after_the_leader_was_killed_gets_the_same_grant() {
    let mut cluster = Cluster::through_proxies(3);
    for through_leader in [true, false] {
        let leader = cluster.leader();
        let survivors = cluster.apis_without(leader);
        let body = request(&format!("through the leader: {through_leader}"), 30_000);
        let lost = lose_answer(if through_leader { cluster.api(leader) } else { survivors[0] }, &body);
        cluster.node(leader).kill();
        let impatient: Vec<Api> = survivors.iter().map(|api| api.patient_for(secs(1))).collect();
        must_be_the_same(&insist(&impatient, secs(15), |api| api.acquire(&body)), &lost);
        let seen = insist(&survivors, secs(5), |api| api.get(body["name"].as_str().unwrap()));
        assert_eq!(seen.holder_fences(), [lost["fence"].as_u64().unwrap()]);
        cluster.node(leader).start();
        cluster.wait_until_ready();
    }
}

#[test]
fn a_retry_after_the_ttl_is_a_fresh_grant_with_a_higher_fence() {
    let cluster = Cluster::through_proxies(3);
    let api = cluster.api(2);
    let body = request("L", 500);
    let lost = lose_answer(api, &body);
    let returned = now();
    pause_until(returned + ms(500) + NOISE);
    let retried = api.acquire(&body).unwrap().must_be_ok();
    assert_ne!(retried.body["token"], lost["token"]);
    assert!(retried.number("fence") > lost["fence"].as_u64().unwrap(), "{retried:?}");
}

#[test]
fn a_grant_that_no_client_ever_received_is_gone_after_its_ttl() {
    let cluster = Cluster::through_proxies(3);
    for api in cluster.apis() {
        let body = json!({"name": "L", "ttl_ms": 1_000});
        let lost = lose_answer(api, &body);
        let next = api.acquire(&json!({"name": "L", "ttl_ms": 100, "wait_ms": 10_000})).unwrap().must_be_ok();
        let took = next.received.duration_since(next.sent);
        assert!(took <= secs(2) + NOISE, "it blocked for {took:?}");
        assert!(next.number("fence") > lost["fence"].as_u64().unwrap());
        api.release("L", next.string("token")).unwrap();
    }
}

#[test]
fn a_request_id_of_another_owner_is_refused_and_shows_no_token() {
    let cluster = Cluster::through_proxies(3);
    let request_id = fresh_request_id();
    let api = cluster.api(1);
    let held = api.acquire(&json!({"name": "L", "owner": "o", "request_id": request_id})).unwrap().must_be_ok();
    for (at, owner) in [json!("p"), json!(null)].into_iter().enumerate() {
        let body = json!({"name": "L", "owner": owner, "request_id": request_id});
        let refused = cluster.apis()[at + 1].acquire(&body).unwrap().must_be(400, "request_id_reused");
        assert!(!refused.text.contains(held.string("token")), "{}", refused.text);
    }
    let same = api.acquire(&json!({"name": "L", "owner": "o", "request_id": request_id})).unwrap().must_be_ok();
    assert_eq!(same.string("token"), held.string("token"));
    // On another lock the same id says nothing.
    let other = json!({"name": "M", "owner": "p", "request_id": request_id});
    let elsewhere = Held::from(&api.acquire(&other).unwrap().must_be_ok());
    assert_ne!(elsewhere.token, held.string("token"));
}
