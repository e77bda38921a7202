//! acquire, release, renew, get, status.

use crate::harness::clock::{NOISE, now, secs};
use crate::harness::cluster::Cluster;
use crate::harness::gather::{client, done};
use crate::harness::names::{longest, tricky};
use crate::run::{lockstead, run, run_with};

fn is_token(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[test]
fn the_round_of_a_lock_ends_in_the_right_exit_codes() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    run(&apis, &["get", "L"]).must_exit(1);
    let acquired = run(&apis, &["acquire", "L", "--ttl", "1m"]).must_exit(0);
    let token = acquired.only_line().to_owned();
    assert!(is_token(&token), "the token alone: {acquired:?}");
    assert!(!acquired.stderr.trim().is_empty() && !acquired.stderr.contains(&token), "{acquired:?}");

    let shown = run(&apis, &["get", "L"]).must_exit(0);
    assert!(shown.stdout.contains('L') && !shown.stdout.contains(&token), "{shown:?}");
    let busy = run(&apis, &["acquire", "L"]).must_exit(75);
    assert!(busy.stdout.is_empty() && !busy.stderr.contains(&token), "{busy:?}");
    run(&apis, &["renew", "L", "--token", "00000000000000000000000000000000"]).must_exit(76);
    run(&apis, &["renew", "L", "--ttl", "2m", "--token", &token]).must_exit(0);
    run(&apis, &["release", "L", "--token", "not even a token"]).must_exit(76);
    run(&apis, &["release", "L", "--token", &token]).must_exit(0);
    run(&apis, &["release", "L", "--token", &token]).must_exit(76);
    run(&apis, &["get", "L"]).must_exit(1);
}

#[test]
fn a_token_comes_from_the_flag_the_environment_or_stdin() {
    let cluster = Cluster::start(1);
    let apis = cluster.apis();
    let token = run(&apis, &["acquire", "L"]).must_exit(0).only_line().to_owned();
    run_with(lockstead(&apis, &["renew", "L"]), &token).must_exit(0);
    run_with(lockstead(&apis, &["renew", "L"]), &format!("{token}\n")).must_exit(0);
    let mut by_environment = lockstead(&apis, &["renew", "L"]);
    by_environment.env("LOCKSTEAD_TOKEN", &token);
    run_with(by_environment, "another").must_exit(0);
    let mut by_flag = lockstead(&apis, &["renew", "L", "--token", &token]);
    by_flag.env("LOCKSTEAD_TOKEN", "another");
    run_with(by_flag, "another").must_exit(0);
    run_with(lockstead(&apis, &["renew", "L"]), "").must_exit(2);
    run_with(lockstead(&apis, &["release", "L"]), &format!("{token}\n")).must_exit(0);
}

#[test]
fn a_hold_is_renewed_from_outside_by_its_owner() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    let token = run(&apis, &["acquire", "L", "--owner", "worker", "--ttl", "10s"]).must_exit(0);
    let again = run(&apis, &["acquire", "L", "--owner", "worker", "--ttl", "10s"]).must_exit(0);
    assert_eq!(token.only_line(), again.only_line(), "it renews what it holds");
    let renewed = run(&apis, &["renew", "L", "--owner", "worker", "--ttl", "50s", "--json"]).must_exit(0);
    let answer: serde_json::Value = serde_json::from_str(renewed.only_line()).unwrap();
    assert_eq!(answer["ttl_ms"], 50_000, "{answer}");
    assert!(!renewed.stdout.contains(token.only_line()), "{renewed:?}");
    run(&apis, &["renew", "L", "--owner", "another"]).must_exit(76);
    run(&apis, &["acquire", "L", "--owner", "another"]).must_exit(75);
}

#[test]
fn the_answer_of_the_interface_is_printed_when_asked_for() {
    let cluster = Cluster::start(1);
    let apis = cluster.apis();
    let json = |args: &[&str], code| {
        let ran = run(&apis, args).must_exit(code);
        serde_json::from_str::<serde_json::Value>(ran.only_line()).unwrap()
    };
    assert_eq!(json(&["get", "L", "--json"], 1)["error"]["code"], "not_held");
    let acquired = json(&["acquire", "L", "--ttl", "1m", "--json"], 0);
    assert_eq!((&acquired["name"], &acquired["ttl_ms"]), (&"L".into(), &60_000.into()));
    let token = acquired["token"].as_str().unwrap();
    let refused = json(&["acquire", "L", "--json"], 75);
    assert_eq!(refused["error"]["code"], "held");
    assert_eq!(refused["error"]["holders"][0]["fence"], acquired["fence"]);
    assert_eq!(json(&["get", "L", "--json"], 0)["holders"][0]["fence"], acquired["fence"]);
    assert_eq!(json(&["renew", "L", "--token", token, "--json"], 0)["ttl_ms"], 30_000);
    assert_eq!(json(&["release", "L", "--token", token, "--json"], 0)["name"], "L");
    assert_eq!(json(&["release", "L", "--token", token, "--json"], 76)["error"]["code"], "not_holder");
    assert_eq!(json(&["status", "--json"], 0)["node_id"], 1);
}

