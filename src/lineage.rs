//! How a new lineage is to begin, as the command line says it.

use std::time::Duration;

use lockstead_core::HoldOff;
use lockstead_core::units::FENCE_MAX;
use lockstead_raft::{Begun, LineageError};

use crate::text::length_ms;

/// A fence floor lies below this.
pub(crate) const FENCE_FLOOR_MAX: u64 = FENCE_MAX.0;

/// A length in whole milliseconds.
pub(crate) fn length(length: Duration) -> HoldOff {
    HoldOff::Length(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}

/// What stands in the way of a new lineage, and the way out.
pub(crate) fn refusal(error: &LineageError) -> String {
    match error {
        LineageError::ClockBehind(_) => format!(
            "{error}, so that its fences might have been issued before: set the clock, or give --fence-floor N, at least \
             the highest fence ever issued"
        ),
        LineageError::FencesUsedUp(_) => error.to_string(),
    }
}

/// When the first lock is granted.
pub(crate) fn announcement(begun: &Begun) -> String {
    match begun.hold_off_ms {
        0 => format!("fences begin above {}, and locks are granted at once", begun.last_fence.0),
        hold_off_ms => format!(
            "fences begin above {}; nothing is granted for {} from the moment there is a leader, since holders from before \
             may still count on their locks (--hold-off and --holders-are-dead shorten it)",
            begun.last_fence.0,
            length_ms(hold_off_ms)
        ),
    }
}
