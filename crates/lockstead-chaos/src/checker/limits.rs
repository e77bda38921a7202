//! How much time the checker has, and how much noise it forgives.

use std::time::{Duration, Instant};

/// How a history is judged.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long the whole check may take; locks that it does not come to are undecided. Default 300 s.
    pub check_for: Duration,
    /// How long the search may take for one lock. Default 30 s.
    pub lock_for: Duration,
    /// How many states the search may remember for one lock, about 100 bytes each. Default 2,000,000.
    pub states_max: usize,
    /// What the machine may add to any delay: scheduling, busy disks. Raising it hides lateness. Default 250 ms.
    pub noise_ms: u64,
    /// How long after a fault connections may still be in doubt, so that a closed one is not seen at once. Default 2 s.
    pub settle_ms: u64,
    /// How many violations are cut down to their minimal part; the rest are named only. Default 10.
    pub explained_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            check_for: Duration::from_mins(5),
            lock_for: Duration::from_secs(30),
            states_max: 2_000_000,
            noise_ms: 250,
            settle_ms: 2_000,
            explained_max: 10,
        }
    }
}

/// The time that a check has taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    begun: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "how long a computation takes; no lease and no task depends on it")]
    pub(super) fn start() -> Self {
        Self { begun: Instant::now() }
    }

    pub(super) fn elapsed(self) -> Duration {
        self.begun.elapsed()
    }
}

/// What one search may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    clock: Clock,
    until: Duration,
    pub(super) states_max: usize,
}

impl Budget {
    pub(super) fn for_lock(clock: Clock, limits: &Limits) -> Self {
        let until = (clock.elapsed() + limits.lock_for).min(limits.check_for);
        Self { clock, until, states_max: limits.states_max }
    }

    /// Cutting a violation down has a little time of its own: the verdict stands already.
    pub(super) fn for_explaining(clock: Clock) -> Self {
        Self { clock, until: clock.elapsed() + Duration::from_secs(5), states_max: 200_000 }
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.clock.elapsed() >= self.until
    }
}
