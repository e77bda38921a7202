//! The log, and what a replay of the whole of it gives: the plainest reading of what the records say.

use std::collections::BTreeMap;

use lockstead_core::{Batch, BatchEncoder, Fence, Hold, LeaseTime, Live, LockKey, NodeId, Record, Residue, Table};

/// A committed log entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) term: u64,
    pub(crate) payload: Payload,
}

#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// The first entry of a term.
    Blank,
    /// An encoded batch.
    Batch(Vec<u8>),
    /// A membership without this node.
    Removed(NodeId),
}

/// Everything that replicas must agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The live holds, each with the index of its newest statement.
    holds: BTreeMap<(LockKey, Fence), (Hold, u64)>,
    residue: Residue,
    label: u64,
    live_records: usize,
    live_bytes: u64,
}

impl State {
    /// What a table says after the entry `applied`.
    pub(crate) fn of(table: &Table, applied: u64) -> Self {
        let stated = |hold: &Hold| table.stated_at(&hold.lock, hold.fence).expect("a live hold was stated");
        Self {
            holds: table
                .all_holds()
                .map(|hold| ((hold.lock.clone(), hold.fence), (hold.clone(), stated(hold))))
                .collect(),
            residue: table.residue(),
            label: table.label(applied),
            live_records: table.live_records(),
            live_bytes: table.live_bytes(),
        }
    }

    pub(crate) fn after(&self, index: u64, entry: &Entry) -> Self {
        let mut next = self.clone();
        match &entry.payload {
            Payload::Blank => {}
            Payload::Removed(node) => {
                next.residue.retired.insert(*node);
            }
            Payload::Batch(bytes) => next.take(index, entry.term, Batch::decode(bytes).expect("it was encoded")),
        }
        next.label = next.holds.values().map(|(_, stated_at)| stated_at - 1).min().unwrap_or(index);
        next.live_records = next.holds.len();
        next.live_bytes = next.holds.values().map(|(hold, _)| restated_bytes(hold)).sum();
        next
    }

    fn take(&mut self, index: u64, term: u64, batch: Batch) {
        if batch.term != term {
            return;
        }
        self.residue.time = self.residue.time.max(batch.time);
        for record in batch.records {
            match record {
                Record::Hold(hold) | Record::Restate(Live::Hold(hold)) => {
                    self.residue.last_fence = self.residue.last_fence.max(hold.fence);
                    self.residue.ttl_max_ms = self.residue.ttl_max_ms.max(hold.ttl.as_ms());
                    self.residue.delay_max_ms = self.residue.delay_max_ms.max(hold.delay_ms);
                    self.holds.insert((hold.lock.clone(), hold.fence), (hold, index));
                }
                Record::Drop { lock, fence, .. } => {
                    self.holds.remove(&(lock, fence));
                }
            }
        }
    }
}

fn restated_bytes(hold: &Hold) -> u64 {
    let mut encoder = BatchEncoder::new(0, LeaseTime(0));
    let header_bytes = encoder.len_bytes();
    encoder.push(&Record::Restate(Live::Hold(hold.clone())));
    (encoder.len_bytes() - header_bytes) as u64
}
