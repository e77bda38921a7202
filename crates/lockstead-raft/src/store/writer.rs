//! The one thread that writes to sled: it takes all that is queued, inserts it, makes it durable once, and only then
//! says so.
//!
//! Invariants:
//! 1. Order: insert, flush, sync, answers. A group that a truncation belongs to ends with it, so that the truncation is
//!    durable before anything that follows it.
//! 2. Trees are dropped only after the `last_purged` that covers them is durable.
//! 3. After the first failure nothing is inserted, flushed or synced any more; whatever is queued is answered with it.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use openraft::storage::IOFlushed;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::StoreMetrics;
use super::disk::{Disk, io_error};
use super::tail::{AppendNumber, Tail};
use super::trees::Trees;
use crate::types::{Entry, LogId, TypeConfig, Vote};

/// An idle writer saves a newer committed log id after this time.
const IDLE: Duration = Duration::from_secs(1);

/// Called once, on the writer's thread, when storage failed. It must not drop the last handle of the log store.
pub(crate) type OnFault = Box<dyn FnOnce(String) + Send>;

/// What the writer and the handles of the log store share.
#[derive(Default)]
pub(super) struct Shared {
    tail: Mutex<Tail>,
    fault: OnceLock<String>,
}

impl Shared {
    pub(super) fn new(tail: Tail) -> Self {
        Self { tail: Mutex::new(tail), fault: OnceLock::new() }
    }

    pub(super) fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of a store that has failed.
    pub(super) fn check(&self) -> io::Result<()> {
        self.fault.get().map_or(Ok(()), |why| Err(io::Error::other(why.clone())))
    }
}

pub(super) type Done = oneshot::Sender<io::Result<()>>;

/// Something to write.
pub(super) enum Op {
    Append { number: AppendNumber, entries: Vec<Entry>, done: IOFlushed<TypeConfig> },
    Vote { vote: Vote, done: Done },
    Truncate { from: u64, done: Done },
    Purge { upto: LogId },
}

/// Something to write and the room in the queue that it takes.
pub(super) struct Queued {
    pub(super) op: Op,
    pub(super) _room: OwnedSemaphorePermit,
}

pub(super) struct Writer {
    pub(super) trees: Trees,
    pub(super) disk: Box<dyn Disk>,
    pub(super) shared: Arc<Shared>,
    pub(super) metrics: StoreMetrics,
    pub(super) on_fault: Option<OnFault>,
    /// A committed log id was inserted after the last sync.
    pub(super) unsynced: bool,
}

impl Writer {
    /// Writes until every handle is gone.
    pub(super) fn run(mut self, queue: &Receiver<Queued>) {
        loop {
            match queue.recv_timeout(IDLE) {
                Ok(first) => self.serve(first, queue),
                Err(RecvTimeoutError::Timeout) => self.save_committed(),
                Err(RecvTimeoutError::Disconnected) => return self.finish(),
            }
        }
    }

    fn serve(&mut self, first: Queued, queue: &Receiver<Queued>) {
        // Read before the queue is drained: the entries up to it are queued by now.
        let committed = self.shared.tail().take_unsaved_committed();
        let mut group = Vec::new();
        for queued in std::iter::once(first).chain(queue.try_iter()) {
            let cut = matches!(queued.op, Op::Truncate { .. });
            group.push(queued);
            if cut {
                self.commit(std::mem::take(&mut group), None);
            }
        }
        self.commit(group, committed);
    }

    fn commit(&mut self, group: Vec<Queued>, committed: Option<LogId>) {
        let result = self.shared.check().and_then(|()| self.write(&group, committed));
        if let Err(error) = &result {
            self.fail(error);
        }
        let written = group.iter().filter_map(|queued| queued.op.append_number()).max();
        let purged = group.iter().filter_map(|queued| queued.op.purged()).max();
        answer(group, &result);
        if result.is_ok() {
            self.clean_up(written, purged);
        }
    }

    fn write(&mut self, group: &[Queued], committed: Option<LogId>) -> io::Result<()> {
        for queued in group {
            self.insert(&queued.op).map_err(io_error)?;
        }
        if let Some(committed) = committed {
            self.trees.put_committed(&committed).map_err(io_error)?;
            self.unsynced = true;
        }
        if group.is_empty() { Ok(()) } else { self.make_durable(group.len()) }
    }

    fn insert(&self, op: &Op) -> sled::Result<()> {
        match op {
            Op::Append { entries, .. } => self.trees.insert(entries),
            Op::Vote { vote, .. } => self.trees.put_vote(vote),
            Op::Truncate { from, .. } => self.trees.remove_from(*from),
            Op::Purge { upto } => self.trees.put_purged(upto),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a thread measures its own system call for a histogram")]
    fn make_durable(&mut self, group_size: usize) -> io::Result<()> {
        let start = Instant::now();
        self.disk.flush()?;
        self.disk.sync()?;
        self.unsynced = false;
        self.metrics.sync_seconds.observe(start.elapsed().as_secs_f64());
        self.metrics.group_size.observe(f64::from(u32::try_from(group_size).unwrap_or(u32::MAX)));
        Ok(())
    }

    /// What need not delay the answers.
    fn clean_up(&mut self, written: Option<AppendNumber>, purged: Option<u64>) {
        if let Some(written) = written {
            self.shared.tail().written(written);
        }
        let dropped = purged.map_or(Ok(()), |purged| self.trees.drop_purged(purged));
        if let Err(error) = dropped {
            self.fail(&io_error(error));
        }
    }

    fn save_committed(&mut self) {
        let committed = self.shared.tail().take_unsaved_committed();
        self.commit(Vec::new(), committed);
    }

    fn finish(mut self) {
        self.save_committed();
        if self.unsynced && self.shared.check().is_ok() {
            let result = self.make_durable(1);
            if let Err(error) = result {
                self.fail(&error);
            }
        }
    }

    fn fail(&mut self, error: &io::Error) {
        let why = self.shared.fault.get_or_init(|| format!("the log could not be written: {error}"));
        if let Some(on_fault) = self.on_fault.take() {
            on_fault(why.clone());
        }
    }
}

impl Op {
    fn append_number(&self) -> Option<AppendNumber> {
        match self {
            Self::Append { number, .. } => Some(*number),
            Self::Vote { .. } | Self::Truncate { .. } | Self::Purge { .. } => None,
        }
    }

    fn purged(&self) -> Option<u64> {
        match self {
            Self::Purge { upto } => Some(upto.index()),
            Self::Append { .. } | Self::Vote { .. } | Self::Truncate { .. } => None,
        }
    }
}

fn answer(group: Vec<Queued>, result: &io::Result<()>) {
    for queued in group {
        let result = match result {
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        match queued.op {
            Op::Append { done, .. } => done.io_completed(result),
            // A caller that no longer waits needs no answer.
            Op::Vote { done, .. } | Op::Truncate { done, .. } => drop(done.send(result)),
            Op::Purge { .. } => {}
        }
    }
}
