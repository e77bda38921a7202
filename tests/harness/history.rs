//! What clients saw, and the rules that it must obey.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::locker::Held;

/// A hold as its client saw it: from the receipt of its 200 until the client itself let go or counted it as over.
#[derive(Clone, Debug)]
struct Seen {
    fence: u64,
    asked: Instant,
    from: Instant,
    until: Instant,
}

/// The holds of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    by_name: Mutex<BTreeMap<String, Vec<Seen>>>,
}

impl History {
    /// Notes a hold that its client let go at `released`, or counted on until its deadline.
    pub(crate) fn note(&self, held: &Held, released: Option<Instant>) {
        let deadline = held.client_deadline();
        let until = released.map_or(deadline, |released| released.min(deadline));
        self.note_until(held, until);
    }

    /// Notes a hold whose end its client knows otherwise, as after renewals.
    pub(crate) fn note_until(&self, held: &Held, until: Instant) {
        let seen = Seen { fence: held.fence, asked: held.sent, from: held.received, until };
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.entry(held.name.clone()).or_default().push(seen);
    }

    /// No two holders overlap, and fences rise with every grant.
    ///
    /// # Panics
    /// When a rule is broken.
    #[track_caller]
    pub(crate) fn check(&self) {
        for (name, seen) in &mut *self.by_name.lock().unwrap_or_else(PoisonError::into_inner) {
            seen.sort_by_key(|hold| hold.fence);
            for pair in seen.windows(2) {
                let (earlier, later) = (&pair[0], &pair[1]);
                assert_ne!(earlier.fence, later.fence, "{name}: one fence for two grants: {pair:?}");
                assert!(earlier.asked <= later.from, "{name}: a fence fell: {pair:?}");
                assert!(earlier.until <= later.from, "{name}: two holders at once: {pair:?}");
            }
        }
    }
}
