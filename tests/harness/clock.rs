//! Time as the tests see it.

use std::time::Duration;

use lockstead_chaos::clock::wait_for;
pub(crate) use lockstead_chaos::clock::{as_ms, ms, now, pause_until, secs};

/// What the product may be late by on top of the time without a leader: one tick (250 ms) and 500 ms.
pub(crate) const LATE_MAX: Duration = Duration::from_millis(750);
/// How long a test may be kept from seeing what has happened: the product's processes, its clients and perhaps a
/// compiler share two cores. It is no allowance of the product; it is added wherever a moment is seen from outside.
pub(crate) const NOISE: Duration = Duration::from_millis(1_500);

/// Waits for a condition.
///
/// # Panics
/// When it does not come true in time.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, within: Duration, probe: impl FnMut() -> Option<T>) -> T {
    wait_for(within, probe).unwrap_or_else(|| panic!("not within {within:?}: {what}"))
}
