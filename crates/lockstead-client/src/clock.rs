//! The client's own clock: how much time has surely passed at most.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A moment on this machine, read on two clocks at once.
///
/// A suspended machine stops `CLOCK_MONOTONIC_RAW`, a wrongly disciplined one bends `CLOCK_BOOTTIME`. Whoever counts on
/// a hold takes the larger of the two lengths, so that it gives up too early rather than too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    suspend_aware: Duration,
    raw: Duration,
}

#[cfg(target_os = "linux")]
const CLOCKS: (ClockId, ClockId) = (ClockId::Boottime, ClockId::MonotonicRaw);
#[cfg(not(target_os = "linux"))]
const CLOCKS: (ClockId, ClockId) = (ClockId::Monotonic, ClockId::Monotonic);

impl Moment {
    /// Reads both clocks.
    #[must_use]
    pub fn now() -> Self {
        Self { suspend_aware: read(CLOCKS.0), raw: read(CLOCKS.1) }
    }

    /// The time from `earlier` to this moment on the clock that says more; zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        let suspend_aware = self.suspend_aware.saturating_sub(earlier.suspend_aware);
        suspend_aware.max(self.raw.saturating_sub(earlier.raw))
    }

    #[cfg(test)]
    pub(crate) fn from_ms(suspend_aware_ms: u64, raw_ms: u64) -> Self {
        Self { suspend_aware: Duration::from_millis(suspend_aware_ms), raw: Duration::from_millis(raw_ms) }
    }
}

fn read(clock: ClockId) -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    Duration::new(u64::try_from(tv_sec).unwrap_or(0), u32::try_from(tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_is_the_larger_of_the_two_clocks() {
        let start = Moment::from_ms(1_000, 1_000);
        assert_eq!(Moment::from_ms(9_000, 1_500).since(start), Duration::from_secs(8), "a suspended machine");
        assert_eq!(Moment::from_ms(1_500, 3_000).since(start), Duration::from_secs(2), "a slowed clock");
        assert_eq!(Moment::from_ms(0, 0).since(start), Duration::ZERO, "never negative");
    }

    #[test]
    fn the_clocks_of_this_machine_do_not_run_backwards() {
        let earlier = Moment::now();
        assert!(Moment::now().since(earlier) < Duration::from_mins(1));
        assert!(earlier.suspend_aware > Duration::ZERO && earlier.raw > Duration::ZERO);
    }
}
