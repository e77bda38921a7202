//! An operator changes who belongs to the cluster, while locks are held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::api::Api;
use crate::harness::clock::{NOISE, eventually, ms, now, pause_until, secs};
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::gather::{all, client, done};
use crate::harness::locker::{Held, insist, take};
use crate::harness::ports::free_address;
use crate::harness::scale::scaled_len;

/// Twice the maximum election timeout of a node started without other wishes.
const REFUSED_WITHIN: Duration = ms(600);

fn changed(answer: &crate::harness::http::Answer) -> bool {
    answer.body["changed"].as_bool().expect("it says whether it has changed anything")
}

#[test]
fn a_node_is_added_promoted_demoted_and_removed_and_each_call_may_be_repeated() {
    let mut cluster = Cluster::start(1);
    let api = cluster.api(1);
    let id = cluster.start_standby();
    let added = api.add_member(cluster.node(id)).unwrap().must_be_ok();
    assert!(changed(&added), "{added:?}");
    assert_eq!(added.body["to_go"]["entries"], 0, "it waited until all was there: {added:?}");
    assert_eq!(added.header("etag"), Some(format!("\"{}\"", added.string("membership")).as_str()));
    assert!(!changed(&api.add_member(cluster.node(id)).unwrap().must_be_ok()));
    assert_eq!(api.role_of(id).as_deref(), Some("learner"));

    let promoted = api.promote(id).unwrap().must_be_ok();
    assert!(changed(&promoted) && promoted.string("warning").contains("2 voters"), "{promoted:?}");
    assert!(!changed(&api.promote(id).unwrap().must_be_ok()));
    cluster.wait_until_ready();
    cluster.must_work();

    assert!(changed(&api.demote(id).unwrap().must_be_ok()));
    assert!(!changed(&api.demote(id).unwrap().must_be_ok()));
    assert_eq!(api.role_of(id).as_deref(), Some("learner"));
    let removed = cluster.api(id).remove(id).unwrap().must_be_ok();
    assert!(changed(&removed), "asked through the very node: {removed:?}");
    assert!(!changed(&api.remove(id).unwrap().must_be_ok()), "deleting a retired id");
    assert_eq!(cluster.node(id).wait_for_exit(secs(20)).code(), Some(12));

    cluster.node(id).wipe();
    cluster.node(id).start();
    api.add_member(cluster.node(id)).unwrap().must_be(409, "node_id_reused");
    let unknown = "/v1/admin/members/99";
    api.membership("DELETE", unknown, &Value::Null).unwrap().must_be(404, "unknown_node");
    api.promote(99).unwrap().must_be(404, "unknown_node");
    api.demote(99).unwrap().must_be(404, "unknown_node");
    let addresses = json!({"peer": "127.0.0.1:1", "api": "127.0.0.1:2"});
    api.membership("PUT", unknown, &addresses).unwrap().must_be(404, "unknown_node");
}

#[test]
fn what_would_cost_the_quorum_is_refused_at_once() {
    let mut cluster = Cluster::start(3);
    let (leader, [down, up]) = cluster.leader_and_others();
    let api = cluster.api(leader);
    cluster.node(down).kill();
    for (method, path) in
        [("DELETE", format!("/v1/admin/members/{up}")), ("POST", format!("/v1/admin/members/{up}/demote"))]
    {
        let refused = api.membership(method, &path, &Value::Null).unwrap().must_be(409, "would_lose_quorum");
        let took = refused.received.duration_since(refused.sent);
        assert!(took <= REFUSED_WITHIN + NOISE, "refused only after {took:?}");
    }
    let through_follower = cluster.api(up).remove(up).unwrap();
    through_follower.must_be(409, "would_lose_quorum");
    let elsewhere = json!({"peer": free_address().to_string(), "api": free_address().to_string()});
    let moved = api.membership("PUT", &format!("/v1/admin/members/{up}"), &elsewhere).unwrap();
    moved.must_be(409, "would_lose_quorum");
    let wrong = json!({"force": "0123456789abcdef0123456789abcdef"});
    api.membership("DELETE", &format!("/v1/admin/members/{up}"), &wrong).unwrap().must_be(409, "wrong_cluster");
    assert!(changed(&api.remove(down).unwrap().must_be_ok()), "the one that is down may go");
    assert_eq!(api.role_of(down), None);
    insist(&[api], secs(10), |api| api.acquire(&json!({"name": "L"}))).must_be_ok();

    let alone = cluster.leader_among(&[leader, up]);
    let last = cluster.others(alone).into_iter().find(|id| *id == leader || *id == up).unwrap();
    cluster.api(alone).remove(last).unwrap().must_be_ok();
    for force in [Value::Null, json!({"force": cluster.api(alone).cluster().unwrap().string("cluster_id")})] {
        let path = format!("/v1/admin/members/{alone}");
        let refused = cluster.api(alone).membership("DELETE", &path, &force).unwrap();
        refused.must_be(409, "would_lose_quorum");
    }
}

