//! Snapshots without held locks: the log stays short, nothing that is held is forgotten, and no snapshot tells of it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::harness::api::Api;
use crate::harness::clock::{eventually, ms, now, pause_until, secs};
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::gather::{all, client, divided};
use crate::harness::locker::{Held, acquire_at_last, insist, take_from_any};
use crate::harness::scale::{scaled, scaled_len};

const AN_HOUR_MS: u64 = 3_600_000;
/// Bytes of what a hold of these tests takes in the log, its entry included, at most.
const HOLD_BYTES_MAX: u64 = 200;
/// Limits so low that a few thousand entries need restating, snapshots and purges.
const ENTRIES: u64 = 500;
const SNAPSHOT_BYTES: u64 = 65_536;
const TAIL_BYTES: u64 = 65_536;

fn short_logs(nodes: u64) -> Cluster {
    let (entries, bytes, tail) = (ENTRIES.to_string(), SNAPSHOT_BYTES.to_string(), TAIL_BYTES.to_string());
    let args = ["--snapshot-entries", &entries, "--snapshot-bytes", &bytes, "--tail-bytes-max", &tail];
    Setup::of(nodes).with_args(&args).start()
}

/// Takes locks for an hour, with names and owners that nothing else is called.
fn hold_long(apis: &[Api], locks: usize) -> Vec<Held> {
    let apis = apis.to_vec();
    divided(locks, move |number| {
        let (name, owner) = (format!("long-held-{number:06}"), format!("patient-{number:06}"));
        let body = json!({"name": name, "owner": owner, "ttl_ms": AN_HOUR_MS});
        Held::from(&insist(&apis, secs(20), |api| api.acquire(&body)))
    })
}

/// Takes and releases locks that nobody ever takes again.
fn cycle(apis: &[Api], round: usize, cycles: usize) {
    let apis = apis.to_vec();
    divided(cycles, move |number| {
        let held = take_from_any(&apis, &format!("short {round} {number}"), secs(30));
        insist(&apis, secs(20), |api| api.release(&held.name, &held.token));
    });
}

/// Each is held with the fence that it was granted with, its token proves it, and time passes.
fn must_all_be_held(apis: &[Api], held: &[Held]) {
    let (apis, held) = (apis.to_vec(), held.to_vec());
    divided(held.len(), move |number| {
        let held = &held[number];
        let seen = insist(&apis, secs(20), |api| api.get(&held.name)).must_be_ok();
        let left_ms = seen.body["holders"][0]["expires_in_ms"].as_u64().expect("a time left");
        assert!((1..=AN_HOUR_MS).contains(&left_ms), "{seen:?}");
        held.renewed(&insist(&apis, secs(20), |api| api.renew(&held.name, &held.token, AN_HOUR_MS)));
    });
}

/// No second holder gets any of them.
fn must_all_be_refused(api: Api, held: &[Held]) {
    let held = held.to_vec();
    divided(held.len(), move |number| {
        let held = &held[number];
        let refused = insist(&[api], secs(20), |api| api.acquire(&json!({"name": held.name, "ttl_ms": 1_000})));
        let refused = refused.must_be(409, "held");
        assert_eq!(refused.body["error"]["holders"][0]["fence"].as_u64(), Some(held.fence), "{refused:?}");
    });
}

/// The bytes of all files below a directory; one that goes meanwhile counts as nothing.
fn bytes_below(dir: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for item in fs::read_dir(dir).expect("a directory").flatten() {
        if item.path().is_dir() {
            bytes.extend(bytes_below(&item.path()));
        } else {
            bytes.extend(fs::read(item.path()).unwrap_or_default());
        }
    }
    bytes
}

