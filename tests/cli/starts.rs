//! Nodes that are started wrongly: twice, with one address for two purposes, with nobody to ask.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::harness::clock::{eventually, secs};
use crate::harness::cluster::Cluster;
use crate::harness::node::LOCKSTEAD;
use crate::harness::ports::free_address;
use crate::run::run_with;

/// A process that ends with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _gone = (self.0.kill(), self.0.wait());
    }
}

#[test]
fn a_running_node_that_is_started_again_by_the_same_command_is_exit_code_14() {
    let mut cluster = Cluster::start(1);
    let node = cluster.node(1);
    let mut again = Command::new(LOCKSTEAD);
    again.args(node.args()).arg("--data-dir").arg(&node.dir);
    let ran = run_with(again, "").must_exit(14);
    assert!(ran.stderr.contains("in use by another process"), "{ran:?}");
    assert!(cluster.node(1).is_running());
}

#[test]
fn one_address_for_clients_and_peers_is_refused_by_name() {
    let home = TempDir::new().unwrap();
    let address = free_address().to_string();
    let mut command = Command::new(LOCKSTEAD);
    command.args(["serve", "--node-id", "1", "--bootstrap", "--listen", &address, "--peer-listen", &address]);
    command.arg("--data-dir").arg(home.path().join("d"));
    let ran = run_with(command, "").must_exit(2);
    assert!(ran.stderr.contains("--peer-listen") && ran.stderr.contains(&address), "{ran:?}");
}

#[test]
fn a_founder_that_is_told_to_ask_nobody_but_itself_says_so() {
    let home = TempDir::new().unwrap();
    let (api, peer) = (free_address().to_string(), free_address().to_string());
    let stderr = home.path().join("stderr");
    let mut command = Command::new(LOCKSTEAD);
    command.args(["serve", "--node-id", "1", "--bootstrap", "--join", &api, "--listen", &api, "--peer-listen", &peer]);
    command.arg("--data-dir").arg(home.path().join("d"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&stderr).unwrap());
    let _node = Started(command.spawn().unwrap());
    eventually("it says that nobody was asked", secs(20), || {
        fs::read_to_string(&stderr).unwrap().contains("without asking anybody but itself").then_some(())
    });
}

#[test]
fn the_range_of_a_node_id_is_named_in_one_wording() {
    for id in ["0", "9007199254740992", "18446744073709551615"] {
        for args in [&["serve", "--data-dir", "d", "--node-id", id][..], &["member", "remove", id]] {
            let mut command = Command::new(LOCKSTEAD);
            command.args(args);
            let ran = run_with(command, "").must_exit(2);
            assert!(ran.stderr.contains("out of range; allowed: 1 to 9007199254740991"), "{args:?}: {ran:?}");
        }
    }
}
