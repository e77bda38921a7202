//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use lockstead_client::{Endpoint, Wait};

use crate::config::ServeOptions;
use crate::member::{self, MemberCommand};
use crate::{duration, lineage};

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 nothing held (get); 2 usage or a wrong request; 69 unreachable, no quorum or outcome unknown; \
70 internal; 75 held, wait over or limit reached; 76 not the holder; 128+n ended by signal n.
serve: 0 stopped; 2 configuration, or another process has the address; 10 damaged data; 11 disk failure; 12 removed; 13 identity refused; \
14 data directory in use; 69 this host has no such address to listen on, or not yet; 70 internal.";

/// A replicated consensus lock store: locks with TTLs and fencing tokens that outlive dead nodes.
#[derive(Debug, Parser)]
#[command(name = "lockstead", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one node of a cluster.
    #[command(after_help = "\
Every option can also be given as an environment variable (named below each option) or as a key of the file given by \
--config, written with underscores (heartbeat_ms = 50). An option wins over the environment, the environment over the \
file.

Examples, a cluster of three:
  lockstead serve --node-id 1 --data-dir d1 --listen 127.0.0.1:7401 --peer-listen 127.0.0.1:7501 --bootstrap --join 127.0.0.1:7402,127.0.0.1:7403
  lockstead serve --node-id 2 --data-dir d2 --listen 127.0.0.1:7402 --peer-listen 127.0.0.1:7502 --join 127.0.0.1:7401,127.0.0.1:7403
  lockstead serve --node-id 3 --data-dir d3 --listen 127.0.0.1:7403 --peer-listen 127.0.0.1:7503 --join 127.0.0.1:7401,127.0.0.1:7402
A restart is the same command: a node that belongs to a cluster ignores --bootstrap, --join and --learner, \
and --restore if it has founded its cluster so.")]
    Serve(Box<ServeOptions>),
    /// Run a cluster on this machine, to try things out.
    #[command(after_help = "Examples:
  lockstead dev
  lockstead dev --nodes 5 --data-dir ./cluster --port 9000")]
    Dev(DevArgs),
    /// Take a lock; prints its token.
    #[command(after_help = "Examples:
  TOKEN=$(lockstead acquire jobs/nightly --ttl 5m --wait 10s)
  lockstead acquire jobs/nightly --owner worker-7 --wait forever --json
  lockstead acquire -- --a-name-that-begins-with-dashes")]
    Acquire(AcquireArgs),
    /// End a hold.
    #[command(after_help = "The token comes from --token, from LOCKSTEAD_TOKEN, or from stdin.

Examples:
  lockstead release jobs/nightly --token \"$TOKEN\"
  echo \"$TOKEN\" | lockstead release jobs/nightly")]
    Release(ReleaseArgs),
    /// Prolong a hold.
    #[command(
        after_help = "The token comes from --token, from LOCKSTEAD_TOKEN, or from stdin; with --owner none is needed.

