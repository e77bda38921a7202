//! Calls of operators end in time, and what they are told is so, whatever becomes of the leader meanwhile.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::api::{Api, REQUEST_GRACE};
use crate::harness::clock::{NOISE, eventually, ms, now, pause_until, secs};
use crate::harness::cluster::Cluster;
use crate::harness::gather::{all, client, done};
use crate::harness::http::Answer;
use crate::harness::locker::insist;
use crate::harness::node::Node;
use crate::harness::ports::free_address;

type Asked = JoinHandle<io::Result<Answer>>;

fn ask(api: Api, method: &'static str, path: String, body: Value) -> Asked {
    client(move || api.membership(method, &path, &body))
}

/// Every call there is, about this member.
fn ask_everything(api: Api, member: u64) -> Vec<Asked> {
    let one = |what: &str| format!("/v1/admin/members/{member}{what}");
    let (peer, there) = (free_address().to_string(), free_address().to_string());
    let leader = || "/v1/admin/leader".to_owned();
    vec![
        ask(api, "POST", "/v1/admin/members".to_owned(), json!({"id": 66, "peer": peer, "api": there, "wait_ms": 0})),
        ask(api, "POST", one("/promote"), json!({"wait_ms": 0})),
        ask(api, "POST", one("/demote"), Value::Null),
        ask(api, "DELETE", one(""), json!({"wait_ms": 500})),
        ask(api, "DELETE", "/v1/admin/members/77".to_owned(), Value::Null),
        ask(api, "PUT", one(""), json!({"peer": peer, "api": there})),
        ask(api, "POST", leader(), json!({})),
        ask(api, "POST", leader(), json!({"to": member})),
        ask(api, "POST", leader(), json!({"to": 999})),
    ]
}

fn ended_in_time(answer: &Answer, wait: Duration) {
    let took = answer.received.duration_since(answer.sent);
    assert!(took <= wait + REQUEST_GRACE + NOISE, "{took:?}: {answer:?}");
}

/// What every node says of the members, who leads and who is reached aside.
fn members(api: &Api) -> Option<Vec<(u64, bool, String)>> {
    let view = api.cluster().ok()?;
    let each = view.body["members"].as_array()?.iter().map(|member| {
        let text = |key: &str| member[key].as_str().expect("a text").to_owned();
        (member["id"].as_u64().expect("an id"), text("role") != "learner", text("api"))
    });
    Some(each.collect())
}

#[test]
fn every_call_ends_without_effect_at_a_node_whose_leader_and_majority_are_dead() {
    let mut cluster = Cluster::start(3);
    let (leader, [asked, member]) = cluster.leader_and_others();
    let before = members(&cluster.api(asked)).expect("a view");
    cluster.each(&[leader, member], Node::kill);
    for answer in all(ask_everything(cluster.api(asked), member)) {
        let answer = answer.expect("an answer");
        ended_in_time(&answer.must_be(503, "no_leader"), ms(500));
    }
    cluster.each(&[leader, member], Node::start);
    cluster.wait_until_ready();
    assert_eq!(members(&cluster.api(asked)), Some(before));
}

#[test]
fn what_ended_while_the_majority_was_stopped_is_not_made_once_it_goes_on() {
    let mut cluster = Cluster::start(3);
    let (leader, [asked, member]) = cluster.leader_and_others();
    let before = members(&cluster.api(asked));
    cluster.each(&[leader, member], |node| node.freeze());
    for answer in all(ask_everything(cluster.api(asked), member)) {
        let answer = answer.expect("an answer");
        assert!(answer.status == 503, "{answer:?}");
        ended_in_time(&answer, ms(500));
    }
    cluster.each(&[leader, member], |node| node.thaw());
    cluster.wait_until_ready();
    // One change at a time: the next ones come after what is still under way, and go through.
    insist(&[cluster.api(asked)], secs(20), |api| api.demote(member)).must_be_ok();
    insist(&[cluster.api(asked)], secs(20), |api| api.promote(member)).must_be_ok();
    cluster.wait_until_ready();
    assert_eq!(members(&cluster.api(asked)), before);
}

#[test]
fn a_stopped_leader_holds_no_call_up_that_another_can_answer() {
    let mut cluster = Cluster::start(3);
    let (leader, [asked, member]) = cluster.leader_and_others();
    cluster.node(leader).freeze();
    // A frozen voter that leads no more is one of three: the change keeps a majority of two.
    let wait = json!({"wait_ms": 5_000});
    let moved = done(ask(cluster.api(asked), "POST", format!("/v1/admin/members/{leader}/demote"), wait)).unwrap();
    let moved = moved.must_be_ok();
    ended_in_time(&moved, Duration::ZERO);
    assert_eq!(cluster.api(member).role_of(leader).as_deref(), Some("learner"));
    cluster.node(leader).thaw();
    insist(&[cluster.api(asked)], secs(20), |api| api.promote(leader)).must_be_ok();
    cluster.wait_until_ready();
}

