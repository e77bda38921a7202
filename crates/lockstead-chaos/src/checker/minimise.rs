//! Cuts a violation down: which answers are enough to make it one?
//!
//! An answer is taken away by treating it as unknown, which only ever allows more. So what is left is a violation by
//! itself.

use super::limits::Budget;
use super::lock_calls::{Deed, Entry, LockCalls};
use super::search::{Outcome, Stuck, search};
use crate::history::{Call, Drift};

/// The fewest answers found that are still a violation. Grants tell the most, so all else is tried before them.
pub(super) fn minimise(
    calls: &[&Call],
    drift: Drift,
    whole: LockCalls,
    stuck: Stuck,
    budget: &Budget,
) -> (LockCalls, Stuck) {
    let is_grant = |entry: &&Entry| matches!(entry.deed, Deed::Grant { .. });
    let (grants, others): (Vec<&Entry>, Vec<&Entry>) = whole.entries.iter().partition(is_grant);
    let grants_len = grants.len();
    let kept = grants.into_iter().chain(others).map(|entry| entry.call).collect();
    let mut cut = Cut { calls, drift, budget, kept, best: (whole, stuck) };
    cut.down_to(grants_len);
    cut.down_to(0);
    cut.best
}

struct Cut<'a> {
    calls: &'a [&'a Call],
    drift: Drift,
    budget: &'a Budget,
    kept: Vec<usize>,
    best: (LockCalls, Stuck),
}

impl Cut<'_> {
    /// Takes away what it can, in ever smaller pieces, but leaves the first `fixed` alone.
    fn down_to(&mut self, fixed: usize) {
        let mut chunk = (self.kept.len() - fixed).next_power_of_two();
        while chunk > 0 {
            let mut end = self.kept.len();
            while end > fixed && !self.budget.is_used_up() {
                let begin = end.saturating_sub(chunk).max(fixed);
                let mut fewer = self.kept.clone();
                fewer.drain(begin..end);
                if let Some(found) = still_stuck(self.calls, self.drift, &fewer, self.budget) {
                    (self.kept, self.best) = (fewer, found);
                }
                end = begin;
            }
            chunk /= 2;
        }
    }
}

fn still_stuck(calls: &[&Call], drift: Drift, kept: &[usize], budget: &Budget) -> Option<(LockCalls, Stuck)> {
    let mut is_kept = vec![false; calls.len()];
    for call in kept {
        is_kept[*call] = true;
    }
    let lock = LockCalls::of(calls, drift, |call| !is_kept[call]);
    match search(&lock, budget).0 {
        Outcome::Stuck(stuck) => Some((lock, stuck)),
        Outcome::Linearizable | Outcome::Undecided => None,
    }
}
