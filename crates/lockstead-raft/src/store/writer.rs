//! The one thread that writes the journal: it takes all that is queued, writes it, makes it durable once, and only then
//! says so. Sled gets it behind that ([`super::filler`]).
//!
//! Invariants:
//! 1. Order: write, sync, answers. A group that a truncation belongs to ends with it, so that the truncation is durable
//!    before anything that follows it.
//! 2. After the first failure, here or in sled, nothing is written or synced any more; whatever is queued is answered
//!    with it.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use openraft::storage::IOFlushed;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::StoreMetrics;
use super::backlog::{Backlog, Fill};
use super::change::Change;
use super::codec::encode_entry;
use super::journal::{Journal, Layout, Records};
use super::tail::{AppendNumber, Tail};
use crate::plant::{self, Plant, planted};
use crate::types::{Entry, LogId, TypeConfig, Vote};

/// When nothing came for this time, the journal's mark is synced.
pub(super) const QUIET: Duration = Duration::from_millis(20);

/// Called once, on a thread of the store, when storage failed. It must not drop the last handle of the log store.
pub(crate) type OnFault = Box<dyn FnOnce(String) + Send>;

/// What the threads and the handles of the log store share.
pub(super) struct Shared {
    tail: Mutex<Tail>,
    fault: OnceLock<String>,
    on_fault: Mutex<Option<OnFault>>,
    pub(super) backlog: Arc<Backlog>,
}

impl Shared {
    pub(super) fn new(tail: Tail, backlog: Arc<Backlog>, on_fault: OnFault) -> Self {
        Self { tail: Mutex::new(tail), fault: OnceLock::new(), on_fault: Mutex::new(Some(on_fault)), backlog }
    }

    pub(super) fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of a store that has failed.
    pub(super) fn check(&self) -> io::Result<()> {
        self.fault.get().map_or(Ok(()), |why| Err(io::Error::other(why.clone())))
    }

    /// The first failure is the end.
    pub(super) fn fail(&self, error: &io::Error) {
        let why = self.fault.get_or_init(|| format!("the log could not be written: {error}"));
        self.backlog.fail();
        let on_fault = self.on_fault.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(on_fault) = on_fault {
            on_fault(why.clone());
        }
    }
}

pub(super) type Done = oneshot::Sender<io::Result<()>>;

/// Something to write.
pub(super) enum Op {
    Append {
        number: AppendNumber,
        entries: Vec<Entry>,
        done: IOFlushed<TypeConfig>,
    },
    Vote {
        vote: Vote,
        done: Done,
    },
    /// `last` is the last log id without the entries from `from` on.
    Truncate {
        from: u64,
        last: Option<LogId>,
        done: Done,
    },
    /// `last` is the last log id without the entries up to `upto`.
    Purge {
        upto: LogId,
        last: Option<LogId>,
    },
}

/// Something to write and the room in the queue that it takes.
pub(super) struct Queued {
    pub(super) op: Op,
    pub(super) _room: OwnedSemaphorePermit,
}

pub(super) struct Writer {
    pub(super) journal: Journal,
    pub(super) layout: Layout,
    pub(super) shared: Arc<Shared>,
    pub(super) metrics: StoreMetrics,
    pub(super) filler: JoinHandle<()>,
    /// What was not written yet.
    pub(super) piece: Piece,
}

/// What is written and synced together, and goes to sled together.
#[derive(Default)]
pub(super) struct Piece {
    records: Records,
    changes: Vec<Change>,
    append: Option<AppendNumber>,
}

impl Piece {
    fn push(&mut self, change: Change) {
        self.records.push(&change);
        self.changes.push(change);
    }
}

