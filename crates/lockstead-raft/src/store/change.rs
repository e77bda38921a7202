//! What happens to a log, and what is known of it afterwards.

use serde::{Deserialize, Serialize};

use super::codec::EncodedEntry;
use crate::types::{LogId, Vote};

/// A change of the log or the vote, as it goes to the journal and then to sled.
#[derive(Debug)]
pub(super) enum Change {
    Entry(EncodedEntry),
    Vote(Vote),
    /// The entries from `from` on go; `last` is the last log id then.
    Truncate {
        from: u64,
        last: Option<LogId>,
    },
    /// The entries up to `upto` go; `last` is the last log id then.
    Purge {
        upto: LogId,
        last: Option<LogId>,
    },
}

/// What must be found again, whatever else is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Witness {
    pub(super) vote: Option<Vote>,
    pub(super) purged: Option<LogId>,
    pub(super) last: Option<LogId>,
}

impl Witness {
    pub(super) fn note(&mut self, change: &Change) {
        match change {
            Change::Entry(entry) => self.last = Some(entry.log_id),
            Change::Vote(vote) => self.vote = Some(*vote),
            Change::Truncate { last, .. } => self.last = *last,
            Change::Purge { upto, last } => (self.purged, self.last) = (Some(*upto), *last),
        }
    }
}

/// What sled says of itself and of the journal in front of it. Synced together with what it speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    /// The journal's id.
    pub(super) journal: u64,
    /// Segments that exist.
    pub(super) segments: usize,
    /// Everything up to this group of the journal is in sled.
    pub(super) filled: u64,
    /// What was known of the log as of that group.
    pub(super) witness: Witness,
}
