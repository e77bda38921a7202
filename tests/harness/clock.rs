//! Time as the tests see it.

use std::thread;
use std::time::{Duration, Instant};

/// What the product may be late by on top of the time without a leader: one tick (250 ms) and 500 ms.
pub(crate) const LATE_MAX: Duration = Duration::from_millis(750);
/// How long a test may be kept from seeing what has happened: the product's processes, its clients and perhaps a
/// compiler share two cores. It is no allowance of the product; it is added wherever a moment is seen from outside.
pub(crate) const NOISE: Duration = Duration::from_millis(1_500);

const POLL: Duration = Duration::from_millis(10);

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn as_ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "a test has no tasks: its moments are those of real processes")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Lets time pass until a moment that the case itself names ("renew at 990 ms"). Never a way to wait for a condition.
pub(crate) fn pause_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(now()));
}

/// Waits for a condition.
///
/// # Panics
/// When it does not come true in time.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, within: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let until = now() + within;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(now() < until, "not within {within:?}: {what}");
        thread::sleep(POLL);
    }
}
