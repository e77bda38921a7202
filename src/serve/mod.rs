//! `lockstead serve`: one node, from its directory to its end.

mod enter;
mod found;
pub(crate) mod guard;
mod join;
mod ready;
mod restore;

use std::future::pending;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::Duration;

use lockstead_raft::{Replica, ReplicaConfig, StopReason};
use lockstead_server::ServerConfig;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{NodeConfig, ServeOptions};
use crate::exit::{Exit, Failure, say};
use crate::logging;
use crate::signals::Signals;

/// How long the leader may look for a successor.
const HAND_OVER: Duration = Duration::from_secs(3);
/// How long requests in flight may take to be answered at the end.
const DRAIN: Duration = Duration::from_secs(3);

/// Runs a node until it is told to stop or has to.
pub(crate) fn run(options: Box<ServeOptions>) -> Result<Exit, Failure> {
    let (config, log) = options.load()?;
    logging::start_for_a_node(log);
    guard::end_process_on_panic();
    guard::end_with_parent_if_asked();
    let runtime = runtime(config.workers)?;
    let exit = runtime.block_on(serve(config));
    runtime.shutdown_background();
    exit
}

fn runtime(workers: Option<usize>) -> Result<Runtime, Failure> {
    let cores = || available_parallelism().map_or(1, NonZero::get);
    Builder::new_multi_thread()
        .worker_threads(workers.unwrap_or_else(|| workers_for(cores())))
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Internal, error))
}

/// A commit is a chain of tasks that wake each other, and waking one on another core costs more than most of them do;
/// the threads of the log need cores of their own.
fn workers_for(cores: usize) -> usize {
    (cores / 2).clamp(1, 4)
}

/// A node that runs and serves.
struct Node {
    replica: Replica,
    server: JoinHandle<std::io::Result<()>>,
    stop_serving: CancellationToken,
}

/// Why a node ends.
enum End {
    Asked,
    Stopped(StopReason),
    Failed(Failure),
}

async fn serve(config: NodeConfig) -> Result<Exit, Failure> {
    let mut signals = Signals::catch()?;
    let (node, addresses) = tokio::select! {
        started = start(&config) => started?,
        _ = signals.next() => return Ok(Exit::Done),
    };
    let end = tokio::select! {
        biased;
        reason = node.replica.stopped() => End::Stopped(reason),
        _ = signals.next() => End::Asked,
        failure = take_part(&node.replica, &config, &addresses) => End::Failed(failure),
    };
    signals.end_at_next();
    node.end(end).await
}

/// Where others reach this node.
struct Addresses {
    api: String,
    peer: String,
}

async fn start(config: &NodeConfig) -> Result<(Node, Addresses), Failure> {
    let api_listener = bind("listen", config.listen, &config.data_dir).await?;
    let peer_listener = bind("peer_listen", config.peer_listen, &config.data_dir).await?;
    let addresses = Addresses {
        api: advertised(config.advertise.as_deref(), &api_listener)?,
        peer: advertised(config.advertise_peer.as_deref(), &peer_listener)?,
    };
    let replica =
        guard::while_opening(&config.data_dir, Replica::open(replica_config(config, &addresses), peer_listener))
            .await?;
    let stop_serving = CancellationToken::new();
    let server_config = ServerConfig { ttl_ms_max: config.ttl_max_ms, drain_grace: DRAIN, ..ServerConfig::default() };
    let serving = lockstead_server::serve(api_listener, replica.clone(), server_config, stop_serving.clone());
    let server = tokio::spawn(serving);
    Ok((Node { replica, server, stop_serving }, addresses))
}

/// An address that this host does not have may come up later, as at its start: no reason for a supervisor to give up.
/// Addresses are taken before the data directory, so a second process of one node meets its address in use first.
async fn bind(field: &str, address: SocketAddr, data_dir: &Path) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        ErrorKind::AddrNotAvailable => Failure::new(
            Exit::Unavailable,
            format!("{field}: this host does not have the address {address}, or not yet"),
        ),
        _ => Replica::in_use(data_dir)
            .map_or_else(|| Failure::usage(format!("{field}: {address}: {error}")), Failure::from),
    })
}

fn advertised(said: Option<&str>, listener: &TcpListener) -> Result<String, Failure> {
    match said {
        Some(said) => Ok(said.to_owned()),
        None => listener
            .local_addr()
            .map(|address| address.to_string())
            .map_err(|error| Failure::new(Exit::Internal, format!("the address listened on cannot be read: {error}"))),
    }
}

fn replica_config(config: &NodeConfig, addresses: &Addresses) -> ReplicaConfig {
    ReplicaConfig {
        node_id: config.node_id,
        data_dir: config.data_dir.clone(),
        advertise_peer: addresses.peer.clone(),
        advertise_api: addresses.api.clone(),
        peer_routes: config.peer_routes.clone(),
        heartbeat_ms: config.timing.heartbeat_ms,
        election_min_ms: config.timing.election_min_ms,
        election_max_ms: config.timing.election_max_ms,
        tick_ms: config.timing.tick_ms,
        locks_max: config.locks_max,
        snapshot_entries: config.log.snapshot_entries,
        snapshot_bytes: config.log.snapshot_bytes,
        snapshot_age_ms: config.log.snapshot_age_ms,
        tail_bytes_max: config.log.tail_bytes_max,
    }
}

/// Enters a cluster if need be, says so when ready, and goes on until it fails.
async fn take_part(replica: &Replica, config: &NodeConfig, addresses: &Addresses) -> Failure {
    match enter::enter(replica, config, addresses).await {
        Ok(()) => ready::say_when_ready(replica, config, addresses).await,
        Err(failure) => return failure,
    }
    pending().await
}

impl Node {
    async fn end(self, end: End) -> Result<Exit, Failure> {
        match end {
            End::Asked => {
                self.stop().await;
                Ok(Exit::Done)
            }
            End::Failed(failure) => {
                self.stop().await;
                Err(failure)
            }
            // After a failed sync nothing may be written any more, not even by what would be dropped here.
            End::Stopped(reason @ (StopReason::Storage(_) | StopReason::Fatal(_))) => {
                say(&reason.to_string());
                Exit::from(&reason).now()
            }
            End::Stopped(reason @ (StopReason::Removed(_) | StopReason::Moved(_) | StopReason::Identity(_))) => {
                self.stop().await;
                Err(Failure::new(Exit::from(&reason), reason))
            }
        }
    }

    /// Nothing more is accepted; leadership goes to another while what is in flight is answered.
    async fn stop(self) {
        self.stop_serving.cancel();
        let ((), served) = tokio::join!(self.replica.hand_over(HAND_OVER), self.server);
        if let Ok(Err(error)) = served {
            tracing::warn!(%error, "the HTTP server ended with an error");
        }
        self.replica.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::workers_for;

    #[test]
    fn half_of_the_cores_serve_and_never_none() {
        assert_eq!([1, 2, 4, 8, 64].map(workers_for), [1, 1, 2, 4, 4]);
    }
}
