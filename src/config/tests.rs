use clap::{Command, FromArgMatches};

use super::check::Timing;
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
    assert_eq!((node.listen.to_string().as_str(), node.entry), ("127.0.0.1:7401", Entry::Unsaid));
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
}

#[test]
fn how_a_node_comes_to_a_cluster_is_read() {
    assert!(matches!(load(&["--join", "a:1"]).unwrap().entry, Entry::Join(_, JoinAs::Voter)));
    assert!(matches!(load(&["--join", "a:1", "--learner"]).unwrap().entry, Entry::Join(_, JoinAs::Learner)));
    assert_eq!(load(&["--bootstrap"]).unwrap().entry, Entry::Found(Vec::new()));
    check_refused(&["--bootstrap", "--learner"], &["learner"]);
}

#[test]
fn what_is_required_is_named() {
    let error = options(&["--data-dir", "d"]).load().unwrap_err();
    assert_eq!(error.exit.code(), 2);
    assert!(error.message.contains("node_id (--node-id, LOCKSTEAD_NODE_ID): required"));
}
