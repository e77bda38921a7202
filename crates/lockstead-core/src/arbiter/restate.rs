//! What a drain says once more, so that the entries that said it first can go.

use super::Restating;
use super::decide::Deciding;
use super::view::is_expired;
use crate::name::LockKey;
use crate::record::{BATCH_HEADER_BYTES, Live, REQUEST_BYTES_MAX, Record};
use crate::units::Fence;

impl Deciding<'_> {
    /// Restates old records at the head of the batch: what a later request makes of one of them follows, and wins.
    ///
    /// A hold past its deadline is dropped instead. That moves the label just as well, takes fewer bytes, and once
    /// only; restated, it would be dropped by a sweep soon after all the same. One for whose lock somebody waits is
    /// left to the requests and the sweep of this drain, since whoever gets the lock next is theirs to say.
    pub(super) fn restate(&mut self, restating: Restating) {
        let table = self.view.table();
        let bytes_end = BATCH_HEADER_BYTES + restating.bytes_max.min(self.bytes_beside_a_request());
        let mut left_to_the_sweep = 0;
        let old = table.by_statement().take_while(|(stated_at, ..)| *stated_at <= restating.upto);
        for (_, lock, fence) in old {
            let mark = self.mark();
            let stated = self.state_again(lock, fence);
            if self.batch.len_bytes() > bytes_end && self.batch.records() > 1 {
                self.roll_back(&mark);
                break;
            }
            left_to_the_sweep += usize::from(!stated);
            // More than one sweep takes are not looked through again for each of the batches that drop them.
            if left_to_the_sweep > self.arbiter.limits.sweep_max {
                break;
            }
        }
        self.head_records = self.batch.records();
    }

    /// Whatever is restated, any one request fits in beside it.
    fn bytes_beside_a_request(&self) -> usize {
        self.arbiter.limits.batch_bytes_max.saturating_sub(BATCH_HEADER_BYTES + REQUEST_BYTES_MAX)
    }

    /// Whether the batch now restates or drops the hold.
    fn state_again(&mut self, lock: &LockKey, fence: Fence) -> bool {
        let Some(hold) = self.view.hold(lock, fence) else { return true };
        if !is_expired(hold, self.now.lease) {
            self.batch.push(&Record::Restate(Live::Hold(hold.clone())));
            self.restated += 1;
        } else if self.arbiter.queues.head(lock).is_none() {
            self.drop_expired(lock, fence);
        } else {
            return false;
        }
        true
    }
}
