//! A run from its begin to its history.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use thiserror::Error;

use crate::args::RunArgs;
use crate::binary;
use crate::clock::{ms, now, pause_until, secs};
use crate::cluster::view::{View, ask, view_of};
use crate::cluster::{Cluster, Links, Setup};
use crate::excuses::{excuse, excuse_the_unreachable};
use crate::faults::{Planned, Striker, Struck, schedule};
use crate::history::{Header, History, Writer};
use crate::http::Conn;
use crate::observer::{Observed, Observer, Office};
use crate::workload::{self, Crowd, Endpoint, Ground, Recorder};

/// The file of a run's history.
pub(crate) const HISTORY: &str = "history.jsonl";
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

/// Whose cluster a run was on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The run started its nodes, and did all that was done to them.
    Run,
    /// Somebody else's, who may do to it what the run does not know of.
    SomebodyElse,
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
    /// Whose cluster it was.
    pub owner: Owner,
    /// Whether every node served again after the last fault.
    pub recovered: bool,
    /// What nodes did that they must not, whatever clients saw.
    pub broken: Vec<String>,
}

/// Does a run, its output into `out`. It must be called from a thread that outlives it: the nodes end with it.
///
/// # Errors
/// When the run is not possible; see [`RunError`].
pub fn run(args: &RunArgs, seed: u64, out: &Path) -> Result<Run, RunError> {
    if args.endpoints.is_empty() { on_our_own(args, seed, out) } else { elsewhere(args, seed, out) }
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
    let place = Place {
        owner: Owner::Run,
        run: format!("chaos {seed}"),
        endpoints: endpoints.collect(),
        direct: addresses_of(&cluster),
    };
    let work = Work::begin(args, seed, out, place)?;
    let planned = schedule(seed, secs(args.seconds), &args.kinds());
    let strikes = work.strike(&mut cluster, &planned);
    work.end(strikes, || cluster.wait_until_ready(RECOVERED_WITHIN))
}

fn node_args(args: &RunArgs) -> Vec<String> {
    let more = args.node_args.iter().flat_map(|args| args.split_whitespace()).map(str::to_owned);
    ["--tick-ms".to_owned(), args.tick_ms.to_string()].into_iter().chain(more).collect()
}

fn addresses_of(cluster: &Cluster) -> Vec<(u64, SocketAddr)> {
    cluster.nodes().map(|node| (node.id, node.api_address)).collect()
}

fn elsewhere(args: &RunArgs, seed: u64, out: &Path) -> Result<Run, RunError> {
    let endpoints: BTreeMap<u64, SocketAddr> =
        args.endpoints.iter().map(|name| resolve(name)).collect::<Result<_, _>>()?;
    let place = Place {
        owner: Owner::SomebodyElse,
        run: format!("chaos {seed}, process {}", std::process::id()),
        endpoints: endpoints
            .iter()
            .map(|(node, address)| Endpoint { node: *node, address: *address, link: None })
            .collect(),
        direct: endpoints.clone().into_iter().collect(),
    };
    let work = Work::begin(args, seed, out, place)?;
    // Whether a node that is down should be up, only its owner knows.
    let is_down = |address| Conn::open(address).is_err();
    let serves = |address| view_of(address, VIEW_WITHIN).is_some() || is_down(address);
    work.end(Strikes::default(), || endpoints.values().all(|address| serves(*address)))
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

/// What was done to a cluster, and what it did that it must not.
#[derive(Default)]
struct Strikes {
    struck: Vec<Struck>,
    broken: Vec<String>,
}

/// Where clients work.
struct Place {
    owner: Owner,
    /// What their lock names begin with.
    run: String,
    /// The nodes as they see them.
    endpoints: Vec<Endpoint>,
    /// The nodes, past any proxy.
    direct: Vec<(u64, SocketAddr)>,
}

/// Clients at work, and somebody who looks at the nodes meanwhile.
struct Work {
    owner: Owner,
    header: Header,
    until: Instant,
    origin: Instant,
    ground: Arc<Ground>,
    observer: Observer,
    clients: Vec<std::thread::JoinHandle<()>>,
}

impl Work {
    fn begin(args: &RunArgs, seed: u64, out: &Path, place: Place) -> Result<Self, RunError> {
        let Place { owner, run, endpoints, direct } = place;
        let nodes = u32::try_from(endpoints.len()).unwrap_or(u32::MAX);
        let header = Header { tick_ms: args.tick_ms, ..Header::new(seed, nodes) };
        let file =
            Writer::create(&out.join(HISTORY), &header).map_err(RunError::io("the history cannot be written"))?;
        let origin = now();
        let until = origin + secs(args.seconds);
        let observer = Observer::of(&direct, origin);
        let crowd = Crowd { clients: args.clients, watchers: args.watchers };
        let ground = Arc::new(Ground::new(origin, run, seed, crowd, endpoints, Recorder::writing(file)));
        let clients = workload::start(&ground);
        Ok(Self { owner, header, until, origin, ground, observer, clients })
    }

    fn strike(&self, cluster: &mut Cluster, planned: &[Planned]) -> Strikes {
        let mut striker = Striker::new(cluster, &self.observer, &self.ground.endpoints, self.origin);
        let struck = striker.run(planned);
        Strikes { struck, broken: striker.broken() }
    }

    fn end(self, strikes: Strikes, is_recovered: impl FnOnce() -> bool) -> Result<Run, RunError> {
        let Strikes { struck, broken } = strikes;
        pause_until(self.until);
        self.ground.stop(STOP_GRACE);
        let worked = self.origin.elapsed();
        for client in self.clients {
            client.join().map_err(|_| RunError::io("a client panicked")(io::Error::other("see above")))?;
        }
        let recovered = is_recovered();
        let Observed { leaderless, offices, unreachable } = self.observer.finish();
        let noted = self.ground.recorder.take();
        let mut history = History::new(self.header);
        noted.records.into_iter().for_each(|record| history.push(record));
        history.faults = struck.iter().map(|struck| struck.record(&offices, &leaderless)).collect();
        history.faults.sort_by_key(|fault| fault.begin_us);
        history.leaderless = leaderless;
        excuse(&mut history.calls, &struck);
        if self.owner == Owner::SomebodyElse {
            excuse_the_unreachable(&mut history.calls, &[&unreachable[..], &noted.unreachable].concat());
        }
        let unreachable_us = noted.unreachable.iter().map(|seen| seen.at_us).collect();
        Ok(Run { history, worked, offices, unreachable_us, owner: self.owner, recovered, broken })
    }
}
