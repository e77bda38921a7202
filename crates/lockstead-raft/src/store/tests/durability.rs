//! Durable means after the sync, and a failed sync is final. Scripted media show each step.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use futures::FutureExt;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::OneshotReceiverOf;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::{SMALL, append, blank, blanks, log_id, no_fault, open, read};
use crate::store::disk::{Disk, SledDisk};
use crate::store::journal::{Medium, PAGE, Segments};
use crate::store::writer::OnFault;
use crate::store::{LogStore, StoreMetrics};
use crate::types::{Entry, TypeConfig, Vote};

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Write,
    Flush,
    Sync,
}

/// Tells each step, and returns from it what the test says.
struct Told {
    steps: Sender<Step>,
    results: Receiver<io::Result<()>>,
    failed: Arc<AtomicBool>,
}

impl Told {
    fn take(&mut self, step: Step) -> io::Result<()> {
        self.steps.send(step).map_err(io::Error::other)?;
        let result = self.results.recv().map_err(io::Error::other)?;
        self.failed.fetch_or(result.is_err(), Ordering::SeqCst);
        result
    }
}

/// A medium that is watched: each step is told, or only those after a failure. The sync of the journal's mark, which
/// comes when nothing else does, is told only after a failure, and writing the mark, which waits for nothing, is not
/// told.
struct Watched<T> {
    inner: T,
    told: Option<Told>,
    steps: Sender<Step>,
    failed: Arc<AtomicBool>,
    group_unsynced: bool,
}

impl<T> Watched<T> {
    fn take(&mut self, step: Step, is_of_group: bool) -> io::Result<()> {
        let is_too_late = self.failed.load(Ordering::SeqCst) && (is_of_group || step != Step::Write);
        match &mut self.told {
            Some(told) if is_of_group => told.take(step),
            _ if is_too_late => self.steps.send(step).map_err(io::Error::other),
            _ => Ok(()),
        }
    }
}

impl Disk for Watched<SledDisk> {
    fn flush(&mut self) -> io::Result<()> {
        self.take(Step::Flush, true)?;
        self.inner.flush()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.take(Step::Sync, true)?;
        self.inner.sync()
    }
}

impl Medium for Watched<Segments> {
    fn add(&mut self, segment: File) {
        self.inner.add(segment);
    }

    fn write(&mut self, slot: usize, at: usize, bytes: &[u8]) -> io::Result<()> {
        let is_of_group = (at, bytes.len()) != (0, PAGE);
        self.group_unsynced |= is_of_group;
        self.take(Step::Write, is_of_group)?;
        self.inner.write(slot, at, bytes)
    }

    fn sync(&mut self, slot: usize) -> io::Result<()> {
        let is_of_group = std::mem::take(&mut self.group_unsynced);
        self.take(Step::Sync, is_of_group)?;
        self.inner.sync(slot)
    }
}

#[derive(Clone, Copy)]
enum Scripted {
    Journal,
    Sled,
}

struct Script {
    steps: Receiver<Step>,
    results: Sender<io::Result<()>>,
}

impl Script {
    fn open(dir: &Path, metrics: StoreMetrics, on_fault: OnFault) -> (LogStore, Self) {
        Self::open_one(dir, Scripted::Journal, metrics, on_fault)
    }

    fn open_one(dir: &Path, scripted: Scripted, metrics: StoreMetrics, on_fault: OnFault) -> (LogStore, Self) {
        let (steps, all_steps) = channel();
        let (say, results) = channel();
        let failed = Arc::new(AtomicBool::new(false));
        let told = Told { steps: steps.clone(), results, failed: Arc::clone(&failed) };
        let wrap = |sled, segments| {
            let (journal_told, sled_told) = match scripted {
                Scripted::Journal => (Some(told), None),
                Scripted::Sled => (None, Some(told)),
            };
            let (steps_too, failed_too) = (steps.clone(), Arc::clone(&failed));
            let disk = Watched { inner: sled, told: sled_told, steps, failed, group_unsynced: false };
            let medium = Watched {
                inner: segments,
                told: journal_told,
                steps: steps_too,
                failed: failed_too,
                group_unsynced: false,
            };
            (Box::new(disk) as Box<dyn Disk>, Box::new(medium) as Box<dyn Medium>)
        };
        let store = LogStore::open_on(dir, SMALL, metrics, on_fault, wrap).unwrap();
        (store, Self { steps: all_steps, results: say })
    }