#[test]
fn a_forced_change_that_is_logged_and_not_committed_in_time_is_of_unknown_outcome() {
    for of_leader in [true, false] {
        let mut cluster = Cluster::start(3);
        let (leader, [there, dead]) = cluster.leader_and_others();
        let force = json!({"force": cluster.api(leader).cluster().unwrap().string("cluster_id")});
        cluster.node(dead).kill();
        let asked = cluster.api(if of_leader { leader } else { there });
        let answer = asked.membership("POST", &format!("/v1/admin/members/{there}/demote"), &force).unwrap();
        ended_in_time(&answer, Duration::ZERO);
        answer.must_be(503, "outcome_unknown");
        cluster.node(dead).start();
        let made = || (cluster.api(leader).role_of(there)? == "learner").then_some(());
        eventually("what was logged is made", secs(20), made);
    }
}

/// A promotion that waits at a leader for a learner that is stopped; the learner, and the nodes that do not lead.
fn waiting_promotion(asked_at: impl Fn(u64, [u64; 2]) -> u64) -> (Cluster, u64, [u64; 2], u64, Asked) {
    let mut cluster = Cluster::start(3);
    let learner = cluster.start_standby();
    let voters: Vec<Api> = [1, 2, 3].map(|id| cluster.api(id)).into();
    insist(&voters, secs(20), |api| api.add_member(cluster.nodes().find(|node| node.id == learner).unwrap()))
        .must_be_ok();
    let (leader, [one, two]) = cluster.leader_and_others_among(&[1, 2, 3]);
    cluster.node(learner).freeze();
    let asked_at = cluster.api(asked_at(leader, [one, two]));
    let promotion = ask(asked_at, "POST", format!("/v1/admin/members/{learner}/promote"), json!({"wait_ms": 4_000}));
    // It has to be on its way; if it is not, the case is easier.
    pause_until(now() + ms(300));
    (cluster, leader, [one, two], learner, promotion)
}

#[test]
fn a_promotion_goes_on_at_the_next_leader_when_leadership_is_handed_over() {
    for of_leader in [true, false] {
        let (mut cluster, leader, [one, two], learner, promotion) =
            waiting_promotion(|leader, [one, _]| if of_leader { leader } else { one });
        cluster.api(two).transfer(Some(two)).unwrap().must_be_ok();
        cluster.node(learner).thaw();
        done(promotion).unwrap().must_be_ok();
        let voter = |id| cluster.api(id).role_of(learner).is_some_and(|role| role != "learner");
        eventually("all see it vote", secs(10), || [leader, one, two].into_iter().all(voter).then_some(()));
    }
}

#[test]
fn a_leader_that_was_stopped_refuses_nothing_on_what_it_knew() {
    let (mut cluster, leader, others, learner, promotion) = waiting_promotion(|leader, _| leader);
    let stopped = now();
    cluster.node(leader).freeze();
    cluster.leader_among(&others);
    cluster.node(learner).thaw();
    // By then the wait is over.
    pause_until(stopped + secs(4));
    cluster.node(leader).thaw();
    done(promotion).unwrap().must_be_ok();
}

#[test]
fn an_addition_of_a_node_that_is_removed_meanwhile_ends_at_once() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let api = cluster.api(leader);
    let learner = cluster.start_standby();
    let node = cluster.nodes().find(|node| node.id == learner).unwrap();
    let body = json!({
        "id": learner, "peer": node.peer_address(), "api": node.api_address.to_string(), "wait_ms": 20_000
    });
    insist(&[api], secs(20), |api| api.membership("POST", "/v1/admin/members", &body)).must_be_ok();
    cluster.node(learner).freeze();
    // Something to wait for.
    insist(&[api], secs(10), |api| api.acquire(&json!({"name": "L"}))).must_be_ok();
    let addition = ask(api, "POST", "/v1/admin/members".to_owned(), body);
    // It has to wait by then; if it does not, the case is easier.
    pause_until(now() + secs(1));
    api.remove(learner).unwrap().must_be_ok();
    let removed = now();
    let answer = done(addition).unwrap();
    assert!(answer.received.duration_since(removed) <= secs(1) + NOISE, "{answer:?}");
    answer.must_be(409, "node_id_reused");
}

#[test]
fn a_promotion_of_a_node_that_is_removed_meanwhile_ends_at_once() {
    let (cluster, leader, _, learner, promotion) = waiting_promotion(|leader, _| leader);
    cluster.api(leader).remove(learner).unwrap().must_be_ok();
    let removed = now();
    let answer = done(promotion).unwrap();
    assert!(answer.received.duration_since(removed) <= secs(1) + NOISE, "{answer:?}");
    answer.must_be(404, "unknown_node");
}
