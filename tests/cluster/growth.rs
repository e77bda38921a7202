//! What has passed leaves nothing behind: memory, log, disk and metrics after many names that are never used again; and
//! what is held weighs little and is there again soon after a restart.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::api::Api;
use crate::harness::clock::{NOISE, eventually, ms, now, secs};
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::gather::divided;
use crate::harness::locker::{Held, insist, take, take_from_any};
use crate::harness::scale::{scaled, scaled_len};

const SNAPSHOT_BYTES: u64 = 65_536;
const TAIL_BYTES: u64 = 65_536;
/// What the log is never much longer than while next to nothing is held, with 1,000 entries of at most 300 bytes.
const LOG_BYTES_MAX: u64 = TAIL_BYTES + 2 * SNAPSHOT_BYTES + 1_000 * 300;
/// What a data directory never takes more than: twice the log, and what the files are for an empty one.
const DISK_BYTES_MAX: u64 = 2 * LOG_BYTES_MAX + 128 * MIB;
const MIB: u64 = 1_024 * 1_024;
/// What a process may weigh more or less without having kept anything.
const WEIGHT_NOISE_KIB: u64 = 12 * 1_024;
/// What the name of a lock that nobody takes again begins with.
const PASSING: &str = "passing-by";

fn tidy(nodes: u64) -> Cluster {
    let (bytes, tail) = (SNAPSHOT_BYTES.to_string(), TAIL_BYTES.to_string());
    let args = ["--snapshot-entries", "500", "--snapshot-bytes", &bytes, "--tail-bytes-max", &tail];
    Setup::of(nodes).alone().with_args(&args).start()
}

/// Takes and releases locks that nobody takes again; gives one of the tokens.
fn pass_by(apis: &[Api], round: &'static str, cycles: usize) -> String {
    let apis = apis.to_vec();
    let tokens = divided(cycles, move |number| {
        let held = take_from_any(&apis, &format!("{PASSING} {round} {number}"), secs(30));
        insist(&apis, secs(20), |api| api.release(&held.name, &held.token));
        held.token
    });
    tokens.into_iter().next().expect("at least one cycle")
}

/// Somebody waits for each in vain, and whoever holds it lets it time out.
fn contend(apis: &[Api], round: &'static str, names: usize) {
    let apis = apis.to_vec();
    divided(names, move |number| {
        let name = format!("{PASSING} contended {round} {number}");
        take_from_any(&apis, &name, ms(500));
        let body = json!({"name": name, "ttl_ms": 500, "wait_ms": 1, "owner": format!("{PASSING} owner")});
        insist(&apis, secs(20), |api| api.acquire(&body)).must_be(409, "held");
    });
}

fn wait_until_nothing_is_held(cluster: &Cluster) {
    eventually("what nobody renews is gone", secs(20), || {
        cluster.apis().iter().all(|api| api.metric("live_records") == Some(0.0)).then_some(())
    });
}

/// Log and disk of every node are within what the documentation says.
fn must_be_bounded(cluster: &Cluster) {
    for api in cluster.apis() {
        eventually(&format!("a log of at most {LOG_BYTES_MAX} bytes"), secs(30), || {
            let view = api.cluster().ok()?;
            (view.body["tail"]["bytes"].as_u64()? <= LOG_BYTES_MAX).then_some(())
        });
        let disk_bytes = api.cluster().unwrap().number("disk_bytes");
        assert!(disk_bytes <= DISK_BYTES_MAX, "{disk_bytes} bytes on disk");
    }
}

fn metrics(cluster: &Cluster) -> String {
    let page = |api: &Api| api.call("GET", "/metrics", None, secs(5)).expect("an answer").text.clone();
    cluster.apis().iter().map(page).collect()
}

/// All series, without their values.
fn series(metrics: &str) -> BTreeSet<&str> {
    metrics.lines().filter(|line| !line.starts_with('#')).filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect()
}

fn resident_kib(cluster: &Cluster) -> Vec<u64> {
    cluster.nodes().map(crate::harness::node::Node::resident_kib).collect()
}

#[test]
fn names_that_are_never_used_again_leave_nothing_behind() {
    let mut cluster = tidy(3);
    let apis = cluster.apis();
    contend(&apis, "first", scaled_len(50, 100_000));
    pass_by(&apis, "first", scaled_len(1_500, 1_000_000));
    wait_until_nothing_is_held(&cluster);
    let (metrics_before, weight_before) = (metrics(&cluster), resident_kib(&cluster));

    contend(&apis, "second", scaled_len(150, 900_000));
    let token = pass_by(&apis, "second", scaled_len(4_500, 4_000_000));
    wait_until_nothing_is_held(&cluster);
    must_be_bounded(&cluster);
    let (metrics_after, weight_after) = (metrics(&cluster), resident_kib(&cluster));
    eprintln!("resident: {weight_before:?} KiB, then {weight_after:?} KiB");
    for (before, after) in weight_before.iter().zip(&weight_after) {
        let most_kib = before + before / 10 + WEIGHT_NOISE_KIB;
        assert!(*after <= most_kib, "{before} KiB, then {after} KiB");
    }
    assert_eq!(series(&metrics_before), series(&metrics_after), "no series for what passes");
    assert!(!metrics_after.contains(PASSING) && !metrics_after.contains(&token), "metrics tell of names or tokens");

    // The slow day after: a lock now and then, and each node starts again.
    for (id, signal) in [(1, Signal::TERM), (2, Signal::KILL), (3, Signal::TERM)] {
        cluster.node(id).signal(signal);
        cluster.node(id).wait_for_exit(secs(20));
        cluster.node(id).start();
        cluster.wait_until_ready();
        pass_by(&cluster.apis(), "slow day", 8);
    }
    must_be_bounded(&cluster);
}

/// 24 bytes.
fn weighed(number: usize) -> String {
    format!("a-lock-that-is-weighed-{number:06}")[5..].to_owned()
}

fn hold(api: Api, numbers: std::ops::Range<usize>) -> Vec<Held> {
    let first = numbers.start;
    divided(numbers.len(), move |number| take(&api, &weighed(first + number), secs(3_600)))
}

#[test]
fn a_held_lock_weighs_little_and_a_node_that_holds_many_is_ready_soon() {
    let mut cluster = Setup::of(1).alone().start();
    let locks = scaled_len(12_000, 100_000);
    assert_eq!(weighed(0).len(), 24);
    let mut held = hold(cluster.api(1), 0..locks);
    let before_kib = resident_kib(&cluster)[0];
    held.extend(hold(cluster.api(1), locks..2 * locks));
    let after_kib = resident_kib(&cluster)[0];
    let grown_bytes = after_kib.saturating_sub(before_kib) * 1_024;
    eprintln!("{locks} more locks: {grown_bytes} bytes more");
    let locks_64 = u64::try_from(locks).expect("a number");
    assert!(grown_bytes <= 600 * locks_64 + WEIGHT_NOISE_KIB * 1_024, "{grown_bytes} bytes for {locks} locks");

    cluster.node(1).kill();
    let begin = now();
    cluster.node(1).start();
    cluster.wait_until_ready();
    let took = begin.elapsed();
    eprintln!("ready after {took:?} with {} locks held", held.len());
    assert!(took <= secs(scaled(3, 6)) + NOISE, "ready after {took:?}");
    let api = cluster.api(1);
    divided(held.len(), move |number| {
        let held = &held[number];
        held.renewed(&insist(&[api], secs(20), |api| api.renew(&held.name, &held.token, 3_600_000)));
    });
}
