//! The summary of a run.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::figures::{self, FaultCount, Gaps, Latency};
use crate::checker::{Report, Verdict};
use crate::clock::as_us;
use crate::history::{Answer, History};
use crate::run::{Owner, Run};

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
    /// How many nodes the cluster had, or how many of them clients were told of.
    pub nodes: u32,
    /// Whose cluster it was.
    pub owner: Owner,
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
            owner: run.owner,
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

impl Summary {
    fn not_recovered(&self) -> &'static str {
        match (self.owner, self.faults.is_empty()) {
            (Owner::SomebodyElse, _) => "an endpoint took connections at the end, and did not say who it is",
            (_, true) => "not every node served within 30 s after the end",
            (_, false) => "not every node served again within 30 s after the last fault",
        }
    }

    /// What clients worked on; of somebody else's cluster they may not know every node.
    pub(super) fn nodes_are(&self) -> &'static str {
        match self.owner {
            Owner::Run => "nodes",
            Owner::SomebodyElse => "endpoints",
        }
    }

    /// What the run was about.
    pub(super) fn title(&self) -> &'static str {
        if self.faults.is_empty() { "Lockstead under load" } else { "Lockstead under faults" }
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

impl Checked {
    /// Writes it out, with so many violations more that are no matter of the history.
    fn write(&self, f: &mut Formatter<'_>, more: usize) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        for lock in &self.undecided {
            writeln!(f, "undecided: lock {lock:?}")?;
        }
        let (violations, undecided) = (self.violations.len() + more, self.undecided.len());
        writeln!(
            f,
            "checked: {} answers about {} locks, {} states, {:.1} s: {violations} violations, {undecided} undecided",
            self.decided, self.locks, self.states, self.seconds
        )
    }
}

impl Display for Checked {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let all: u64 = self.operations.values().flat_map(BTreeMap::values).sum();
        writeln!(f, "{} {}, {:.1} s, seed {}", self.nodes, self.nodes_are(), self.seconds, self.seed)?;
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
            writeln!(f, "NOT RECOVERED: {}", self.not_recovered())?;
        }
        for broken in &self.broken {
            writeln!(f, "BROKEN: {broken}")?;
        }
        writeln!(f)?;
        self.checked.write(f, self.broken.len() + usize::from(!self.recovered))?;
        writeln!(f, "verdict: {}", self.conclusion)?;
        write!(f, "again: {}", self.repeat)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of calls is far below 2^52")]
fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(0.001)
}

#[cfg(test)]
mod tests {
    use super::super::page;
    use super::*;
    use crate::clock::secs;
    use crate::history::{Fault, Header};
    use crate::observer::Office;

    fn run(owner: Owner) -> Run {
        Run {
            history: History::new(Header::new(7, 3)),
            worked: secs(9),
            offices: [(1, 1), (2, 3)].map(|(term, leader)| Office { seen_us: term * 1_000_000, term, leader }).into(),
            unreachable_us: Vec::new(),
            owner,
            recovered: true,
            broken: Vec::new(),
        }
    }

    fn summary(run: &Run) -> Summary {
        Summary::new(run, &Report::default(), String::new())
    }

    #[test]
    fn what_nodes_did_wrong_is_counted_beside_the_verdict() {
        let broken = vec!["node 1 ended with exit code 1".to_owned()];
        let said = summary(&Run { recovered: false, broken, ..run(Owner::Run) }).to_string();
        assert!(said.contains(" 2 violations") && said.contains("verdict: VIOLATION"), "{said}");
        assert!(summary(&run(Owner::Run)).to_string().contains(" 0 violations"));
    }

    #[test]
    fn a_run_without_faults_does_not_speak_of_any() {
        let theirs = run(Owner::SomebodyElse);
        let page_of = |run: &Run| page(run, &summary(run));
        assert!(!page_of(&theirs).contains("under faults") && page_of(&theirs).contains("3 endpoints"));
        let (kind, target, detail) = ("drop".to_owned(), String::new(), String::new());
        let mut ours = run(Owner::Run);
        ours.history.faults = vec![Fault { kind, target, begin_us: 1, end_us: 2, took_effect: true, detail }];
        assert!(page_of(&ours).contains("under faults") && page_of(&ours).contains("3 nodes"));
    }

    #[test]
    fn the_leader_that_a_run_begins_with_is_no_new_one() {
        let run = run(Owner::Run);
        let page = page(&run, &summary(&run));
        assert!(page.contains("node 3 leads in term 2") && !page.contains("leads in term 1"));
    }
}
