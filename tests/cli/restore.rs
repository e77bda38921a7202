//! `serve --restore`, the second time and later.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::clock::secs;
use crate::harness::cluster::{Cluster, Setup};
use crate::harness::locker::insist;
use crate::harness::node::{LOCKSTEAD, Node};
use crate::harness::ports::free_address;
use crate::run::{Ran, run, run_with};

fn backup_of_one(home: &Path) -> PathBuf {
    let cluster = Cluster::start(1);
    let file = home.join("backup");
    run(&cluster.apis(), &["backup", "save", file.to_str().unwrap()]).must_exit(0);
    file
}

fn put(file: &Path, contents: Option<&[u8]>) {
    match contents {
        Some(contents) => fs::write(file, contents).unwrap(),
        None => fs::remove_file(file).unwrap(),
    }
}

/// Runs the command of a node that is not to start, on this directory.
fn start_in_vain(node: &Node, dir: &Path) -> Ran {
    let mut command = std::process::Command::new(LOCKSTEAD);
    command.args(node.args()).arg("--data-dir").arg(dir);
    run_with(command, "")
}

#[test]
fn a_node_that_was_restored_is_started_again_without_its_backup() {
    let home = TempDir::new().unwrap();
    let file = backup_of_one(home.path());
    let founder = ["--restore", file.to_str().unwrap(), "--holders-are-dead"];
    let mut cluster = Setup::of(1).with_founder_args(&founder).start();
    let id = cluster.api(1).cluster().unwrap().string("cluster_id").to_owned();
    let token = run(&cluster.apis(), &["acquire", "L", "--ttl", "5m"]).must_exit(0).only_line().to_owned();
    let backup = fs::read(&file).unwrap();
    run(&cluster.apis(), &["backup", "save", file.to_str().unwrap(), "--force"]).must_exit(0);
    let later = fs::read(&file).unwrap();
    let ignored = |cluster: &mut Cluster| cluster.node(1).output().matches("LOCKSTEAD_RESTORE) is ignored").count();
    for (contents, starts) in [(None, 1), (Some(&b"no backup"[..]), 2), (Some(&later), 3)] {
        cluster.kill_all();
        put(&file, contents);
        cluster.start_all();
        cluster.wait_until_ready();
        assert_eq!(cluster.api(1).cluster().unwrap().string("cluster_id"), id);
        insist(&cluster.apis(), secs(10), |api| api.renew("L", &token, 300_000)).must_be_ok();
        assert_eq!(ignored(&mut cluster), starts, "{}", cluster.node(1).output());
    }
    cluster.kill_all();

    // Killed after the identity was written and before anything else was: it has nothing but that.
    let interrupted = home.path().join("interrupted");
    fs::create_dir(&interrupted).unwrap();
    let identity = fs::read(cluster.node(1).dir.join("identity.json")).unwrap();
    let mut identity: Value = serde_json::from_slice(&identity).unwrap();
    identity["has_log"] = false.into();
    fs::write(interrupted.join("identity.json"), identity.to_string()).unwrap();
    for (contents, code, expected) in [
        (None, 2, "LOCKSTEAD_RESTORE"),
        (Some(&b"no backup"[..]), 2, "LOCKSTEAD_RESTORE"),
        (Some(&later), 13, "another backup"),
    ] {
        put(&file, contents);
        let ran = start_in_vain(cluster.node(1), &interrupted).must_exit(code);
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
    put(&file, Some(&backup));
    let dir = cluster.node(1).dir.clone();
    fs::remove_dir_all(&dir).unwrap();
    fs::rename(&interrupted, &dir).unwrap();
    cluster.start_all();
    cluster.wait_until_ready();
    assert_eq!(cluster.api(1).cluster().unwrap().string("cluster_id"), id);
}

#[test]
fn an_empty_directory_is_not_touched_if_the_backup_does_not_do() {
    let home = TempDir::new().unwrap();
    let (dir, file) = (home.path().join("d"), home.path().join("none"));
    fs::create_dir(&dir).unwrap();
    let (api, peer) = (free_address().to_string(), free_address().to_string());
    let mut command = std::process::Command::new(LOCKSTEAD);
    command.args(["serve", "--node-id", "1", "--bootstrap", "--listen", &api, "--peer-listen", &peer]);
    command.arg("--data-dir").arg(&dir).arg("--restore").arg(&file);
    let ran = run_with(command, "").must_exit(2);
    assert!(ran.stderr.contains("LOCKSTEAD_RESTORE"), "{ran:?}");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}
