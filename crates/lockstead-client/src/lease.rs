//! How long the client may count on a hold.

use std::time::Duration;

use crate::clock::Moment;

const MARGIN_MS_MIN: u64 = 10;

/// A claim on a lock for a length of time, counted on the client's own clock.
///
/// It counts from the moment *before* the request that was answered was sent: the time of receipt says nothing, since
/// an answer can lie anywhere for any time. A margin of 1 % of the TTL plus 0.1 % of the time waited, at least 10 ms,
/// covers clocks that run at different rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    sent: Moment,
    length: Duration,
}

impl Lease {
    pub(crate) fn new(sent: Moment, waited_ms: u64, expires_in_ms: u64, ttl_ms: u64) -> Self {
        let margin_ms = (ttl_ms / 100).saturating_add(waited_ms / 1_000).max(MARGIN_MS_MIN);
        let length_ms = waited_ms.saturating_add(expires_in_ms).saturating_sub(margin_ms);
        Self { sent, length: Duration::from_millis(length_ms) }
    }

    /// How long the hold surely lasts from now on; zero once nobody should count on it.
    ///
    /// Work that must not overlap another holder's has to end within this time.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.valid_at(Moment::now())
    }

    /// What [`Lease::valid_for`] is at a moment read before.
    #[must_use]
    pub fn valid_at(&self, now: Moment) -> Duration {
        self.length.saturating_sub(now.since(self.sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(waited_ms: u64, expires_in_ms: u64, ttl_ms: u64, elapsed_ms: (u64, u64), expected_ms: u64) {
        let lease = Lease::new(Moment::from_ms(500, 500), waited_ms, expires_in_ms, ttl_ms);
        let now = Moment::from_ms(500 + elapsed_ms.0, 500 + elapsed_ms.1);
        assert_eq!(lease.valid_at(now), Duration::from_millis(expected_ms));
    }

    #[test]
    fn a_fresh_hold_lasts_its_ttl_minus_one_percent() {
        check(0, 30_000, 30_000, (0, 0), 29_700);
    }

    #[test]
    fn the_margin_is_at_least_ten_milliseconds() {
        check(0, 500, 500, (0, 0), 490);
    }

    #[test]
    fn time_waited_at_the_nodes_counts_from_the_sending() {
        check(20_000, 2_000, 2_000, (20_100, 20_100), 22_000 - 40 - 20_100);
    }

    #[test]
    fn the_clock_that_ran_further_decides() {
        check(0, 2_000, 2_000, (100, 700), 2_000 - 20 - 700);
        check(0, 2_000, 2_000, (900, 700), 2_000 - 20 - 900);
    }

    #[test]
    fn a_hold_that_is_over_is_valid_for_nothing() {
        check(0, 2_000, 2_000, (2_000, 0), 0);
        check(0, 5, 2_000, (0, 0), 0);
    }
}
