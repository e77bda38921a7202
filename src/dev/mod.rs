//! `lockstead dev`: a cluster of child processes on this machine.

mod child;
mod hints;
mod layout;
mod watch;

use std::time::Duration;

use lockstead_client::{Client, ClientConfig};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::args::DevArgs;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::text;
use layout::Layout;
use watch::{Event, Watch};

const RESTART_AFTER: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(100);
const ASK: Duration = Duration::from_secs(1);

/// Runs a cluster until it is told to stop.
pub(crate) fn run(args: &DevArgs) -> Result<Exit, Failure> {
    let layout = Layout::new(args)?;
    // One thread: the children are tied to the thread that starts them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Internal, error))?;
    let exit = runtime.block_on(Dev::new(&layout, !args.no_restart).run());
    runtime.shutdown_background();
    layout.remove_if_temporary();
    exit
}

/// The cluster and what it waits for.
struct Dev<'a> {
    layout: &'a Layout,
    watch: Watch,
    events: mpsc::Receiver<Event>,
    restart: Restart,
}

/// What becomes of a node that ends by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Restart {
    AfterAWhile,
    Never,
}

impl<'a> Dev<'a> {
    fn new(layout: &'a Layout, restarts: bool) -> Self {
        let (sender, events) = mpsc::channel(64);
        Self {
            layout,
            watch: Watch::new(sender),
            events,
            restart: if restarts { Restart::AfterAWhile } else { Restart::Never },
        }
    }

    async fn run(mut self) -> Result<Exit, Failure> {
        let mut signals = Signals::catch()?;
        let ended = match self.start_all() {
            Ok(()) => tokio::select! {
                failure = self.watch_over() => Err(failure),
                _ = signals.next() => Ok(Exit::Done),
            },
            Err(failure) => Err(failure),
        };
        print("stopping all nodes");
        self.watch.end_all(signals).await;
        ended
    }

    fn start_all(&mut self) -> Result<(), Failure> {
        print(&format!("{} nodes, data in {}", self.layout.nodes().count(), self.layout.data_dir().display()));
        self.layout.nodes().try_for_each(|node| self.start(node))
    }

    fn start(&self, node: u16) -> Result<(), Failure> {
        let child = self.layout.start(node)?;
        print(&format!("node {node} started, pid {}", child.id().unwrap_or_default()));
        self.watch.over(node, child);
        Ok(())
    }

    /// Ends only with a failure.
    async fn watch_over(&mut self) -> Failure {
        let (client, mut serving) = (self.client(), false);
        loop {
            let event = tokio::select! {
                event = self.events.recv() => event,
                () = until_all_are_ready(&client), if !serving => {
                    serving = true;
                    self.show_hints().await;
                    continue;
                }
            };
            let handled = match event {
                Some(Event::Ended { node, how, .. }) if !serving && !how.was_killed() => Err(never_ready(node, how)),
                Some(Event::Ended { node, pid, how }) => {
                    self.ended(node, pid, how);
                    Ok(())
                }
                Some(Event::Restart { node }) => self.start(node),
                None => Ok(()),
            };
            if let Err(failure) = handled {
                return failure;
            }
        }
    }

    fn ended(&self, node: u16, pid: u32, how: watch::How) {
        let next = match self.restart {
            Restart::AfterAWhile if how.is_worth_a_restart() => {
                self.watch.restart_after(node, RESTART_AFTER);
                format!("starting it again in {} s", RESTART_AFTER.as_secs())
            }
            Restart::AfterAWhile | Restart::Never => "it is not started again".to_owned(),
        };
        print(&format!("node {node}, pid {pid}, {how}; {next}"));
    }

    async fn show_hints(&self) {
        let cluster = self.client().cluster().await.map(|reply| reply.outcome);
        let leader = cluster.ok().and_then(|cluster| cluster.leader).and_then(|id| u16::try_from(id).ok());
        for line in hints::lines(self.layout, &self.watch.pids(), leader) {
            print(&line);
        }
    }

    fn client(&self) -> Client {
        Client::new(self.layout.endpoints().to_vec(), ClientConfig { timeout: ASK })
    }
}

async fn until_all_are_ready(client: &Client) {
    for endpoint in client.endpoints() {
        while !client.ready_at(endpoint, ASK).await.unwrap_or(false) {
            sleep(POLL).await;
        }
    }
}

fn never_ready(node: u16, how: watch::How) -> Failure {
    Failure::new(Exit::Unavailable, format!("node {node} {how} before the cluster was ready; its lines above say why"))
}

/// Writes a line to stdout.
pub(crate) fn print(line: &str) {
    // The cluster goes on without readers.
    let _unheard = text::print_line(line.as_bytes());
}
