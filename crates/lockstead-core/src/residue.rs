//! What outlives "right now": all that a snapshot or a backup keeps of the table.
//!
//! Invariant: it holds only max registers and add-only sets. A snapshot's residue is taken later than its label, so the
//! log between the two is replayed over it; only such values come out the same.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::identity::NodeId;
use crate::record::Hold;
use crate::units::{FENCE_MAX, Fence, LeaseTime};

/// What a snapshot keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residue {
    /// Highest lease time.
    pub time: LeaseTime,
    /// Highest fence granted.
    pub last_fence: Fence,
    /// Longest TTL ever granted, in milliseconds.
    pub ttl_max_ms: u64,
    /// Longest delay that a hold ever brought along, in milliseconds.
    pub delay_max_ms: u64,
    /// No office grants anything before this lease time.
    pub no_grant_before: LeaseTime,
    /// Ids of nodes that were members of this lineage and are none any more: never used again.
    pub retired: BTreeSet<NodeId>,
}

/// For how long a new lineage grants nothing, since holders of the one before may still count on their holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldOff {
    /// Nobody holds anything any more: the operator says so.
    HoldersAreDead,
    /// As long as any hold can last: the longest TTL granted or allowed, plus the longest delay.
    Standard {
        /// The longest TTL allowed, in milliseconds: what was granted after a backup was taken is not in it.
        ttl_max_ms: u64,
    },
    /// The operator's own word, in milliseconds.
    Length(u64),
}

/// A lineage without a fence left to grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the new lineage would begin at fence {0}, which leaves none to grant: fences end at {max}", max = FENCE_MAX.0)]
pub struct FencesUsedUp(pub u64);

impl Residue {
    /// What the lineage that goes on from this residue without any of its holds begins with. `fence_floor` is at least
    /// the highest fence that may have been issued; the first fence granted lies above it.
    ///
    /// Lease time goes on, and what was granted at most is remembered for the next restore. A hold-off that has not run
    /// out speaks of the holders of an earlier lineage, and stays unless the operator's own word says otherwise. The
    /// retired ids begin anew: they belong to the old cluster id, whose nodes are refused by that alone, and the
    /// founders of the new one may well bear the same numbers.
    ///
    /// # Errors
    /// [`FencesUsedUp`] if no fence up to 2^53 − 1 would be left.
    pub fn reborn(&self, fence_floor: Fence, hold_off: HoldOff) -> Result<Self, FencesUsedUp> {
        let last_fence = self.last_fence.max(fence_floor);
        if last_fence >= FENCE_MAX {
            return Err(FencesUsedUp(last_fence.0));
        }
        let no_grant_before = match hold_off {
            HoldOff::HoldersAreDead => LeaseTime(0),
            HoldOff::Length(length_ms) => self.time.plus_ms(length_ms),
            HoldOff::Standard { ttl_max_ms } => {
                let length_ms = self.ttl_max_ms.max(ttl_max_ms).saturating_add(self.delay_max_ms);
                self.no_grant_before.max(self.time.plus_ms(length_ms))
            }
        };
        Ok(Self { last_fence, no_grant_before, retired: BTreeSet::new(), ..self.clone() })
    }

    /// Takes note of a hold that was stated.
    pub(crate) fn raise(&mut self, hold: &Hold) {
        self.last_fence = self.last_fence.max(hold.fence);
        self.ttl_max_ms = self.ttl_max_ms.max(hold.ttl.as_ms());
        self.delay_max_ms = self.delay_max_ms.max(hold.delay_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn residue() -> Residue {
        Residue {
            time: LeaseTime(1_000),
            last_fence: Fence(500),
            ttl_max_ms: 70,
            delay_max_ms: 3,
            no_grant_before: LeaseTime(1_040),
            retired: [4, 9].into(),
        }
    }

    fn no_grant_before(hold_off: HoldOff) -> u64 {
        residue().reborn(Fence(0), hold_off).unwrap().no_grant_before.0
    }

    #[test]
    fn a_new_lineage_grants_nothing_while_anybody_may_count_on_a_hold_of_the_old_one() {
        assert_eq!(no_grant_before(HoldOff::Standard { ttl_max_ms: 60 }), 1_073, "the longest that was granted");
        assert_eq!(no_grant_before(HoldOff::Standard { ttl_max_ms: 90 }), 1_093, "the longest that may have been");
        assert_eq!(no_grant_before(HoldOff::Standard { ttl_max_ms: u64::MAX }), u64::MAX);
        assert_eq!(no_grant_before(HoldOff::Length(41)), 1_041);
    }

    #[test]
    fn a_hold_off_that_has_not_run_out_is_cut_short_only_by_the_operators_own_word() {
        let long = Residue { no_grant_before: LeaseTime(9_000), ..residue() };
        let after = |hold_off| long.reborn(Fence(0), hold_off).unwrap().no_grant_before.0;
        assert_eq!(after(HoldOff::Standard { ttl_max_ms: 0 }), 9_000);
        assert_eq!(after(HoldOff::Length(39)), 1_039);
        assert_eq!(after(HoldOff::HoldersAreDead), 0);
    }

    #[test]
    fn fences_go_on_above_the_floor_and_above_their_own() {
        let last_fence =
            |floor| residue().reborn(Fence(floor), HoldOff::HoldersAreDead).map(|residue| residue.last_fence);
        assert_eq!(last_fence(0), Ok(Fence(500)));
        assert_eq!(last_fence(501), Ok(Fence(501)));
        assert_eq!(last_fence(FENCE_MAX.0 - 1), Ok(Fence(FENCE_MAX.0 - 1)));
        assert_eq!(last_fence(FENCE_MAX.0), Err(FencesUsedUp(FENCE_MAX.0)));
        let worn = Residue { last_fence: Fence(u64::MAX), ..residue() };
        let refused = worn.reborn(Fence(0), HoldOff::HoldersAreDead).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the new lineage would begin at fence 18446744073709551615, which leaves none to grant: fences end at \
             9007199254740991"
        );
    }

    #[test]
    fn lease_time_and_what_was_granted_go_on_and_node_ids_begin_anew() {
        let reborn = residue().reborn(Fence(0), HoldOff::HoldersAreDead).unwrap();
        assert_eq!(reborn, Residue { retired: BTreeSet::new(), no_grant_before: LeaseTime(0), ..residue() });
        // The same backup restored from a restored cluster: still above, still as long.
        let again = reborn.reborn(Fence(600), HoldOff::Standard { ttl_max_ms: 0 }).unwrap();
        assert_eq!((again.last_fence, again.no_grant_before), (Fence(600), LeaseTime(1_073)));
    }
}
