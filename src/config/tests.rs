use clap::{Command, FromArgMatches};

use super::check::{LogLimits, Timing};
use super::*;

const NEEDED: &[&str] = &["--node-id", "1", "--data-dir", "d"];

fn options(line: &[&str]) -> ServeOptions {
    let command = ServeOptions::augment_args(Command::new("serve"));
    let matches = command.try_get_matches_from([&["serve"], line].concat()).unwrap();
    ServeOptions::from_arg_matches(&matches).unwrap()
}

fn load(line: &[&str]) -> Result<NodeConfig, String> {
    let loaded = options(&[NEEDED, line].concat()).load();
    loaded.map(|(node, _)| node).map_err(|failure| failure.message)
}

fn check_refused(line: &[&str], expected: &[&str]) {
    let error = load(line).unwrap_err();
    for part in expected {
        assert!(error.contains(part), "{line:?}: {error}");
    }
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn what_is_not_said_has_a_default() {
    let node = load(&[]).unwrap();
    let timing = Timing { heartbeat_ms: 50, election_min_ms: 150, election_max_ms: 300, tick_ms: 250 };
    assert_eq!((node.timing, node.locks_max, node.ttl_max_ms), (timing, 1_000_000, 86_400_000));
    let log = LogLimits {
        snapshot_entries: 100_000,
        snapshot_bytes: 4_194_304,
        snapshot_age_ms: 600_000,
        tail_bytes_max: 67_108_864,
    };
    assert_eq!(node.log, log);
    assert_eq!((node.listen.to_string().as_str(), node.entry), ("127.0.0.1:7401", Entry::Unsaid));
}

#[test]
fn heartbeats_come_three_to_an_election_timeout_unless_it_is_said() {
    for (election_min_ms, heartbeat_ms) in [(10, 5), (900, 300), (60_000, 10_000)] {
        let node = load(&["--election-min-ms", &election_min_ms.to_string(), "--election-max-ms", "90000"]).unwrap();
        assert_eq!((node.timing.election_min_ms, node.timing.heartbeat_ms), (election_min_ms, heartbeat_ms));
    }
}

#[test]
fn an_option_wins_over_the_file() {
    let file = file("heartbeat_ms = 20\ntick_ms = 70\nbootstrap = true\njoin = ['h:1']\npeer_route = ['2=h:9']");
    let path = file.path().to_str().unwrap();
    let node = load(&["--config", path, "--heartbeat-ms", "30", "--join", "a:1,b:2"]).unwrap();
    assert_eq!((node.timing.heartbeat_ms, node.timing.tick_ms), (30, 70));
    assert_eq!(node.entry, Entry::Found(vec!["a:1".parse().unwrap(), "b:2".parse().unwrap()]));
    assert_eq!(node.peer_routes[&2], "h:9");
    assert!(matches!(load(&["--config", path, "--bootstrap=false"]).unwrap().entry, Entry::Join(..)));
}

#[test]
fn every_option_has_an_environment_variable_and_a_key() {
    let command = ServeOptions::augment_args(Command::new("serve"));
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let variable = format!("LOCKSTEAD_{}", id.to_uppercase());
        assert_eq!(argument.get_env().and_then(|variable| variable.to_str()), Some(variable.as_str()));
        let refused = parse(&format!("{id} = {{}}")).unwrap_err();
        assert_eq!(refused.contains("unknown field"), id == "config", "{id}: {refused}");
    }
}

#[test]
fn a_key_that_is_unknown_is_named() {
    let error = parse("node_id = 1\nheartbeat = 50").unwrap_err();
    assert!(error.contains("line 2") && error.contains("`heartbeat`"), "{error}");
    assert!(parse("node_id = 'x'").unwrap_err().contains("node_id"));
}

#[test]
fn a_value_out_of_range_is_named_with_what_is_allowed() {
    check_refused(&["--heartbeat-ms", "0"], &["heartbeat_ms", "LOCKSTEAD_HEARTBEAT_MS", "5 to 10000"]);
    check_refused(&["--heartbeat-ms", "-1"], &["heartbeat_ms", "5 to 10000"]);
    check_refused(&["--ttl-max-ms", "9000000000000000000"], &["ttl_max_ms", "30000 to 2592000000"]);
    check_refused(&["--peer-route", "x"], &["peer_route", "ID=HOST:PORT"]);
    check_refused(&["--join", "nowhere"], &["join", "HOST:PORT"]);
    check_refused(&["--log-level", "a=loud"], &["log_level", "debug"]);
    check_refused(&["--workers", "0"], &["workers", "1 to 1024"]);
    check_refused(&["--snapshot-entries", "9"], &["snapshot_entries", "10 to 100000000"]);
    check_refused(&["--snapshot-bytes", "4095"], &["snapshot_bytes", "4096 to 1099511627776"]);
    check_refused(&["--snapshot-age-ms", "99"], &["snapshot_age_ms", "100 to 2592000000"]);
    check_refused(&["--tail-bytes-max", "0"], &["tail_bytes_max", "LOCKSTEAD_TAIL_BYTES_MAX", "4096"]);
}

#[test]
fn lengths_must_fit_together() {
    check_refused(&["--heartbeat-ms", "150"], &["election_min_ms", "heartbeat_ms (150)"]);
    check_refused(&["--election-max-ms", "150"], &["election_max_ms", "election_min_ms (150)"]);
}

