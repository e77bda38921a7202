//! The log and the vote, on journal and sled, as openraft wants them.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use tokio::sync::{Semaphore, oneshot};

use super::StoreMetrics;
use super::backlog::Backlog;
use super::change::Witness;
use super::disk::{Disk, SledDisk};
use super::filler::Filler;
use super::journal::{Journal, Layout, Medium, Segments};
use super::recovery::{Recovered, recover};
use super::tail::Tail;
use super::trees::Trees;
use super::writer::{Done, OnFault, Op, Piece, Queued, Shared, Writer};
use crate::OpenError;
use crate::plant::{self, Plant, planted};
use crate::types::{Entry, LogId, TypeConfig, Vote};

/// Bytes that one call of replication reads, at most (but one entry at least).
const READ_BYTES_MAX: u64 = 1 << 20;
/// A unit of room in the writer's queue, in bytes.
const ROOM_BYTES: u64 = 1_024;
/// Units of room in the writer's queue: 64 MiB. openraft has far less in flight; this bounds it whatever it does.
const ROOM_MAX: u32 = 65_536;
/// A node's log and vote. Cheap to clone; all clones are one log.
///
/// The last clone to go waits for the writer's thread, which saves what is left.
#[derive(Clone)]
pub(crate) struct LogStore {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    trees: Trees,
    queue: Option<mpsc::Sender<Queued>>,
    room: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

impl LogStore {
    /// Opens or creates the log in `dir`, reading and checking all of it. Blocks.
    ///
    /// `on_fault` is called once if a write, flush or sync fails; nothing can be written from then on, and the process
    /// has to end.
    ///
    /// # Errors
    /// [`OpenError::Damaged`] if what lies there is not what was written, [`OpenError::Io`] if the system refuses.
    pub(crate) fn open(dir: &Path, metrics: StoreMetrics, on_fault: OnFault) -> Result<Self, OpenError> {
        Self::open_on(dir, Layout::STANDARD, metrics, on_fault, |disk, segments| (Box::new(disk), Box::new(segments)))
    }

    /// Opens with a journal of this size, and with media of the caller's choice around sled's and the journal's.
    pub(super) fn open_on(
        dir: &Path,
        layout: Layout,
        metrics: StoreMetrics,
        on_fault: OnFault,
        wrap: impl FnOnce(SledDisk, Segments) -> (Box<dyn Disk>, Box<dyn Medium>),
    ) -> Result<Self, OpenError> {
        let Recovered { trees, disk, tail, segments, journal, checkpoint } = recover(dir, layout)?;
        let found = (journal.end, journal.segments.len(), journal.last);
        let (disk, medium) = wrap(disk, Segments::new(journal.segments));
        let backlog = Arc::new(Backlog::new(checkpoint.filled));
        let piece = Piece::default();
        let shared = Arc::new(Shared::new(tail, Arc::clone(&backlog), on_fault));
        let journal = Journal::new(checkpoint.journal, layout, found, medium, backlog);
        let filler = Filler {
            trees: trees.clone(),
            disk,
            shared: Arc::clone(&shared),
            segments,
            checkpoint,
            unsynced: false,
            purged: None,
        };
        let start = || {
            let filler = thread::Builder::new().name("log-filler".to_owned()).spawn(|| filler.run())?;
            let writer = Writer { journal, layout, shared: Arc::clone(&shared), metrics, filler, piece };
            Self::start(trees, shared, writer)
        };
        start().map_err(|source| OpenError::Io { path: dir.to_owned(), source })
    }

    fn start(trees: Trees, shared: Arc<Shared>, writer: Writer) -> io::Result<Self> {
        let (queue, queued) = mpsc::channel();
        let thread = thread::Builder::new().name("log-writer".to_owned()).spawn(move || writer.run(&queued))?;
        let room = Arc::new(Semaphore::new(ROOM_MAX as usize));
        Ok(Self { inner: Arc::new(Inner { shared, trees, queue: Some(queue), room, thread: Some(thread) }) })
    }

    /// Entries and bytes of the log from `last_purged` on.
    pub(crate) fn tail_stats(&self) -> (u64, u64) {
        self.inner.shared.tail().stats()
    }

    /// Bytes of all entries that this process has read or written.
    #[cfg(test)]
    pub(crate) fn bytes_written(&self) -> u64 {
        self.inner.shared.tail().bytes_written()
    }

    /// Bytes of the entries after `index`.
    pub(crate) fn bytes_after(&self, index: u64) -> u64 {
        self.inner.shared.tail().bytes_after(index)
    }

