//! One node: a process, its directory and its addresses.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::{secs, wait_for};

/// `/proc/<pid>/stat` counts in these on every Linux that we meet.
const CLOCK_TICK_MS: u64 = 10;
/// A signal takes a moment to stop all threads of a process.
const STOPPED_WITHIN: Duration = secs(5);

/// How the process of a node is started: the same command each time.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The binary `lockstead`.
    pub binary: PathBuf,
    /// Its arguments, all but the data directory.
    pub args: Vec<String>,
    /// What its environment has on top of ours.
    pub env: Vec<(String, String)>,
    /// How many files and sockets it may open, if not as many as we.
    pub descriptors_max: Option<u32>,
}

impl Launch {
    fn command(&self) -> Command {
        let mut command = match self.descriptors_max {
            None => Command::new(&self.binary),
            Some(descriptors_max) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(format!("ulimit -n {descriptors_max}; exec \"$0\" \"$@\"")).arg(&self.binary);
                command
            }
        };
        command.args(&self.args).envs(self.env.iter().cloned());
        command
    }
}

/// One node. It must be started from the thread that outlives it: the process ends with the thread that started it.
#[derive(Debug)]
pub struct Node {
    /// Its number in the cluster.
    pub id: u64,
    /// Where it serves clients, with no proxy between.
    pub api_address: SocketAddr,
    /// Its data directory.
    pub dir: PathBuf,
    log: PathBuf,
    launch: Launch,
    child: Option<Child>,
}

impl Node {
    /// A node that keeps its data and its output below `home`. It does not run yet.
    pub fn new(id: u64, api_address: SocketAddr, home: &Path, launch: Launch) -> Self {
        let dir = home.join(format!("d{id}"));
        let log = home.join(format!("node-{id}.log"));
        Self { id, api_address, dir, log, launch, child: None }
    }

    /// How it is started.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// With which arguments it is started from now on.
    pub fn set_args(&mut self, args: Vec<String>) {
        self.launch.args = args;
    }

    /// Starts the process.
    ///
    /// # Errors
    /// When it runs already, when its log cannot be written, or when there is no such binary.
    pub fn start(&mut self) -> io::Result<()> {
        if self.child.is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = self.launch.command();
        command.arg("--data-dir").arg(&self.dir).env("LOCKSTEAD_EXIT_WITH_PARENT", "1");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    fn child(&self) -> io::Result<&Child> {
        self.child.as_ref().ok_or_else(|| io::Error::other("the node was not started, or was killed"))
    }

    /// The number of the process.
    ///
    /// # Errors
    /// When it was not started, or was killed.
    pub fn pid(&self) -> io::Result<u32> {
        Ok(self.child()?.id())
    }

    /// Whether it was started and has not ended by itself since.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// How it ended by itself, if it did. It can be started again then.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(status)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(self.child()?), signal)?)
    }

    /// SIGSTOP. No thread of it runs any more when this returns: a signal takes a moment to stop them all.
    ///
    /// # Errors
    /// When there is no such process, or when it goes on running.
    pub fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let tasks = format!("/proc/{}/task", self.pid()?);
        let is_stopped = || all_threads_stopped(&tasks).then_some(());
        wait_for(STOPPED_WITHIN, is_stopped).ok_or_else(|| ErrorKind::TimedOut.into())
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn thaw(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// SIGKILL. Nothing is written any more when this returns. Whether there was a process to kill.
    pub fn kill(&mut self) -> bool {
        let Some(mut child) = self.child.take() else { return false };
        // Both fail only for a child that was waited for, and this one was not.
        child.kill().is_ok() & child.wait().is_ok()
    }

    /// Empties the data directory of a node that does not run.
    ///
    /// # Errors
    /// When it runs, or when the directory cannot be removed.
    pub fn wipe(&mut self) -> io::Result<()> {
        if self.child.is_some() {
            return Err(ErrorKind::ResourceBusy.into());
        }
        fs::remove_dir_all(&self.dir)
    }

    /// The processor time it has used so far.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()?))?;
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * CLOCK_TICK_MS))
    }

    /// Resident memory in KiB.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn resident_kib(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
        kib.ok_or_else(|| io::Error::other("no line VmRSS"))
    }

    /// What it wrote to stdout and stderr, over all its starts.
    pub fn output(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn all_threads_stopped(tasks: &str) -> bool {
    let Ok(tasks) = fs::read_dir(tasks) else { return false };
    let mut stats = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stats.all(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
}
