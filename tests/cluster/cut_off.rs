//! A leader that is cut off from the others while clients still reach it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::api::{Api, REQUEST_GRACE};
use crate::harness::clock::{NOISE, ms, now, secs};
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::gather::{all, client, done};
use crate::harness::http::Answer;
use crate::harness::locker::{Held, acquire_at_last, acquire_by_tries, insist, take};
use crate::harness::proxy::Mode;
use crate::harness::scale::scaled;

/// Asks the same thing again and again until the end.
fn keep_asking(until: Instant, ask: impl Fn() -> std::io::Result<Answer>) -> Vec<Answer> {
    let mut answers = Vec::new();
    while now() < until {
        answers.push(ask().expect("an answer, not a closed socket"));
    }
    answers
}

/// Cuts the leader off in one way and asks it everything while the lock passes from A to B on the other side.
fn check(mode: Mode) {
    let cluster = Cluster::through_proxies(3);
    let old = cluster.leader();
    let others = cluster.others(old);
    let old_api = cluster.api(old);
    let a = take(&old_api, "L", secs(2));
    cluster.links_of(old).for_each(|link| link.set(mode));
    let until = now() + secs(scaled(8, 30));
    let impatient: Vec<Api> = cluster.apis_without(old).iter().map(|api| api.patient_for(secs(1))).collect();
    let b = client(move || acquire_at_last(&impatient, "L", secs(60), secs(30)));
    let (token, too) = (a.token.clone(), a.token.clone() + "0");
    let asking = vec![
        client(move || keep_asking(until, || old_api.get("L"))),
        client(move || keep_asking(until, || old_api.acquire(&json!({"name": "L"})))),
        client(move || keep_asking(until, || old_api.acquire(&json!({"name": "another", "ttl_ms": 60_000})))),
        client(move || keep_asking(until, || old_api.renew("L", &token, 2_000))),
        client(move || keep_asking(until, || old_api.release("L", &too))),
        client(move || keep_asking(until, || old_api.get_stale("L"))),
    ];
    let b = done(b);
    let [gets, tries, free_tries, renewals, releases, stale] = all(asking).try_into().expect("six");
    assert!(b.fence > a.fence && b.received < until, "the case needs B to get it in time: {b:?}");
    for answer in gets.iter().chain(&tries).chain(&free_tries).chain(&renewals).chain(&releases) {
        must_be_honest(answer, &a, &b);
    }
    assert!(gets.iter().any(|answer| answer.sent > b.received), "the case needs questions after B got it");
    for answer in &stale {
        assert!(answer.status == 404 || answer.body["stale"] == true, "a stale answer must say so: {answer:?}");
    }

    cluster.links_of(old).for_each(|link| link.set(Mode::Pass));
    assert_ne!(cluster.leader_among(&others), old);
    let seen = insist(&[old_api], secs(20), |api| api.get("L")).must_be_ok();
    assert_eq!(seen.holder_fences(), [b.fence], "healed");
    insist(&cluster.apis(), secs(5), |api| api.renew("L", &b.token, 60_000)).must_be_ok();
}

/// No answer of the cut-off node says that A holds the lock after B got it, and each comes in time.
#[track_caller]
fn must_be_honest(answer: &Answer, a: &Held, b: &Held) {
    let took = answer.received.duration_since(answer.sent);
    assert!(took <= REQUEST_GRACE + NOISE, "after {took:?}: {answer:?}");
    assert!(answer.status < 500 || answer.status == 503, "{answer:?}");
    if answer.sent >= b.received {
        let says_a = answer.holder_fences().contains(&a.fence) || answer.body["fence"] == a.fence;
        assert!(!says_a, "B holds it since {:?}: {answer:?}", b.received);
        assert_ne!(answer.status, 200, "it has no quorum: {answer:?}");
    }
}

#[test]
fn a_leader_whose_links_are_cut_never_says_that_the_old_holder_holds() {
    check(Mode::Cut);
}

#[test]
fn a_leader_whose_packets_are_dropped_never_says_that_the_old_holder_holds() {
    check(Mode::Stall);
}

