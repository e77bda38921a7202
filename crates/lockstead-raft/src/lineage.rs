//! A new lineage: how a cluster goes on from what another, or its own past, left behind.
//!
//! Why its fences lie above all that were ever issued, those included that nobody is left to tell of:
//! - The highest fence known never falls, so whatever is in the backup, or in the survivor's log, is passed in any
//!   case.
//! - What was granted since the backup, or on the lost nodes only, the wall clock has to cover. Fences begin at 0, or
//!   in a later lineage at the wall clock of its beginning in microseconds, and each grant adds one. No cluster grants
//!   a million a second, so at any time its fences lie below the wall clock in microseconds, as long as that does not
//!   run behind the one of its beginning.
//! - A clock set back is no such clock. It shows if it is behind the time of the backup; behind the last writing on the
//!   survivor, or a hold on it; or behind the highest fence known, which is that of the lineage's beginning or above.
//!   It is refused then.
//! - A clock set back to a moment after all of these still covers what was lost, but for grants at more than a million
//!   a second since the lineage began. A floor is the operator's own word, and the only way if an earlier floor, or a
//!   clock that was ahead, has lifted the fences above the wall clock.

use lockstead_core::{ClusterId, Fence, FencesUsedUp, HoldOff, Residue, WallTime};

/// How a new lineage goes on from an old one's residue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewLineage {
    /// For how long nothing is granted.
    pub hold_off: HoldOff,
    /// Fences lie above this, whatever else is known; with it the wall clock need not be right. At least the highest
    /// fence ever issued.
    pub fence_floor: Option<Fence>,
}

/// Why no new lineage can begin. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineageError {
    /// Fences taken from this clock might have been issued before: set the clock, or name a fence floor.
    #[error("the wall clock of this machine is {0} ms behind what it goes on from")]
    ClockBehind(u64),
    /// No fence is left.
    #[error(transparent)]
    FencesUsedUp(#[from] FencesUsedUp),
}

/// A lineage that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its id.
    pub cluster_id: ClusterId,
    /// Its first fence lies above this.
    pub last_fence: Fence,
    /// For how long nothing is granted, in milliseconds of lease time: a cluster without a leader does not get nearer.
    pub hold_off_ms: u64,
}

impl NewLineage {
    /// What the lineage begins with if it begins at `now`. `before` was taken at `taken_at`.
    ///
    /// # Errors
    /// [`LineageError`].
    pub fn residue(&self, before: &Residue, taken_at: WallTime, now: WallTime) -> Result<Residue, LineageError> {
        self.check_clock(taken_at, now)?;
        // One more, so that it lies above what the same backup began with if it was restored a moment ago.
        let by_clock = Fence(now.0.saturating_add(1).saturating_mul(1_000));
        if self.fence_floor.is_none() && by_clock < before.last_fence {
            return Err(LineageError::ClockBehind((before.last_fence.0 - by_clock.0).div_ceil(1_000)));
        }
        let fence_floor = self.fence_floor.map_or(by_clock, |floor| floor.max(by_clock));
        Ok(before.reborn(fence_floor, self.hold_off)?)
    }

    /// Refuses the clock if it is behind `known`, a moment that has been, unless a floor does without it.
    ///
    /// # Errors
    /// [`LineageError::ClockBehind`].
    pub(crate) fn check_clock(&self, known: WallTime, now: WallTime) -> Result<(), LineageError> {
        if now < known && self.fence_floor.is_none() {
            return Err(LineageError::ClockBehind(known.0 - now.0));
        }
        Ok(())
    }
}

impl Begun {
    pub(crate) fn new(cluster_id: ClusterId, residue: &Residue) -> Self {
        let hold_off_ms = residue.no_grant_before.ms_since(residue.time);
        Self { cluster_id, last_fence: residue.last_fence, hold_off_ms }
    }
}

#[cfg(test)]
mod tests {
    use lockstead_core::LeaseTime;

    use super::*;

    const DEAD: NewLineage = NewLineage { hold_off: HoldOff::HoldersAreDead, fence_floor: None };

    fn before() -> Residue {
        Residue { time: LeaseTime(500), last_fence: Fence(77), ..Residue::default() }
    }

    fn last_fence(lineage: NewLineage, now: u64) -> Result<u64, LineageError> {
        lineage.residue(&before(), WallTime(1_000), WallTime(now)).map(|residue| residue.last_fence.0)
    }

    #[test]
    fn fences_begin_above_the_wall_clock_in_microseconds() {
        assert_eq!(last_fence(DEAD, 1_000), Ok(1_001_000));
        assert_eq!(last_fence(DEAD, 1_001), Ok(1_002_000));
    }

    #[test]
    fn a_clock_behind_the_backup_is_refused_unless_a_floor_is_named() {
        assert_eq!(last_fence(DEAD, 999), Err(LineageError::ClockBehind(1)));
        let floor = |floor| NewLineage { fence_floor: Some(Fence(floor)), ..DEAD };
        assert_eq!(last_fence(floor(5_000_000), 999), Ok(5_000_000));
        assert_eq!(last_fence(floor(7), 999), Ok(1_000_000));
        assert_eq!(last_fence(floor(7), 0), Ok(1_000));
    }

    #[test]
    fn a_clock_behind_the_highest_fence_known_is_refused_unless_a_floor_is_named() {
        let before = |last_fence| Residue { last_fence: Fence(last_fence), ..before() };
        let begun = |last_fence, fence_floor: Option<u64>| {
            let lineage = NewLineage { fence_floor: fence_floor.map(Fence), ..DEAD };
            lineage.residue(&before(last_fence), WallTime(1_000), WallTime(2_000)).map(|residue| residue.last_fence.0)
        };
        assert_eq!(begun(2_001_000, None), Ok(2_001_000));
        assert_eq!(begun(2_001_001, None), Err(LineageError::ClockBehind(1)));
        assert_eq!(begun(9_000_000, None), Err(LineageError::ClockBehind(6_999)));
        assert_eq!(begun(9_000_000, Some(9_500_000)), Ok(9_500_000));
        assert_eq!(begun(9_000_000, Some(1)), Ok(9_000_000));
    }

    #[test]
    fn a_clock_beyond_the_last_fence_is_refused() {
        assert!(matches!(last_fence(DEAD, u64::MAX), Err(LineageError::FencesUsedUp(_))));
    }

    #[test]
    fn what_has_begun_tells_how_long_nothing_is_granted() {
        let held_off = NewLineage { hold_off: HoldOff::Length(250), ..DEAD };
        let begun = |lineage: NewLineage| {
            let residue = lineage.residue(&before(), WallTime(0), WallTime(1)).unwrap();
            Begun::new(ClusterId(7), &residue).hold_off_ms
        };
        assert_eq!((begun(held_off), begun(DEAD)), (250, 0));
    }
}
