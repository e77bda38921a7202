//! A run from its begin to its history.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::args::RunArgs;
use crate::binary;
use crate::clock::{ms, now, pause_until, secs};
use crate::cluster::view::{View, ask, view_of};
use crate::cluster::{Cluster, Links, Setup};
use crate::excuses::excuse;
use crate::faults::{Planned, Striker, Struck, schedule};
use crate::history::{Header, History};
use crate::observer::{Observer, Office};
use crate::workload::{self, Crowd, Endpoint, Ground};

const READY_WITHIN: Duration = secs(60);
const VIEW_WITHIN: Duration = secs(5);
/// At the end of a run, calls that wait get so long.
const STOP_GRACE: Duration = ms(2_500);
/// After the last fault, the cluster serves again by then.
const RECOVERED_WITHIN: Duration = secs(30);

/// Why there was no run.
#[derive(Debug, Error)]
pub enum RunError {
    /// There is no binary to run.
    #[error("no lockstead to run: {0}")]
    Binary(io::Error),
    /// Files or processes could not be made.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// An endpoint is no address, or nobody answers there.
    #[error("no node answers at {0}")]
    NoEndpoint(String),
    /// Nodes of an earlier run would be taken for those of this one.
    #[error("{} holds nodes of an earlier run; name another directory, or remove it", .0.display())]
    NotEmpty(PathBuf),
    /// The cluster that was started never served.
    #[error("the cluster was not ready within {} s; see the output of its nodes in {}", READY_WITHIN.as_secs(), .0.display())]
    NotReady(PathBuf),
}

impl RunError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// What a run was.
#[derive(Debug)]
pub struct Run {
    /// What clients saw and what was done.
    pub history: History,
    /// How long clients worked.
    pub worked: Duration,
    /// The changes of leader.
    pub offices: Vec<Office>,
    /// When clients found a node that they could not reach.
    pub unreachable_us: Vec<u64>,
    /// Whether every node served again after the last fault.
    pub recovered: bool,
}

/// Does a run, its output into `out`. It must be called from a thread that outlives it: the nodes end with it.
///
/// # Errors
/// When the run is not possible; see [`RunError`].
pub fn run(args: &RunArgs, seed: u64, out: &Path) -> Result<Run, RunError> {
    if args.endpoints.is_empty() { on_our_own(args, seed, out) } else { elsewhere(args, seed) }
}

fn on_our_own(args: &RunArgs, seed: u64, out: &Path) -> Result<Run, RunError> {
    let binary = args.bin.clone().map_or_else(binary::beside_us, std::path::absolute).map_err(RunError::Binary)?;
    if (1..=args.nodes).any(|id| out.join(format!("d{id}")).exists()) {
        return Err(RunError::NotEmpty(out.to_owned()));
    }
    let setup = Setup {
        peers: Links::Proxied,
        clients: Links::Proxied,
        args: node_args(args),
        env: args.plant.iter().map(|plant| ("LOCKSTEAD_PLANT".to_owned(), plant.clone())).collect(),
        ..Setup::new(u64::from(args.nodes), binary, out.to_owned())
    };
    let mut cluster = setup.start().map_err(RunError::io("the nodes cannot be started"))?;
    if !cluster.wait_until_ready(READY_WITHIN) {
        return Err(RunError::NotReady(out.to_owned()));
    }
    let endpoints = cluster.ids().into_iter().map(|node| Endpoint {
        node,
        address: cluster.client_address(node),
        link: cluster.client_link(node).cloned(),
    });
    let work = Work::begin(args, format!("chaos {seed}"), seed, endpoints.collect(), &addresses_of(&cluster));
    let planned = schedule(seed, secs(args.seconds), &args.kinds());
    let struck = work.strike(&mut cluster, &planned);
    work.end(args, seed, &struck, || cluster.wait_until_ready(RECOVERED_WITHIN))
}

