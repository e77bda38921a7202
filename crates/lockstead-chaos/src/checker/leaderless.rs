//! How much later than its deadline a hold may be seen.

use super::limits::Limits;
use crate::history::{History, Leaderless};

/// From the end of a hold's last tick to the answer that shows it: the commit, and the way of the answer.
const LATE_MS: u64 = 500;

/// From one moment to another.
type Span = Leaderless;

/// The allowance for lateness in a run.
pub(super) struct Timing {
    /// Sorted, and apart from each other.
    leaderless: Vec<Span>,
    /// When something was done to the cluster or nobody led, and a while after that. Sorted, and apart from each other.
    disturbed: Vec<Span>,
    tick_us: u64,
    pub(super) noise_us: u64,
}

impl Timing {
    pub(super) fn of(history: &History, limits: &Limits) -> Self {
        let settled_us = |end_us| end_us + limits.settle_ms * 1_000;
        let effective = history.faults.iter().filter(|fault| fault.took_effect);
        let faults = effective.map(|fault| (fault.begin_us, settled_us(fault.end_us)));
        let leaderless = || history.leaderless.iter().map(|time| (time.begin_us, time.end_us));
        let unsettled = leaderless().map(|(begin_us, end_us)| (begin_us, settled_us(end_us)));
        Self {
            leaderless: merged(leaderless()),
            disturbed: merged(faults.chain(unsettled)),
            tick_us: history.header.tick_ms * 1_000,
            noise_us: limits.noise_ms * 1_000,
        }
    }

    /// By how much a deadline that was set at `from_us` may be missed as seen at `to_us`: by the time without a leader,
    /// one tick for each such time since a new office begins at the last time that was logged (one at least), 500 ms,
    /// and the noise.
    pub(super) fn allowance_us(&self, from_us: u64, to_us: u64) -> u64 {
        let (total_us, times) = self.without_leader(from_us, to_us);
        total_us + times.max(1) * self.tick_us + LATE_MS * 1_000 + self.noise_us
    }

    /// The time without a leader and the noise.
    pub(super) fn unavoidable_us(&self, from_us: u64, to_us: u64) -> u64 {
        self.without_leader(from_us, to_us).0 + self.noise_us
    }

    /// Whether nothing was done to the cluster in this time and shortly before, and a leader led.
    pub(super) fn is_quiet(&self, from_us: u64, to_us: u64) -> bool {
        self.quiet_parts(from_us, to_us) == [(from_us, to_us)]
    }

    /// The parts of a time in which nothing was done to the cluster, and nothing shortly before.
    pub(super) fn quiet_parts(&self, from_us: u64, to_us: u64) -> Vec<(u64, u64)> {
        let first = self.disturbed.partition_point(|time| time.end_us <= from_us);
        let mut parts = Vec::new();
        let mut begin_us = from_us;
        for time in self.disturbed[first..].iter().take_while(|time| time.begin_us < to_us) {
            if time.begin_us > begin_us {
                parts.push((begin_us, time.begin_us));
            }
            begin_us = time.end_us;
        }
        if begin_us < to_us {
            parts.push((begin_us, to_us));
        }
        parts
    }

    fn without_leader(&self, from_us: u64, to_us: u64) -> (u64, u64) {
        let first = self.leaderless.partition_point(|time| time.end_us <= from_us);
        let overlapping = self.leaderless[first..].iter().take_while(|time| time.begin_us < to_us);
        overlapping.fold((0, 0), |(total_us, times), time| {
            (total_us + time.end_us.min(to_us).saturating_sub(time.begin_us.max(from_us)), times + 1)
        })
    }
}

fn merged(times: impl Iterator<Item = (u64, u64)>) -> Vec<Span> {
    Span::merged(times.map(|(begin_us, end_us)| Span { begin_us, end_us }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Fault, Header};

    #[test]
    fn the_time_without_a_leader_is_counted_where_it_overlaps() {
        let mut history = History::new(Header::new(1, 3));
        for (begin_us, end_us) in [(5_000, 6_000), (1_000, 2_000), (1_500, 3_000)] {
            history.leaderless.push(Leaderless { begin_us, end_us });
        }
        let timing = Timing::of(&history, &Limits::default());
        assert_eq!(timing.without_leader(0, 10_000), (3_000, 2));
        assert_eq!(timing.without_leader(2_000, 5_500), (1_500, 2));
        assert_eq!(timing.without_leader(3_000, 5_000), (0, 0));
        assert_eq!(timing.allowance_us(3_000, 5_000), 1_000_000);
        assert_eq!(timing.allowance_us(0, 10_000), 1_253_000);
    }

    #[test]
    fn a_fault_disturbs_for_a_while_after_its_end() {
        let mut history = History::new(Header::new(1, 3));
        let (kind, target) = ("cut".to_owned(), "link 1".to_owned());
        let fault = Fault { kind, target, begin_us: 10_000, end_us: 20_000, took_effect: true, detail: String::new() };
        history.faults = vec![fault.clone(), Fault { begin_us: 1, end_us: 2, took_effect: false, ..fault }];
        let timing = Timing::of(&history, &Limits { settle_ms: 5, ..Limits::default() });
        assert_eq!(timing.quiet_parts(0, 40_000), [(0, 10_000), (25_000, 40_000)]);
        assert!(timing.is_quiet(25_000, 30_000) && !timing.is_quiet(24_999, 30_000) && !timing.is_quiet(0, 10_001));
    }
}
