//! The summary of a run.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::figures::{self, FaultCount, Gaps, Latency};
use crate::checker::{Report, Verdict};
use crate::clock::as_us;
use crate::history::{Answer, History};
use crate::run::Run;

/// What a run, or the check of a saved one, comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// Everything was checked, and nothing found.
    Ok,
    /// Something happened that must not.
    Violation,
    /// Nothing was found, but not everything could be checked in the time given, or there was nothing to check.
    Undecided,
}

/// What the checker said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// How many locks were looked at.
    pub locks: usize,
    /// How many calls had an answer about their lock.
    pub decided: usize,
    /// How many states the search went through.
    pub states: u64,
    /// How long it took.
    pub seconds: f64,
    /// What must not have happened, each with the part of the history that shows it.
    pub violations: Vec<String>,
    /// The locks for which the time was too short.
    pub undecided: Vec<String>,
}

/// All figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The verdict.
    pub conclusion: Conclusion,
    /// The command that does the same again.
    pub repeat: String,
    /// What chance was made from.
    pub seed: u64,
    /// How many nodes the cluster had.
    pub nodes: u32,
    /// How long clients worked, in seconds.
    pub seconds: f64,
    /// How many calls of each operation had which outcome.
    pub operations: BTreeMap<&'static str, BTreeMap<String, u64>>,
    /// How many of the calls have an unknown outcome.
    pub unknown: usize,
    /// How often a client could not connect, so that nothing went out.
    pub unreachable: usize,
    /// Writes to guarded registers.
    pub writes: usize,
    /// How long the service took, apart from waiting for a lock.
    pub latencies: BTreeMap<&'static str, Latency>,
    /// The longest time in which no client was told anything, in milliseconds.
    pub longest_pause_ms: u64,
    /// What was done to the cluster.
    pub faults: BTreeMap<String, FaultCount>,
    /// How often the leader changed.
    pub elections: usize,
    /// The times without a leader that reached a quorum, at most.
    pub leaderless: Gaps,
    /// Whether every node served again after the last fault.
    pub recovered: bool,
    /// What nodes did that they must not, whatever clients saw.
    pub broken: Vec<String>,
    /// What the checker said.
    pub checked: Checked,
}

impl Checked {
    /// What a report of the checker says.
    pub fn from(report: &Report) -> Self {
        Self {
            locks: report.stats.locks,
            decided: report.stats.decided,
            states: report.stats.states,
            seconds: report.stats.seconds,
            violations: report.violations.iter().map(ToString::to_string).collect(),
            undecided: report.undecided.iter().map(|undecided| undecided.lock.clone()).collect(),
        }
    }
}

impl Conclusion {
    /// What a report of the checker comes to.
    pub fn of(report: &Report) -> Self {
        match report.verdict() {
            Verdict::Ok => Self::Ok,
            Verdict::Violation => Self::Violation,
            Verdict::Undecided => Self::Undecided,
        }
    }
}

impl Summary {
    /// The summary of a run that was checked.
    pub fn new(run: &Run, report: &Report, repeat: String) -> Self {
        let History { header, calls, faults, leaderless, writes } = &run.history;
        let conclusion =
            if run.recovered && run.broken.is_empty() { Conclusion::of(report) } else { Conclusion::Violation };
        Self {
            conclusion,
            repeat,
            seed: header.seed,
            nodes: header.nodes,
            seconds: run.worked.as_secs_f64(),
            operations: figures::operations(calls),
            unknown: calls.iter().filter(|call| matches!(call.answer, Answer::Unknown { .. })).count(),
            unreachable: run.unreachable_us.len(),
            writes: writes.len(),
            latencies: figures::latencies(calls),
            longest_pause_ms: figures::longest_pause_ms(calls, as_us(run.worked)),
            faults: figures::fault_counts(faults),
            // The first office is the one that the run began with.
            elections: run.offices.len().saturating_sub(1),
            leaderless: figures::gaps(leaderless),
            recovered: run.recovered,
            broken: run.broken.clone(),
            checked: Checked::from(report),
        }
    }
}

impl Display for Conclusion {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "no violation",
            Self::Violation => "VIOLATION",
            Self::Undecided => "undecided",
        })
    }
}

impl Display for Checked {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        for lock in &self.undecided {
            writeln!(f, "undecided: lock {lock:?}")?;
        }
        let (violations, undecided) = (self.violations.len(), self.undecided.len());
        writeln!(
            f,
            "checked: {} answers about {} locks, {} states, {:.1} s: {violations} violations, {undecided} undecided",
            self.decided, self.locks, self.states, self.seconds
        )
    }
}

impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let all: u64 = self.operations.values().flat_map(BTreeMap::values).sum();
        writeln!(f, "{} nodes, {:.1} s, seed {}", self.nodes, self.seconds, self.seed)?;
        writeln!(f, "\noperations ({all}, {:.0} a second)", per_second(all, self.seconds))?;
        for (operation, outcomes) in &self.operations {
            let outcomes: Vec<String> = outcomes.iter().map(|(outcome, count)| format!("{outcome} {count}")).collect();
            writeln!(f, "  {operation:<15} {}", outcomes.join(", "))?;
        }
        writeln!(
            f,
            "  unknown outcomes {}, not connected {}, register writes {}",
            self.unknown, self.unreachable, self.writes
        )?;
        writeln!(f, "\nlatency in ms      count      p50      p90      p99      max")?;
        for (operation, latency) in &self.latencies {
            let Latency { count, p50_ms, p90_ms, p99_ms, max_ms } = latency;
            writeln!(f, "  {operation:<15} {count:>6} {p50_ms:>8.1} {p90_ms:>8.1} {p99_ms:>8.1} {max_ms:>8.1}")?;
        }
        writeln!(f, "  longest time without any decision: {} ms", self.longest_pause_ms)?;
        let none = if self.faults.is_empty() { ": none" } else { "" };
        writeln!(f, "\nfaults (took effect / done){none}")?;
        for (kind, FaultCount { done, took_effect }) in &self.faults {
            writeln!(f, "  {kind:<20} {took_effect:>4} / {done}")?;
        }
        let Gaps { count, total_ms, longest_ms } = self.leaderless;
        writeln!(f, "\nelections {}", self.elections)?;
        writeln!(f, "without a leader: {count} times, {total_ms} ms in all, longest {longest_ms} ms")?;
        if !self.recovered {
            writeln!(f, "NOT RECOVERED: not every node served again within 30 s after the last fault")?;
        }
        for broken in &self.broken {
            writeln!(f, "BROKEN: {broken}")?;
        }
        write!(f, "\n{}", self.checked)?;
        writeln!(f, "verdict: {}", self.conclusion)?;
        write!(f, "again: {}", self.repeat)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of calls is far below 2^52")]
fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(0.001)
}
