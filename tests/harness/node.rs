//! One node: a process, its directory and its addresses.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::api::Api;
use super::clock::{eventually, secs};

/// The binary under test.
pub(crate) const LOCKSTEAD: &str = env!("CARGO_BIN_EXE_lockstead");
/// `/proc/<pid>/stat` counts in these on every Linux that we meet.
const CLOCK_TICK_MS: u64 = 10;

/// One node. It must be started from the thread that outlives it: the process ends with the thread that started it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) api_address: SocketAddr,
    pub(crate) dir: PathBuf,
    log: PathBuf,
    args: Vec<String>,
    descriptors_max: Option<u32>,
    child: Option<Child>,
}

impl Node {
    pub(crate) fn new(id: u64, api_address: SocketAddr, home: &Path, args: Vec<String>) -> Self {
        let dir = home.join(format!("d{id}"));
        let log = home.join(format!("node-{id}.log"));
        Self { id, api_address, dir, log, args, descriptors_max: None, child: None }
    }

    /// From the next start on the process may open so many files and sockets.
    pub(crate) fn limit_descriptors(&mut self, descriptors_max: u32) {
        self.descriptors_max = Some(descriptors_max);
    }

    pub(crate) fn api(&self) -> Api {
        Api::at(self.api_address)
    }

    /// Starts the process: the same command each time.
    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "node {} runs already", self.id);
        let log = File::options().create(true).append(true).open(&self.log).expect("a log file");
        let mut command = self.command();
        command.args(&self.args).arg("--data-dir").arg(&self.dir);
        command.env("LOCKSTEAD_EXIT_WITH_PARENT", "1");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        self.child = Some(command.spawn().expect("the binary starts"));
    }

    fn command(&self) -> Command {
        match self.descriptors_max {
            None => Command::new(LOCKSTEAD),
            Some(descriptors_max) => {
                let mut command = Command::new("sh");
                let script = format!("ulimit -n {descriptors_max}; exec \"$0\" \"$@\"");
                command.args(["-c", &script, LOCKSTEAD]);
                command
            }
        }
    }

    fn child(&self) -> &Child {
        self.child.as_ref().expect("the node runs")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child().id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().expect("a child can be asked").is_none())
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child()), signal).expect("the node takes the signal");
    }

    /// SIGSTOP. No thread of it runs any more when this returns: a signal takes a moment to stop them all.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        eventually("every thread is stopped", secs(5), || {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.child().id())).expect("the node is there");
            let mut stats = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
            stats.all(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))).then_some(())
        });
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL. Nothing is written any more when this returns.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a child can be killed");
            child.wait().expect("a child can be waited for");
        }
    }

    /// Waits for the process to end by itself.
    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self, within: Duration) -> ExitStatus {
        let child = self.child.as_mut().expect("the node runs");
        let status = eventually("the node ends by itself", within, || child.try_wait().expect("a child can be asked"));
        self.child = None;
        status
    }

    /// Empties the data directory.
    pub(crate) fn wipe(&mut self) {
        assert!(self.child.is_none(), "node {} still runs", self.id);
        fs::remove_dir_all(&self.dir).expect("the data directory can be removed");
    }

    /// The processor time it has used so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child().id())).expect("the node runs");
        let fields = stat.rsplit_once(')').expect("a command in parentheses").1.split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().expect("a count")).sum();
        Duration::from_millis(ticks * CLOCK_TICK_MS)
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child().id())).expect("the node runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line VmRSS");
        line.trim().trim_end_matches("kB").trim().parse().expect("a number of KiB")
    }

    /// What it wrote to stdout and stderr, over all its starts.
    pub(crate) fn output(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}