Examples:
  lockstead renew jobs/nightly --ttl 5m --token \"$TOKEN\"
  lockstead renew jobs/nightly --ttl 5m --owner worker-7"
    )]
    Renew(RenewArgs),
    /// Show who holds a lock and who waits for it.
    #[command(after_help = "Examples:
  lockstead get jobs/nightly
  lockstead get jobs/nightly --json")]
    Get(GetArgs),
    /// Show the cluster as the first node that answers sees it.
    #[command(after_help = "Examples:
  lockstead status
  lockstead status --endpoints http://10.0.0.1:7401,http://10.0.0.2:7401")]
    Status(StatusArgs),
    /// Show, add, promote, demote, remove and move members, or hand leadership over.
    #[command(
        subcommand,
        after_help = format!("{}

Examples:
  lockstead member list
  lockstead member add 4 --peer 10.0.0.4:7501 --api 10.0.0.4:7401 --wait 1m
  lockstead member promote 4 --wait 1m
  lockstead member remove 2
  lockstead member transfer 3", member::EXIT_CODES)
    )]
    Member(MemberCommand),
    /// Take a backup, or look into one. No held lock is in it.
    #[command(
        subcommand,
        after_help = "Examples:
  lockstead backup save /var/backups/locks --endpoints http://10.0.0.1:7401,http://10.0.0.2:7401
  lockstead backup inspect /var/backups/locks
  lockstead serve --node-id 1 --data-dir d1 --bootstrap --restore /var/backups/locks"
    )]
    Backup(BackupCommand),
    /// Make the one node that is left of a cluster a new cluster of its own, without any held lock.
    ///
    /// Only for a majority that is lost for good: whatever the lost nodes alone knew is gone, and they can never come
    /// back. The node must not run. Start it afterwards with the options it had, and let new nodes join.
    #[command(after_help = "Example:
  lockstead recover --data-dir d2 --confirm 7b0d…32 digits…")]
    Recover(RecoverArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Write the backup of the first node that has one into a file.
    Save(BackupSaveArgs),
    /// Say what a backup holds.
    Inspect(BackupInspectArgs),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BackupSaveArgs {
    /// The file: whole and on disk, or not there.
    pub(crate) file: PathBuf,
    /// Overwrite the file if it is there.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BackupInspectArgs {
    /// The file.
    pub(crate) file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RecoverArgs {
    /// The data directory of the node that is left.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// The id of its cluster, to be sure that it is the right one: `lockstead status` and the node's logs show it.
    #[arg(long, value_name = "CLUSTER_ID")]
    pub(crate) confirm: String,
    /// Grant at once: nobody holds a lock any more, all holders are known to be dead.
    #[arg(long, conflicts_with = "hold_off")]
    pub(crate) holders_are_dead: bool,
    /// For how long nothing is granted [default: the longest TTL that anybody may still count on, and the longest
    /// delay].
    #[arg(long, value_name = "LENGTH", value_parser = duration::parse)]
    pub(crate) hold_off: Option<Duration>,
    /// Fences lie above N; for a machine whose clock is wrong. At least the highest fence ever issued.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..lineage::FENCE_FLOOR_MAX))]
    pub(crate) fence_floor: Option<u64>,
    /// The longest TTL that the lost cluster allowed, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 86_400_000, value_parser = clap::value_parser!(u64).range(30_000..))]
    pub(crate) ttl_max_ms: u64,
}

/// How to reach a cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reach {
    /// Nodes of one cluster to ask, separated by commas; the leader is found through any of them.
    #[arg(
        long,
        env = "LOCKSTEAD_ENDPOINTS",
        value_name = "URLS",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:7401"
    )]
    pub(crate) endpoints: Vec<Endpoint>,
    /// For how long beyond its wait the call is tried; the last try is heard out, for up to 6s more or as long again.
    #[arg(long, value_name = "LENGTH", value_parser = duration::parse, default_value = "10s")]
    pub(crate) timeout: Duration,
    /// Print the API's answer as it comes; nothing if none came (exit code 69).
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct AcquireArgs {
    /// The lock: 1 to 1024 bytes. After `--` it may begin with dashes.
    pub(crate) name: String,
    /// How long the hold lasts without a renewal, as in 500ms, 30s or '1m 30s' [default: 30s].
    #[arg(long, value_name = "LENGTH", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait if it is held: a length or `forever`.
    #[arg(long, value_name = "LENGTH", value_parser = duration::parse_wait, default_value = "0")]
    pub(crate) wait: Wait,
    /// A stable name of the caller: renew if it holds the lock, take if free, refuse otherwise.
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// The id under which a repeated acquire gets the same grant: 16 to 128 bytes, a secret.
    #[arg(long, value_name = "ID")]
    pub(crate) request_id: Option<String>,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ReleaseArgs {
    /// The lock.
    pub(crate) name: String,
    /// The token of the hold.
    #[arg(long)]
    pub(crate) token: Option<String>,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RenewArgs {
    /// The lock.
    pub(crate) name: String,
    /// The token of the hold.
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// The owner of the hold, instead of its token.
    #[arg(long, conflicts_with = "token")]
    pub(crate) owner: Option<String>,
    /// How long the hold lasts from now on [default: 30s].
    #[arg(long, value_name = "LENGTH", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct GetArgs {
    /// The lock.
    pub(crate) name: String,
    /// Take what the answering node happens to know, however old.
    #[arg(long)]
    pub(crate) stale: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DevArgs {
    /// How many nodes; an odd number tolerates most failures for its size.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=7))]
    pub(crate) nodes: u16,
    /// Where to keep the data [default: a temporary directory, removed at the end].
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The API port of the first node, the next ones following; peers talk on the ports 100 above.
    #[arg(long, default_value_t = 7401, value_parser = clap::value_parser!(u16).range(1..=65_400))]
    pub(crate) port: u16,
    /// Leave a node that ends alone instead of starting it again after 3 s.
    #[arg(long)]
    pub(crate) no_restart: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn acquire(line: &[&str]) -> AcquireArgs {
        match Cli::try_parse_from([&["lockstead", "acquire"], line].concat()).unwrap().command {
            Command::Acquire(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn check_refused(line: &[&str], expected: &str) {
        let error = Cli::try_parse_from([&["lockstead"], line].concat()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_acquire_is_read() {
        let args = acquire(&["l", "--ttl", "1m 30s", "--wait", "forever", "--endpoints", "a:1,http://b:2"]);
        assert_eq!((args.name.as_str(), args.ttl, args.wait), ("l", Some(Duration::from_secs(90)), Wait::Forever));
        assert_eq!(args.reach.endpoints, ["http://a:1".parse().unwrap(), "b:2".parse().unwrap()]);
        assert_eq!((args.owner, args.request_id), (None, None));
    }

    #[test]
    fn a_name_may_be_any_text() {
        assert_eq!(acquire(&["--", "--ttl"]).name, "--ttl");
        assert_eq!(acquire(&["a\nb"]).name, "a\nb");
    }

    #[test]
    fn mistakes_say_what_is_needed() {
        check_refused(&["acquire", "l", "--ttl", "30"], "give a unit");
        check_refused(&["acquire", "l", "--wait", "30"], "forever");
        check_refused(&["acquire", "l", "--endpoints", "localhost"], "a port from 1 to 65535");
        check_refused(&["acquire"], "<NAME>");
        check_refused(&["renew", "l", "--owner", "o", "--token", "t"], "cannot be used with");
        check_refused(&["dev", "--nodes", "8"], "1..=7");
    }
}
