//! Backups, and clusters that go on from one or from a single survivor: no lock is held, and no fence comes twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::api::Api;
use crate::harness::clock::{eventually, ms, now, secs};
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::locker::{Held, insist, take, waiting_body};
use crate::harness::node::{LOCKSTEAD, Node};
use crate::harness::ports::free_address;

const LOCKS: usize = 12;

fn lockstead(args: &[&str]) -> Output {
    Command::new(LOCKSTEAD).args(args).output().expect("the binary starts")
}

#[track_caller]
fn must_exit(output: &Output, code: i32) -> String {
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

#[track_caller]
fn save(api: Api, file: &Path, more: &[&str]) -> Output {
    let endpoint = format!("http://{}", api.address);
    lockstead(&[&["backup", "save", text(file), "--endpoints", &endpoint], more].concat())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn wall_us() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    u64::try_from(since_epoch.as_micros()).expect("a time before the year 500,000")
}

/// Takes locks that nobody releases.
fn hold_some(cluster: &Cluster) -> Vec<Held> {
    let api = cluster.api(1);
    let named = (0..LOCKS).map(|number| format!("held/lock-{number}"));
    let hold = |name: String| {
        let body = json!({"name": name, "ttl_ms": 60_000, "owner": format!("owner-of-{name}")});
        Held::from(&insist(&[api], secs(10), |api| api.acquire(&body)))
    };
    named.map(hold).collect()
}

/// A backup of a cluster of one that has granted `last fence` fences; the cluster is gone.
fn backup_of_one(home: &Path) -> (PathBuf, u64) {
    let cluster = Cluster::start(1);
    let file = home.join("backup");
    let held = hold_some(&cluster);
    must_exit(&save(cluster.api(1), &file, &[]), 0);
    (file, held.last().expect("some").fence)
}

#[track_caller]
fn must_hold_nothing(apis: &[Api], held: &[Held]) {
    for hold in held {
        insist(apis, secs(15), |api| api.get(&hold.name)).must_be(404, "not_held");
        insist(apis, secs(15), |api| api.renew(&hold.name, &hold.token, 60_000)).must_be(409, "not_holder");
        insist(apis, secs(15), |api| api.release(&hold.name, &hold.token)).must_be(409, "not_holder");
    }
}

/// A try is refused with what is left of the hold-off, and a waiter gets the lock right after it.
#[track_caller]
fn must_be_held_off(api: Api, name: &str) -> Held {
    let refused = insist(&[api], secs(15), |api| api.acquire(&json!({"name": name}))).must_be(409, "held");
    let hold_off_ms = refused.body["error"]["hold_off_ms"].as_u64().unwrap_or_else(|| panic!("{refused:?}"));
    assert_eq!(refused.body["error"]["retry_after_ms"], hold_off_ms, "{refused:?}");
    let shown = api.cluster().unwrap().number("hold_off_ms");
    // The node's table is behind the moment of the refusal, by a tick or so.
    assert!(shown > 0 && shown <= hold_off_ms + 5_000, "{shown} of {hold_off_ms}");
    let granted = insist(&[api], secs(60), |api| api.acquire(&waiting_body(name, secs(30), secs(40))));
    // A clock may be slower than another by no more than 1 %.
    assert!(granted.received >= refused.sent + ms(hold_off_ms - hold_off_ms / 100), "{refused:?} {granted:?}");
    eventually("the hold-off is seen to be over", secs(10), || {
        (api.cluster().unwrap().number("hold_off_ms") == 0).then_some(())
    });
    Held::from(&granted)
}

#[test]
fn a_restored_cluster_holds_nothing_waits_out_the_old_holders_and_goes_on_with_higher_fences() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("backup");
    let cluster = Cluster::start(3);
    let cluster_id = cluster.api(1).cluster().unwrap().string("cluster_id").to_owned();
    let held = hold_some(&cluster);
    must_exit(&save(cluster.api(2), &file, &[]), 0);
    // Granted after the backup was taken.
    let later = take(&cluster.api(3), "later", secs(60));
    drop(cluster);

    let before_us = wall_us();
    let founder = ["--restore", text(&file), "--hold-off", "15s"];
    let mut cluster = Setup::of(3).with_founder_args(&founder).start();
    let announced = cluster.node(1).output();
    assert!(announced.contains("nothing is granted for 15s"), "{announced}");
    assert_ne!(cluster.api(2).cluster().unwrap().string("cluster_id"), cluster_id);
    let first = must_be_held_off(cluster.api(2), &held[0].name);
    assert!(first.fence > later.fence && first.fence > before_us, "{first:?} {later:?} {before_us}");
    must_hold_nothing(&cluster.apis(), &held[1..]);
    must_hold_nothing(&cluster.apis(), &[later]);
    cluster.must_work();

    // The same command starts it again.
    cluster.kill_all();
    cluster.start_all();
    cluster.wait_until_ready();
    insist(&cluster.apis(), secs(10), |api| api.renew(&first.name, &first.token, 60_000)).must_be_ok();
    let next = take(&cluster.api(1), "next", secs(30));
    assert!(next.fence > first.fence);
}

