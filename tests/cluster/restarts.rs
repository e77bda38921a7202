//! Leaders that restart faster than an election.

use std::time::Duration;

use crate::harness::clock::{ms, now, pause_until, secs};
use crate::harness::cluster::Cluster;
use crate::harness::gather::{client, done};
use crate::harness::locker::{acquire_at_last, insist, take};
use crate::harness::sampler::Sampler;

const TTL: Duration = secs(9);
const RESTARTS: u32 = 5;
const TICK: Duration = ms(250);

/// Kills the leader and starts it again at once, five times in a row, during one hold that nobody renews.
fn check(nodes: u64) {
    let mut cluster = Cluster::through_proxies(nodes);
    let apis = cluster.apis();
    let leader = cluster.leader();
    let held = take(&cluster.api(leader), "L", TTL);
    let waiter = {
        let apis = apis.clone();
        client(move || acquire_at_last(&apis, "L", secs(5), secs(60)))
    };
    let watcher = Sampler::of("L", apis);
    let mut leaderless = Duration::ZERO;
    for restart in 1..=RESTARTS {
        pause_until(held.received + ms(1_300) * restart);
        let leader = cluster.leader();
        let killed = cluster.kill_and_restart(leader);
        leaderless += cluster.leaderless_since(killed, &cluster.ids());
    }
    let restarted = now();
    let next = done(waiter);
    let samples = watcher.stop();

    assert!(restarted < held.earliest_end() + leaderless, "the machine is too slow for this case: {leaderless:?}");
    // Each change of leader may cost the time since the last tick on top of the time without a leader.
    next.must_follow(&held, leaderless + TICK * (RESTARTS - 1));
    samples.must_fall(TTL, TICK + ms(100));
    for sample in &samples.0 {
        let early = sample.at < held.earliest_end() && sample.holder.is_none_or(|(fence, _)| fence != held.fence);
        assert!(!early, "seen free or taken before its deadline: {sample:?} {held:?}");
    }
}

#[test]
fn every_node_comes_back_by_the_command_that_started_it() {
    for nodes in [1, 3] {
        let mut cluster = Cluster::through_proxies(nodes);
        let cluster_id = cluster.api(1).cluster().unwrap().string("cluster_id").to_owned();
        let held = take(&cluster.api(1), "L", secs(60));
        for id in cluster.ids().repeat(3) {
            cluster.kill_and_restart(id);
            cluster.wait_until_ready();
            assert_eq!(cluster.api(id).cluster().unwrap().string("cluster_id"), cluster_id);
        }
        for _ in 0..2 {
            cluster.kill_all();
            cluster.start_all();
            cluster.wait_until_ready();
        }
        insist(&cluster.apis(), secs(5), |api| api.renew("L", &held.token, 1_000)).must_be_ok();
    }
}

#[test]
fn five_restarts_of_the_leader_end_no_lock_early_and_none_late() {
    check(3);
}

#[test]
fn five_restarts_of_a_single_node_end_no_lock_early_and_none_late() {
    check(1);
}