#[test]
fn an_address_that_is_not_loopback_needs_consent_and_a_way_back() {
    check_refused(&["--listen", "0.0.0.0:1"], &["listen", "--allow-unauthenticated"]);
    check_refused(&["--peer-listen", "0.0.0.0:1"], &["peer_listen", "--allow-unauthenticated"]);
    check_refused(&["--listen", "0.0.0.0:1", "--allow-unauthenticated"], &["advertise", "required"]);
    check_refused(&["--peer-listen", "[::]:1", "--allow-unauthenticated"], &["advertise_peer", "required"]);
    let line = ["--listen", "0.0.0.0:1", "--allow-unauthenticated", "--advertise", "http://me:1"];
    assert_eq!(load(&line).unwrap().advertise.as_deref(), Some("me:1"));
    for nowhere in ["0.0.0.0:1", "[::]:1"] {
        check_refused(&["--advertise", nowhere], &["advertise", "nobody can be reached", "HOST:PORT"]);
        check_refused(&["--advertise-peer", nowhere], &["advertise_peer", "nobody can be reached", "HOST:PORT"]);
    }
    for no_port in ["me:0", "me:65536", "me"] {
        check_refused(&["--advertise-peer", no_port], &["advertise_peer", "port 1 to 65535"]);
    }
}

#[test]
fn how_a_node_comes_to_a_cluster_is_read() {
    assert!(matches!(load(&["--join", "a:1"]).unwrap().entry, Entry::Join(_, JoinAs::Voter)));
    assert!(matches!(load(&["--join", "a:1", "--learner"]).unwrap().entry, Entry::Join(_, JoinAs::Learner)));
    assert_eq!(load(&["--bootstrap"]).unwrap().entry, Entry::Found(Vec::new()));
    check_refused(&["--bootstrap", "--learner"], &["learner"]);
    assert_eq!(load(&["--standby"]).unwrap().entry, Entry::Standby);
    check_refused(&["--standby", "--join", "a:1"], &["standby", "not beside bootstrap, join or restore"]);
    check_refused(&["--standby", "--bootstrap"], &["standby"]);
}

#[test]
fn what_is_said_about_a_restore_must_fit_together() {
    check_refused(&["--bootstrap", "--hold-off", "5s"], &["hold_off", "LOCKSTEAD_HOLD_OFF", "only with --restore"]);
    check_refused(&["--bootstrap", "--holders-are-dead"], &["holders_are_dead", "only with --restore"]);
    check_refused(&["--bootstrap", "--fence-floor", "7"], &["fence_floor", "only with --restore"]);
    let restore = |more: &[&str], expected: &[&str]| {
        check_refused(&[&["--bootstrap", "--restore", "/no/such/file"], more].concat(), expected);
    };
    restore(&["--holders-are-dead", "--hold-off", "5s"], &["hold_off", "not together with --holders-are-dead"]);
    restore(&["--hold-off", "5"], &["hold_off", "give a unit"]);
    restore(&["--fence-floor", "9007199254740991"], &["fence_floor", "0 to 9007199254740990"]);
    restore(&[], &["restore", "LOCKSTEAD_RESTORE", "/no/such/file"]);
    let no_clock_is_so_late = lockstead_raft::Backup {
        cluster_id: lockstead_core::ClusterId(1),
        taken_at: lockstead_core::WallTime(4_102_444_800_000),
        index: 1,
        term: 1,
        built_at: 1,
        residue: lockstead_core::Residue::default(),
        members: Vec::new(),
    };
    let later = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(later.path(), no_clock_is_so_late.encode()).unwrap();
    let later = ["--bootstrap", "--restore", later.path().to_str().unwrap()];
    check_refused(&later, &["restore", "behind", "--fence-floor"]);
    let entry = load(&[&later[..], &["--fence-floor", "70", "--hold-off", "1m"]].concat()).unwrap().entry;
    let Entry::Restore(_, restoring) = entry else { panic!("{entry:?}") };
    assert_eq!(restoring.lineage.fence_floor, Some(lockstead_core::Fence(70)));
    assert_eq!(restoring.lineage.hold_off, lockstead_core::HoldOff::Length(60_000));
    let no_backup = file("something else");
    check_refused(&["--bootstrap", "--restore", no_backup.path().to_str().unwrap()], &["restore", "no backup"]);
}

#[test]
fn a_directory_that_has_been_a_nodes_may_need_no_backup_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let line =
        ["--node-id", "1", "--data-dir", dir.path().to_str().unwrap(), "--bootstrap", "--restore", "/no/such/file"];
    assert!(options(&line).load().unwrap_err().message.contains("/no/such/file"));
    std::fs::write(dir.path().join("identity.json"), "{}").unwrap();
    let (node, _) = options(&line).load().unwrap();
    let Entry::Restore(_, restoring) = &node.entry else { panic!("{node:?}") };
    assert!(restoring.backup.as_ref().unwrap_err().contains("/no/such/file"), "{restoring:?}");
}

#[test]
fn clients_and_peers_need_two_addresses() {
    let twice = ["--listen", "127.0.0.1:7001", "--peer-listen", "127.0.0.1:7001"];
    check_refused(&twice, &["peer_listen", "127.0.0.1:7001", "another port"]);
    assert!(load(&["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0"]).is_ok(), "any two free ports");
    check_refused(&["--advertise", "h:7402", "--advertise-peer", "h:7402"], &["advertise_peer", "h:7402", "another"]);
    check_refused(&["--advertise-peer", "127.0.0.1:7401"], &["advertise_peer", "127.0.0.1:7401", "another"]);
}

#[test]
fn what_is_required_is_named() {
    let error = options(&["--data-dir", "d"]).load().unwrap_err();
    assert_eq!(error.exit.code(), 2);
    assert!(error.message.contains("node_id (--node-id, LOCKSTEAD_NODE_ID): required"));
}
