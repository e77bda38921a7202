//! Lease time: the arithmetic of the clock that a leader's office issues.
//!
//! An office starts at the table's time and *earns* more: from one quorum answer to the next it earns the time elapsed,
//! at most the maximum election timeout, and since the last answer the same. So the clock stands still while there is
//! no leader with a quorum, and nobody loses a lock to an election.
//!
//! Invariants:
//! 1. A value issued is never below one issued before.
//! 2. The clock never runs faster than `elapsed_us`.
//! 3. What a gap longer than the maximum lost is never made up.

use crate::units::LeaseTime;

/// The clock of one office.
#[derive(Clone, Debug)]
pub struct LeaseClock {
    base: LeaseTime,
    gap_max_us: u64,
    /// Earned from the start of the office up to `anchor_us`, in microseconds.
    earned_us: u64,
    /// The newest quorum answer, on the elapsed clock; the start of the office before the first.
    anchor_us: u64,
    issued: LeaseTime,
}

/// One reading of the node's clocks, taken by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Microseconds on the node's elapsed clock (the slower of its two), from any fixed origin.
    pub elapsed_us: u64,
    /// How long before this reading the newest quorum answer was, in microseconds; `None` without one.
    pub quorum_age_us: Option<u64>,
    /// This node alone is a quorum.
    pub sole_voter: bool,
}

impl LeaseClock {
    /// Starts an office's clock at `base`, the table's time, read together with `elapsed_us`.
    /// `gap_max_us` is the maximum election timeout.
    #[must_use]
    pub fn start(base: LeaseTime, elapsed_us: u64, gap_max_us: u64) -> Self {
        Self { base, gap_max_us, earned_us: 0, anchor_us: elapsed_us, issued: base }
    }

    /// The lease time of a reading. Never below one issued before.
    pub fn issue(&mut self, reading: ClockReading) -> LeaseTime {
        let elapsed_us = reading.elapsed_us;
        if reading.sole_voter {
            self.earn(elapsed_us, u64::MAX);
        } else if let Some(age_us) = reading.quorum_age_us {
            self.earn(elapsed_us.saturating_sub(age_us), self.gap_max_us);
        }
        let since_anchor_us = elapsed_us.saturating_sub(self.anchor_us).min(self.gap_max_us);
        let now = self.base.plus_ms(self.earned_us.saturating_add(since_anchor_us) / 1_000);
        self.issued = self.issued.max(now);
        self.issued
    }

