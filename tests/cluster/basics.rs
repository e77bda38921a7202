//! The main job without faults.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use crate::harness::clock::{LATE_MAX, NOISE, eventually, ms, now, pause_until, secs};
use crate::harness::cluster::Cluster;
use crate::harness::gather::{all, client};
use crate::harness::locker::{Held, take, waiting_body};

#[test]
fn a_lock_is_acquired_through_each_node_and_seen_through_each() {
    let cluster = Cluster::start(3);
    let mut fences = BTreeSet::new();
    for (at, api) in cluster.apis().iter().enumerate() {
        let held = take(api, &format!("lock {at}"), secs(20));
        assert!(fences.insert(held.fence) && fences.last() == Some(&held.fence), "{fences:?} must rise");
        for seen_from in cluster.apis() {
            let seen = seen_from.get(&held.name).unwrap().must_be_ok();
            assert_eq!(seen.holder_fences(), [held.fence]);
            assert!(!seen.text.contains(&held.token), "a read shows no token: {}", seen.text);
            let refused = seen_from.acquire(&json!({"name": held.name})).unwrap().must_be(409, "held");
            assert_eq!(refused.holder_fences(), [held.fence]);
            assert!(!refused.text.contains(&held.token), "a refusal shows no token: {}", refused.text);
        }
        let elsewhere = &cluster.apis()[(at + 1) % 3];
        elsewhere.renew(&held.name, &held.token, 20_000).unwrap().must_be_ok();
        elsewhere.release(&held.name, &held.token).unwrap().must_be_ok();
        api.get(&held.name).unwrap().must_be(404, "not_held");
    }
}

#[test]
fn every_answer_names_the_leader_and_the_cluster() {
    let cluster = Cluster::start(3);
    let leader = format!("http://{}", cluster.api(cluster.leader()).address);
    let cluster_id = cluster.api(1).cluster().unwrap().string("cluster_id").to_owned();
    for api in cluster.apis() {
        let answers = [api.get("nothing").unwrap(), api.cluster().unwrap(), api.acquire(&json!({})).unwrap()];
        for answer in answers {
            assert_eq!(answer.header("lockstead-leader"), Some(leader.as_str()), "{answer:?}");
            assert_eq!(answer.header("lockstead-cluster"), Some(cluster_id.as_str()), "{answer:?}");
        }
    }
}

#[test]
fn an_expired_lock_goes_to_its_waiter_neither_early_nor_late() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    let held = take(&apis[0], "L", secs(2));
    let waiters = [apis[1], apis[2]].map(|api| {
        client(move || Held::from(&api.acquire(&waiting_body("L", ms(500), secs(15))).unwrap().must_be_ok()))
    });
    let mut granted = all(waiters.into());
    granted.sort_by_key(|held| held.fence);
    let [first, second] = &granted[..] else { unreachable!("two waiters") };
    first.must_follow(&held, Duration::ZERO);
    second.must_follow(first, Duration::ZERO);
}

#[test]
fn an_expired_lock_reads_as_expired_and_then_as_free() {
    let cluster = Cluster::start(1);
    let api = cluster.api(1);
    let held = take(&api, "L", ms(600));
    let seen = api.get("L").unwrap().must_be_ok();
    let left_ms = seen.body["holders"][0]["expires_in_ms"].as_u64().unwrap();
    assert!((1..=600).contains(&left_ms), "{seen:?}");
    pause_until(held.latest_end());
    let begin = now();
    eventually("the lock is free", LATE_MAX + NOISE, || {
        let seen = api.get("L").unwrap();
        if seen.status == 200 {
            assert_eq!(seen.body["holders"][0]["expires_in_ms"], 0, "past its deadline: {seen:?}");
        }
        (seen.status == 404).then_some(())
    });
    assert!(begin.elapsed() <= LATE_MAX + NOISE);
    assert!(take(&api, "L", secs(1)).fence > held.fence);
}

#[test]
fn two_acquires_at_once_are_one_grant_and_one_refusal() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    for round in 0..10 {
        let name = format!("round {round}");
        let tries = [apis[0], apis[1]].map(|api| {
            let body = json!({"name": name, "ttl_ms": 10_000});
            client(move || api.acquire(&body).unwrap())
        });
        let mut answers = all(tries.into());
        answers.sort_by_key(|answer| answer.status);
        assert_eq!((answers[0].status, answers[1].code()), (200, "held"), "{answers:?}");
        assert_eq!(answers[1].holder_fences(), [answers[0].number("fence")]);
    }
}

#[test]
fn two_acquires_at_once_by_one_owner_are_one_hold() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    for round in 0..10 {
        let name = format!("round {round}");
        let tries = [apis[0], apis[1]].map(|api| {
            let body = json!({"name": name, "ttl_ms": 10_000, "owner": "o"});
            client(move || api.acquire(&body).unwrap().must_be_ok())
        });
        let answers = all(tries.into());
        assert_eq!(answers[0].string("token"), answers[1].string("token"));
        assert_eq!(answers[0].number("fence"), answers[1].number("fence"));
        let renewed: BTreeSet<bool> = answers.iter().map(|answer| answer.body["renewed"] == true).collect();
        assert_eq!(renewed.len(), 2, "one grant and one renewal: {answers:?}");
    }
}

#[test]
fn an_acquire_by_the_owner_renews_with_the_new_ttl_from_now() {
    let cluster = Cluster::start(3);
    let api = cluster.api(2);
    let long = api.acquire(&json!({"name": "L", "ttl_ms": 60_000, "owner": "o"})).unwrap().must_be_ok();
    let short = api.acquire(&json!({"name": "L", "ttl_ms": 1_000, "owner": "o"})).unwrap().must_be_ok();
    assert_eq!(
        (short.string("token"), short.number("fence"), short.number("ttl_ms"), &short.body["renewed"]),
        (long.string("token"), long.number("fence"), 1_000, &json!(true))
    );
    assert!(short.number("expires_in_ms") <= 1_000, "{short:?}");
    api.acquire(&json!({"name": "L", "owner": "another"})).unwrap().must_be(409, "held");
    let next = Held::from(&api.acquire(&waiting_body("L", secs(1), secs(10))).unwrap());
    assert!(next.received >= short.sent + secs(1), "early: {short:?} {next:?}");
    assert!(next.received <= short.received + secs(1) + LATE_MAX + NOISE, "the old TTL still counted: {next:?}");
}

#[test]
fn an_owner_renews_from_outside_without_seeing_the_token() {
    let cluster = Cluster::start(3);
    let api = cluster.api(3);
    let held = api.acquire(&json!({"name": "L", "ttl_ms": 5_000, "owner": "o"})).unwrap().must_be_ok();
    let renewed = api.renew_with(&json!({"name": "L", "owner": "o", "ttl_ms": 9_000})).unwrap().must_be_ok();
    assert_eq!((renewed.number("fence"), renewed.number("ttl_ms")), (held.number("fence"), 9_000));
    assert!(!renewed.text.contains(held.string("token")), "{}", renewed.text);
    api.renew_with(&json!({"name": "L", "owner": "p"})).unwrap().must_be(409, "not_holder");
    let by_default = api.renew_with(&json!({"name": "L", "owner": "o"})).unwrap().must_be_ok();
    assert_eq!(by_default.number("ttl_ms"), 30_000);
}
