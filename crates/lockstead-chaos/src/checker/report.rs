//! What a check found.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use crate::history::{Answer, Call, Write};

/// What a check found, as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Figures for people.
    pub stats: Stats,
    /// All that must not be; the linearizability of a lock is given up at its first violation.
    pub violations: Vec<Violation>,
    /// The locks for which the time was too short.
    pub undecided: Vec<Undecided>,
}

/// The conclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything was checked, nothing was found.
    Ok,
    /// There is a violation.
    Violation,
    /// Nothing was found, but not everything could be checked in the time given, or no call had an answer about its
    /// lock.
    Undecided,
}

/// Figures of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// How many locks there were.
    pub locks: usize,
    /// How many calls.
    pub calls: usize,
    /// How many of them with an unknown outcome.
    pub unknown: usize,
    /// How many of them with an answer about their lock.
    pub decided: usize,
    /// How many states the searches went through.
    pub states: u64,
    /// How long the check took.
    pub seconds: f64,
}

/// A lock that could not be decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Undecided {
    /// Its name.
    pub lock: String,
    /// How long it was tried.
    pub seconds: f64,
}

/// What was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Two holds of one lock, both of them confirmed by the service at the same time.
    TwoHolders,
    /// A grant before the hold before it can have ended.
    EarlyGrant,
    /// A grant with a fence that is not above an earlier one.
    FenceFell,
    /// One fence for two grants.
    FenceTwice,
    /// A fence that was shown, but that no request can have been granted.
    FenceOfNobody,
    /// A hold that was gone before its deadline.
    LostGrant,
    /// A renewal or a release acknowledged for a hold that was over.
    AckAfterEnd,
    /// An acquire denied because of a hold that was over.
    StaleDenial,
    /// A read that showed a hold that was over.
    StaleRead,
    /// A retry of a request that was granted something else than the request.
    RetryForgotten,
    /// A request denied because of its own hold.
    DeniedByOwnHold,
    /// Another TTL, or another rest of it, than was asked for or told before.
    WrongTtl,
    /// A hold that was shown, or still worked, later than it may last.
    LateExpiry,
    /// A grant to a waiter whose client had gone long before.
    GrantedToTheGone,
    /// A waiter that did not get a lock that nobody can have held.
    Blocked,
    /// A request that did not end by its own deadline.
    Overdue,
    /// A broken connection or a 5xx that nothing excuses.
    BrokenAnswer,
    /// Two clients that counted on one lock at the same time.
    Overlap,
    /// A guarded register that accepted a fence below one that it had accepted before.
    RegisterFell,
    /// A guarded register that refused a fence although it had seen none above it: an error of the run itself.
    RegisterRefused,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 20] = [
        Self::TwoHolders,
        Self::EarlyGrant,
        Self::FenceFell,
        Self::FenceTwice,
        Self::FenceOfNobody,
        Self::LostGrant,
        Self::AckAfterEnd,
        Self::StaleDenial,
        Self::StaleRead,
        Self::RetryForgotten,
        Self::DeniedByOwnHold,
        Self::WrongTtl,
        Self::LateExpiry,
        Self::GrantedToTheGone,
        Self::Blocked,
        Self::Overdue,
        Self::BrokenAnswer,
        Self::Overlap,
        Self::RegisterFell,
        Self::RegisterRefused,
    ];

    /// The name of the kind in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::TwoHolders => "two holders",
            Self::EarlyGrant => "early grant",
            Self::FenceFell => "fence fell",
            Self::FenceTwice => "one fence twice",
            Self::FenceOfNobody => "fence of nobody",
            Self::LostGrant => "lost grant",
            Self::AckAfterEnd => "acknowledged after the end",
            Self::StaleDenial => "stale denial",
            Self::StaleRead => "stale read",
            Self::RetryForgotten => "retry forgotten",
            Self::DeniedByOwnHold => "denied by its own hold",
            Self::WrongTtl => "wrong ttl",
            Self::LateExpiry => "late expiry",
            Self::GrantedToTheGone => "granted to the gone",
            Self::Blocked => "waiter blocked by nobody",
            Self::Overdue => "request past its deadline",
            Self::BrokenAnswer => "broken answer",
            Self::Overlap => "clients overlap",
            Self::RegisterFell => "register accepted a lower fence",
            Self::RegisterRefused => "register refused a fence for no reason",
        }
    }
}

