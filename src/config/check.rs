//! From what was said to what holds: defaults, ranges, and what must fit together.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use lockstead_client::Endpoint;
use lockstead_client::api::is_every_address;
use lockstead_raft::JoinAs;
use tracing_subscriber::EnvFilter;

use super::{Entry, LogConfig, ServeOptions, resolve, restore};

const LISTEN: &str = "127.0.0.1:7401";
const PEER_LISTEN: &str = "127.0.0.1:7501";
const LOG_LEVEL: &str = "info,openraft=error";

/// The largest integer that every JSON reader keeps exact.
const NODE_ID_MAX: i64 = (1 << 53) - 1;
const DAY_MS: i64 = 86_400_000;
const TIB: i64 = 1 << 40;

/// How a node runs, checked.
#[derive(Debug)]
pub(crate) struct NodeConfig {
    pub(crate) node_id: u64,
    pub(crate) data_dir: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) peer_listen: SocketAddr,
    /// `None`: the address that is listened on.
    pub(crate) advertise: Option<String>,
    /// `None`: the address that is listened on.
    pub(crate) advertise_peer: Option<String>,
    pub(crate) entry: Entry,
    pub(crate) timing: Timing,
    pub(crate) ttl_max_ms: u64,
    pub(crate) locks_max: u64,
    pub(crate) log: LogLimits,
    /// `None`: half of the cores, 1 to 4.
    pub(crate) workers: Option<usize>,
    pub(crate) peer_routes: BTreeMap<u64, String>,
}

/// The lengths that Raft runs on, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the unit stands last in every name")]
pub(crate) struct Timing {
    pub(crate) heartbeat_ms: u64,
    pub(crate) election_min_ms: u64,
    pub(crate) election_max_ms: u64,
    pub(crate) tick_ms: u64,
}

/// When the log is shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogLimits {
    pub(crate) snapshot_entries: u64,
    pub(crate) snapshot_bytes: u64,
    pub(crate) snapshot_age_ms: u64,
    pub(crate) tail_bytes_max: u64,
}

pub(super) fn checked(options: &ServeOptions) -> Result<(NodeConfig, LogConfig), String> {
    let listen = listen("listen", options.listen.as_deref(), LISTEN, options)?;
    let peer_listen = self::listen("peer_listen", options.peer_listen.as_deref(), PEER_LISTEN, options)?;
    if listen == peer_listen && listen.port() != 0 {
        return Err(format!("{}: {listen} is where clients are served; another port is needed", named("peer_listen")));
    }
    let ttl_max_ms = whole("ttl_max_ms", options.ttl_max_ms.unwrap_or(DAY_MS), 30_000..=30 * DAY_MS)?;
    let node = NodeConfig {
        node_id: whole("node_id", required("node_id", options.node_id)?, 1..=NODE_ID_MAX)?,
        data_dir: required("data_dir", options.data_dir.clone())?,
        advertise: advertised("advertise", options.advertise.as_deref(), listen)?,
        advertise_peer: advertised("advertise_peer", options.advertise_peer.as_deref(), peer_listen)?,
        listen,
        peer_listen,
        entry: entry(options, ttl_max_ms)?,
        timing: timing(options)?,
        ttl_max_ms,
        locks_max: whole("locks_max", options.locks_max.unwrap_or(1_000_000), 1..=100_000_000)?,
        log: log_limits(options)?,
        workers: options.workers.map(|workers| whole("workers", workers, 1..=1_024)).transpose()?,
        peer_routes: options.peer_route.iter().map(|route| peer_route(route)).collect::<Result<_, _>>()?,
    };
    two_addresses(&node)?;
    Ok((node, log(options)?))
}

/// Nobody can be a member with one address for both: peers would get what clients send.
fn two_addresses(node: &NodeConfig) -> Result<(), String> {
    let [clients, peers] = [(&node.advertise, node.listen), (&node.advertise_peer, node.peer_listen)]
        .map(|(advertised, listen)| advertised.clone().unwrap_or_else(|| listen.to_string()));
    if clients == peers && !clients.ends_with(":0") {
        return Err(format!(
            "{}: {peers} is where clients reach this node; another address is needed",
            named("advertise_peer")
        ));
    }
    Ok(())
}

fn timing(options: &ServeOptions) -> Result<Timing, String> {
    let election_min_ms = options.election_min_ms.unwrap_or(150);
    let heartbeat_ms = options.heartbeat_ms.unwrap_or((election_min_ms / 3).clamp(5, 10_000));
    let timing = Timing {
        heartbeat_ms: whole("heartbeat_ms", heartbeat_ms, 5..=10_000)?,
        election_min_ms: whole("election_min_ms", election_min_ms, 10..=60_000)?,
        election_max_ms: whole("election_max_ms", options.election_max_ms.unwrap_or(300), 20..=120_000)?,
        tick_ms: whole("tick_ms", options.tick_ms.unwrap_or(250), 10..=60_000)?,
    };
    let Timing { heartbeat_ms, election_min_ms, election_max_ms, .. } = timing;
    match () {
        () if heartbeat_ms >= election_min_ms => Err(format!(
            "{}: {election_min_ms} must be above heartbeat_ms ({heartbeat_ms}), better three times as much",
            named("election_min_ms")
        )),
        () if election_min_ms >= election_max_ms => Err(format!(
            "{}: {election_max_ms} must be above election_min_ms ({election_min_ms}), better twice as much",
            named("election_max_ms")
        )),
        () => Ok(timing),
    }
}

