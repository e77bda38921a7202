//! Waiting is first come first served.

use serde_json::json;

use crate::harness::api::fresh_request_id;
use crate::harness::clock::{NOISE, as_ms, eventually, ms, now, pause_until, secs};
use crate::harness::cluster::Cluster;
use crate::harness::gather::{all, client, done};
use crate::harness::history::History;
use crate::harness::locker::{Held, take, waiting_body};
use crate::harness::scale::scaled;

const WAITERS: usize = 200;

#[test]
fn two_hundred_waiters_each_get_the_lock_once_and_in_order() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    let first = take(&apis[0], "L", secs(60));
    let waiters: Vec<_> = (0..WAITERS)
        .map(|at| {
            let api = apis[at % apis.len()];
            let waiter = client(move || {
                let held = Held::from(&api.acquire(&waiting_body("L", secs(60), secs(120))).unwrap().must_be_ok());
                let released = now();
                api.release("L", &held.token).unwrap().must_be_ok();
                (held, released)
            });
            cluster.wait_until_waiting(at + 1);
            waiter
        })
        .collect();
    let queue = apis[1].get("L").unwrap().must_be_ok();
    assert_eq!(queue.body["waiters"].as_array().map(Vec::len), Some(100), "the first hundred are shown");
    let refused = apis[2].acquire(&json!({"name": "L"})).unwrap().must_be(409, "held");
    assert_eq!(refused.body["error"]["queue_len"], WAITERS);

    let history = History::default();
    history.note(&first, Some(now()));
    apis[1].release("L", &first.token).unwrap().must_be_ok();
    let grants = all(waiters);
    let mut last_fence = first.fence;
    for (held, released) in &grants {
        assert!(held.fence > last_fence, "out of order: {held:?} after fence {last_fence}");
        last_fence = held.fence;
        history.note(held, Some(*released));
    }
    history.check();
    assert_eq!(cluster.waiting(), 0);
    apis[0].get("L").unwrap().must_be(404, "not_held");
}

#[test]
fn a_wait_that_is_over_is_refused_in_time_and_leaves_the_queue() {
    let cluster = Cluster::start(3);
    for api in cluster.apis() {
        let name = format!("held for {}", api.address);
        take(&api, &name, secs(60));
        let answer = api.acquire(&waiting_body(&name, secs(5), ms(700))).unwrap().must_be(409, "held");
        let took = answer.received.duration_since(answer.sent);
        assert!(took >= ms(700) && took <= ms(700) + NOISE, "{took:?}");
        cluster.wait_until_waiting(0);
    }
}

#[test]
fn a_try_never_passes_the_queue() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    for round in 0..scaled(8, 50) {
        let name = format!("round {round}");
        let held = take(&apis[0], &name, secs(60));
        let api = apis[1];
        let body = waiting_body(&name, secs(60), secs(30));
        let waiter = client(move || Held::from(&api.acquire(&body).unwrap().must_be_ok()));
        cluster.wait_until_waiting(1);
        let tries: Vec<_> = apis
            .iter()
            .map(|api| {
                let (api, name) = (*api, name.clone());
                let until = now() + ms(300);
                client(move || {
                    while now() < until {
                        let answer = api.acquire(&json!({"name": name, "ttl_ms": 60_000})).unwrap();
                        answer.must_be(409, "held");
                    }
                })
            })
            .collect();
        pause_until(now() + ms(100));
        apis[2].release(&name, &held.token).unwrap().must_be_ok();
        let granted = done(waiter);
        all(tries);
        assert!(granted.fence > held.fence);
        apis[0].release(&name, &granted.token).unwrap().must_be_ok();
    }
}

#[test]
fn a_waiter_that_died_at_the_head_is_skipped_within_a_second() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    for round in 0..scaled(6, 30) {
        let name = format!("round {round}");
        let held = take(&apis[0], &name, secs(60));
        let api = apis[usize::try_from(round % 3).unwrap()];
        let dying = api.start_acquire(&waiting_body(&name, secs(60), secs(30))).unwrap();
        cluster.wait_until_waiting(1);
        let body = waiting_body(&name, secs(60), secs(30));
        let next = client(move || Held::from(&api.acquire(&body).unwrap().must_be_ok()));
        cluster.wait_until_waiting(2);
        dying.reset();
        let died = now();
        apis[1].release(&name, &held.token).unwrap().must_be_ok();
        let granted = done(next);
        let took = granted.received.saturating_duration_since(died);
        assert!(took <= secs(1) + NOISE, "skipped only after {took:?}");
        apis[2].release(&name, &granted.token).unwrap().must_be_ok();
    }
    cluster.wait_until_waiting(0);
}

#[test]
fn a_waiter_that_comes_back_with_its_request_id_and_queued_time_keeps_its_place() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    let held = take(&apis[0], "L", secs(60));
    let request_id = fresh_request_id();
    let begin = now();
    let body = json!({"name": "L", "wait_ms": 30_000, "request_id": request_id});
    let first = apis[1].start_acquire(&body).unwrap();
    cluster.wait_until_waiting(1);
    let later_api = apis[2];
    let later = client(move || Held::from(&later_api.acquire(&waiting_body("L", secs(5), secs(30))).unwrap()));
    cluster.wait_until_waiting(2);
    first.reset();
    cluster.wait_until_waiting(1);
    let body = json!({"name": "L", "wait_ms": 30_000, "request_id": request_id,
        "queued_ms": as_ms(begin.elapsed())});
    let again_api = apis[0];
    let again = client(move || {
        let held = Held::from(&again_api.acquire(&body).unwrap().must_be_ok());
        again_api.release("L", &held.token).unwrap().must_be_ok();
        held
    });
    cluster.wait_until_waiting(2);
    eventually("both are shown", secs(2), || {
        let seen = apis[1].get("L").ok()?;
        (seen.body["waiters"].as_array()?.len() == 2).then_some(())
    });
    apis[0].release("L", &held.token).unwrap().must_be_ok();
    let (again, later) = (done(again), done(later));
    assert!(again.fence < later.fence, "it lost its place: {again:?} {later:?}");
}