    /// The first index that at most `bytes_max` bytes of entries follow; `None` if that is all of an unpurged log.
    pub(crate) fn index_before_last(&self, bytes_max: u64) -> Option<u64> {
        self.inner.shared.tail().index_before_last(bytes_max)
    }

    /// Nothing was ever written: no vote, no entry.
    pub(crate) fn is_blank(&self) -> bool {
        self.inner.shared.tail().witness() == Witness::default()
    }

    /// The last log id purged.
    pub(crate) fn purged(&self) -> Option<LogId> {
        self.inner.shared.tail().purged()
    }

    /// The log id at an index that is in the log or was the last purged.
    ///
    /// # Errors
    /// It lies in sled and could not be read.
    pub(crate) fn log_id_at(&self, index: u64) -> io::Result<Option<LogId>> {
        let purged = self.purged().filter(|purged| purged.index() == index);
        if purged.is_some() {
            return Ok(purged);
        }
        Ok(self.read(index, index.saturating_add(1), u64::MAX)?.first().map(|entry| entry.log_id))
    }

    fn read(&self, start: u64, end: u64, bytes_max: u64) -> io::Result<Vec<Entry>> {
        loop {
            let plan = self.inner.shared.tail().plan(start, end, bytes_max);
            if plan.cold.is_empty() {
                return Ok(plan.hot);
            }
            let entries = self.inner.trees.read(plan.cold.start, plan.cold.end);
            // What was read from sled counts only if nothing was cut off meanwhile.
            if self.inner.shared.tail().cuts() != plan.cuts {
                continue;
            }
            let mut entries = entries?;
            if entries.len() as u64 != plan.cold.end - plan.cold.start {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("entries {:?} have a hole", plan.cold)));
            }
            entries.extend(plan.hot);
            return Ok(entries);
        }
    }

    /// Changes the tail and queues what that means for the disk, in one order.
    async fn submit(&self, bytes: u64, change: impl FnOnce(&mut Tail) -> io::Result<Op>) -> io::Result<()> {
        self.inner.shared.check()?;
        let units = u32::try_from(bytes / ROOM_BYTES + 1).unwrap_or(ROOM_MAX).min(ROOM_MAX);
        let room = Arc::clone(&self.inner.room).acquire_many_owned(units).await.map_err(io::Error::other)?;
        let mut tail = self.inner.shared.tail();
        let op = change(&mut tail)?;
        let queue = self.inner.queue.as_ref().ok_or_else(writer_gone)?;
        queue.send(Queued { op, _room: room }).map_err(|_| writer_gone())
    }

    async fn submit_and_wait(&self, change: impl FnOnce(&mut Tail, Done) -> Op) -> io::Result<()> {
        let (done, answer) = oneshot::channel();
        self.submit(0, |tail| Ok(change(tail, done))).await?;
        answer.await.map_err(|_| writer_gone())?
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue = None;
        let Some(writer) = self.thread.take() else { return };
        if writer.thread().id() != thread::current().id() && writer.join().is_err() {
            tracing::error!("the log's writer panicked");
        }
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        self.read(start, end, u64::MAX)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.inner.shared.tail().vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        self.read(start, end, READ_BYTES_MAX)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let tail = self.inner.shared.tail();
        Ok(LogState { last_purged_log_id: tail.purged(), last_log_id: tail.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let vote = *vote;
        self.submit_and_wait(|tail, done| {
            tail.vote = Some(vote);
            Op::Vote { vote, done }
        })
        .await
    }

    /// Only notes it: the writer saves it with the next group, or when it is idle, and wakes up for neither.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.inner.shared.tail().set_committed(committed);
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        let Some(committed) = self.inner.shared.tail().committed() else { return Ok(None) };
        let found = self.log_id_at(committed.index())?;
        Ok(found.filter(|found| *found == committed))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let bytes = entries.iter().map(|entry| u64::from(super::codec::entry_bytes(entry))).sum();
        let callback = if planted(Plant::AckBeforeSync) { plant::acknowledge(callback) } else { callback };
        self.submit(bytes, |tail| Ok(Op::Append { number: tail.append(&entries)?, entries, done: callback })).await
    }

    async fn truncate_after(&mut self, keep: Option<LogId>) -> Result<(), io::Error> {
        self.submit_and_wait(|tail, done| {
            let from = tail.truncate_after(keep);
            Op::Truncate { from, last: tail.last(), done }
        })
        .await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.submit(0, |tail| {
            tail.purge(upto);
            Ok(Op::Purge { upto: tail.purged().unwrap_or(upto), last: tail.last() })
        })
        .await
    }
}

fn writer_gone() -> io::Error {
    io::Error::other("the log's writer has ended")
}
