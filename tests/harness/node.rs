//! One node: a process, its directory and its addresses, and orders that must be obeyed.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use lockstead_chaos::cluster::node;
use lockstead_chaos::cluster::node::Launch;
use rustix::process::Signal;

use super::api::Api;
use super::clock::eventually;

/// The binary under test.
pub(crate) const LOCKSTEAD: &str = env!("CARGO_BIN_EXE_lockstead");

/// One node. It must be started from the thread that outlives it: the process ends with the thread that started it.
#[derive(Debug)]
pub(crate) struct Node(node::Node);

impl Deref for Node {
    type Target = node::Node;

    fn deref(&self) -> &node::Node {
        &self.0
    }
}

impl Node {
    pub(crate) fn new(id: u64, api_address: SocketAddr, home: &Path, args: Vec<String>) -> Self {
        let launch = Launch { binary: LOCKSTEAD.into(), args, env: Vec::new(), descriptors_max: None };
        Self::launched_by(id, api_address, home, launch)
    }

    pub(crate) fn launched_by(id: u64, api_address: SocketAddr, home: &Path, launch: Launch) -> Self {
        Self(node::Node::new(id, api_address, home, launch))
    }

    /// What it is started with, beside its data directory.
    pub(crate) fn args(&self) -> &[String] {
        &self.launch().args
    }

    /// Where its peers reach it.
    pub(crate) fn peer_address(&self) -> &str {
        let at = self.args().iter().position(|arg| arg == "--peer-listen").expect("every node says where");
        &self.args()[at + 1]
    }

    /// Its interface, with no proxy between.
    pub(crate) fn api(&self) -> Api {
        Api::at(self.api_address)
    }

    /// Starts the process: the same command each time.
    pub(crate) fn start(&mut self) {
        self.0.start().expect("the node does not run, and the binary starts");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.pid().expect("the node runs")
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.is_running()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.0.signal(signal).expect("the node takes the signal");
    }

    /// SIGSTOP. No thread of it runs any more when this returns.
    pub(crate) fn freeze(&self) {
        self.0.freeze().expect("every thread is stopped");
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        self.0.thaw().expect("the node goes on");
    }

    /// SIGKILL. Nothing is written any more when this returns.
    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    /// Waits for the process to end by itself.
    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self, within: Duration) -> ExitStatus {
        eventually("the node ends by itself", within, || self.0.exit_status())
    }

    /// Empties the data directory.
    pub(crate) fn wipe(&mut self) {
        self.0.wipe().expect("the node does not run, and its directory can be removed");
    }

    /// The processor time it has used so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.0.cpu_time().expect("the node runs")
    }

    /// Resident memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        self.0.resident_kib().expect("the node runs")
    }
}