    fn expect(&self, step: &Step) {
        assert_eq!(self.steps.recv_timeout(Duration::from_secs(30)).unwrap(), *step);
    }

    fn succeed(&self) {
        self.results.send(Ok(())).unwrap();
    }

    fn fail(&self) {
        self.results.send(Err(io::Error::from_raw_os_error(5))).unwrap();
    }

    fn pass(&self) {
        for step in [Step::Write, Step::Sync] {
            self.expect(&step);
            self.succeed();
        }
    }

    /// Nothing more has happened: no step was taken that was not expected.
    fn assert_quiet(&self) {
        assert!(self.steps.try_recv().is_err());
    }
}

fn assert_counted(metrics: &StoreMetrics, line: &str) {
    let mut registry = Registry::default();
    registry.register("seconds", "", metrics.sync_seconds.clone());
    registry.register("group", "", metrics.group_size.clone());
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert!(text.lines().any(|found| found == line), "{text}");
}

type Answer = OneshotReceiverOf<TypeConfig, io::Result<()>>;

async fn start_append(store: &mut LogStore, entries: Vec<Entry>) -> Answer {
    let (done, answer) = TypeConfig::oneshot();
    store.append(entries, IOFlushed::signal(done)).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_is_answered_only_after_write_and_sync() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, script) = Script::open(dir.path(), StoreMetrics::new(), no_fault());
    let mut answer = start_append(&mut store, blanks(1, 0..3)).await;
    script.expect(&Step::Write);
    assert!((&mut answer).now_or_never().is_none());
    script.succeed();
    script.expect(&Step::Sync);
    assert!((&mut answer).now_or_never().is_none());
    script.succeed();
    answer.await.unwrap().unwrap();
    script.assert_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_is_answered_only_after_write_and_sync() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, script) = Script::open(dir.path(), StoreMetrics::new(), no_fault());
    let vote = Vote::new(4, 2);
    let mut saving = Box::pin(store.save_vote(&vote));
    assert!((&mut saving).now_or_never().is_none());
    script.expect(&Step::Write);
    script.succeed();
    script.expect(&Step::Sync);
    assert!((&mut saving).now_or_never().is_none());
    script.succeed();
    saving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_queued_during_a_sync_shares_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = StoreMetrics::new();
    let (mut store, script) = Script::open(dir.path(), metrics.clone(), no_fault());
    let first = start_append(&mut store, vec![blank(1, 0)]).await;
    script.expect(&Step::Write);
    let mut later = Vec::new();
    for index in 1..6 {
        later.push(start_append(&mut store, vec![blank(1, index)]).await);
    }
    script.succeed();
    script.expect(&Step::Sync);
    script.succeed();
    first.await.unwrap().unwrap();
    script.pass();
    for answer in later {
        answer.await.unwrap().unwrap();
    }
    assert_counted(&metrics, "seconds_count 2");
    assert_counted(&metrics, "group_sum 6.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncation_has_a_sync_before_what_follows_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, script) = Script::open(dir.path(), StoreMetrics::new(), no_fault());
    let first = start_append(&mut store, blanks(1, 0..5)).await;
    script.expect(&Step::Write);
    let mut cutter = store.clone();
    let mut cut = Box::pin(cutter.truncate_after(Some(log_id(1, 1))));
    assert!((&mut cut).now_or_never().is_none());
    let mut second = start_append(&mut store, blanks(2, 2..4)).await;
    script.succeed();
    script.expect(&Step::Sync);
    script.succeed();
    first.await.unwrap().unwrap();
    script.pass();
    cut.await.unwrap();
    script.expect(&Step::Write);
    assert!((&mut second).now_or_never().is_none());
    script.succeed();
    script.expect(&Step::Sync);
    script.succeed();
    second.await.unwrap().unwrap();
    drop((store, cutter));
    assert_eq!(read(&mut open(dir.path()), 0..9).await, [blanks(1, 0..2), blanks(2, 2..4)].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_committed_log_id_is_saved_without_a_sync_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, script) = Script::open(dir.path(), StoreMetrics::new(), no_fault());
    let answer = start_append(&mut store, blanks(1, 0..2)).await;
    script.pass();
    answer.await.unwrap().unwrap();
    store.save_committed(Some(log_id(1, 0))).await.unwrap();
    script.assert_quiet();
    let answer = start_append(&mut store, vec![blank(1, 2)]).await;
    script.pass();
    answer.await.unwrap().unwrap();
    drop(store);
    script.assert_quiet();
    assert_eq!(open(dir.path()).read_committed().await.unwrap(), Some(log_id(1, 0)));
}

