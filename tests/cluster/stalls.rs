//! A leader that is stopped for longer than an election and then goes on where it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::harness::api::Api;
use crate::harness::clock::{as_ms, eventually, ms, now, pause_until, secs};
use crate::harness::cluster::Cluster;
use crate::harness::gather::{all, client};
use crate::harness::http::{Answer, Conn, request};
use crate::harness::locker::{Held, acquire_at_last, insist, take, take_from_any};
use crate::harness::scale::scaled;

const TTL: Duration = secs(4);

/// Renews each second until told to stop, through whoever answers; a try is given up after a while, as a client with
/// 4 s to lose does.
fn keep_alive(held: &Held, apis: &[Api], stop: &AtomicBool) -> usize {
    let impatient: Vec<Api> = apis.iter().map(|api| api.patient_for(ms(800))).collect();
    let (mut renewals, mut next_at) = (0, held.received);
    while !stop.load(Ordering::Relaxed) {
        let answer = insist(&impatient, secs(10), |api| api.renew(&held.name, &held.token, as_ms(TTL)));
        held.renewed(&answer);
        renewals += 1;
        next_at += secs(1);
        pause_until(next_at);
    }
    renewals
}

#[test]
fn no_lock_is_lost_while_the_leader_is_stopped_if_it_is_renewed_through_the_others() {
    let cluster = Cluster::through_proxies(3);
    let leader = cluster.leader();
    let stopped_for = secs(scaled(5, 10));
    let stop = Arc::new(AtomicBool::new(false));
    let keepers: Vec<_> = (0..6)
        .map(|at| {
            let mut apis = cluster.apis_without(leader);
            apis.rotate_left(at % 2);
            let held = take(&apis[0], &format!("lock {at}"), TTL);
            let stop = Arc::clone(&stop);
            client(move || keep_alive(&held, &apis, &stop))
        })
        .collect();
    let stopped = now();
    cluster.nodes().find(|node| node.id == leader).unwrap().freeze();
    pause_until(stopped + stopped_for);
    cluster.nodes().find(|node| node.id == leader).unwrap().thaw();
    pause_until(stopped + stopped_for + secs(2));
    stop.store(true, Ordering::Relaxed);
    let least = usize::try_from(stopped_for.as_secs()).unwrap() - 2;
    for renewals in all(keepers) {
        assert!(renewals >= least, "only {renewals} renewals in {stopped_for:?} and more");
    }
    cluster.must_work();
}

/// A request that lies in the stopped node's sockets until it goes on.
fn put(api: Api, method: &str, path: &str, body: Option<&serde_json::Value>) -> Conn {
    let body = body.map(ToString::to_string);
    let mut conn = Conn::open(api.address).expect("the kernel accepts for the stopped node");
    conn.send(&request(method, path, body.as_ref().map(String::as_bytes))).expect("the kernel takes it");
    conn
}

fn answered(mut conn: Conn) -> Answer {
    conn.answer(secs(8)).expect("an answer within the deadline")
}

#[test]
fn a_leader_that_wakes_up_acknowledges_nothing_from_its_lost_term() {
    let cluster = Cluster::through_proxies(3);
    let old = cluster.leader();
    let others = cluster.others(old);
    let majority = cluster.apis_without(old);
    let stopped_api = cluster.api(old);
    let old_node = cluster.nodes().find(|node| node.id == old).unwrap();
    for round in 0..scaled(2, 10) {
        let (kept, lost, free) = (format!("kept {round}"), format!("lost {round}"), format!("free {round}"));
        let a_kept = take_from_any(&majority, &kept, secs(60));
        let a_lost = take_from_any(&majority, &lost, secs(1));
        let led = cluster.leader();
        old_node.freeze();
        let renew = put(
            stopped_api,
            "POST",
            "/v1/locks/renew",
            Some(&json!({"name": lost, "token": a_lost.token, "ttl_ms": 60_000})),
        );
        let get = put(stopped_api, "GET", &format!("/v1/locks/get?name=lost%20{round}"), None);
        let acquire = put(stopped_api, "POST", "/v1/locks/acquire", Some(&json!({"name": lost, "ttl_ms": 60_000})));
        let acquire_free = put(stopped_api, "POST", "/v1/locks/acquire", Some(&json!({"name": free})));
        let acquire_kept = put(stopped_api, "POST", "/v1/locks/acquire", Some(&json!({"name": kept})));
        let b = acquire_at_last(
            &majority.iter().map(|api| api.patient_for(secs(1))).collect::<Vec<_>>(),
            &lost,
            secs(60),
            secs(20),
        );
        assert!(b.fence > a_lost.fence, "{a_lost:?} {b:?}");
        old_node.thaw();

        let (renew, get) = (answered(renew), answered(get));
        assert!(renew.code() == "not_holder" || renew.status == 503, "A lost it to B: {renew:?}");
        assert!(get.status == 503 || get.holder_fences() == [b.fence], "B holds it: {get:?}");
        let (acquire, acquire_kept) = (answered(acquire), answered(acquire_kept));
        assert!(acquire.status == 503 || acquire.holder_fences() == [b.fence], "B holds it: {acquire:?}");
        assert!(acquire.status != 200 && acquire_kept.status != 200, "{acquire:?} {acquire_kept:?}");
        let acquire_free = answered(acquire_free);
        if acquire_free.status == 200 {
            let seen = insist(&majority, secs(5), |api| api.get(&free)).must_be_ok();
            assert_eq!(seen.holder_fences(), [acquire_free.number("fence")], "granted, so everybody sees it");
        }
        insist(&majority, secs(5), |api| api.renew(&kept, &a_kept.token, 1_000)).must_be_ok();
        assert_ne!(cluster.leader_among(&others), led, "the case needs a new leader");
        eventually("the old leader follows again", secs(20), || cluster.api(old).is_ready().then_some(()));
        make_leader(&cluster, old);
    }
}

/// Stops whoever leads until the node does.
fn make_leader(cluster: &Cluster, wanted: u64) {
    eventually("the node leads again", secs(60), || {
        let leader = cluster.leader();
        if leader == wanted {
            return Some(());
        }
        let leading = cluster.nodes().find(|node| node.id == leader).expect("a node");
        leading.freeze();
        cluster.when_led_again(&cluster.others(leader));
        leading.thaw();
        eventually("it follows", secs(20), || leading.api().is_ready().then_some(()));
        None
    });
}
