//! The command line.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};

use crate::faults::Kind;

/// Tries to break a Lockstead cluster, and checks what its clients saw
#[derive(Debug, Parser)]
#[command(name = "lockstead-chaos", args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

const AFTER_HELP: &str = "\
Exit codes: 0 no violation, 1 a violation, 2 usage, 3 undecided, or the run was not possible.

Examples:
  lockstead-chaos --nodes 3 --seconds 60 --seed 7
  lockstead-chaos --faults kill-leader,cut-leader --seconds 120
  lockstead-chaos --endpoints 10.0.0.1:7401,10.0.0.2:7401,10.0.0.3:7401
  lockstead-chaos check out/history.jsonl";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs clients, and faults unless the cluster is somebody else's, and checks what they saw (the default)
    Run(RunArgs),
    /// Checks a history that was saved
    Check(CheckArgs),
}

/// How a run is to be.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// How many nodes the cluster has
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=7))]
    pub nodes: u32,
    /// For how many seconds clients work
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub seconds: u64,
    /// Where all that chance decides comes from; the schedule of faults is the same for the same seed [default: the
    /// time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// How many clients work; three meet at a lock
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub clients: u32,
    /// How many more only look who holds the locks, at every node
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub watchers: u32,
    /// How often an idle leader of the cluster logs lease time, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 250, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub tick_ms: u64,
    /// Which kinds of faults are done, separated by commas; `none` for none [default: all]
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = parse_kind)]
    pub faults: Option<Vec<Option<Kind>>>,
    /// The binary of the nodes [default: the lockstead beside this program, built if it is missing]
    #[arg(long, value_name = "PATH", conflicts_with = "endpoints")]
    pub bin: Option<PathBuf>,
    /// More options for each node, separated by spaces
    #[arg(long, value_name = "OPTIONS", conflicts_with = "endpoints", allow_hyphen_values = true)]
    pub node_args: Option<String>,
    /// Works on a cluster that runs already, and does no faults to it
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', conflicts_with_all = ["nodes", "faults"])]
    pub endpoints: Vec<String>,
    /// Has the nodes make a mistake on purpose, to see whether it is found; only debug builds do
    #[arg(long, value_name = "NAME", conflicts_with = "endpoints")]
    pub plant: Option<String>,
    /// Where history, summary, page and the output of the nodes go [default: a new directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) check: CheckOptions,
}

/// What is to be checked.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// The history, as a run has written it
    #[arg(value_name = "FILE")]
    pub history: PathBuf,
    #[command(flatten)]
    pub(crate) options: CheckOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CheckOptions {
    /// For how many seconds the history is checked; what was not decided by then is undecided
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) check_seconds: u64,
    /// Prints the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Cli {
    /// What is asked for.
    pub fn command(self) -> Command {
        self.command.unwrap_or(Command::Run(self.run))
    }
}

impl RunArgs {
    /// The seed, if need be a new one.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            // Six digits are easy to type again.
            u64::from(since.subsec_nanos()) % 1_000_000
        })
    }

    /// The kinds of faults.
    pub fn kinds(&self) -> Vec<Kind> {
        self.faults.as_ref().map_or_else(Kind::all, |kinds| kinds.iter().copied().flatten().collect())
    }

    /// The command that does this run again.
    pub fn repeat(&self, seed: u64) -> String {
        let mut words = vec!["lockstead-chaos".to_owned(), format!("--seconds {} --seed {seed}", self.seconds)];
        if self.endpoints.is_empty() {
            words.push(format!("--nodes {}", self.nodes));
        } else {
            words.push(format!("--endpoints {}", self.endpoints.join(",")));
        }
        words.push(format!("--clients {} --watchers {} --tick-ms {}", self.clients, self.watchers, self.tick_ms));
        if let Some(kinds) = &self.faults {
            let names: Vec<String> =
                kinds.iter().map(|kind| kind.map_or("none".to_owned(), |kind| kind.to_string())).collect();
            words.push(format!("--faults {}", names.join(",")));
        }
        words.extend(self.bin.as_ref().map(|bin| format!("--bin {}", quoted(&bin.display().to_string()))));
        words.extend(self.node_args.as_ref().map(|args| format!("--node-args {}", quoted(args))));
        words.extend(self.plant.as_ref().map(|plant| format!("--plant {}", quoted(plant))));
        words.join(" ")
    }
}

/// As a shell takes it.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn parse_kind(name: &str) -> Result<Option<Kind>, String> {
    if name == "none" {
        return Ok(None);
    }
    name.parse().map(Some).map_err(|error: crate::faults::kind::UnknownKind| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Command, clap::Error> {
        Cli::try_parse_from(format!("lockstead-chaos {words}").split_whitespace()).map(Cli::command)
    }

    fn run(words: &str) -> RunArgs {
        match parse(words) {
            Ok(Command::Run(run)) => run,
            other => panic!("{words}: {other:?}"),
        }
    }

    #[test]
    fn a_run_is_what_is_done_without_a_word() {
        assert_eq!(run("").nodes, 3);
        assert_eq!(run("run --nodes 5 --seed 7").seed(), 7);
        assert!(matches!(parse("check history.jsonl"), Ok(Command::Check(_))));
    }

    #[test]
    fn faults_are_chosen_by_name() {
        assert_eq!(run("").kinds(), Kind::all());
        assert_eq!(run("--faults kill-all,drop").kinds(), [Kind::KillAll, Kind::Drop]);
        assert_eq!(run("--faults none").kinds(), []);
        assert!(parse("--faults kill-nobody").is_err());
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for words in
            ["--endpoints a:1 --plant x", "--endpoints a:1 --faults drop", "--endpoints a:1 --bin x", "--nodes 8"]
        {
            assert!(parse(words).is_err(), "{words}");
        }
    }

    #[test]
    fn the_command_to_repeat_a_run_is_that_run() {
        let words =
            "--seconds 9 --nodes 5 --clients 7 --watchers 2 --tick-ms 300 --faults drop,slow --bin ./a_b --plant x";
        let again = run(words).repeat(3);
        let (first, second) = (run(&format!("{words} --seed 3")), run(again.strip_prefix("lockstead-chaos ").unwrap()));
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        assert_eq!(quoted("a b'c"), r"'a b'\''c'");
    }
}
