//! How a node runs: options, environment, file; in this order of precedence.

mod check;
mod restore;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::BoolishValueParser;
use lockstead_client::Endpoint;
use lockstead_raft::JoinAs;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use crate::exit::Failure;
use crate::node_id;

pub(crate) use check::NodeConfig;
pub(crate) use restore::Restoring;

/// What can be said about a node; the same fields as options, environment variables and keys of the file.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServeOptions {
    /// This node's number, from 1, never used by another node of the cluster, not even a removed one. Required.
    #[arg(long, env = "LOCKSTEAD_NODE_ID", value_name = "N", value_parser = node_id::parse_option,
        allow_negative_numbers = true)]
    node_id: Option<i64>,
    /// Where the node keeps its data; made if missing. Required.
    #[arg(long, env = "LOCKSTEAD_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Where clients are served [default: 127.0.0.1:7401].
    #[arg(long, env = "LOCKSTEAD_LISTEN", value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Where the other nodes are served [default: 127.0.0.1:7501].
    #[arg(long, env = "LOCKSTEAD_PEER_LISTEN", value_name = "HOST:PORT")]
    peer_listen: Option<String>,
    /// Where clients reach this node [default: the listen address]; required when that is 0.0.0.0 or ::.
    #[arg(long, env = "LOCKSTEAD_ADVERTISE", value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Where the other nodes reach this node [default: the peer listen address]; required when that is 0.0.0.0 or ::.
    #[arg(long, env = "LOCKSTEAD_ADVERTISE_PEER", value_name = "HOST:PORT")]
    advertise_peer: Option<String>,
    /// Found a new cluster, once every --join address has said that it belongs to none.
    #[arg(long, env = "LOCKSTEAD_BOOTSTRAP", value_name = "BOOL", value_parser = BoolishValueParser::new(),
        num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    bootstrap: Option<bool>,
    /// Wait, with an empty directory, until an operator adds this node (lockstead member add).
    #[arg(long, env = "LOCKSTEAD_STANDBY", value_name = "BOOL", value_parser = BoolishValueParser::new(),
        num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    standby: Option<bool>,
    /// With --bootstrap: go on from the backup in this file, without any held lock; ignored once that is done.
    #[arg(long, env = "LOCKSTEAD_RESTORE", value_name = "FILE")]
    restore: Option<PathBuf>,
    /// With --restore: grant at once, nobody holds a lock any more, all holders are known to be dead.
    #[arg(long, env = "LOCKSTEAD_HOLDERS_ARE_DEAD", value_name = "BOOL", value_parser = BoolishValueParser::new(),
        num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    holders_are_dead: Option<bool>,
    /// With --restore: for how long nothing is granted, as in 30s or '1h 30m' [default: the longest TTL that anybody
    /// may still count on, ttl-max-ms included, and the longest delay].
    #[arg(long, env = "LOCKSTEAD_HOLD_OFF", value_name = "LENGTH")]
    hold_off: Option<String>,
    /// With --restore: fences lie above N; for a machine whose clock is wrong. At least the highest fence ever issued.
    #[arg(long, env = "LOCKSTEAD_FENCE_FLOOR", value_name = "N", allow_negative_numbers = true)]
    fence_floor: Option<i64>,
    /// API addresses of the other nodes, separated by commas: of any members to join their cluster, of the future
    /// members with --bootstrap.
    #[arg(long, env = "LOCKSTEAD_JOIN", value_name = "HOST:PORT,…", value_delimiter = ',')]
    join: Vec<String>,
    /// Stay a learner after joining: take part without a vote.
    #[arg(long, env = "LOCKSTEAD_LEARNER", value_name = "BOOL", value_parser = BoolishValueParser::new(),
        num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    learner: Option<bool>,
    /// Serve without authentication on an address that is not loopback: whoever reaches it may take every lock.
    #[arg(long, env = "LOCKSTEAD_ALLOW_UNAUTHENTICATED", value_name = "BOOL", value_parser = BoolishValueParser::new(),
        num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    allow_unauthenticated: Option<bool>,
    /// Milliseconds between heartbeats [default: a third of the lower bound of elections]. Has to be longer than
    /// a round trip between any two nodes. More spares network, and needs longer election timeouts.
    #[arg(long, env = "LOCKSTEAD_HEARTBEAT_MS", value_name = "MS", allow_negative_numbers = true)]
    heartbeat_ms: Option<i64>,
    /// Lower bound of the election timeout in milliseconds [default: 150]. More tolerates slower disks and networks,
    /// and takes longer to replace a dead leader.
    #[arg(long, env = "LOCKSTEAD_ELECTION_MIN_MS", value_name = "MS", allow_negative_numbers = true)]
    election_min_ms: Option<i64>,
    /// Upper bound of the election timeout in milliseconds [default: 300]. The further above the lower bound, the fewer
    /// split votes.
    #[arg(long, env = "LOCKSTEAD_ELECTION_MAX_MS", value_name = "MS", allow_negative_numbers = true)]
    election_max_ms: Option<i64>,
    /// While a lock is held, something is logged at least this often, in milliseconds [default: 250]. More spares disk,
    /// and lets a hold end that much later after a change of leader.
    #[arg(long, env = "LOCKSTEAD_TICK_MS", value_name = "MS", allow_negative_numbers = true)]
    tick_ms: Option<i64>,
    /// The longest TTL that can be asked for, in milliseconds [default: 86400000, a day].
    #[arg(long, env = "LOCKSTEAD_TTL_MAX_MS", value_name = "MS", allow_negative_numbers = true)]
    ttl_max_ms: Option<i64>,
    /// The most locks held at a time [default: 1000000]. Each takes memory on every node.
    #[arg(long, env = "LOCKSTEAD_LOCKS_MAX", value_name = "N", allow_negative_numbers = true)]
    locks_max: Option<i64>,
    /// A snapshot is taken once so many log entries can go [default: 100000]. More lets the log grow longer between
    /// snapshots.
    #[arg(long, env = "LOCKSTEAD_SNAPSHOT_ENTRIES", value_name = "N", allow_negative_numbers = true)]
    snapshot_entries: Option<i64>,
    /// A snapshot is taken once so many bytes of log can go [default: 4194304]. More lets the log grow longer between
    /// snapshots, and keeps more of it for nodes that lag.
    #[arg(long, env = "LOCKSTEAD_SNAPSHOT_BYTES", value_name = "BYTES", allow_negative_numbers = true)]
    snapshot_bytes: Option<i64>,
    /// A snapshot is taken after so many milliseconds if anything can go [default: 600000, ten minutes]. More spares
    /// writes on quiet clusters.
    #[arg(long, env = "LOCKSTEAD_SNAPSHOT_AGE_MS", value_name = "MS", allow_negative_numbers = true)]
    snapshot_age_ms: Option<i64>,
    /// The most bytes of log kept for the sake of held locks, or twice what they take if that is more
    /// [default: 67108864]; beyond it the leader logs the oldest once more. More spares writes, and makes restarts read
    /// more.
    #[arg(long, env = "LOCKSTEAD_TAIL_BYTES_MAX", value_name = "BYTES", allow_negative_numbers = true)]
    tail_bytes_max: Option<i64>,
    /// Worker threads [default: half of the cores, at least 1, at most 4]. More serve more requests at once, and make
    /// each wait longer.
    #[arg(long, env = "LOCKSTEAD_WORKERS", value_name = "N", allow_negative_numbers = true)]
    workers: Option<i64>,
    /// For tests: dial node ID at ADDR instead of the address it advertises. Repeatable.
    #[arg(long, env = "LOCKSTEAD_PEER_ROUTE", value_name = "ID=ADDR", value_delimiter = ',')]
    peer_route: Vec<String>,
    /// Log lines for people or for programs: text or json [default: text].
    #[arg(long, env = "LOCKSTEAD_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// What is logged: a level, or levels by target as in `info,lockstead_raft=debug` [default: info,openraft=error].
    #[arg(long, env = "LOCKSTEAD_LOG_LEVEL", value_name = "FILTER")]
    log_level: Option<String>,
    /// A TOML file with any of these options, underscores in their names.
    #[arg(long, env = "LOCKSTEAD_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
}

