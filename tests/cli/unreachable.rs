//! Nobody there, nobody who decides, and a leader that dies.

use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;

use crate::harness::api::Api;
use crate::harness::clock::{NOISE, eventually, now, secs};
use crate::harness::cluster::Cluster;
use crate::harness::gather::{all, client};
use crate::harness::node::Node;
use crate::harness::ports::free_address;
use crate::run::{lockstead, run};

#[test]
fn a_cluster_that_is_not_there_is_exit_code_69_in_time() {
    let nobody = [Api::at(free_address()), Api::at(free_address())];
    for args in [
        &["get", "L"][..],
        &["acquire", "L"],
        &["renew", "L", "--token", "t"],
        &["release", "L", "--token", "t"],
        &["status"],
        &["member", "remove", "2"],
    ] {
        let begin = now();
        let args = [args, &["--timeout", "2s"]].concat();
        let ran = run(&nobody, &args).must_exit(69);
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{ran:?}");
        assert!(begin.elapsed() <= secs(6), "{args:?} took {:?}", begin.elapsed());
    }
}

#[test]
fn a_cluster_without_a_quorum_is_exit_code_69() {
    let mut cluster = Cluster::start(3);
    let apis = cluster.apis();
    let token = run(&apis, &["acquire", "L", "--ttl", "5m"]).must_exit(0).only_line().to_owned();
    cluster.node(1).kill();
    cluster.node(2).kill();
    let alive = [cluster.api(3)];
    run(&alive, &["acquire", "M", "--timeout", "3s"]).must_exit(69);
    run(&apis, &["get", "L", "--timeout", "3s"]).must_exit(69);
    run(&apis, &["renew", "L", "--token", &token, "--timeout", "3s"]).must_exit(69);
    eventually("status says so", secs(10), || {
        let shown = run(&alive, &["status"]).must_exit(0).stdout;
        (shown.contains("NO QUORUM") || shown.contains("NO LEADER")).then_some(())
    });
    cluster.node(1).start();
    cluster.when_led_again(&[1, 3]);
    // The nodes that are dead are passed over.
    run(&[cluster.api(2), cluster.api(1), cluster.api(3)], &["renew", "L", "--token", &token]).must_exit(0);
    run(&[cluster.api(2), cluster.api(3)], &["release", "L", "--token", &token]).must_exit(0);
}

#[test]
fn without_a_quorum_a_command_ends_in_what_the_node_says_and_not_in_doubt() {
    let mut cluster = Cluster::start(3);
    let (leader, [other, alone]) = cluster.leader_and_others();
    let token = run(&cluster.apis(), &["acquire", "L", "--ttl", "5m"]).must_exit(0).only_line().to_owned();
    cluster.each(&[leader, other], Node::kill);
    let begin = now();
    let (other, alone) = (other.to_string(), [cluster.api(alone)]);
    let commands = [
        &["get", "L"][..],
        &["acquire", "M"],
        &["renew", "L", "--token", &token],
        &["member", "demote", &other],
        &["member", "remove", &other],
        &["member", "transfer"],
        &["member", "promote", &other, "--wait", "2s"],
    ];
    let clients = commands.map(|args| {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        client(move || run(&alone, &args.iter().map(String::as_str).collect::<Vec<_>>()))
    });
    for ran in all(clients.into()) {
        let ran = ran.must_exit(69);
        let last = ran.stderr.lines().last().unwrap_or_default();
        assert!(last.contains("no leader with a quorum") && last.contains("nothing was changed"), "{ran:?}");
        for doubt in ["may or may not", "no answer within", "trying on"] {
            assert!(!ran.stderr.contains(doubt), "{ran:?}");
        }
    }
    // 2 s of waiting, 10 s of tries, and the last one heard out.
    assert!(begin.elapsed() <= secs(18) + NOISE, "{:?}", begin.elapsed());
}

#[test]
fn a_command_finds_the_new_leader_by_itself() {
    let mut cluster = Cluster::start(3);
    let apis = cluster.apis();
    let leader = cluster.leader();
    let token = run(&apis, &["acquire", "L", "--ttl", "5m"]).must_exit(0).only_line().to_owned();
    cluster.node(leader).kill();
    run(&apis, &["renew", "L", "--token", &token]).must_exit(0);
    run(&apis, &["acquire", "L"]).must_exit(75);
}

#[test]
fn a_wait_outlives_the_leader() {
    let mut cluster = Cluster::start(3);
    let leader = cluster.leader();
    let apis = cluster.apis();
    let token = run(&apis, &["acquire", "L", "--ttl", "5m"]).must_exit(0).only_line().to_owned();
    let mut command = lockstead(&apis, &["acquire", "L", "--wait", "60s"]);
    let waiter = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    cluster.wait_until_waiting(1);
    cluster.node(leader).kill();
    cluster.wait_until_waiting(1);
    let survivors = cluster.apis_without(leader);
    run(&survivors, &["release", "L", "--token", &token]).must_exit(0);
    let output = waiter.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_waiting_command_that_is_interrupted_leaves_the_queue() {
    let cluster = Cluster::start(3);
    let apis = cluster.apis();
    run(&apis, &["acquire", "L", "--ttl", "5m"]).must_exit(0);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut command = lockstead(&apis, &["acquire", "L", "--wait", "forever"]);
        let mut waiter = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        cluster.wait_until_waiting(1);
        kill_process(Pid::from_child(&waiter), signal).unwrap();
        let status = eventually("it ends", secs(5), || waiter.try_wait().unwrap());
        assert_eq!(status.code(), Some(code));
        cluster.wait_until_waiting(0);
    }
}