fn finds(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// No snapshot of any node holds a name, an owner or a token, as text or raw.
fn must_not_tell(cluster: &Cluster, held: &[Held]) {
    for node in cluster.nodes() {
        let snapshots = bytes_below(&node.dir.join("snapshots"));
        assert!(!snapshots.is_empty(), "node {} has a snapshot", node.id);
        for held in held {
            let number = held.name.rsplit('-').next().expect("a number");
            let raw: Vec<u8> =
                (0..16).map(|at| u8::from_str_radix(&held.token[2 * at..][..2], 16).expect("hex")).collect();
            for secret in [held.name.as_bytes(), format!("patient-{number}").as_bytes(), held.token.as_bytes(), &raw] {
                assert!(!finds(&snapshots, secret), "a snapshot of node {} tells of {held:?}", node.id);
            }
        }
        let log = bytes_below(&node.dir.join("log"));
        assert!(finds(&log, held[0].name.as_bytes()), "the log does tell, so that the search is one");
    }
}

fn log_bytes(api: &Api) -> u64 {
    api.cluster().ok().and_then(|view| view.body["tail"]["bytes"].as_u64()).unwrap_or(u64::MAX)
}

fn total(cluster: &Cluster, metric: &str) -> f64 {
    cluster.apis().iter().filter_map(|api| api.metric(metric)).sum()
}

fn wait_for_an_install(cluster: &Cluster, id: u64) {
    eventually(&format!("node {id} got a snapshot"), secs(30), || {
        let installed = cluster.api(id).metric("snapshots_installed_total")?;
        (installed >= 1.0).then_some(())
    });
}

#[test]
fn a_thousand_locks_outlive_the_log_that_granted_them_and_a_new_node_knows_them_all() {
    let mut cluster = short_logs(3);
    let held = hold_long(&cluster.apis(), 1_000);
    let live = 1_000 * HOLD_BYTES_MAX;
    // What waits for a snapshot, and what is kept for those who lag, beside the tail itself.
    let bound = TAIL_BYTES.max(2 * live) + 2 * SNAPSHOT_BYTES + ENTRIES * HOLD_BYTES_MAX;
    let rounds = 10;
    for round in 0..rounds {
        cycle(&cluster.apis(), round, scaled_len(500, 30_000));
        for api in cluster.apis() {
            eventually(&format!("a log of at most {bound} bytes"), secs(20), || {
                (log_bytes(&api) <= bound).then_some(())
            });
        }
    }
    assert!(total(&cluster, "restated_records_total") >= 1_000.0, "all were restated");
    for api in cluster.apis() {
        let purged = api.metric("purged_index").unwrap_or(0.0);
        assert!(purged > 1_000.0, "purged to {purged} only");
    }
    must_not_tell(&cluster, &held);
    must_all_be_held(&cluster.apis(), &held);

    let new = cluster.add_node();
    wait_for_an_install(&cluster, new);
    cluster.make_leader(new);
    must_all_be_refused(cluster.api(new), &held);
    must_all_be_held(&[cluster.api(new)], &held);
    must_not_tell(&cluster, &held);
}

#[test]
fn a_node_that_lagged_behind_the_purge_comes_back_knows_all_and_leads() {
    let mut cluster = short_logs(3);
    let lagging = cluster.others(cluster.leader())[0];
    let held = hold_long(&cluster.apis(), scaled_len(200, 1_000));
    cluster.node(lagging).kill();
    let alive = cluster.apis_without(lagging);
    let waiters: Vec<_> = (0..5)
        .map(|at| {
            let (apis, name) = (alive.clone(), held[at].name.clone());
            client(move || acquire_at_last(&apis, &name, secs(60), secs(120)))
        })
        .collect();
    cycle(&alive, 0, scaled_len(500, 20_000));
    wait_until_out_of_reach(&cluster, lagging);
    for api in &alive {
        let taken = insist(&[*api], secs(60), Api::snapshot).must_be_ok();
        let (index, purged_to) = (taken.number("index"), taken.number("purged_to"));
        assert_eq!(purged_to, index, "nobody within reach needs what lies before: {taken:?}");
        let view = api.cluster().unwrap().must_be_ok();
        assert!(view.body["snapshot"]["index"].as_u64() >= Some(index), "{view:?}");
    }
    must_not_tell_of_the_living(&cluster, lagging, &held);

    cluster.node(lagging).start();
    wait_for_an_install(&cluster, lagging);
    cluster.wait_until_ready();
    cluster.make_leader(lagging);
    must_all_be_refused(cluster.api(lagging), &held[5..]);
    must_all_be_held(&cluster.apis(), &held[5..]);
    for held in &held[..5] {
        insist(&cluster.apis(), secs(20), |api| api.release(&held.name, &held.token)).must_be_ok();
    }
    for (waited, held) in all(waiters).iter().zip(&held) {
        assert!(waited.name == held.name && waited.fence > held.fence, "{waited:?} after {held:?}");
    }
}

/// For whom a leader reaches it keeps the log.
fn wait_until_out_of_reach(cluster: &Cluster, id: u64) {
    eventually(&format!("node {id} is out of reach"), secs(30), || {
        let view = cluster.api(cluster.leader_among(&cluster.others(id))).cluster().ok()?;
        let members = view.body["members"].as_array()?;
        members.iter().any(|member| member["id"] == id && member["reachable"] == false).then_some(())
    });
}

fn must_not_tell_of_the_living(cluster: &Cluster, dead: u64, held: &[Held]) {
    for node in cluster.nodes().filter(|node| node.id != dead) {
        let snapshots = bytes_below(&node.dir.join("snapshots"));
        assert!(held.iter().all(|held| !finds(&snapshots, held.name.as_bytes())), "node {}", node.id);
    }
}

/// Who holds a lock, as each node's own table says.
fn holders_everywhere(cluster: &Cluster, name: &str) -> Vec<Option<serde_json::Value>> {
    let fences = |api: &Api| {
        let answer = api.get_stale(name).ok().filter(|answer| answer.status != 503)?;
        let holders = answer.body["holders"].as_array().cloned().unwrap_or_default();
        Some(holders.iter().map(|holder| holder["fence"].clone()).collect())
    };
    cluster.apis().iter().map(fences).collect()
}

#[test]
fn tables_agree_after_kills_between_snapshots_every_few_hundred_milliseconds() {
    let args = ["--snapshot-age-ms", "200", "--snapshot-entries", "50", "--tail-bytes-max", "16384"];
    let mut cluster = Setup::of(3).with_args(&args).start();
    let held = hold_long(&cluster.apis(), 40);
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (apis, stop) = (cluster.apis(), Arc::clone(&stop));
            client(move || {
                let mut kept = Vec::new();
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let held = acquire_at_last(&apis, &format!("work {worker} {number}"), secs(600), secs(60));
                    if number % 4 == 0 {
                        kept.push(held.name.clone());
                    } else {
                        insist(&apis, secs(60), |api| api.release(&held.name, &held.token));
                    }
                }
                kept
            })
        })
        .collect();
    for kill in 0..scaled(6, 60) {
        let struck = now();
        cluster.kill_and_restart(kill % 3 + 1);
        cluster.wait_until_ready();
        pause_until(struck + ms(1_000));
    }
    stop.store(true, Ordering::Relaxed);
    let kept: Vec<String> = all(workers).into_iter().flatten().collect();
    assert!(kept.len() > 10, "only {} locks were kept", kept.len());
    for name in held.iter().map(|held| &held.name).chain(&kept) {
        eventually(&format!("all nodes say the same of {name}"), secs(30), || {
            let told = holders_everywhere(&cluster, name);
            (told[0].is_some() && told.iter().all(|of_node| *of_node == told[0])).then_some(())
        });
    }
    assert!(total(&cluster, "snapshots_built_total") >= 3.0, "snapshots were taken");
    must_all_be_held(&cluster.apis(), &held);
}
