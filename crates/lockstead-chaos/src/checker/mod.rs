//! Whether a history is one that a lock service may have.
//!
//! Three checks that know nothing of each other:
//! 1. **Linearizability**, lock by lock: Wing & Gong's search with memoisation, as in Porcupine and Knossos, against a
//!    model of one lock with a TTL. There is no event for an expiry: the model keeps the *earliest possible* end of a
//!    hold, and any later answer may find the lock free or still held. What has an unknown outcome may take effect at
//!    any later time, or never.
//! 2. **Lateness**: the *latest possible* end of a hold, waiters of a free lock, grants that reached nobody, and the
//!    deadline of each request, by the rules that Lockstead promises.
//! 3. **The register**: what the clients themselves counted on, and what a resource guarded by fences saw of it.
//!
//! Invariants:
//! 1. A history of a correct service is never rejected: where two readings of an answer are possible, the milder
//!    counts.
//! 2. What could not be decided in the time given is reported as such, never as success.
//! 3. The order of the records in a history does not matter.

mod blame;
mod book;
mod claims;
mod deadlines;
mod leaderless;
mod limits;
mod lock_calls;
mod minimise;
mod model;
mod overdue_holds;
mod register;
mod report;
mod search;
mod ttls;
mod waiters;

use std::collections::{BTreeMap, HashMap};

use crate::history::{Call, History, Write};
use book::Book;
use leaderless::Timing;
pub use limits::Limits;
use limits::{Budget, Clock};
use lock_calls::LockCalls;
pub use report::{Kind, Report, Stats, Undecided, Verdict, Violation};
use search::Outcome;

/// Judges a history.
pub fn check(history: &History, limits: &Limits) -> Report {
    let clock = Clock::start();
    let mut checker =
        Checker { limits, history, timing: Timing::of(history, limits), clock, report: Report::default() };
    checker.report.violations = deadlines::check(history, limits);
    checker.report.violations.extend(claims::across_locks(history));
    checker.report.violations.extend(claims::fallen_across_locks(history));
    let writes = by_lock(&history.writes, |write| &write.lock);
    for (lock, calls) in by_lock(&history.calls, |call| &call.lock) {
        checker.lock(lock, &calls, writes.get(lock).map_or(&[], Vec::as_slice));
    }
    for (lock, orphans) in &writes {
        checker.report.violations.extend(register::rejects_only_lower(lock, orphans));
    }
    checker.report.finish(clock.elapsed())
}

struct Checker<'a> {
    limits: &'a Limits,
    history: &'a History,
    timing: Timing,
    clock: Clock,
    report: Report,
}

impl Checker<'_> {
    fn lock(&mut self, lock: &str, calls: &[&Call], writes: &[&Write]) {
        self.report.stats.count(calls);
        let claims = claims::within_lock(lock, calls);
        if claims.is_empty() {
            self.linearize(lock, calls);
        }
        self.report.violations.extend(claims);
        let drift = self.history.header.drift;
        self.report.violations.extend(ttls::check(lock, calls, drift));
        let book = Book::of(lock, calls, drift);
        self.report.violations.extend(overdue_holds::check(&book, &self.timing));
        self.report.violations.extend(waiters::check(&book, &self.timing));
        self.report.violations.extend(register::overlaps(&book, writes, drift));
    }

    fn linearize(&mut self, lock: &str, calls: &[&Call]) {
        let drift = self.history.header.drift;
        let begun = self.clock.elapsed();
        let budget = Budget::for_lock(self.clock, self.limits);
        let prepared = LockCalls::of(calls, drift, |_| false);
        let (outcome, states) = search::search(&prepared, &budget);
        self.report.stats.states += states;
        match outcome {
            Outcome::Linearizable => {}
            Outcome::Undecided => {
                let seconds = self.clock.elapsed().saturating_sub(begun).as_secs_f64();
                self.report.undecided.push(Undecided { lock: lock.to_owned(), seconds });
            }
            Outcome::Stuck(stuck) if self.report.violations.len() < self.limits.explained_max => {
                let budget = Budget::for_explaining(self.clock);
                let (minimal, stuck) = minimise::minimise(calls, drift, prepared, stuck, &budget);
                self.report.violations.push(blame::blame(lock, calls, &minimal, &stuck));
            }
            Outcome::Stuck(stuck) => self.report.violations.push(blame::blame(lock, calls, &prepared, &stuck)),
        }
    }
}

/// Groups by lock, in the order of the names so that two checks of one history say the same.
fn by_lock<'a, T>(records: &'a [T], lock_of: impl Fn(&'a T) -> &'a String) -> BTreeMap<&'a str, Vec<&'a T>> {
    let mut grouped: HashMap<&str, Vec<&T>> = HashMap::new();
    for record in records {
        grouped.entry(lock_of(record)).or_default().push(record);
    }
    grouped.into_iter().collect()
}