#[test]
fn one_backup_restored_twice_gives_fences_that_rise() {
    let home = TempDir::new().unwrap();
    let (file, last_fence) = backup_of_one(home.path());
    let founder = ["--restore", text(&file), "--holders-are-dead"];
    let mut fences = vec![last_fence];
    for _ in 0..2 {
        let cluster = Setup::of(1).with_founder_args(&founder).start();
        let held = hold_some(&cluster);
        fences.extend(held.iter().map(|hold| hold.fence));
    }
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
}

#[test]
fn a_backup_holds_no_token_owner_or_name_and_is_written_whole_or_not_at_all() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("backup");
    let cluster = Cluster::start(1);
    let held = hold_some(&cluster);
    must_exit(&save(cluster.api(1), &file, &[]), 0);
    let bytes = fs::read(&file).unwrap();
    let contains = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    assert!(contains(b"LOCKSTED"));
    for hold in &held {
        let raw = u128::from_str_radix(&hold.token, 16).unwrap();
        assert!(!contains(hold.token.as_bytes()) && !contains(&raw.to_be_bytes()) && !contains(&raw.to_le_bytes()));
        assert!(!contains(hold.name.as_bytes()) && !contains(format!("owner-of-{}", hold.name).as_bytes()));
    }
    assert!(!contains(b"owner-of-") && !contains(b"held/"));

    let there = must_exit(&save(cluster.api(1), &file, &[]), 2);
    assert!(there.contains("--force"), "{there}");
    assert_eq!(fs::read(&file).unwrap(), bytes);
    must_exit(&save(cluster.api(1), &file, &["--force", "--json"]), 0);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left beside the file");

    let shown = must_exit(&lockstead(&["backup", "inspect", text(&file), "--json"]), 0);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["last_fence"], held.last().unwrap().fence);
    assert_eq!(shown["cluster_id"], cluster.api(1).cluster().unwrap().string("cluster_id"));
    assert_eq!(shown["members"][0]["api"], cluster.api(1).address.to_string());
    let table = must_exit(&lockstead(&["backup", "inspect", text(&file)]), 0);
    assert!(table.contains("last fence"), "{table}");
}

#[test]
fn a_backup_that_does_not_do_is_refused_before_anything_is_written() {
    let home = TempDir::new().unwrap();
    let (file, _) = backup_of_one(home.path());
    let bytes = fs::read(&file).unwrap();
    let altered = |at: usize, with: u8| {
        let mut altered = bytes.clone();
        altered[at] = with;
        altered
    };
    let dir = home.path().join("data");
    let (api, peer) = (free_address().to_string(), free_address().to_string());
    let serve = ["serve", "--node-id", "1", "--data-dir", text(&dir), "--listen", &api, "--peer-listen", &peer];
    let restore = |contents: &[u8], more: &[&str], expected: &str| {
        fs::write(&file, contents).unwrap();
        let output = lockstead(&[&serve[..], &["--restore", text(&file)], more].concat());
        let said = must_exit(&output, 2);
        assert!(said.contains("LOCKSTEAD_RESTORE") && said.contains(expected), "{said}");
        assert!(!dir.exists(), "something was written");
    };
    restore(&bytes[..bytes.len() - 1], &["--bootstrap"], "damaged");
    restore(&altered(bytes.len() - 3, bytes[bytes.len() - 3] ^ 1), &["--bootstrap"], "damaged");
    restore(&altered(8, 2), &["--bootstrap"], "newer version");
    restore(b"{}", &["--bootstrap"], "no backup");
    restore(&bytes, &["--join", &api], "only with --bootstrap");
    restore(&bytes, &[], "only with --bootstrap");
}

