//! Watching over the nodes' processes.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::child;
use crate::exit::Exit;
use crate::signals::Signals;

const GRACE: Duration = Duration::from_secs(5);

/// What happens to nodes.
pub(super) enum Event {
    /// A node's process ended by itself.
    Ended { node: u16, pid: u32, how: How },
    /// It is time to start a node again.
    Restart { node: u16 },
}

/// How a process ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct How(pub(super) ExitStatus);

/// The tasks that watch, and how to end them.
pub(super) struct Watch {
    events: mpsc::Sender<Event>,
    stop: CancellationToken,
    kill: CancellationToken,
    tasks: TaskTracker,
    running: Arc<Mutex<BTreeMap<u16, u32>>>,
}

impl Watch {
    pub(super) fn new(events: mpsc::Sender<Event>) -> Self {
        let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
        Self { events, stop, kill, tasks: TaskTracker::new(), running: Arc::default() }
    }

    /// The process ids of the nodes that run.
    pub(super) fn pids(&self) -> BTreeMap<u16, u32> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Prints a node's output, and tells when it ends.
    pub(super) fn over(&self, node: u16, mut child: Child) {
        if let Some(stdout) = child.stdout.take() {
            self.tasks.spawn(child::print_lines(node, stdout));
        }
        if let Some(stderr) = child.stderr.take() {
            self.tasks.spawn(child::print_lines(node, stderr));
        }
        let pid = child.id().unwrap_or_default();
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(node, pid);
        self.tasks.spawn(watch(node, pid, child, self.events.clone(), self.stop.clone(), self.kill.clone()));
    }

    /// Tells when it is time to start a node again.
    pub(super) fn restart_after(&self, node: u16, pause: Duration) {
        let (events, stop) = (self.events.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            if stop.run_until_cancelled(sleep(pause)).await.is_some() {
                // Nobody listens any more only if all is being stopped.
                let _stopping = events.send(Event::Restart { node }).await;
            }
        });
    }

    /// Ends all nodes: asks them to, kills what is left after a while or at the next signal.
    pub(super) async fn end_all(self, mut signals: Signals) {
        self.tasks.close();
        self.stop.cancel();
        let at_once = async {
            signals.next().await;
            self.kill.cancel();
            self.tasks.wait().await;
        };
        tokio::select! {
            () = self.tasks.wait() => {}
            () = at_once => {}
        }
    }
}

async fn watch(
    node: u16,
    pid: u32,
    mut child: Child,
    events: mpsc::Sender<Event>,
    stop: CancellationToken,
    kill: CancellationToken,
) {
    tokio::select! {
        status = child.wait() => {
            if let Ok(status) = status {
                // Nobody listens any more only if all is being stopped.
                let _stopping = events.send(Event::Ended { node, pid, how: How(status) }).await;
            }
        }
        () = stop.cancelled() => end(child, &kill).await,
    }
}

async fn end(mut child: Child, kill: &CancellationToken) {
    child::terminate(&child);
    let ended = kill.run_until_cancelled(timeout(GRACE, child.wait())).await;
    if !matches!(ended, Some(Ok(_))) {
        // It fails only for a process that has ended.
        let _gone = child.kill().await;
    }
}

impl How {
    /// Ended by a signal.
    pub(super) fn was_killed(self) -> bool {
        self.0.signal().is_some()
    }

    /// Whether the same command may do better next time: not when the node itself said that it must not run.
    pub(super) fn is_worth_a_restart(self) -> bool {
        let final_ends = [Exit::Usage, Exit::Damage, Exit::IdentityRefused, Exit::DirectoryInUse];
        self.0.code().is_none_or(|code| !final_ends.iter().any(|exit| i32::from(exit.code()) == code))
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.signal(), self.0.code()) {
            (Some(signal), _) => write!(f, "was killed by signal {signal}"),
            (None, Some(code)) => write!(f, "ended with exit code {code}"),
            (None, None) => f.write_str("ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw_status: i32, text: &str, killed: bool, worth_a_restart: bool) {
        let how = How(ExitStatus::from_raw(raw_status));
        assert_eq!(
            (how.to_string().as_str(), how.was_killed(), how.is_worth_a_restart()),
            (text, killed, worth_a_restart)
        );
    }

    #[test]
    fn a_node_that_must_not_run_is_not_started_again() {
        check(9, "was killed by signal 9", true, true);
        check(70 << 8, "ended with exit code 70", false, true);
        check(11 << 8, "ended with exit code 11", false, true);
        check(10 << 8, "ended with exit code 10", false, false);
        check(13 << 8, "ended with exit code 13", false, false);
    }
}
