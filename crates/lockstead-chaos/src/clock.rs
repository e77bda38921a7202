//! Time as the clients of a run see it.

use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at a condition that is waited for.
const POLL: Duration = Duration::from_millis(10);

/// So many milliseconds.
pub const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// So many seconds.
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Whole milliseconds, rounded down.
pub fn as_ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Whole microseconds, rounded down.
pub fn as_us(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// The present moment.
#[expect(clippy::disallowed_methods, reason = "there are no tasks here: the moments are those of real processes")]
pub fn now() -> Instant {
    Instant::now()
}

/// Lets time pass until a moment that a schedule or a case names. Never a way to wait for a condition.
pub fn pause_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(now()));
}

/// Waits for a condition; `None` if it does not come true in time.
pub fn wait_for<T>(within: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let until = now() + within;
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if now() >= until {
            return None;
        }
        thread::sleep(POLL);
    }
}
