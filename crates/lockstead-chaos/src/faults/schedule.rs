//! When which fault comes: from the seed alone, whatever the cluster does.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::kind::{Chain, Kind};
use crate::clock::as_ms;
use crate::dice::Dice;

/// Between two faults of the main chain: enough for a quorum and its clients to get on.
const MAIN_GAP_MS: RangeInclusive<u64> = 1_000..=3_000;
const BESIDE_GAP_MS: RangeInclusive<u64> = 2_000..=7_000;
/// So often nothing is done for a while: some promises are only checked where nothing disturbs them.
const CALM_EVERY_MS: u64 = 30_000;
/// How long these times are, at the end of each period.
const CALM_MS: u64 = 8_500;
/// The first fault comes after so long, so that there is something to disturb.
const CALM_BEGIN_MS: u64 = 1_500;
/// The last one ends so long before the run does, so that the cluster is seen to recover.
const CALM_END_MS: u64 = 3_000;

/// A fault to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// What is done.
    pub kind: Kind,
    /// When, from the begin of the run.
    pub begin_ms: u64,
    /// For how long.
    pub length_ms: u64,
    /// What chooses among followers, directions and links.
    pub seed: u64,
}

impl Planned {
    /// When it ends, from the begin of the run.
    pub fn end_ms(&self) -> u64 {
        self.begin_ms + self.length_ms
    }
}

/// The faults of a run, by their begin. The kinds of each chain take turns: each comes once before any comes again.
pub fn schedule(seed: u64, length: Duration, kinds: &[Kind]) -> Vec<Planned> {
    let end_ms = as_ms(length).saturating_sub(CALM_END_MS);
    let mut planned = chain(Dice::new(seed, 1), end_ms, &of_chain(kinds, Chain::Main), &MAIN_GAP_MS);
    planned.extend(chain(Dice::new(seed, 2), end_ms, &of_chain(kinds, Chain::Beside), &BESIDE_GAP_MS));
    planned.sort_by_key(|planned| planned.begin_ms);
    planned
}

fn of_chain(kinds: &[Kind], chain: Chain) -> Vec<Kind> {
    kinds.iter().copied().filter(|kind| kind.row().chain == chain).collect()
}

fn chain(mut dice: Dice, end_ms: u64, kinds: &[Kind], gap_ms: &RangeInclusive<u64>) -> Vec<Planned> {
    let mut planned = Vec::new();
    let mut round = kinds.to_vec();
    let mut begin_ms = CALM_BEGIN_MS;
    while !kinds.is_empty() {
        dice.shuffle(&mut round);
        for kind in &round {
            let length_ms = dice.between(&kind.row().length_ms);
            let struck_ms = past_calm(begin_ms, length_ms);
            let next = Planned { kind: *kind, begin_ms: struck_ms, length_ms, seed: dice.next() };
            if next.end_ms() > end_ms {
                return planned;
            }
            begin_ms = next.end_ms() + dice.between(gap_ms);
            planned.push(next);
        }
    }
    planned
}

/// The begin of a fault of this length, not before it is wanted, so that it lies in no calm time.
fn past_calm(begin_ms: u64, length_ms: u64) -> u64 {
    let period_ms = begin_ms / CALM_EVERY_MS * CALM_EVERY_MS;
    let overlaps = begin_ms + length_ms > period_ms + CALM_EVERY_MS - CALM_MS;
    if overlaps { period_ms + CALM_EVERY_MS } else { begin_ms }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::clock::secs;

    #[test]
    fn a_seed_means_one_schedule_and_another_seed_another() {
        let of = |seed| schedule(seed, secs(60), &Kind::all());
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        let longer = schedule(7, secs(120), &Kind::all());
        let kept = of(7).iter().filter(|planned| longer.contains(planned)).count();
        assert_eq!(kept, of(7).len(), "a longer run begins as the shorter one did");
    }

    #[test]
    fn every_kind_comes_more_than_five_times_in_ten_minutes() {
        for seed in 0..50 {
            let mut times = BTreeMap::new();
            for planned in schedule(seed, secs(600), &Kind::all()) {
                *times.entry(planned.kind).or_insert(0) += 1;
            }
            for kind in Kind::all() {
                assert!(times.get(&kind).is_some_and(|times| *times >= 5), "{kind} with seed {seed}: {times:?}");
            }
        }
    }

    #[test]
    fn faults_of_one_chain_never_overlap_and_all_end_in_time() {
        for seed in 0..50 {
            for name in [Chain::Main, Chain::Beside] {
                let planned = schedule(seed, secs(100), &of_chain(&Kind::all(), name));
                assert!(planned.windows(2).all(|pair| pair[0].end_ms() + 1_000 <= pair[1].begin_ms), "{planned:?}");
                assert!(planned.iter().all(|planned| planned.end_ms() <= 97_000));
            }
        }
    }

    #[test]
    fn there_are_times_in_which_nothing_is_done() {
        for seed in 0..50 {
            for planned in schedule(seed, secs(600), &Kind::all()) {
                let end_in_period_ms = planned.begin_ms % CALM_EVERY_MS + planned.length_ms;
                assert!(end_in_period_ms <= CALM_EVERY_MS - CALM_MS, "{planned:?}");
            }
        }
    }

    #[test]
    fn without_kinds_or_without_time_nothing_is_planned() {
        assert_eq!(schedule(1, secs(60), &[]), []);
        assert_eq!(schedule(1, secs(2), &Kind::all()), []);
    }
}