#[test]
fn only_a_learner_that_is_there_and_whole_is_promoted_and_only_a_node_that_answers_is_added() {
    let mut cluster = Cluster::start(3);
    let api = cluster.api(1);
    let id = cluster.start_standby();
    let nobody = json!({"id": id, "peer": free_address().to_string(), "api": free_address().to_string()});
    api.membership("POST", "/v1/admin/members", &nobody).unwrap().must_be(409, "node_unreachable");
    let misnamed = json!({"id": 77, "peer": cluster.node(id).peer_address(), "api": cluster.api(id).address});
    api.membership("POST", "/v1/admin/members", &misnamed).unwrap().must_be(409, "node_unreachable");
    let taken = json!({"id": id, "peer": cluster.node(id).peer_address(), "api": cluster.api(2).address});
    api.membership("POST", "/v1/admin/members", &taken).unwrap().must_be(409, "address_in_use");

    api.add_member(cluster.node(id)).unwrap().must_be_ok();
    cluster.node(id).kill();
    let refused = api.membership("POST", &format!("/v1/admin/members/{id}/promote"), &Value::Null).unwrap();
    let refused = refused.must_be(409, "not_caught_up");
    assert!(refused.body["error"]["to_go"]["entries"].is_u64(), "{refused:?}");
    assert!(refused.received.duration_since(refused.sent) <= REFUSED_WITHIN + NOISE, "{refused:?}");
    cluster.node(id).start();
    insist(&[api], secs(20), |api| api.promote(id)).must_be_ok();
    cluster.wait_until_ready();
}

#[test]
fn a_change_meant_for_another_membership_changes_nothing() {
    let mut cluster = Cluster::start(3);
    let api = cluster.api(2);
    let before = eventually("the membership rests", secs(10), || {
        let (one, two) = (api.cluster().ok()?, api.cluster().ok()?);
        (one.header("etag")? == two.header("etag")?).then_some(one)
    });
    let etag = before.header("etag").unwrap().to_owned();
    let id = cluster.start_standby();
    let peer = cluster.node(id).peer_address().to_owned();
    let add = json!({"id": id, "peer": peer, "api": cluster.api(id).address, "wait_ms": 20_000});
    let stale = api.membership_if(Some("\"1-1\""), "POST", "/v1/admin/members", &add).unwrap();
    let now = stale.must_be(412, "membership_changed").body["error"]["membership"].clone();
    assert_eq!(format!("\"{}\"", now.as_str().unwrap()), etag);
    api.membership_if(Some(&etag), "POST", "/v1/admin/members", &add).unwrap().must_be_ok();
    let repeated = api.membership_if(Some(&etag), "POST", "/v1/admin/members", &add).unwrap().must_be_ok();
    assert!(!changed(&repeated), "what has taken effect may be repeated as it was: {repeated:?}");
    api.membership_if(Some("etag"), "POST", "/v1/admin/members", &add).unwrap().must_be(400, "invalid_field");
}

#[test]
fn of_many_changes_at_once_each_is_made_or_refused_and_none_is_half_made() {
    let mut cluster = Cluster::start(3);
    let ids: Vec<u64> = (0..2).map(|_| cluster.start_standby()).collect();
    let api = cluster.api(1);
    for id in &ids {
        let node = cluster.nodes().find(|node| node.id == *id).unwrap();
        insist(&[api], secs(20), |api| api.add_member(node)).must_be_ok();
    }
    let asked: Vec<JoinHandle<_>> = (0..12)
        .map(|at| {
            let (api, id) = (cluster.api(at % 3 + 1), ids[usize::try_from(at).unwrap() % 2]);
            client(move || if at % 4 < 2 { api.promote(id) } else { api.demote(id) })
        })
        .collect();
    for answer in all(asked) {
        let answer = answer.unwrap();
        let fine = answer.status == 200 || ["change_in_progress", "not_caught_up"].contains(&answer.code());
        assert!(fine, "{answer:?}");
    }
    for id in ids {
        insist(&[api], secs(20), |api| api.promote(id)).must_be_ok();
    }
    cluster.wait_until_ready();
    cluster.must_work();
}

