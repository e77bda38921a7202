//! Figures second by second.

use std::collections::BTreeMap;

use super::figures::{is_decided, latency_us, operation, percentile_ms};
use crate::history::{Answer, Call};

/// Latencies of one operation in one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) second: u64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

/// The latencies of each operation, by the second in which the answer came.
pub(super) fn latencies(calls: &[Call]) -> BTreeMap<&'static str, Vec<Point>> {
    let mut measured: BTreeMap<&'static str, BTreeMap<u64, Vec<u64>>> = BTreeMap::new();
    for call in calls {
        if let (Some(us), Some(received_us)) = (latency_us(call), call.received_us) {
            let seconds = measured.entry(operation(&call.op)).or_default();
            seconds.entry(received_us / 1_000_000).or_default().push(us);
        }
    }
    let points = |seconds: BTreeMap<u64, Vec<u64>>| {
        let point = |(second, mut us): (u64, Vec<u64>)| {
            us.sort_unstable();
            Point { second, p50_ms: percentile_ms(&us, 50), p99_ms: percentile_ms(&us, 99) }
        };
        seconds.into_iter().map(point).collect()
    };
    measured.into_iter().map(|(operation, seconds)| (operation, points(seconds))).collect()
}

/// What became of the calls that ended in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    /// Granted, released, renewed, shown.
    pub(super) done: u64,
    /// Held by another, not the holder, not held.
    pub(super) denied: u64,
    /// Surely without effect: no leader.
    pub(super) refused: u64,
    /// Nobody knows.
    pub(super) unknown: u64,
    /// Not even connected.
    pub(super) unreachable: u64,
}

impl Outcomes {
    /// From the bottom of the stack to its top, with names.
    pub(super) const NAMES: [&str; 5] = ["done", "denied", "refused (no leader)", "unknown outcome", "not connected"];

    pub(super) fn stack(self) -> [u64; 5] {
        [self.done, self.denied, self.refused, self.unknown, self.unreachable]
    }
}

/// The outcomes of each second of the run.
pub(super) fn outcomes(calls: &[Call], unreachable_us: &[u64], seconds: u64) -> Vec<Outcomes> {
    let length = usize::try_from(seconds).unwrap_or_default();
    let mut series = vec![Outcomes::default(); length];
    let mut at = |us: u64, count: &dyn Fn(&mut Outcomes)| {
        let second = usize::try_from(us / 1_000_000).unwrap_or(usize::MAX);
        if let Some(outcomes) = series.get_mut(second) {
            count(outcomes);
        }
    };
    for call in calls {
        // What was never answered counts where it was asked.
        at(call.received_us.unwrap_or(call.sent_us), &|outcomes| match &call.answer {
            Answer::Held { .. } | Answer::NotHolder | Answer::NotHeld => outcomes.denied += 1,
            Answer::Refused { .. } => outcomes.refused += 1,
            Answer::Unknown { .. } => outcomes.unknown += 1,
            answer => outcomes.done += u64::from(is_decided(answer)),
        });
    }
    for us in unreachable_us {
        at(*us, &|outcomes| outcomes.unreachable += 1);
    }
    series
}