#[test]
fn a_leader_that_is_heard_but_hears_nothing_is_replaced_or_still_leads_honestly() {
    let cluster = Cluster::through_proxies(3);
    let old = cluster.leader();
    let held = take(&cluster.api(old), "L", secs(3));
    for other in cluster.others(old) {
        cluster.link(old, other).set(Mode::StallAnswers);
    }
    let impatient: Vec<Api> = cluster.apis().iter().map(|api| api.patient_for(secs(1))).collect();
    let begin = now();
    let next = acquire_by_tries(&impatient, "L", secs(5), secs(60), secs(2));
    assert!(next.received >= held.earliest_end() && next.fence > held.fence, "{held:?} {next:?}");
    let took = next.received.duration_since(begin);
    // A try at each node, 2 s and 1 s of patience long, may stand between the deadline and the grant.
    assert!(took <= secs(3) + secs(9) + NOISE, "a half-deaf leader blocked the lock for {took:?}");
    for other in cluster.others(old) {
        cluster.link(old, other).set(Mode::Pass);
    }
    cluster.must_work();
}

#[test]
fn a_follower_that_is_cut_off_answers_503_and_disturbs_nobody() {
    let cluster = Cluster::through_proxies(3);
    let leader = cluster.leader();
    let cut_off = cluster.others(leader)[0];
    let term = cluster.api(leader).cluster().unwrap().number("term");
    cluster.links_of(cut_off).for_each(|link| link.set(Mode::Cut));
    let held = take(&cluster.api(leader), "L", secs(60));
    let refused = cluster.api(cut_off).acquire(&json!({"name": "M"})).unwrap();
    assert_eq!(refused.status, 503, "{refused:?}");
    let stale = cluster.api(cut_off).get_stale("L").unwrap();
    assert!(stale.status == 404 || stale.body["stale"] == true, "{stale:?}");
    cluster.links_of(cut_off).for_each(|link| link.set(Mode::Pass));
    insist(&[cluster.api(cut_off)], secs(20), |api| api.renew("L", &held.token, 60_000)).must_be_ok();
    // Pre-vote: coming back unseats nobody.
    let view = cluster.api(leader).cluster().unwrap();
    assert_eq!((view.body["leader"].as_u64(), view.number("term")), (Some(leader), term), "{view:?}");
}

#[test]
fn slow_links_between_nodes_slow_answers_down_and_lose_nothing() {
    let cluster = Cluster::through_proxies(3);
    let leader = cluster.leader();
    cluster.links_of(leader).for_each(|link| link.delay(ms(20)));
    for at in 0..5 {
        let held = take(&cluster.apis()[at % 3], &format!("lock {at}"), secs(20));
        let took = held.received.duration_since(held.sent);
        assert!(took >= Duration::from_millis(20), "the case needs the delay: {took:?}");
        cluster.apis()[(at + 1) % 3].release(&held.name, &held.token).unwrap().must_be_ok();
    }
}

/// Whoever raises the election timeouts for nodes that are far apart need not think of heartbeats, which the leader
/// counts only if they are answered within the time between two; and to open a connection may take longer than that.
#[test]
fn nodes_that_are_far_apart_work_with_longer_election_timeouts_alone() {
    let args = ["--election-min-ms", "900", "--election-max-ms", "1800"];
    let mut cluster = Setup::of(3).with_proxied_peers().with_args(&args).start();
    for id in cluster.ids() {
        cluster.links_of(id).for_each(|link| link.delay(ms(100)));
    }
    let leader = cluster.leader();
    cluster.kill_and_restart(leader);
    cluster.wait_until_ready();
    cluster.must_work();
}

/// What elections may take there, connections may as well.
#[test]
fn a_node_behind_slow_links_with_elections_to_match_passes_requests_on() {
    let patient = ["--heartbeat-ms", "500", "--election-min-ms", "2000", "--election-max-ms", "4000"];
    let mut cluster = Setup::of(3).with_proxied_peers().with_args(&patient).start();
    let (leader, [far, _]) = cluster.leader_and_others();
    for other in cluster.others(far) {
        cluster.link(far, other).delay(ms(300));
    }
    // It has no connection left.
    cluster.kill_and_restart(far);
    cluster.wait_until_ready();
    let held = take(&cluster.api(far), "L", secs(20));
    insist(&[cluster.api(leader)], secs(10), |api| api.renew("L", &held.token, 20_000)).must_be_ok();
}
