//! A node's process and its output.

use std::io;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use crate::text::plain;

/// What of a node's log is worth a line here.
const LOG_LEVEL: &str = "warn,lockstead=info,lockstead_server=warn,openraft=error";

/// Starts a node in a process group of its own, so that Ctrl-C reaches it only through its parent.
pub(super) fn start(program: &Path, arguments: &[String]) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).args(["--log-level", LOG_LEVEL, "--log-format", "text"]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LOCKSTEAD_")) {
        command.env_remove(name);
    }
    command.env("LOCKSTEAD_EXIT_WITH_PARENT", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true).spawn()
}

/// Asks a process to end. One that has ended already is no fault.
pub(super) fn terminate(child: &Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _gone = kill_process(pid, Signal::TERM);
    }
}

/// Prints each line with the node's number before it, until the process closes its end.
pub(super) async fn print_lines(node: u16, output: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(output).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        super::print(&format!("node {node} | {}", plain(&String::from_utf8_lossy(&line))));
    }
}
