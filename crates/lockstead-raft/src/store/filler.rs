//! The thread behind the journal: it puts into sled what the journal holds, and makes it durable there now and then, so
//! that the journal can be used again.
//!
//! Invariants:
//! 1. Sled gets only what the journal has synced.
//! 2. The checkpoint is put after all that it speaks of, and counts only once flush and sync have returned.
//! 3. Trees are dropped only after the `last_purged` that covers them is durable.
//! 4. After the first failure, here or at the journal, nothing is inserted, flushed or synced any more.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backlog::{Fill, Next};
use super::change::{Change, Checkpoint};
use super::disk::{Disk, io_error};
use super::journal::SegmentFiles;
use super::trees::Trees;
use super::writer::Shared;

/// Sled is synced this long after the first change that it lacks, at the latest if it keeps up.
const PERIOD: Duration = Duration::from_millis(300);
/// Sled is synced when nothing came for this time.
const QUIET: Duration = Duration::from_millis(30);
/// An idle filler saves a newer committed log id after this time.
const IDLE: Duration = Duration::from_secs(1);

pub(super) struct Filler {
    pub(super) trees: Trees,
    pub(super) disk: Box<dyn Disk>,
    pub(super) shared: Arc<Shared>,
    pub(super) segments: SegmentFiles,
    /// What sled says, or will once it is synced.
    pub(super) checkpoint: Checkpoint,
    /// Something was inserted after the last sync.
    pub(super) unsynced: bool,
    /// Up to where trees can be dropped after the next sync.
    pub(super) purged: Option<u64>,
}

impl Filler {
    /// Fills until the writer has ended.
    pub(super) fn run(mut self) {
        loop {
            let ended = match self.shared.backlog.next(IDLE) {
                Next::Fill(fill) => self.round(fill),
                Next::Hurry => self.grow(),
                Next::Quiet => self.save_committed(),
                Next::Ended => break,
            };
            if let Err(error) = ended {
                return self.shared.fail(&error);
            }
        }
        if let Err(error) = self.finish() {
            self.shared.fail(&error);
        }
    }

    /// Inserts what comes for a while, then syncs.
    #[expect(clippy::disallowed_methods, reason = "a thread that paces its own system calls")]
    fn round(&mut self, first: Fill) -> io::Result<()> {
        let end = Instant::now() + PERIOD;
        let mut bytes = first.bytes;
        self.insert(first)?;
        // Half a segment at a time, so that the writer finds another half free.
        while bytes < self.segments.layout().segment_bytes / 2 {
            let left = end.saturating_duration_since(Instant::now());
            let Next::Fill(fill) = self.shared.backlog.next(left.min(QUIET)) else { break };
            bytes += fill.bytes;
            self.insert(fill)?;
            if left.is_zero() {
                break;
            }
        }
        let was_room_wanted = self.shared.backlog.is_room_wanted();
        self.settle()?;
        if was_room_wanted { self.grow() } else { Ok(()) }
    }

    fn insert(&mut self, fill: Fill) -> io::Result<()> {
        self.shared.check()?;
        for change in &fill.changes {
            self.checkpoint.witness.note(change);
            if let Change::Purge { upto, .. } = change {
                self.purged = Some(upto.index());
            }
        }
        self.unsynced = true;
        self.checkpoint.filled = fill.sequence;
        self.trees.apply(fill.changes).map_err(io_error)?;
        if let Some(append) = fill.append {
            self.shared.tail().written(append);
        }
        Ok(())
    }

    fn settle(&mut self) -> io::Result<()> {
        self.put_committed()?;
        self.trees.put_checkpoint(&self.checkpoint).map_err(io_error)?;
        self.shared.check()?;
        self.disk.flush()?;
        self.shared.check()?;
        self.disk.sync()?;
        self.unsynced = false;
        self.shared.backlog.set_filled(self.checkpoint.filled);
        self.purged.take().map_or(Ok(()), |purged| self.trees.drop_purged(purged)).map_err(io_error)
    }

    /// The writer had to wait: another segment, if there may be one. Sled knows of it before it is used.
    fn grow(&mut self) -> io::Result<()> {
        if self.checkpoint.segments == self.segments.layout().segments_max {
            return Ok(());
        }
        self.shared.check()?;
        let segment = self.segments.create(self.checkpoint.segments)?;
        self.checkpoint.segments += 1;
        self.settle()?;
        self.shared.backlog.add_spare(segment);
        Ok(())
    }

    /// Only what sled has: openraft may know of a commit before this node's own journal has it.
    fn put_committed(&mut self) -> io::Result<()> {
        let committed = self.shared.tail().take_unsaved_committed(self.checkpoint.witness.last);
        if let Some(committed) = committed {
            self.trees.put_committed(&committed).map_err(io_error)?;
            self.unsynced = true;
        }
        Ok(())
    }

    fn save_committed(&mut self) -> io::Result<()> {
        self.shared.check()?;
        self.put_committed()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.save_committed()?;
        if self.unsynced { self.settle() } else { Ok(()) }
    }
}
