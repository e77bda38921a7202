//! Which clients meet at which lock, and for how long.
//!
//! The clients are divided into lanes of three. All clients of a lane contend for one lock at a time and change to a
//! new name after a few seconds: so each name has a history that is short enough to be judged as a whole, and some have
//! one that no fault disturbed. Whoever only looks belongs to no lane: it looks at the locks of all.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::clock::{as_ms, ms};
use crate::dice::Dice;

/// How many clients contend for one lock.
const CLIENTS_PER_LANE: u32 = 3;

/// What the clients of a lane have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    number: u32,
    /// How long one name is used.
    generation: Duration,
    /// What TTLs its clients ask for, in milliseconds, as often as each stands here.
    pub(super) ttls_ms: &'static [u64],
    /// How long its clients keep a lock, in milliseconds.
    pub(super) keep_ms: RangeInclusive<u64>,
}

impl Lane {
    /// The lane of a client: every third holds its locks for long, over several faults.
    pub(super) fn of(client: u32) -> Self {
        Self::numbered(client / CLIENTS_PER_LANE)
    }

    /// Any lane that so many clients have.
    pub(super) fn any(dice: &mut Dice, clients: u32) -> Self {
        let last = Self::of(clients.saturating_sub(1)).number;
        let number = dice.below(u64::from(last) + 1);
        Self::numbered(u32::try_from(number).unwrap_or_default())
    }

    fn numbered(number: u32) -> Self {
        if number % 3 == 2 {
            let ttls_ms = &[5_000, 6_000, 8_000, 10_000, 12_000];
            return Self { number, generation: ms(24_000), ttls_ms, keep_ms: 2_000..=9_000 };
        }
        let ttls_ms = &[400, 600, 800, 1_000, 1_000, 1_500, 2_000, 3_000, 10_000];
        let generation = ms(3_000 + 450 * u64::from(number % 4));
        Self { number, generation, ttls_ms, keep_ms: 20..=1_000 }
    }

    fn generation(&self, elapsed: Duration) -> u64 {
        as_ms(elapsed) / as_ms(self.generation).max(1)
    }

    /// The name of its lock, so long after the begin of the run.
    pub(super) fn lock(&self, run: &str, elapsed: Duration) -> String {
        format!("{run}/lane {}/{}", self.number, self.generation(elapsed))
    }

    /// The name that it had one generation before that.
    pub(super) fn lock_before(&self, run: &str, elapsed: Duration) -> String {
        self.lock(run, elapsed.saturating_sub(self.generation))
    }

    /// Under which owner some of its clients acquire the lock together.
    pub(super) fn shared_owner(&self) -> String {
        format!("owner of lane {}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::secs;

    #[test]
    fn three_clients_meet_at_a_lock_and_move_on_together() {
        let at = |client, elapsed| Lane::of(client).lock("r", elapsed);
        assert!(at(0, ms(1)) == at(2, ms(1)) && at(0, ms(1)) != at(3, ms(1)));
        assert!(at(0, ms(1)) != at(0, secs(7)) && at(1, secs(7)) == at(0, secs(7)));
        assert_eq!(Lane::of(0).lock_before("r", secs(7)), at(0, secs(4)));
    }

    #[test]
    fn any_lane_is_one_that_has_clients() {
        let mut dice = Dice::new(1, 1);
        let mut numbers: Vec<u32> = (0..100).map(|_| Lane::any(&mut dice, 15).number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
    }
}