#[test]
fn leadership_goes_where_it_is_sent_and_nowhere_else() {
    let mut cluster = Cluster::start(3);
    let learner = cluster.start_standby();
    insist(&cluster.apis_without(learner), secs(20), |api| {
        api.add_member(cluster.nodes().find(|node| node.id == learner).unwrap())
    })
    .must_be_ok();
    let (leader, [target, other]) = cluster.leader_and_others_among(&[1, 2, 3]);
    let asked = cluster.api(other);
    assert!(!changed(&asked.transfer(Some(leader)).unwrap().must_be_ok()), "it leads already");
    asked.transfer(Some(99)).unwrap().must_be(404, "unknown_node");
    asked.transfer(Some(learner)).unwrap().must_be(409, "not_caught_up");

    let moved = asked.transfer(Some(target)).unwrap().must_be_ok();
    assert_eq!((changed(&moved), moved.number("leader")), (true, target));
    assert_eq!(asked.cluster().unwrap().number("leader"), target, "the node that answered sees it lead");
    let anywhere = asked.transfer(None).unwrap().must_be_ok();
    assert_ne!(anywhere.number("leader"), target);
    assert_eq!(asked.cluster().unwrap().number("leader"), anywhere.number("leader"));

    let (leader, [dead, _]) = cluster.leader_and_others_among(&[1, 2, 3]);
    cluster.node(dead).kill();
    cluster.api(leader).transfer(Some(dead)).unwrap().must_be(409, "not_caught_up");
    insist(&[cluster.api(leader)], secs(10), |api| api.acquire(&json!({"name": "goes on"}))).must_be_ok();
}

#[test]
fn a_leader_that_is_removed_hands_over_first_and_ends() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let held = take(&cluster.api(leader), "L", secs(30));
    let term = cluster.api(leader).cluster().unwrap().number("term");
    let began = now();
    cluster.api(leader).remove(leader).unwrap().must_be_ok();
    let rest = cluster.apis_without(leader);
    let renewal = insist(&rest, secs(5), |api| api.renew("L", &held.token, 30_000)).must_be_ok();
    held.renewed(&renewal);
    assert!(began.elapsed() <= secs(2) + NOISE, "renewed only after {:?}", began.elapsed());
    assert_eq!(cluster.node(leader).wait_for_exit(secs(20)).code(), Some(12), "{}", cluster.node(leader).output());
    let others = cluster.others(leader);
    let successor = cluster.leader_among(&others);
    assert_eq!(cluster.api(successor).cluster().unwrap().number("term"), term + 1, "one change of leader, by transfer");
}

/// What a client had done, and when.
#[derive(Clone, Copy, Debug)]
struct Success {
    /// Before its first try.
    begun: Instant,
    received: Instant,
}

impl Success {
    fn took(&self) -> Duration {
        self.received.duration_since(self.begun)
    }
}

/// Renews until told to stop.
fn renew_all_along(held: &Held, apis: &[Api], stop: &AtomicBool) -> Vec<Success> {
    let mut successes = vec![Success { begun: held.sent, received: held.received }];
    while !stop.load(Ordering::Relaxed) {
        let (begun, next) = (now(), now() + ms(200));
        let renewal = insist(apis, secs(15), |api| api.patient_for(secs(1)).renew(&held.name, &held.token, 20_000));
        held.renewed(&renewal);
        successes.push(Success { begun, received: renewal.received });
        pause_until(next);
    }
    successes
}

/// Takes and releases one lock until told to stop.
fn cycle_all_along(api: Api, stop: &AtomicBool) -> Vec<Success> {
    let (mut successes, mut fence) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let begun = now();
        let held = Held::from(&insist(&[api], secs(15), |api| {
            let body = json!({"name": "cycled", "ttl_ms": 20_000, "owner": "the only one"});
            api.patient_for(secs(1)).acquire(&body)
        }));
        assert!(held.fence >= fence, "a fence fell");
        fence = held.fence;
        let released = insist(&[api], secs(15), |api| api.patient_for(secs(1)).release("cycled", &held.token));
        successes.push(Success { begun, received: released.received });
    }
    successes
}

/// How long a client went without a success, each time.
fn gaps(successes: &[Success]) -> impl Iterator<Item = Duration> {
    successes.windows(2).map(|pair| pair[1].received.duration_since(pair[0].received))
}

fn longest_gap(successes: &[Success]) -> Duration {
    gaps(successes).max().expect("more than one success")
}

/// How long each renewal took, from before its first try.
fn renewals_took(renewers: &[Vec<Success>]) -> Vec<Duration> {
    renewers.iter().flat_map(|successes| &successes[1..]).map(Success::took).collect()
}

/// The value that so many percent do not exceed.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// A line of figures for people; gives the values by their size.
fn show(what: &str, mut values: Vec<Duration>) -> Vec<Duration> {
    values.sort_unstable();
    let [median, p99, longest] = [50, 99, 100].map(|percent| percentile(&values, percent));
    eprintln!("{what}: {} times, p50 {median:?}, p99 {p99:?}, max {longest:?}", values.len());
    values
}