fn log_limits(options: &ServeOptions) -> Result<LogLimits, String> {
    Ok(LogLimits {
        snapshot_entries: whole("snapshot_entries", options.snapshot_entries.unwrap_or(100_000), 10..=100_000_000)?,
        snapshot_bytes: whole("snapshot_bytes", options.snapshot_bytes.unwrap_or(4 << 20), 4_096..=TIB)?,
        snapshot_age_ms: whole("snapshot_age_ms", options.snapshot_age_ms.unwrap_or(600_000), 100..=30 * DAY_MS)?,
        tail_bytes_max: whole("tail_bytes_max", options.tail_bytes_max.unwrap_or(64 << 20), 4_096..=TIB)?,
    })
}

fn entry(options: &ServeOptions, ttl_max_ms: u64) -> Result<Entry, String> {
    let restoring = restore::restoring(options, ttl_max_ms)?;
    let join = options.join.iter().map(|address| endpoint("join", address)).collect::<Result<Vec<_>, _>>()?;
    let (found, learn) = (options.bootstrap == Some(true), options.learner == Some(true));
    if options.standby == Some(true) {
        let alone = !found && join.is_empty() && restoring.is_none();
        let beside = || format!("{}: not beside bootstrap, join or restore", named("standby"));
        return alone.then_some(Entry::Standby).ok_or_else(beside);
    }
    match (found, join.is_empty(), learn) {
        (true, _, true) => Err(format!("{}: the node that founds a cluster cannot be a learner", named("learner"))),
        (true, _, false) => Ok(match restoring {
            Some(restoring) => Entry::Restore(join, Box::new(restoring)),
            None => Entry::Found(join),
        }),
        (false, ..) if restoring.is_some() => Err(format!("{}: only with --bootstrap", named("restore"))),
        (false, true, _) => Ok(Entry::Unsaid),
        (false, false, true) => Ok(Entry::Join(join, JoinAs::Learner)),
        (false, false, false) => Ok(Entry::Join(join, JoinAs::Voter)),
    }
}

fn listen(field: &str, said: Option<&str>, default: &str, options: &ServeOptions) -> Result<SocketAddr, String> {
    let address = resolve(said.unwrap_or(default)).map_err(|error| format!("{}: {error}", named(field)))?;
    if address.ip().is_loopback() || options.allow_unauthenticated == Some(true) {
        return Ok(address);
    }
    Err(format!(
        "{}: {address} is not loopback, and whoever reaches it may take every lock; allow_unauthenticated \
         (--allow-unauthenticated) accepts that",
        named(field)
    ))
}

fn advertised(field: &str, said: Option<&str>, listen: SocketAddr) -> Result<Option<String>, String> {
    match said {
        Some(said) => Ok(Some(reachable(field, said)?.authority().to_owned())),
        None if listen.ip().is_unspecified() => {
            Err(format!("{}: required, because nobody can be reached at {listen}", named(field)))
        }
        None => Ok(None),
    }
}

fn reachable(field: &str, said: &str) -> Result<Endpoint, String> {
    let endpoint = endpoint(field, said)?;
    if is_every_address(endpoint.host()) {
        return Err(format!("{}: nobody can be reached at {said}; allowed: HOST:PORT of this host", named(field)));
    }
    Ok(endpoint)
}

fn log(options: &ServeOptions) -> Result<LogConfig, String> {
    let said = options.log_level.as_deref().unwrap_or(LOG_LEVEL);
    let filter = EnvFilter::try_new(said).map_err(|error| {
        let allowed = "off, error, warn, info, debug, trace, or target=level pairs separated by commas";
        format!("{}: {said:?}: {error}; allowed: {allowed}", named("log_level"))
    })?;
    Ok(LogConfig { format: options.log_format.unwrap_or_default(), filter })
}

fn peer_route(text: &str) -> Result<(u64, String), String> {
    let wrong = || format!("{}: {text:?}; allowed: ID=HOST:PORT", named("peer_route"));
    let (id, address) = text.split_once('=').ok_or_else(wrong)?;
    Ok((id.parse().map_err(|_| wrong())?, endpoint("peer_route", address)?.authority().to_owned()))
}

fn endpoint(field: &str, text: &str) -> Result<Endpoint, String> {
    Endpoint::from_str(text)
        .map_err(|error| format!("{}: {text:?}: {}; allowed: HOST:PORT, port 1 to 65535", named(field), error.why))
}

fn required<T>(field: &str, said: Option<T>) -> Result<T, String> {
    said.ok_or_else(|| format!("{}: required", named(field)))
}

pub(super) fn whole<T: TryFrom<i64>>(field: &str, said: i64, allowed: RangeInclusive<i64>) -> Result<T, String> {
    let in_range = Some(said).filter(|said| allowed.contains(said)).and_then(|said| T::try_from(said).ok());
    let (least, most) = allowed.into_inner();
    in_range.ok_or_else(|| format!("{}: {said} is out of range; allowed: {least} to {most}", named(field)))
}

/// A field by all its names: whoever reads the message used one of them.
pub(super) fn named(field: &str) -> String {
    format!("{field} (--{}, LOCKSTEAD_{})", field.replace('_', "-"), field.to_uppercase())
}