fn node_args(args: &RunArgs) -> Vec<String> {
    let more = args.node_args.iter().flat_map(|args| args.split_whitespace()).map(str::to_owned);
    ["--tick-ms".to_owned(), args.tick_ms.to_string()].into_iter().chain(more).collect()
}

fn addresses_of(cluster: &Cluster) -> Vec<SocketAddr> {
    cluster.nodes().map(|node| node.api_address).collect()
}

fn elsewhere(args: &RunArgs, seed: u64) -> Result<Run, RunError> {
    let endpoints: BTreeMap<u64, SocketAddr> =
        args.endpoints.iter().map(|name| resolve(name)).collect::<Result<_, _>>()?;
    let addresses: Vec<SocketAddr> = endpoints.values().copied().collect();
    let clients_see = endpoints.into_iter().map(|(node, address)| Endpoint { node, address, link: None }).collect();
    let run = format!("chaos {seed}, process {}", std::process::id());
    let work = Work::begin(args, run, seed, clients_see, &addresses);
    work.end(args, seed, &[], || addresses.iter().all(|address| view_of(*address, VIEW_WITHIN).is_some()))
}

/// The address of an endpoint, and which node answers there.
fn resolve(name: &str) -> Result<(u64, SocketAddr), RunError> {
    let nobody = || RunError::NoEndpoint(name.to_owned());
    let bare = name.strip_prefix("http://").unwrap_or(name).trim_end_matches('/');
    let address = bare.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(nobody)?;
    let answer = ask(address, "/v1/admin/cluster", VIEW_WITHIN).map_err(|_| nobody())?;
    let view = View::read(&answer).ok_or_else(nobody)?;
    Ok((view.node, address))
}

/// Clients at work, and somebody who looks at the nodes meanwhile.
struct Work {
    origin: Instant,
    ground: Arc<Ground>,
    observer: Observer,
    clients: Vec<std::thread::JoinHandle<()>>,
}

impl Work {
    fn begin(args: &RunArgs, run: String, seed: u64, endpoints: Vec<Endpoint>, direct: &[SocketAddr]) -> Self {
        let origin = now();
        let observer = Observer::of(direct, origin);
        let crowd = Crowd { clients: args.clients, watchers: args.watchers };
        let ground = Arc::new(Ground::new(origin, run, seed, crowd, endpoints));
        let clients = workload::start(&ground);
        Self { origin, ground, observer, clients }
    }

    fn strike(&self, cluster: &mut Cluster, planned: &[Planned]) -> Vec<Struck> {
        Striker::new(cluster, &self.observer, self.origin).run(planned)
    }

    fn end(
        self,
        args: &RunArgs,
        seed: u64,
        struck: &[Struck],
        is_recovered: impl FnOnce() -> bool,
    ) -> Result<Run, RunError> {
        pause_until(self.origin + secs(args.seconds));
        self.ground.stop(STOP_GRACE);
        let worked = self.origin.elapsed();
        for client in self.clients {
            client.join().map_err(|_| RunError::io("a client panicked")(io::Error::other("see above")))?;
        }
        let recovered = is_recovered();
        let (leaderless, offices) = self.observer.finish();
        let noted = self.ground.recorder.take();
        let nodes = if args.endpoints.is_empty() {
            args.nodes
        } else {
            u32::try_from(args.endpoints.len()).unwrap_or(u32::MAX)
        };
        let mut history = History::new(Header { tick_ms: args.tick_ms, ..Header::new(seed, nodes) });
        noted.records.into_iter().for_each(|record| history.push(record));
        history.faults = struck.iter().map(|struck| struck.record(&offices, &leaderless)).collect();
        history.faults.sort_by_key(|fault| fault.begin_us);
        history.leaderless = leaderless;
        excuse(&mut history.calls, struck);
        Ok(Run { history, worked, offices, unreachable_us: noted.unreachable_us, recovered })
    }
}