impl Writer {
    /// Writes until every handle is gone.
    pub(super) fn run(mut self, queue: &Receiver<Queued>) {
        loop {
            // Settled means that there is nothing to be said on disk until something comes.
            let next = if self.journal.is_settled() || self.shared.check().is_err() {
                queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                queue.recv_timeout(QUIET)
            };
            match next {
                Ok(first) => self.serve(first, queue),
                Err(RecvTimeoutError::Timeout) => self.sync_mark(),
                Err(RecvTimeoutError::Disconnected) => return self.finish(),
            }
        }
    }

    fn serve(&mut self, first: Queued, queue: &Receiver<Queued>) {
        // What was acknowledged lies in memory only, meanwhile. A vote would come too late for any election.
        if planted(Plant::AckBeforeSync) && matches!(first.op, Op::Append { .. }) {
            std::thread::sleep(plant::WRITE_LAG);
        }
        let mut group = Vec::new();
        for queued in std::iter::once(first).chain(queue.try_iter()) {
            let cut = matches!(queued.op, Op::Truncate { .. });
            group.push(queued);
            if cut {
                self.commit(std::mem::take(&mut group));
            }
        }
        if !group.is_empty() {
            self.commit(group);
        }
    }

    fn commit(&mut self, group: Vec<Queued>) {
        let result = self.shared.check().and_then(|()| self.make_durable(&group));
        if let Err(error) = &result {
            self.shared.fail(error);
        }
        answer(group, &result);
        if let Err(error) = result.and_then(|()| self.shared.check()).and_then(|()| self.journal.mark()) {
            self.shared.fail(&error);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a thread measures its own system call for a histogram")]
    fn make_durable(&mut self, group: &[Queued]) -> io::Result<()> {
        let start = Instant::now();
        for queued in group {
            self.take(&queued.op)?;
        }
        self.write_piece()?;
        self.metrics.sync_seconds.observe(start.elapsed().as_secs_f64());
        self.metrics.group_size.observe(f64::from(u32::try_from(group.len()).unwrap_or(u32::MAX)));
        Ok(())
    }

    fn take(&mut self, op: &Op) -> io::Result<()> {
        match op {
            Op::Append { number, entries, .. } => self.take_entries(entries, *number)?,
            Op::Vote { vote, .. } => self.piece.push(Change::Vote(*vote)),
            Op::Truncate { from, last, .. } => self.piece.push(Change::Truncate { from: *from, last: *last }),
            Op::Purge { upto, last } => self.piece.push(Change::Purge { upto: *upto, last: *last }),
        }
        Ok(())
    }

    fn take_entries(&mut self, entries: &[Entry], number: AppendNumber) -> io::Result<()> {
        for entry in entries {
            let entry = encode_entry(entry);
            if entry.bytes() > self.layout.entry_bytes_max() {
                let why = format!("entry {} has {} bytes", entry.log_id, entry.bytes());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            self.piece.push(Change::Entry(entry));
            // The journal is not used again before sled has it, so it must get it before the journal is full.
            if self.piece.records.bytes() >= self.layout.segment_bytes / 4 {
                self.write_piece()?;
            }
        }
        self.piece.append = Some(number);
        Ok(())
    }

    /// Makes what was taken durable, and gives it to sled.
    fn write_piece(&mut self) -> io::Result<()> {
        let piece = &mut self.piece;
        let sequence = self.journal.write(&piece.records)?;
        let bytes = piece.records.bytes();
        let fill = Fill { sequence, changes: std::mem::take(&mut piece.changes), bytes, append: piece.append.take() };
        piece.records.clear();
        self.shared.backlog.push(fill);
        Ok(())
    }

    fn sync_mark(&mut self) {
        if let Err(error) = self.shared.check().and_then(|()| self.journal.sync_mark()) {
            self.shared.fail(&error);
        }
    }

    fn finish(mut self) {
        self.shared.backlog.end();
        if self.filler.join().is_err() {
            tracing::error!("the thread that fills sled panicked");
        } else if self.shared.check().is_ok()
            && let Err(error) = self.journal.sync_mark()
        {
            self.shared.fail(&error);
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