async fn check_that_failure_is_final(scripted: Scripted, steps_before: &[Step], fail_at: &Step) {
    let dir = tempfile::tempdir().unwrap();
    let (fault, faults) = channel();
    let on_fault = Box::new(move |why| fault.send(why).unwrap());
    let (mut store, script) = Script::open_one(dir.path(), scripted, StoreMetrics::new(), on_fault);
    let first = start_append(&mut store, vec![blank(1, 0)]).await;
    for step in steps_before {
        script.expect(step);
        script.succeed();
    }
    script.expect(fail_at);
    let second = start_append(&mut store, vec![blank(1, 1)]).await;
    match scripted {
        Scripted::Journal => {
            script.fail();
            assert!(first.await.unwrap().is_err());
            assert!(second.await.unwrap().is_err());
        }
        Scripted::Sled => {
            // Sled is behind the answers.
            first.await.unwrap().unwrap();
            second.await.unwrap().unwrap();
            script.fail();
        }
    }
    faults.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(store.append([blank(1, 2)], IOFlushed::noop()).await.is_err());
    assert!(store.save_vote(&Vote::new(1, 1)).await.is_err());
    assert!(store.truncate_after(None).await.is_err());
    assert!(store.purge(log_id(1, 0)).await.is_err());
    store.save_committed(Some(log_id(1, 0))).await.unwrap();
    drop(store);
    script.assert_quiet();
    assert_eq!(faults.iter().count(), 0, "one fault only");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_of_the_journal_is_reported_once_and_nothing_is_written_or_synced_after_it() {
    check_that_failure_is_final(Scripted::Journal, &[Step::Write], &Step::Sync).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_to_the_journal_is_reported_once_and_nothing_is_written_or_synced_after_it() {
    check_that_failure_is_final(Scripted::Journal, &[], &Step::Write).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_flush_of_sled_is_reported_once_and_nothing_is_written_or_synced_after_it() {
    check_that_failure_is_final(Scripted::Sled, &[], &Step::Flush).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_of_sled_is_reported_once_and_nothing_is_written_or_synced_after_it() {
    check_that_failure_is_final(Scripted::Sled, &[Step::Flush], &Step::Sync).await;
}

#[tokio::test]
async fn reading_the_vote_gives_what_was_last_asked_to_be_saved() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    assert_eq!(store.read_vote().await.unwrap(), None);
    store.save_vote(&Vote::new(1, 1)).await.unwrap();
    append(&mut store, vec![blank(1, 0)]).await;
    store.save_vote(&Vote::new_committed(2, 3)).await.unwrap();
    assert_eq!(store.read_vote().await.unwrap(), Some(Vote::new_committed(2, 3)));
}
