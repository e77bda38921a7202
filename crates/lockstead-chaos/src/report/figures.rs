//! Counts and lengths out of a history.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::history::{Answer, Call, Fault, Leaderless, Lost, Op};

/// The name of an operation.
pub(super) fn operation(op: &Op) -> &'static str {
    match op {
        Op::Acquire { wait_ms: 0, .. } => "acquire (try)",
        Op::Acquire { .. } => "acquire (wait)",
        Op::Release { .. } => "release",
        Op::Renew { .. } => "renew",
        Op::Get => "get",
    }
}

/// The name of an outcome.
pub(super) fn outcome(answer: &Answer) -> String {
    match answer {
        Answer::Granted { .. } => "granted".to_owned(),
        Answer::Held { .. } => "held".to_owned(),
        Answer::Released => "released".to_owned(),
        Answer::NotHolder => "not holder".to_owned(),
        Answer::Renewed { .. } => "renewed".to_owned(),
        Answer::Got { .. } => "got".to_owned(),
        Answer::NotHeld => "not held".to_owned(),
        Answer::Refused { code, .. } => format!("refused: {code}"),
        Answer::Unknown { why } => format!("unknown: {}", lost(*why)),
    }
}

fn lost(why: Lost) -> &'static str {
    match why {
        Lost::OutcomeUnknown => "told so",
        Lost::ConnectionLost { .. } => "connection lost",
        Lost::Abandoned { .. } => "abandoned by the client",
        Lost::GaveUp { .. } => "no answer in time",
        Lost::ServerError { .. } => "server error",
        Lost::RunEnded => "the run ended",
    }
}

/// Whether the service decided.
pub(super) fn is_decided(answer: &Answer) -> bool {
    !matches!(answer, Answer::Refused { .. } | Answer::Unknown { .. })
}

/// How long the service took for what it decided, in microseconds, apart from the time in which the request waited for
/// its lock. `None` where that cannot be told: a wait that ended without a grant.
pub(super) fn latency_us(call: &Call) -> Option<u64> {
    let took_us = call.received_us?.saturating_sub(call.sent_us);
    match (&call.op, &call.answer) {
        (_, Answer::Granted { waited_ms, .. }) => Some(took_us.saturating_sub(waited_ms * 1_000)),
        (Op::Acquire { wait_ms: 1.., .. }, _) => None,
        (_, answer) => is_decided(answer).then_some(took_us),
    }
}

/// Latencies of an operation, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// How many were measured.
    pub count: usize,
    /// Half are quicker.
    pub p50_ms: f64,
    /// 90 % are quicker.
    pub p90_ms: f64,
    /// 99 % are quicker.
    pub p99_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

/// The value below which so many of 100 lie, in milliseconds. The values must be sorted.
pub(super) fn percentile_ms(sorted_us: &[u64], percent: usize) -> f64 {
    let at = (sorted_us.len() * percent).div_ceil(100).saturating_sub(1);
    sorted_us.get(at).map_or(0.0, |us| as_ms(*us))
}

#[expect(clippy::cast_precision_loss, reason = "a length in a run is far below 2^52 microseconds")]
pub(super) fn as_ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

pub(super) fn latencies(calls: &[Call]) -> BTreeMap<&'static str, Latency> {
    let mut by_operation: BTreeMap<&'static str, Vec<u64>> = BTreeMap::new();
    for call in calls {
        if let Some(us) = latency_us(call) {
            by_operation.entry(operation(&call.op)).or_default().push(us);
        }
    }
    let summed = by_operation.into_iter().map(|(operation, mut us)| {
        us.sort_unstable();
        let of = |percent| percentile_ms(&us, percent);
        let (p50_ms, p90_ms, p99_ms, max_ms) = (of(50), of(90), of(99), of(100));
        (operation, Latency { count: us.len(), p50_ms, p90_ms, p99_ms, max_ms })
    });
    summed.collect()
}

