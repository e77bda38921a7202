//! What `serve` refuses, and where it takes its options from.

use std::process::Command;

use tempfile::TempDir;

use crate::harness::node::LOCKSTEAD;
use crate::run::{Ran, run_with};

/// Runs `serve` with these arguments and variables on a directory of its own.
fn serve(args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let home = TempDir::new().unwrap();
    let mut command = Command::new(LOCKSTEAD);
    command.args(["serve", "--data-dir"]).arg(home.path().join("d")).args(args).envs(variables.iter().copied());
    run_with(command, "")
}

#[test]
fn an_address_that_others_reach_needs_consent() {
    let open = ["--node-id", "1", "--bootstrap", "--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:1"];
    let ran = serve(&open, &[]).must_exit(2);
    assert!(ran.stderr.contains("--allow-unauthenticated"), "{ran:?}");
}

#[test]
fn a_new_node_is_told_to_join_or_to_found() {
    let ran = serve(&["--node-id", "1", "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"], &[]).must_exit(2);
    assert!(ran.stderr.contains("--join") && ran.stderr.contains("--bootstrap"), "{ran:?}");
}

#[test]
fn an_option_wins_over_the_environment_and_that_over_the_file() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("node.toml");
    std::fs::write(&file, "heartbeat_ms = 1\n").unwrap();
    let config = ["--node-id", "1", "--config", file.to_str().unwrap()];
    let refused = |args: &[&str], variables: &[(&str, &str)]| serve(args, variables).must_exit(2).stderr;
    let bad =
        |stderr: &str, value: &str| assert!(stderr.contains("heartbeat_ms") && stderr.contains(value), "{stderr}");
    bad(&refused(&config, &[]), ": 1 is");
    bad(&refused(&config, &[("LOCKSTEAD_HEARTBEAT_MS", "2")]), ": 2 is");
    let by_option = [&config[..], &["--heartbeat-ms", "3"]].concat();
    bad(&refused(&by_option, &[("LOCKSTEAD_HEARTBEAT_MS", "2")]), ": 3 is");
}

#[test]
fn a_key_that_does_not_exist_is_named() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("node.toml");
    std::fs::write(&file, "heart_beat_ms = 50\n").unwrap();
    let ran = serve(&["--node-id", "1", "--config", file.to_str().unwrap()], &[]).must_exit(2);
    assert!(ran.stderr.contains("heart_beat_ms"), "{ran:?}");
}

/// A release build does not read the variable.
#[cfg(debug_assertions)]
#[test]
fn a_fault_that_cannot_be_planted_is_refused_with_the_names_of_all() {
    let new = ["--node-id", "1", "--bootstrap", "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"];
    let ran = serve(&new, &[("LOCKSTEAD_PLANT", "no-such-fault")]).must_exit(2);
    assert!(ran.stderr.contains("LOCKSTEAD_PLANT") && ran.stderr.contains("stale-denial"), "{ran:?}");
}
