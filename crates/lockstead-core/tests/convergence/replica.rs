//! One replica: a table in memory, a snapshot and a part of the log on disk. How it reads the rules is a parameter.

use lockstead_core::{Batch, DropReason, LeaseTime, NodeId, Record, Residue, Table};

use crate::model::{Entry, Payload, State};

/// How a replica reads the rules of snapshots and replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As they are meant.
    Right,
    /// The label is the last applied entry.
    LabelIsLastApplied,
    /// The label is the oldest live statement, not the entry before it.
    LabelIsOldestStatement,
    /// A table is served from the label on.
    BuiltAtIsLabel,
    /// `built_at` is the last applied entry, though the table was below the `built_at` of its own snapshot. There the
    /// label never rises, since the statement just above it is live until then: a snapshot is taken all the same.
    BuiltAtIsLastApplied,
    /// The residue is taken an entry later than label and `built_at`.
    ResidueLater,
    /// Label and `built_at` are taken an entry later than the residue.
    ResidueEarlier,
    /// Live holds are counted up and down, and the count is kept in the snapshot.
    CountInResidue,
    /// Retired ids are not kept in the snapshot.
    RetiredForgotten,
    /// The log is purged up to the last applied entry.
    PurgedToLastApplied,
    /// An installed snapshot is laid over the table instead of replacing it.
    InstallMerges,
    /// A restatement of a hold that is not in the table is nothing.
    RestateOnlyWhatIsThere,
    /// A hold that is not in the table needs a fence above the last.
    GrantNeedsRisingFence,
    /// A batch of an earlier lease time is nothing.
    TimeMustRise,
    /// A batch decided in another term than its entry's is applied.
    VoidIsApplied,
    /// A batch decided in another term than its entry's still moves lease time.
    VoidMovesTime,
    /// Applying a batch ends the holds past their deadline.
    ApplyExpires,
}

impl Reading {
    pub(crate) const WRONG: [Self; 16] = [
        Self::LabelIsLastApplied,
        Self::LabelIsOldestStatement,
        Self::BuiltAtIsLabel,
        Self::BuiltAtIsLastApplied,
        Self::ResidueLater,
        Self::ResidueEarlier,
        Self::CountInResidue,
        Self::RetiredForgotten,
        Self::PurgedToLastApplied,
        Self::InstallMerges,
        Self::RestateOnlyWhatIsThere,
        Self::GrantNeedsRisingFence,
        Self::TimeMustRise,
        Self::VoidIsApplied,
        Self::VoidMovesTime,
        Self::ApplyExpires,
    ];
}

/// What went wrong, for people.
pub(crate) type Wrong = String;

#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) label: u64,
    pub(crate) built_at: u64,
    residue: Residue,
    counted: usize,
}

pub(crate) struct Replica {
    reading: Reading,
    pub(crate) id: NodeId,
    pub(crate) table: Table,
    pub(crate) applied: u64,
    pub(crate) built_at: u64,
    /// Live holds, counted up and down.
    counted: usize,
    pub(crate) snapshot: Option<Snapshot>,
    /// The log holds the entries after `purged` up to `logged`.
    pub(crate) purged: u64,
    pub(crate) logged: u64,
}

impl Replica {
    pub(crate) fn empty(reading: Reading, id: NodeId) -> Self {
        let table = Table::default();
        Self { reading, id, table, applied: 0, built_at: 0, counted: 0, snapshot: None, purged: 0, logged: 0 }
    }

    /// Applies the next entry, and compares what comes out with the replay of the whole history.
    pub(crate) fn apply(&mut self, entries: &[Entry], exact: &[State]) -> Result<(), Wrong> {
        let index = self.applied + 1;
        if index <= self.purged {
            return Err(format!("node {} needs entry {index}, purged to {}", self.id, self.purged));
        }
        let entry = &entries[at(index - 1)];
        match &entry.payload {
            Payload::Blank => {}
            Payload::Removed(node) => self.table.retire(*node),
            Payload::Batch(bytes) => {
                let batch = Batch::decode(bytes).expect("it was encoded");
                self.apply_batch(index, entry.term, batch);
            }
        }
        self.applied = index;
        self.check(exact)
    }

    /// At or above `built_at` the table is that of a replay of the whole history.
    pub(crate) fn check(&self, exact: &[State]) -> Result<(), Wrong> {
        if self.applied < self.built_at {
            return Ok(());
        }
        let (state, expected) = (State::of(&self.table, self.applied), &exact[at(self.applied)]);
        if state != *expected {
            return Err(format!("node {} at {}: {state:#?}\nexpected {expected:#?}", self.id, self.applied));
        }
        if self.counted != self.table.live_records() {
            return Err(format!("node {} at {}: {} holds counted", self.id, self.applied, self.counted));
        }
        Ok(())
    }

