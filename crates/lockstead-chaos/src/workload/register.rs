//! The resources that the locks guard: one register for each lock, which refuses whoever was overtaken.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::history::Write;

/// All registers.
#[derive(Debug, Default)]
pub(super) struct Registers {
    highest: Mutex<HashMap<String, u64>>,
}

impl Registers {
    /// A write with a fence: accepted unless a higher one was seen. `now_us` is asked once the register has decided and
    /// before anybody else can write.
    pub(super) fn write(&self, client: u32, lock: &str, fence: u64, now_us: impl FnOnce() -> u64) -> Write {
        let mut highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = highest.entry(lock.to_owned()).or_default();
        let accepted = fence >= *seen;
        *seen = fence.max(*seen);
        Write { client, lock: lock.to_owned(), fence, at_us: now_us(), accepted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_refuses_a_fence_below_the_highest_it_has_seen() {
        let registers = Registers::default();
        let accepts = |lock, fence| registers.write(1, lock, fence, || 0).accepted;
        assert!(accepts("a", 5) && accepts("a", 5) && accepts("a", 7));
        assert!(!accepts("a", 6) && accepts("b", 6));
    }
}
