//! A node's own clock for waits and deadlines of requests: milliseconds since the node started.

use std::time::Duration;

use lockstead_core::LocalTime;
use tokio::time::Instant;

/// A node's own clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalClock {
    origin: Instant,
}

impl LocalClock {
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// The current moment, rounded down.
    pub(crate) fn now(self) -> LocalTime {
        LocalTime(millis(self.origin.elapsed()))
    }

    /// The current moment, rounded up: as an arrival, so that no wait counts as longer than it was.
    pub(crate) fn arrival(self) -> LocalTime {
        self.now().plus_ms(1)
    }

    /// A moment of this clock as tokio's.
    pub(crate) fn instant(self, time: LocalTime) -> Instant {
        // Bounded, since an Instant that far away would overflow.
        self.origin + Duration::from_millis(time.0.min(1 << 40))
    }

    /// A moment of tokio's clock as this one's, rounded down.
    pub(crate) fn local(self, instant: Instant) -> LocalTime {
        LocalTime(millis(instant.saturating_duration_since(self.origin)))
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
