//! What `serve` refuses, and where it takes its options from.

use std::net::TcpListener;
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

/// At the start of a host its addresses may come up after the service. 192.0.2.0/24 is for documentation: no host has
/// it.
#[test]
fn an_address_that_the_host_does_not_have_yet_ends_the_node_before_it_touches_its_data_and_systemd_starts_it_again() {
    let unit = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/lockstead.service")).unwrap();
    let for_good = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus=")).unwrap();
    for (option, other) in [("--listen", "--peer-listen"), ("--peer-listen", "--listen")] {
        let home = TempDir::new().unwrap();
        let mut command = Command::new(LOCKSTEAD);
        command.args(["serve", "--node-id", "1", "--bootstrap", "--allow-unauthenticated", other, "127.0.0.1:0"]);
        command.args([option, "192.0.2.1:7401", "--data-dir"]).arg(home.path().join("d"));
        let ran = run_with(command, "").must_exit(69);
        assert!(ran.stderr.contains("192.0.2.1:7401") && ran.stderr.contains("not yet"), "{ran:?}");
        assert!(!home.path().join("d").exists(), "a start that comes to nothing is no start");
    }
    assert!(unit.lines().any(|line| line == "Restart=on-failure"), "{unit}");
    assert!(for_good.split(' ').all(|code| code != "69") && for_good.split(' ').any(|code| code == "2"), "{for_good}");
}

#[test]
fn an_address_that_another_program_has_is_for_a_person_to_correct() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = serve(&["--node-id", "1", "--bootstrap", "--listen", &address], &[]).must_exit(2);
    assert!(ran.stderr.contains(&address), "{ran:?}");
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