#[test]
fn every_node_is_replaced_by_a_new_one_and_every_lock_stays_held() {
    let mut cluster = Cluster::start(3);
    let apis = cluster.apis();
    let held: Vec<Held> =
        (0..scaled_len(200, 1_000)).map(|at| take(&apis[at % 3], &format!("kept {at}"), secs(600))).collect();
    for old in 1..=3 {
        cluster.grow();
        cluster.shrink(old);
    }
    cluster.wait_until_ready();
    assert_eq!(cluster.ids(), [4, 5, 6]);
    let apis = cluster.apis();
    for (at, held) in held.iter().enumerate() {
        let renewal = insist(&apis[at % 3..=at % 3], secs(10), |api| api.renew(&held.name, &held.token, 60_000));
        held.renewed(&renewal.must_be_ok());
    }
}

#[test]
fn a_cluster_grows_from_one_to_five_and_shrinks_to_three_under_its_clients() {
    let mut cluster = Cluster::start(1);
    let stop = Arc::new(AtomicBool::new(false));
    let clients = scaled_len(20, 50);
    let renewers: Vec<_> = (0..clients)
        .map(|at| {
            let held = take(&cluster.api(1), &format!("kept {at}"), secs(20));
            let (apis, stop) = (cluster.apis(), Arc::clone(&stop));
            client(move || renew_all_along(&held, &apis, &stop))
        })
        .collect();
    let cycles = {
        let (api, stop) = (cluster.api(1), Arc::clone(&stop));
        client(move || cycle_all_along(api, &stop))
    };
    for _ in 2..=5 {
        cluster.grow();
    }
    cluster.wait_until_ready();
    for id in [5, 4] {
        cluster.shrink(id);
    }
    cluster.wait_until_ready();
    stop.store(true, Ordering::Relaxed);
    let cycles = done(cycles);
    show("an acquire and a release, from their begin to their success", cycles.iter().map(Success::took).collect());
    eprintln!("the longest pause of writes: {:?}", longest_gap(&cycles));
    let renewers = all(renewers);
    let pauses: Vec<Duration> = renewers.iter().map(|successes| longest_gap(successes)).collect();
    show("a renewal, from its begin to its success", renewals_took(&renewers));
    let longest = *show("the longest pause of each client's renewals", pauses).last().expect("clients");
    assert!(longest <= secs(2) + NOISE, "no renewal for {longest:?}");
}

#[test]
fn a_rolling_restart_under_load_loses_no_lock_and_delays_none_for_long() {
    let mut cluster = Cluster::start(3);
    let stop = Arc::new(AtomicBool::new(false));
    let renewers: Vec<_> = (0..scaled_len(30, 100))
        .map(|at| {
            let mut apis = cluster.apis();
            let held = take(&apis[at % 3], &format!("kept {at}"), secs(20));
            apis.rotate_left(at % 3);
            let stop = Arc::clone(&stop);
            client(move || renew_all_along(&held, &apis, &stop))
        })
        .collect();
    for id in cluster.ids() {
        cluster.node(id).signal(Signal::TERM);
        assert_eq!(cluster.node(id).wait_for_exit(secs(20)).code(), Some(0));
        cluster.node(id).start();
        cluster.wait_until_ready();
    }
    stop.store(true, Ordering::Relaxed);
    let renewers = all(renewers);
    show("a renewal, from its begin to its success", renewals_took(&renewers));
    let gaps = show("from one renewal to the next", renewers.iter().flat_map(|successes| gaps(successes)).collect());
    let p99 = percentile(&gaps, 99);
    assert!(p99 <= secs(1) + NOISE, "of {} renewals the 99th percentile took {p99:?}", gaps.len());
}

#[test]
fn two_clusters_never_mix() {
    let mut cluster = Setup::of(1).start();
    let id = cluster.start_standby();
    let stranger = cluster.found_beside();
    let add = json!({"id": stranger.id, "peer": stranger.peer_address(), "api": stranger.api_address, "wait_ms": 0});
    let api = cluster.api(1);
    let refused = api.membership("POST", "/v1/admin/members", &add).unwrap().must_be(409, "node_unreachable");
    assert!(refused.text.contains("belongs to cluster"), "{refused:?}");
    assert!(changed(&api.add_member(cluster.node(id)).unwrap().must_be_ok()), "an empty node is nobody's yet");
    assert_ne!(stranger.api().cluster().unwrap().string("cluster_id"), api.cluster().unwrap().string("cluster_id"));
}
