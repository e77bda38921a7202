//! `lockstead dev`.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use lockstead_chaos::cluster::ports::is_free;
use lockstead_chaos::cluster::turn::Turn;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::api::Api;
use crate::harness::clock::{eventually, secs};
use crate::harness::cluster::TURNS;
use crate::harness::locker::insist;
use crate::harness::node::LOCKSTEAD;
use crate::harness::ports::free_address;

/// A development cluster, and what it printed.
struct Dev {
    child: Child,
    port: u16,
    home: TempDir,
    _turn: Turn,
}

impl Dev {
    fn start(nodes: u16, more: &[&str]) -> Self {
        // Its ports are a range, which nobody else keeps clear of.
        let turn = Turn::alone(Path::new(TURNS)).unwrap();
        let home = TempDir::new().unwrap();
        fs::create_dir(home.path().join("tmp")).unwrap();
        let port = free_range(nodes);
        let output = File::create(home.path().join("output")).unwrap();
        let mut command = Command::new(LOCKSTEAD);
        command.args(["dev", "--nodes", &nodes.to_string(), "--port", &port.to_string()]).args(more);
        command.env("TMPDIR", home.path().join("tmp")).stdin(Stdio::null());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let dev = Self { child: command.spawn().unwrap(), port, home, _turn: turn };
        eventually("the commands to paste are shown", secs(40), || dev.output().contains("kill -9").then_some(()));
        dev
    }

    fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.home.path().join("output")).unwrap()).into_owned()
    }

    fn temporary(&self) -> PathBuf {
        self.home.path().join("tmp")
    }

    fn apis(&self, nodes: u16) -> Vec<Api> {
        (0..nodes).map(|node| Api::at(([127, 0, 0, 1], self.port + node).into())).collect()
    }

    fn interrupt(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        eventually("it ends", secs(20), || self.child.try_wait().unwrap())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- dev\n{}", self.output());
        }
        // Its nodes end with it.
        let _gone = (self.child.kill(), self.child.wait());
    }
}

/// The first of so many ports in a row that are free, and free 100 above.
fn free_range(nodes: u16) -> u16 {
    loop {
        let port = free_address().port();
        let ports = (port..port + nodes).chain(port + 100..port + 100 + nodes);
        if ports.into_iter().all(|port| is_free((Ipv4Addr::LOCALHOST, port).into())) {
            return port;
        }
    }
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

/// The lines to paste: each must succeed, in one shell, in the order in which they are shown.
fn paste(output: &str, begin: &str, end: &str) -> String {
    let from = output.find(begin).unwrap_or_else(|| panic!("no {begin:?} in {output}"));
    let to = output[from..].find(end).unwrap_or_else(|| panic!("no {end:?} in {output}"));
    output[from..from + to].to_owned()
}

fn run_in_shell(script: &str) -> String {
    let output = Command::new("sh").args(["-euc", script]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{script}\n{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn dev_shows_commands_that_work_restarts_killed_nodes_and_cleans_up() {
    let mut dev = Dev::start(3, &[]);
    let shown = dev.output();
    assert!(!is_empty(&dev.temporary()), "the data is in a temporary directory");
    let pasted = run_in_shell(&paste(&shown, "export LOCKSTEAD_ENDPOINTS", "# by HTTP"));
    assert!(pasted.contains("demo") && pasted.contains("leader"), "{pasted}");

    let apis = dev.apis(3);
    let held = insist(&apis, secs(10), |api| api.acquire(&serde_json::json!({"name": "kept"}))).must_be_ok();
    let kill = shown.lines().find(|line| line.starts_with("kill -9 ")).expect("a command to kill the leader");
    let pid = kill.trim_start_matches("kill -9 ").to_owned();
    run_in_shell(kill);
    eventually("the end is reported with the pid", secs(5), || {
        dev.output()[shown.len()..].contains(&pid).then_some(())
    });
    insist(&apis, secs(10), |api| api.renew("kept", held.string("token"), 60_000)).must_be_ok();
    eventually("the killed node runs again", secs(20), || apis.iter().all(Api::is_ready).then_some(()));

    assert_eq!(dev.interrupt().code(), Some(0), "{}", dev.output());
    assert!(is_empty(&dev.temporary()), "the temporary directory is left: {}", dev.output());
    assert!(apis.iter().all(|api| api.cluster().is_err()), "a node outlives it");
}

#[test]
fn dev_speaks_the_http_that_it_shows() {
    if Command::new("curl").arg("--version").output().is_err() {
        // The lines are for people who have curl; the same requests are made by the other tests without it.
        return;
    }
    let mut dev = Dev::start(1, &[]);
    let shown = dev.output();
    let lines = paste(&shown, "# by HTTP", "# kill");
    let lines: Vec<&str> = lines.lines().filter(|line| line.starts_with("curl")).collect();
    let [acquire, renew, get, release] = lines[..] else { panic!("four requests: {lines:?}") };
    let answer: serde_json::Value = serde_json::from_str(&run_in_shell(acquire)).unwrap();
    let token = answer["token"].as_str().expect("a token").to_owned();
    for request in [renew, get, release] {
        let answer = run_in_shell(&format!("TOKEN={token}\n{request}"));
        assert!(answer.contains("demo") && !answer.contains("error"), "{request}: {answer}");
    }
    assert_eq!(dev.interrupt().code(), Some(0));
}

#[test]
fn dev_keeps_a_directory_that_it_was_given_and_leaves_killed_nodes_alone_if_told_so() {
    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    let mut dev = Dev::start(3, &["--no-restart", "--data-dir", data.to_str().unwrap()]);
    let apis = dev.apis(3);
    let before = dev.output();
    let kill = before.lines().find(|line| line.starts_with("kill -9 ")).unwrap().to_owned();
    let held = insist(&apis, secs(10), |api| api.acquire(&serde_json::json!({"name": "kept"}))).must_be_ok();
    run_in_shell(&kill);
    eventually("the end is reported", secs(5), || {
        dev.output()[before.len()..].contains("not started again").then_some(())
    });
    insist(&apis, secs(10), |api| api.renew("kept", held.string("token"), 60_000)).must_be_ok();
    assert_eq!(dev.interrupt().code(), Some(0), "{}", dev.output());
    assert!(!is_empty(&data), "what was given is kept");
    assert!(is_empty(&dev.temporary()));
}