#[test]
fn a_backup_from_the_future_is_refused_in_one_line() {
    let home = TempDir::new().unwrap();
    let (file, _) = backup_of_one(home.path());
    let mut backup = lockstead_raft::Backup::decode(&fs::read(&file).unwrap()).unwrap();
    backup.taken_at.0 += 3_600_000;
    fs::write(&file, backup.encode()).unwrap();
    let dir = home.path().join("data");
    let (api, peer) = (free_address().to_string(), free_address().to_string());
    let serve = ["serve", "--node-id", "1", "--data-dir", text(&dir), "--listen", &api, "--peer-listen", &peer];
    let restore = ["--bootstrap", "--restore", text(&file), "--log-level", "error"];
    let said = must_exit(&lockstead(&[&serve[..], &restore].concat()), 2);
    assert!(said.contains("ms behind") && said.contains("--fence-floor"), "{said}");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
}

#[test]
fn a_node_that_has_a_cluster_is_not_restored_over_it() {
    let home = TempDir::new().unwrap();
    let (file, _) = backup_of_one(home.path());
    let mut cluster = Cluster::start(1);
    let held = take(&cluster.api(1), "L", secs(60));
    let node = cluster.node(1);
    node.kill();
    let mut restored = Command::new(LOCKSTEAD);
    restored.args(node.args()).args(["--restore", text(&file), "--data-dir"]).arg(&node.dir);
    let said = must_exit(&restored.output().unwrap(), 2);
    assert!(said.contains("give an empty directory"), "{said}");
    cluster.node(1).start();
    cluster.wait_until_ready();
    insist(&cluster.apis(), secs(10), |api| api.renew("L", &held.token, 60_000)).must_be_ok();
}

#[test]
fn one_survivor_of_three_becomes_a_cluster_of_its_own_without_any_hold() {
    let home = TempDir::new().unwrap();
    let mut cluster = Cluster::start(3);
    let old_id = cluster.api(1).cluster().unwrap().string("cluster_id").to_owned();
    let held = hold_some(&cluster);
    let dir = cluster.node(2).dir.clone();
    let recover = |confirm: &str, more: &[&str]| {
        lockstead(&[&["recover", "--data-dir", text(&dir), "--confirm", confirm], more].concat())
    };
    let running = must_exit(&recover(&old_id, &[]), 14);
    assert!(running.contains("in use"), "{running}");
    cluster.kill_all();
    let wrong = must_exit(&recover(&"0".repeat(32), &[]), 2);
    assert!(wrong.contains(&old_id), "{wrong}");
    let said = must_exit(&recover(&old_id, &["--hold-off", "10s"]), 0);
    assert!(said.contains("nothing is granted for 10s"), "{said}");

    cluster.node(2).start();
    let survivor = cluster.api(2);
    eventually("the survivor is ready", secs(30), || survivor.is_ready().then_some(()));
    let new_id = survivor.cluster().unwrap().string("cluster_id").to_owned();
    assert!(said.contains(&new_id) && new_id != old_id, "{said}");
    let first = must_be_held_off(survivor, &held[0].name);
    assert!(held.iter().all(|hold| hold.fence < first.fence));
    must_hold_nothing(&[survivor], &held[1..]);

    // One of the lost comes back with its old directory.
    cluster.node(1).start();
    let until = now() + secs(4);
    let back = cluster.api(1).patient_for(secs(1));
    eventually("some time passes", secs(20), || {
        assert!(!back.is_ready(), "{}", cluster.node(1).output());
        assert!(survivor.is_ready());
        (now() > until).then_some(())
    });
    cluster.node(1).kill();

    // A new node gets what the survivor goes on from.
    let (api, peer) = (free_address(), free_address());
    let mut args: Vec<String> = ["serve", "--node-id", "4"].map(str::to_owned).into();
    args.extend(["--listen".into(), api.to_string(), "--peer-listen".into(), peer.to_string()]);
    args.extend(["--join".into(), survivor.address.to_string()]);
    let mut joiner = Node::new(4, api, home.path(), args);
    joiner.start();
    eventually("the new node is ready", secs(30), || joiner.api().is_ready().then_some(()));
    let next = take(&joiner.api(), "next", secs(30));
    assert!(next.fence > first.fence);
    insist(&[joiner.api()], secs(10), |api| api.renew(&first.name, &first.token, 60_000)).must_be_ok();
}