/// One violation, with the part of the history that shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// What was violated.
    pub kind: Kind,
    /// The lock concerned.
    pub lock: String,
    /// What happened, for people.
    pub text: String,
    /// The calls that show it, by the time they were sent. These alone, with everything else about the lock taken as
    /// unknown, are already a violation, where the checker had the time to cut them down.
    pub calls: Vec<Call>,
    /// The writes that show it.
    pub writes: Vec<Write>,
}

impl Violation {
    pub(super) fn new(kind: Kind, lock: &str, text: String, calls: &[&Call]) -> Self {
        let mut calls: Vec<Call> = calls.iter().map(|call| (*call).clone()).collect();
        calls.sort_by_key(|call| (call.sent_us, call.id));
        calls.dedup_by_key(|call| call.id);
        Self { kind, lock: lock.to_owned(), text, calls, writes: Vec::new() }
    }

    pub(super) fn with_writes(mut self, writes: &[&Write]) -> Self {
        self.writes = writes.iter().map(|write| (*write).clone()).collect();
        self
    }
}

impl Report {
    /// The conclusion: a violation outweighs what is undecided. Without any answer there was nothing to check.
    pub fn verdict(&self) -> Verdict {
        let is_decided = self.undecided.is_empty() && self.stats.decided > 0;
        match (self.violations.is_empty(), is_decided) {
            (false, _) => Verdict::Violation,
            (true, false) => Verdict::Undecided,
            (true, true) => Verdict::Ok,
        }
    }

    pub(super) fn finish(mut self, elapsed: Duration) -> Self {
        self.stats.seconds = elapsed.as_secs_f64();
        self
    }
}

impl Stats {
    pub(super) fn count(&mut self, calls: &[&Call]) {
        self.locks += 1;
        self.calls += calls.len();
        for call in calls {
            match call.answer {
                Answer::Unknown { .. } => self.unknown += 1,
                Answer::Refused { .. } => {}
                _ => self.decided += 1,
            }
        }
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        for Undecided { lock, seconds } in &self.undecided {
            writeln!(f, "undecided: lock {lock:?} after {seconds:.1} s")?;
        }
        let Stats { locks, calls, unknown, states, seconds, .. } = self.stats;
        let verdict = match self.verdict() {
            Verdict::Undecided if self.undecided.is_empty() => "nothing to check".to_owned(),
            Verdict::Ok => "no violation".to_owned(),
            Verdict::Violation => format!("{} violation(s)", self.violations.len()),
            Verdict::Undecided => format!("undecided for {} lock(s)", self.undecided.len()),
        };
        let extent = format!("{calls} calls ({unknown} with unknown outcome) on {locks} locks");
        write!(f, "{verdict} in {extent}; {states} states in {seconds:.1} s")
    }
}

impl Display for Violation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of lock {:?}: {}", self.kind.name(), self.lock, self.text)?;
        for call in &self.calls {
            writeln!(f, "  {call}")?;
        }
        for Write { client, fence, at_us, accepted, .. } in &self.writes {
            let decision = if *accepted { "accepted" } else { "refused" };
            writeln!(f, "  {} client {client} write with fence {fence}: {decision}", seconds(*at_us))?;
        }
        Ok(())
    }
}

/// A moment for people, in seconds of the run.
pub(super) fn seconds(us: u64) -> String {
    format!("{}.{:06} s", us / 1_000_000, us % 1_000_000)
}