    /// Takes a snapshot, unless it would reach no further than the one before.
    pub(crate) fn take_snapshot(&mut self, entries: &[Entry], exact: &[State]) -> Result<(), Wrong> {
        let mut snapshot = self.capture();
        if self.applied < self.logged {
            match self.reading {
                Reading::ResidueLater => {
                    self.apply(entries, exact)?;
                    snapshot.residue = self.table.residue();
                }
                Reading::ResidueEarlier => {
                    self.apply(entries, exact)?;
                    snapshot = Snapshot { residue: snapshot.residue, ..self.capture() };
                }
                _ => {}
            }
        }
        let rises = self.snapshot.as_ref().is_none_or(|before| before.label < snapshot.label);
        if rises || self.reading == Reading::BuiltAtIsLastApplied {
            self.snapshot = Some(snapshot);
        }
        Ok(())
    }

    fn capture(&self) -> Snapshot {
        let label = self.table.label(self.applied);
        let mut residue = self.table.residue();
        if self.reading == Reading::RetiredForgotten {
            residue.retired.clear();
        }
        Snapshot {
            label: match self.reading {
                Reading::LabelIsLastApplied => self.applied,
                Reading::LabelIsOldestStatement => self.table.oldest_statement().unwrap_or(label),
                _ => label,
            },
            built_at: match self.reading {
                Reading::BuiltAtIsLabel => label,
                Reading::BuiltAtIsLastApplied => self.applied,
                _ => self.applied.max(self.built_at),
            },
            residue,
            counted: self.counted,
        }
    }

    pub(crate) fn purge(&mut self) {
        let label = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.label);
        let upto = if self.reading == Reading::PurgedToLastApplied && label > 0 { self.applied } else { label };
        self.purged = self.purged.max(upto);
    }

    /// Loses what is in memory; the table is again what the snapshot says.
    pub(crate) fn restart(&mut self) {
        if let Some(snapshot) = self.snapshot.clone() {
            self.load(&snapshot);
        } else {
            *self = Self { purged: self.purged, logged: self.logged, ..Self::empty(self.reading, self.id) };
        }
    }

    /// Puts another node's snapshot in the place of everything.
    pub(crate) fn install(&mut self, snapshot: &Snapshot) {
        let before = std::mem::take(&mut self.table);
        self.load(snapshot);
        if self.reading == Reading::InstallMerges {
            for (stated_at, lock, fence) in before.by_statement() {
                let hold = before.holds(lock).iter().find(|hold| hold.fence == fence).expect("it was stated");
                self.apply_batch(
                    stated_at,
                    0,
                    Batch { term: 0, time: LeaseTime(0), records: vec![Record::Hold(hold.clone())] },
                );
            }
        }
        self.snapshot = Some(snapshot.clone());
        self.purged = self.purged.max(snapshot.label);
        self.logged = self.logged.max(snapshot.label);
    }

    fn load(&mut self, snapshot: &Snapshot) {
        self.table = Table::from_residue(&snapshot.residue);
        self.applied = snapshot.label;
        self.built_at = snapshot.built_at;
        self.counted = if self.reading == Reading::CountInResidue { snapshot.counted } else { 0 };
    }

    fn apply_batch(&mut self, index: u64, term: u64, mut batch: Batch) {
        let table = &self.table;
        match self.reading {
            Reading::RestateOnlyWhatIsThere => batch.records.retain(|record| match record {
                Record::Restate(lockstead_core::Live::Hold(hold)) => table.stated_at(&hold.lock, hold.fence).is_some(),
                _ => true,
            }),
            Reading::GrantNeedsRisingFence => batch.records.retain(|record| match record {
                Record::Hold(hold) => {
                    hold.fence > table.last_fence() || table.stated_at(&hold.lock, hold.fence).is_some()
                }
                _ => true,
            }),
            Reading::TimeMustRise if batch.time < table.time() => return,
            Reading::VoidIsApplied => batch.term = term,
            Reading::VoidMovesTime if batch.term != term => batch = Batch { term, records: Vec::new(), ..batch },
            _ => {}
        }
        let before = self.table.live_records();
        self.table.apply(index, term, batch);
        if self.reading == Reading::ApplyExpires {
            let expired = self.table.expired(self.table.time());
            let records = expired
                .map(|(lock, fence)| Record::Drop { lock: lock.clone(), fence, reason: DropReason::Expired })
                .collect();
            self.table.apply(index, term, Batch { term, time: LeaseTime(0), records });
        }
        self.counted = (self.counted + self.table.live_records()).saturating_sub(before);
    }
}

pub(crate) fn at(index: u64) -> usize {
    usize::try_from(index).expect("histories are short")
}
