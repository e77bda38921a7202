//! Waits and renewals while the leader changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::api::{Api, REQUEST_GRACE, fresh_request_id};
use crate::harness::clock::{NOISE, as_ms, ms, now, pause_until, secs};
use crate::harness::cluster::Cluster;
use crate::harness::gather::{all, client, done};
use crate::harness::locker::{Held, acquire_at_last, insist, take};
use crate::harness::sampler::Sampler;
use crate::harness::scale::{scaled, scaled_len};

/// The maximum election timeout of a node started without other wishes.
const ELECTION_MAX: Duration = ms(300);
const RENEW_EVERY: Duration = ms(400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Terminate,
    Transfer,
}

/// Renews until told to stop; the moments of its successes.
fn renew_through_it_all(held: &Held, apis: &[Api], stop: &AtomicBool) -> Vec<Instant> {
    let mut successes = Vec::new();
    let mut at = held.received;
    while !stop.load(Ordering::Relaxed) {
        let answer = insist(apis, secs(10), |api| api.patient_for(secs(1)).renew(&held.name, &held.token, 3_000));
        held.renewed(&answer);
        successes.push(answer.received);
        at += RENEW_EVERY;
        pause_until(at);
    }
    successes
}

/// One try that waits; it must end by its deadline, and say what a client can act on.
fn wait_once(api: Api, wait: Duration) -> bool {
    let body = json!({"name": "contended", "ttl_ms": 1_000, "wait_ms": as_ms(wait)});
    let begin = now();
    match api.acquire(&body) {
        Ok(answer) => {
            let took = answer.received.duration_since(answer.sent);
            assert!(took <= wait + REQUEST_GRACE + NOISE, "after {took:?}: {answer:?}");
            if answer.status == 503 {
                assert!(["no_leader", "outcome_unknown"].contains(&answer.code()), "{answer:?}");
                assert!(answer.header("retry-after").is_some(), "{answer:?}");
            } else {
                answer.must_be(409, "held");
            }
            true
        }
        // Only the node that was killed may leave its clients without an answer, and it does so at once.
        Err(error) => {
            assert!(begin.elapsed() <= wait + REQUEST_GRACE + NOISE, "{error}");
            false
        }
    }
}

fn check(fault: Fault) {
    let mut cluster = Cluster::through_proxies(3);
    let leader = cluster.leader();
    let survivors = cluster.apis_without(leader);
    take(&survivors[0], "contended", secs(120));
    let stop = Arc::new(AtomicBool::new(false));
    let clients = scaled_len(40, 200);
    let renewers: Vec<_> = (0..clients)
        .map(|at| {
            let (apis, stop) = (survivors.clone(), Arc::clone(&stop));
            let held = take(&apis[at % 2], &format!("kept {at}"), secs(3));
            client(move || renew_through_it_all(&held, &apis, &stop))
        })
        .collect();
    let everywhere = cluster.apis();
    let waiters: Vec<_> = (0..clients)
        .map(|at| {
            let api = everywhere[at % 3];
            client(move || (api.address, wait_once(api, secs(4))))
        })
        .collect();
    cluster.wait_until_waiting(clients);

    let struck = now();
    match fault {
        Fault::Kill => cluster.node(leader).kill(),
        Fault::Terminate => {
            cluster.node(leader).signal(Signal::TERM);
            let status = cluster.node(leader).wait_for_exit(secs(20));
            assert_eq!(status.code(), Some(0), "{}", cluster.node(leader).output());
        }
        Fault::Transfer => {
            let moved = insist(&everywhere, secs(10), |api| api.transfer(None)).must_be_ok();
            assert_ne!(moved.number("leader"), leader);
        }
    }
    pause_until(struck + secs(4));
    stop.store(true, Ordering::Relaxed);
    let again_within = 2 * ELECTION_MAX + secs(1) + 2 * RENEW_EVERY + NOISE;
    for successes in all(renewers) {
        let gaps = successes.windows(2).map(|pair| pair[1].duration_since(pair[0]));
        let longest = gaps.max().expect("more than one success");
        assert!(longest <= again_within, "no renewal for {longest:?}");
    }
    let leader_address = cluster.api(leader).address;
    for (address, answered) in all(waiters) {
        let may_be_lost = fault == Fault::Kill && address == leader_address;
        assert!(answered || may_be_lost, "{address} closed without an answer");
    }
}

