//! Pauses between tries.

use std::time::Duration;

use crate::random;

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);

/// Pauses that start at 20 ms and double to 500 ms, each shortened by a random part of up to a half, so that clients
/// which lost the same node do not come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    /// How long to wait before the next try.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        jittered(pause, random::byte())
    }
}

fn jittered(pause: Duration, random: u8) -> Duration {
    pause.saturating_sub(pause * u32::from(random) / 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_half_a_second() {
        let mut backoff = Backoff::new();
        for expected_ms in [20, 40, 80, 160, 320, 500, 500] {
            assert_eq!(backoff.next, Duration::from_millis(expected_ms));
            let pause = backoff.next_pause();
            assert!(pause <= Duration::from_millis(expected_ms) && pause >= Duration::from_millis(expected_ms / 2));
        }
    }

    #[test]
    fn jitter_takes_away_at_most_a_half() {
        assert_eq!(jittered(Duration::from_millis(20), 0), Duration::from_millis(20));
        assert!(jittered(Duration::from_millis(20), 255) > Duration::from_millis(10));
    }
}