pub(super) fn operations(calls: &[Call]) -> BTreeMap<&'static str, BTreeMap<String, u64>> {
    let mut counts: BTreeMap<&'static str, BTreeMap<String, u64>> = BTreeMap::new();
    for call in calls {
        *counts.entry(operation(&call.op)).or_default().entry(outcome(&call.answer)).or_default() += 1;
    }
    counts
}

/// How often a kind of faults was done, and did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaultCount {
    /// How often it was done.
    pub done: u64,
    /// How often it was seen to do anything.
    pub took_effect: u64,
}

pub(super) fn fault_counts(faults: &[Fault]) -> BTreeMap<String, FaultCount> {
    let mut counts: BTreeMap<String, FaultCount> = BTreeMap::new();
    for fault in faults {
        let count = counts.entry(fault.kind.clone()).or_default();
        count.done += 1;
        count.took_effect += u64::from(fault.took_effect);
    }
    counts
}

/// Times without a leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gaps {
    /// How many there were.
    pub count: usize,
    /// All together.
    pub total_ms: u64,
    /// The longest.
    pub longest_ms: u64,
}

pub(super) fn gaps(leaderless: &[Leaderless]) -> Gaps {
    let lengths_ms = leaderless.iter().map(|gap| gap.end_us.saturating_sub(gap.begin_us) / 1_000);
    Gaps {
        count: leaderless.len(),
        total_ms: lengths_ms.clone().sum(),
        longest_ms: lengths_ms.max().unwrap_or_default(),
    }
}

/// The longest time in which no client was told anything, up to the end of the run.
pub(super) fn longest_pause_ms(calls: &[Call], worked_us: u64) -> u64 {
    let decided = calls.iter().filter(|call| is_decided(&call.answer)).filter_map(|call| call.received_us);
    let mut moments: Vec<u64> = decided.filter(|moment| *moment <= worked_us).chain([0, worked_us]).collect();
    moments.sort_unstable();
    let pauses = moments.windows(2).map(|pair| pair[1] - pair[0]);
    pauses.max().unwrap_or_default() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(op: Op, answer: Answer, sent_ms: u64, received_ms: u64) -> Call {
        Call {
            id: 1,
            client: 1,
            node: 1,
            lock: "a".into(),
            op,
            sent_us: sent_ms * 1_000,
            received_us: Some(received_ms * 1_000),
            answer,
            excuse: None,
        }
    }

    fn acquire(wait_ms: u64) -> Op {
        Op::Acquire { ttl_ms: 1_000, wait_ms, owner: None, request_id: None, queued_ms: 0 }
    }

    fn granted(waited_ms: u64) -> Answer {
        let token = String::new();
        Answer::Granted { token, fence: 1, ttl_ms: 1, expires_in_ms: 1, waited_ms, renewed: false }
    }

    #[test]
    fn waiting_for_the_lock_is_no_latency() {
        let held = || Answer::Held { holders: vec![], queue_len: 0 };
        assert_eq!(latency_us(&call(acquire(500), granted(300), 0, 302)), Some(2_000));
        assert_eq!(latency_us(&call(acquire(500), held(), 0, 502)), None);
        assert_eq!(latency_us(&call(acquire(0), held(), 0, 3)), Some(3_000));
        assert_eq!(latency_us(&call(Op::Get, Answer::refused(503, "no_leader"), 0, 5_000)), None);
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let us: Vec<u64> = (1..=200).map(|ms| ms * 1_000).collect();
        let of = |percent| percentile_ms(&us, percent);
        assert_eq!([of(50), of(99), of(100)].map(|ms| format!("{ms}")), ["100", "198", "200"]);
        assert_eq!(format!("{}", percentile_ms(&[], 50)), "0");
    }

    #[test]
    fn the_longest_pause_counts_only_what_was_decided() {
        let calls = [
            call(Op::Get, Answer::NotHeld, 0, 100),
            call(Op::Get, Answer::refused(503, "no_leader"), 100, 500),
            call(Op::Get, Answer::NotHeld, 500, 900),
        ];
        assert_eq!(longest_pause_ms(&calls, 1_000_000), 800);
        assert_eq!(longest_pause_ms(&calls, 3_000_000), 2_100);
    }
}