#[test]
fn what_is_wrong_is_exit_code_2_and_says_what_is_needed() {
    let cluster = Cluster::start(1);
    let apis = cluster.apis();
    for (args, expected) in [
        (&["acquire"][..], "NAME"),
        (&["acquire", "L", "--ttl", "30"], "unit"),
        (&["acquire", "L", "--ttl", "1ms"], "100"),
        (&["acquire", "L", "--ttl", "2days"], "86400000"),
        (&["acquire", "L", "--wait", "soon"], "forever"),
        (&["acquire", "L", "--no-such-flag"], "--no-such-flag"),
        (&["acquire", "L", "--endpoints", "ftp"], "port"),
        (&["acquire", ""], "1024"),
        (&["renew", "L", "--owner", "o", "--token", "t"], "--token"),
        (&["no-such-command"], "no-such-command"),
    ] {
        let ran = run(&apis, args).must_exit(2);
        assert!(ran.stdout.is_empty() && ran.stderr.contains(expected), "{args:?}: {ran:?}");
    }
    run(&apis, &["get", "L"]).must_exit(1);
}

#[test]
fn a_wait_ends_in_the_lock_or_in_exit_code_75() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    let token = run(&apis, &["acquire", "L", "--ttl", "1m"]).must_exit(0).only_line().to_owned();
    let begin = now();
    run(&apis, &["acquire", "L", "--wait", "1s"]).must_exit(75);
    let took = begin.elapsed();
    assert!(took >= secs(1) && took <= secs(1) + NOISE, "{took:?}");
    let forever = {
        let apis = apis.clone();
        client(move || run(&apis, &["acquire", "L", "--wait", "forever"]))
    };
    cluster.wait_until_waiting(1);
    run(&apis, &["release", "L", "--token", &token]).must_exit(0);
    let waited = done(forever).must_exit(0);
    assert!(is_token(waited.only_line()) && waited.only_line() != token, "{waited:?}");
}

#[test]
fn a_name_survives_the_command_line_byte_for_byte() {
    let cluster = Cluster::start(1);
    let apis = cluster.apis();
    // An argument of a process cannot hold a NUL.
    let names: Vec<String> = tricky().into_iter().filter(|name| !name.contains('\0')).collect();
    let tokens: Vec<String> = names
        .iter()
        .map(|name| run(&apis, &["acquire", "--ttl", "5m", "--", name]).must_exit(0).only_line().to_owned())
        .collect();
    for (name, token) in names.iter().zip(&tokens) {
        let shown = run(&apis, &["get", "--json", "--", name]).must_exit(0);
        let answer: serde_json::Value = serde_json::from_str(shown.only_line()).unwrap();
        assert_eq!(answer["name"].as_str(), Some(name.as_str()));
        let seen = apis[0].get(name).unwrap().must_be_ok();
        assert_eq!(seen.holder_fences(), [answer["holders"][0]["fence"].as_u64().unwrap()]);
        run(&apis, &["release", "--token", token, "--", name]).must_exit(0);
    }
    for name in ["", &(longest() + "x")] {
        run(&apis, &["acquire", "--", name]).must_exit(2);
        run(&apis, &["get", "--", name]).must_exit(2);
    }
}

#[test]
fn a_name_cannot_steer_the_terminal() {
    let cluster = Cluster::start(1);
    let apis = cluster.apis();
    let name = "\u{1b}[2J\u{202e}evil\n";
    let acquired = run(&apis, &["acquire", name]).must_exit(0);
    let shown = run(&apis, &["get", name]).must_exit(0);
    let busy = run(&apis, &["acquire", name]).must_exit(75);
    for text in [&acquired.stderr, &shown.stdout, &busy.stderr] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
    }
}

#[test]
fn status_shows_every_node_and_the_leader() {
    let cluster = Cluster::start(3);
    let shown = run(&cluster.apis(), &["status"]).must_exit(0);
    for api in cluster.apis() {
        assert!(shown.stdout.contains(&api.address.to_string()), "{shown:?}");
    }
    assert!(shown.stdout.contains("leader") && shown.stdout.contains("follower"), "{shown:?}");
    let listed = run(&cluster.apis(), &["member", "list"]).must_exit(0).stdout;
    let membership = listed.strip_prefix("membership ").and_then(|rest| rest.split(',').next()).unwrap();
    assert!(shown.stdout.contains(&format!("membership  {membership}\n")), "{shown:?}");
}