/// For whom log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// People.
    #[default]
    Text,
    /// Programs.
    Json,
}

/// What is logged and how.
#[derive(Debug)]
pub(crate) struct LogConfig {
    pub(crate) format: LogFormat,
    pub(crate) filter: EnvFilter,
}

/// How a node that belongs to no cluster comes to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It founds one after these have said that they belong to none.
    Found(Vec<Endpoint>),
    /// As of `Found`, and goes on from a backup.
    Restore(Vec<Endpoint>, Box<Restoring>),
    /// It joins the one of these.
    Join(Vec<Endpoint>, JoinAs),
    /// It waits until it is added.
    Standby,
    /// Nothing was said: only a node that belongs to one can run.
    Unsaid,
}

impl ServeOptions {
    /// Fills in the file and checks everything.
    pub(crate) fn load(self) -> Result<(NodeConfig, LogConfig), Failure> {
        let options = match self.config.clone() {
            Some(path) => self.or(read(&path)?),
            None => self,
        };
        check::checked(&options).map_err(Failure::usage)
    }

    /// What is said here, else what is said there.
    fn or(self, there: Self) -> Self {
        Self {
            node_id: self.node_id.or(there.node_id),
            data_dir: self.data_dir.or(there.data_dir),
            listen: self.listen.or(there.listen),
            peer_listen: self.peer_listen.or(there.peer_listen),
            advertise: self.advertise.or(there.advertise),
            advertise_peer: self.advertise_peer.or(there.advertise_peer),
            bootstrap: self.bootstrap.or(there.bootstrap),
            standby: self.standby.or(there.standby),
            restore: self.restore.or(there.restore),
            holders_are_dead: self.holders_are_dead.or(there.holders_are_dead),
            hold_off: self.hold_off.or(there.hold_off),
            fence_floor: self.fence_floor.or(there.fence_floor),
            join: if self.join.is_empty() { there.join } else { self.join },
            learner: self.learner.or(there.learner),
            allow_unauthenticated: self.allow_unauthenticated.or(there.allow_unauthenticated),
            heartbeat_ms: self.heartbeat_ms.or(there.heartbeat_ms),
            election_min_ms: self.election_min_ms.or(there.election_min_ms),
            election_max_ms: self.election_max_ms.or(there.election_max_ms),
            tick_ms: self.tick_ms.or(there.tick_ms),
            ttl_max_ms: self.ttl_max_ms.or(there.ttl_max_ms),
            locks_max: self.locks_max.or(there.locks_max),
            snapshot_entries: self.snapshot_entries.or(there.snapshot_entries),
            snapshot_bytes: self.snapshot_bytes.or(there.snapshot_bytes),
            snapshot_age_ms: self.snapshot_age_ms.or(there.snapshot_age_ms),
            tail_bytes_max: self.tail_bytes_max.or(there.tail_bytes_max),
            workers: self.workers.or(there.workers),
            peer_route: if self.peer_route.is_empty() { there.peer_route } else { self.peer_route },
            log_format: self.log_format.or(there.log_format),
            log_level: self.log_level.or(there.log_level),
            config: self.config,
        }
    }
}

fn read(path: &Path) -> Result<ServeOptions, Failure> {
    let said = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| said(&error))?;
    parse(&text).map_err(|error| said(&error))
}

/// The parser's message names the key; its picture of the line would not survive as one line.
fn parse(text: &str) -> Result<ServeOptions, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let source = text.lines().nth(line - 1).unwrap_or_default().trim();
        format!("line {line} ({source}): {}", error.message())
    })
}

fn resolve(text: &str) -> Result<SocketAddr, String> {
    let mut addresses = text.to_socket_addrs().map_err(|error| format!("{text:?} is no HOST:PORT: {error}"))?;
    addresses.next().ok_or_else(|| format!("{text:?} names no address"))
}

#[cfg(test)]
mod tests;