    /// Takes a quorum answer at `answered_us`; one that is not newer than the last is none.
    fn earn(&mut self, answered_us: u64, most_us: u64) {
        if answered_us > self.anchor_us {
            let gap_us = answered_us - self.anchor_us;
            self.earned_us = self.earned_us.saturating_add(gap_us.min(most_us));
            self.anchor_us = answered_us;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START_US: u64 = 7_000_000;
    const GAP_MAX_MS: u64 = 300;
    const BASE_MS: u64 = 1_000;

    /// Readings as (milliseconds since the start, age of the quorum answer), and what the clock must say above its
    /// base.
    fn check(readings: &[(u64, Option<u64>, u64)]) {
        let mut clock = LeaseClock::start(LeaseTime(BASE_MS), START_US, GAP_MAX_MS * 1_000);
        for (elapsed_ms, age_ms, expected_ms) in readings {
            let now = clock.issue(reading(*elapsed_ms, *age_ms));
            assert_eq!(now.0 - BASE_MS, *expected_ms, "at {elapsed_ms} ms with an answer {age_ms:?} ms old");
        }
    }

    fn reading(elapsed_ms: u64, age_ms: Option<u64>) -> ClockReading {
        ClockReading {
            elapsed_us: START_US + elapsed_ms * 1_000,
            quorum_age_us: age_ms.map(|ms| ms * 1_000),
            sole_voter: false,
        }
    }

    #[test]
    fn it_starts_at_the_base_and_runs_with_regular_answers() {
        check(&[(0, None, 0), (100, Some(10), 100), (350, Some(5), 350), (600, Some(0), 600), (850, Some(20), 850)]);
    }

    #[test]
    fn without_an_answer_it_stands_still_after_the_longest_gap() {
        check(&[(299, None, 299), (300, None, 300), (301, None, 300), (60_000, None, 300)]);
    }

    #[test]
    fn a_long_gap_under_the_same_leader_is_never_made_up() {
        // The naive reading, min(base + elapsed, cap), would jump to 10,200 at the last line but one.
        check(&[
            (100, Some(0), 100),
            (5_000, Some(4_900), 400),
            (10_100, Some(10_000), 400),
            (10_200, Some(0), 400),
            (10_300, Some(0), 500),
        ]);
    }

    #[test]
    fn an_answer_just_after_a_stall_earns_one_gap_and_what_followed() {
        check(&[(0, Some(0), 0), (10_000, Some(1), 301), (10_050, Some(51), 351)]);
    }

    #[test]
    fn an_answer_older_than_the_last_counts_as_none() {
        check(&[
            (200, Some(0), 200),
            (400, Some(300), 400),
            (500, Some(500), 500),
            (501, None, 500),
            (520, Some(0), 500),
        ]);
    }

    #[test]
    fn an_answer_from_before_the_office_counts_as_none() {
        check(&[(100, Some(5_000), 100), (400, Some(400), 300), (400, Some(9_000_000), 300)]);
    }

    #[test]
    fn elapsed_going_backwards_neither_panics_nor_lowers_the_clock() {
        check(&[(250, Some(0), 250), (100, Some(0), 250), (0, None, 250), (260, Some(0), 260)]);
        let mut clock = LeaseClock::start(LeaseTime(BASE_MS), START_US, 300_000);
        let zero = ClockReading { elapsed_us: 0, quorum_age_us: Some(5), sole_voter: true };
        assert_eq!(clock.issue(zero), LeaseTime(BASE_MS));
    }

    #[test]
    fn a_sole_voter_earns_all_elapsed_time() {
        let mut clock = LeaseClock::start(LeaseTime(0), START_US, 300_000);
        let sole = |elapsed_ms| ClockReading { sole_voter: true, ..reading(elapsed_ms, Some(elapsed_ms)) };
        assert_eq!(clock.issue(sole(10_000)), LeaseTime(10_000));
        assert_eq!(clock.issue(sole(70_000)), LeaseTime(70_000));
        // No longer alone: what it earned stays, and from there on a gap counts.
        assert_eq!(clock.issue(reading(80_000, Some(10_000))), LeaseTime(70_300));
        assert_eq!(clock.issue(reading(80_000, Some(0))), LeaseTime(70_300));
    }

    #[test]
    fn microseconds_add_up_and_are_issued_rounded_down() {
        let mut clock = LeaseClock::start(LeaseTime(0), 0, 300_000);
        let issued = (1..=10).map(|step| {
            clock.issue(ClockReading { elapsed_us: step * 700, quorum_age_us: Some(0), sole_voter: false }).0
        });
        assert_eq!(issued.collect::<Vec<_>>(), [0, 1, 2, 2, 3, 4, 4, 5, 6, 7]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_never_outruns_elapsed_time_and_never_falls(
            steps in prop::collection::vec((0_i64..2_000_000, prop::option::of(0_u64..3_000_000), prop::bool::weighted(0.1)), 1..60),
        ) {
            let mut clock = LeaseClock::start(LeaseTime(BASE_MS), START_US, 300_000);
            let (mut elapsed_us, mut elapsed_max_us, mut last) = (START_US, START_US, LeaseTime(BASE_MS));
            for (step_us, quorum_age_us, sole_voter) in steps {
                elapsed_us = (elapsed_us + step_us.unsigned_abs()).saturating_sub(500_000);
                elapsed_max_us = elapsed_max_us.max(elapsed_us);
                let now = clock.issue(ClockReading { elapsed_us, quorum_age_us, sole_voter });
                prop_assert!(now >= last, "fell from {last:?} to {now:?}");
                prop_assert!(now.0 - BASE_MS <= (elapsed_max_us - START_US) / 1_000);
                last = now;
            }
        }

        #[test]
        fn between_two_readings_it_gains_no_more_than_passed_when_answers_are_fresh(
            steps in prop::collection::vec((1_u64..5_000, 0_u64..100), 1..60),
        ) {
            let mut clock = LeaseClock::start(LeaseTime(0), START_US, 300_000);
            let (mut elapsed_ms, mut last_ms) = (0, 0);
            for (step_ms, age_ms) in steps {
                elapsed_ms += step_ms;
                let now = clock.issue(reading(elapsed_ms, Some(age_ms.min(step_ms - 1))));
                let most_ms = step_ms.min(GAP_MAX_MS + age_ms);
                prop_assert!(now.0 - last_ms <= most_ms, "gained {} ms in {step_ms} ms", now.0 - last_ms);
                last_ms = now.0;
            }
        }
    }
}