#[test]
fn waits_and_renewals_outlive_the_kill_of_the_leader() {
    check(Fault::Kill);
}

#[test]
fn waits_and_renewals_outlive_the_termination_of_the_leader() {
    check(Fault::Terminate);
}

#[test]
fn waits_and_renewals_outlive_a_transfer_of_leadership() {
    check(Fault::Transfer);
}

#[test]
fn a_lock_ends_once_and_in_time_however_often_leadership_is_moved() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    let ttl = secs(scaled(10, 60));
    let held = take(&apis[0], "moved", ttl);
    let sampler = Sampler::of("moved", apis.clone());
    let waiter = {
        let apis = apis.clone();
        client(move || acquire_at_last(&apis, "moved", secs(5), secs(300)))
    };
    let (mut moves, mut leaderless) = (0, Duration::ZERO);
    while now() + secs(1) < held.received + ttl {
        let asked = now();
        insist(&apis, secs(10), |api| api.transfer(None)).must_be_ok();
        leaderless += cluster.leaderless_since(asked, &[1, 2, 3]);
        moves += 1;
        pause_until(asked + secs(scaled(1, 5)));
    }
    let next = done(waiter);
    next.must_follow(&held, leaderless);
    assert!(moves >= 5, "moved only {moves} times");
    sampler.stop().must_fall(ttl, ms(250) + NOISE / 3);
}

/// Waits as a client does that comes back with its request id and the time it has waited.
fn wait_in_line(apis: &[Api]) -> Held {
    acquire_at_last(apis, "L", secs(60), secs(60))
}

#[test]
fn waiters_that_come_back_after_a_change_of_leader_keep_their_order() {
    let mut cluster = Cluster::through_proxies(3);
    let leader = cluster.leader();
    let survivors = cluster.apis_without(leader);
    let held = take(&survivors[0], "L", secs(120));
    let mut waiters = Vec::new();
    for at in 0..8 {
        let mut apis = survivors.clone();
        apis.rotate_left(at % 2);
        let joined = now();
        waiters.push(client(move || {
            let granted = wait_in_line(&apis);
            insist(&apis, secs(5), |api| api.release("L", &granted.token)).must_be_ok();
            granted
        }));
        cluster.wait_until_waiting(at + 1);
        // So far apart that the way of a request to the leader, on a busy machine, does not reorder them.
        pause_until(joined + ms(250));
    }
    cluster.node(leader).kill();
    cluster.when_led_again(&cluster.others(leader));
    cluster.wait_until_waiting(8);
    insist(&survivors, secs(5), |api| api.release("L", &held.token)).must_be_ok();
    let fences: Vec<u64> = all(waiters).iter().map(|granted| granted.fence).collect();
    assert!(fences.is_sorted(), "out of order: {fences:?}");
}

#[test]
fn a_node_that_is_terminated_answers_what_waits_and_exits_0() {
    let mut cluster = Cluster::through_proxies(3);
    let follower = cluster.others(cluster.leader())[0];
    let api = cluster.api(follower);
    let held = take(&api, "L", secs(60));
    let body = json!({"name": "L", "wait_ms": 60_000, "request_id": fresh_request_id()});
    let waiter = client(move || api.acquire(&body));
    cluster.wait_until_waiting(1);
    cluster.node(follower).signal(Signal::TERM);
    let status = cluster.node(follower).wait_for_exit(secs(20));
    assert_eq!(status.code(), Some(0), "{}", cluster.node(follower).output());
    let answer = done(waiter).expect("an answer, not a closed socket");
    assert_eq!(answer.status, 503, "{answer:?}");
    cluster.wait_until_waiting(0);
    let others = cluster.apis_without(follower);
    insist(&others, secs(5), |api| api.renew("L", &held.token, 60_000)).must_be_ok();
    cluster.node(follower).start();
    cluster.wait_until_ready();
    insist(&[api], secs(5), |api| api.release("L", &held.token)).must_be_ok();
}
