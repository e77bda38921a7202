//! The end of a hold-off: who waits is served by it, and every node knows that it is over, though nobody writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::harness::api::Api;
use crate::harness::clock::{LATE_MAX, NOISE, eventually, ms, now, secs};
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::http::Answer;
use crate::harness::locker::{Held, insist, take, waiting_body};
use crate::harness::node::LOCKSTEAD;

/// How long a waiter is ready to wait: whoever is served only then was forgotten.
const WAIT: Duration = secs(40);

fn backup_in(home: &Path) -> PathBuf {
    let file = home.join("backup");
    let cluster = Cluster::start(1);
    take(&cluster.api(1), "before", secs(60));
    let endpoint = format!("http://{}", cluster.api(1).address);
    let mut save = Command::new(LOCKSTEAD);
    save.args(["backup", "save"]).arg(&file).args(["--endpoints", &endpoint]);
    assert!(save.output().expect("the binary starts").status.success());
    assert!(fs::metadata(&file).is_ok_and(|file| file.len() > 0));
    file
}

/// A cluster of `nodes` that grants nothing for so long.
fn held_off(nodes: u64, length: &str) -> (TempDir, Cluster) {
    let home = TempDir::new().unwrap();
    let file = backup_in(home.path());
    let file = file.to_str().expect("a path in UTF-8");
    let cluster = Setup::of(nodes).with_founder_args(&["--restore", file, "--hold-off", length]).start();
    (home, cluster)
}

/// A refusal in the midst of the hold-off: some of it is over, and some is left.
fn refused_midway(api: Api, length_ms: u64) -> (Answer, Duration) {
    eventually("a part of the hold-off is over", secs(20), || {
        let refused = insist(&[api], secs(15), |api| api.acquire(&json!({"name": "tried"}))).must_be(409, "held");
        let left_ms = refused.body["error"]["hold_off_ms"].as_u64().unwrap_or_else(|| panic!("{refused:?}"));
        (left_ms <= length_ms - 300).then(|| (refused, ms(left_ms)))
    })
}

fn must_be_over(cluster: &Cluster, within: Duration) {
    eventually("every node knows that the hold-off is over", within, || {
        let over = |api: &Api| api.cluster().is_ok_and(|view| view.number("hold_off_ms") == 0);
        cluster.apis().iter().all(over).then_some(())
    });
}

#[test]
fn a_hold_off_is_over_on_every_node_though_nobody_asks_and_does_not_begin_again() {
    let (_home, mut cluster) = held_off(3, "2s");
    must_be_over(&cluster, secs(2) + LATE_MAX + NOISE);
    cluster.kill_all();
    cluster.start_all();
    cluster.wait_until_ready();
    must_be_over(&cluster, secs(1));
    cluster.must_work();
}

#[test]
fn a_waiter_that_comes_in_the_middle_of_a_hold_off_is_served_at_its_end() {
    let (_home, cluster) = held_off(1, "2s");
    let (refused, left) = refused_midway(cluster.api(1), 2_000);
    let granted = cluster.api(1).acquire(&waiting_body("waited for", secs(30), WAIT)).unwrap().must_be_ok();
    assert!(granted.received >= refused.sent + left * 99 / 100, "early: {refused:?} {granted:?}");
    assert!(granted.received <= refused.received + left + LATE_MAX + NOISE, "late: {refused:?} {granted:?}");
    must_be_over(&cluster, secs(5));
}

#[test]
fn waiters_that_come_through_any_node_are_served_at_the_end_of_the_hold_off() {
    let (_home, cluster) = held_off(3, "8s");
    let (mut waiting, mut end) = (Vec::new(), now());
    for api in cluster.apis() {
        // Each comes later than the last, and one more behind it.
        let (refused, left) = refused_midway(api, 8_000);
        end = refused.received + left;
        for name in [format!("through {}", api.address), "of all".to_owned()] {
            waiting.push((name.clone(), api.start_acquire(&waiting_body(&name, ms(500), WAIT)).unwrap()));
        }
    }
    cluster.wait_until_waiting(6);
    assert!(now() < end, "the machine is too slow for this test");
    let (mut fences, mut behind) = (Vec::new(), Duration::ZERO);
    for (name, mut conn) in waiting {
        let granted = conn.answer(WAIT + secs(10)).unwrap();
        assert!(granted.received <= end + behind + LATE_MAX + NOISE, "late: {name} {granted:?}");
        if name == "of all" {
            // Nobody releases it: the next has it when it has run out.
            behind += ms(500) + LATE_MAX;
        }
        fences.push(Held::from(&granted).fence);
    }
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 6);
    must_be_over(&cluster, secs(5));
}
