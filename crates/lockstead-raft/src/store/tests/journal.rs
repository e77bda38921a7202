//! The journal brings back what sled lacks, goes round, and drops what a crash tore.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt};

use super::{SMALL, append, batch, blank, blanks, ends, log_id, open, open_with, read};
use crate::store::disk::Disk;
use crate::store::journal::{Layout, Medium, PAGE, Segments};
use crate::store::recovery::open_sled;
use crate::store::{LogStore, StoreMetrics};
use crate::types::{Entry, Vote};

/// A sled that never becomes durable, until the store is closed.
struct StuckDisk(Receiver<()>);

impl Disk for StuckDisk {
    fn flush(&mut self) -> io::Result<()> {
        self.0.recv().map_err(|_| io::Error::other("stuck"))
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Segments that tell when a mark was written beside the last group.
struct MarkedSegments {
    inner: Segments,
    slot: usize,
    marks: Sender<()>,
}

impl Medium for MarkedSegments {
    fn add(&mut self, segment: File) {
        self.inner.add(segment);
    }

    fn write(&mut self, slot: usize, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.inner.write(slot, at, bytes)?;
        match (at, bytes.len()) {
            (0, PAGE) if slot == self.slot => self.marks.send(()).map_err(io::Error::other),
            (0, PAGE) => Ok(()),
            _ => {
                self.slot = slot;
                Ok(())
            }
        }
    }

    fn sync(&mut self, slot: usize) -> io::Result<()> {
        self.inner.sync(slot)
    }
}

/// A store whose sled lags behind.
pub(super) struct Lagging {
    /// Gone before the store, which waits for sled when it is closed.
    sled: Sender<()>,
    pub(super) store: LogStore,
    marks: Receiver<()>,
}

impl Lagging {
    pub(super) fn open(dir: &Path) -> Self {
        let ((mark, marks), (release, stuck)) = (channel(), channel());
        let wrap = |_, segments| {
            let marked = MarkedSegments { inner: segments, slot: 0, marks: mark };
            (Box::new(StuckDisk(stuck)) as Box<dyn Disk>, Box::new(marked) as Box<dyn Medium>)
        };
        let store = LogStore::open_on(dir, SMALL, StoreMetrics::new(), Box::new(|_| {}), wrap).unwrap();
        Self { sled: release, store, marks }
    }

    /// Appends, and waits until the journal says so beside its groups.
    pub(super) async fn append(&mut self, entries: Vec<Entry>) {
        append(&mut self.store, entries).await;
        self.marks.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}

/// What a killed process leaves.
pub(super) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for item in std::fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        let target = to.join(item.file_name());
        if item.file_type().unwrap().is_dir() {
            copy(&item.path(), &target);
        } else {
            std::fs::copy(item.path(), target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sled_lacks_comes_back_from_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (live, killed) = (dir.path().join("live"), dir.path().join("killed"));
    let large = batch(1, 10, &vec![7; 150_000]);
    {
        let mut lagging = Lagging::open(&live);
        lagging.append(blanks(1, 0..10)).await;
        lagging.append(vec![large.clone()]).await;
        lagging.store.save_vote(&Vote::new(3, 2)).await.unwrap();
        lagging.store.truncate_after(Some(log_id(1, 8))).await.unwrap();
        lagging.append(vec![blank(2, 9)]).await;
        lagging.append(vec![batch(2, 10, b"facts")]).await;
        lagging.store.purge(log_id(1, 4)).await.unwrap();
        lagging.append(vec![batch(2, 11, &vec![8; 150_000])]).await;
        copy(&live, &killed);
    }
    for _ in 0..2 {
        let mut store = open(&killed);
        let expected = [blanks(1, 5..9), vec![blank(2, 9), batch(2, 10, b"facts"), batch(2, 11, &vec![8; 150_000])]];
        assert_eq!(read(&mut store, 0..100).await, expected.concat());
        assert_eq!(store.read_vote().await.unwrap(), Some(Vote::new(3, 2)));
        assert_eq!(ends(&mut store).await, (Some(log_id(1, 4)), Some(log_id(2, 11))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_beyond_the_end_comes_back_from_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (live, killed) = (dir.path().join("live"), dir.path().join("killed"));
    {
        let mut lagging = Lagging::open(&live);
        lagging.append(blanks(1, 0..5)).await;
        lagging.store.purge(log_id(2, 20)).await.unwrap();
        lagging.append(vec![blank(2, 21)]).await;
        copy(&live, &killed);
    }
    let mut store = open(&killed);
    assert_eq!(ends(&mut store).await, (Some(log_id(2, 20)), Some(log_id(2, 21))));
    assert_eq!(read(&mut store, 0..100).await, [blank(2, 21)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_goes_round_and_stays_within_its_bound() {
    let dir = tempfile::tempdir().unwrap();
    let entries: Vec<_> = (0..400).map(|index| batch(1, index, &vec![index.to_le_bytes()[0]; 30_000])).collect();
    let mut store = open(dir.path());
    for group in entries.chunks(3) {
        append(&mut store, group.to_vec()).await;
    }
    drop(store);
    let sizes: Vec<_> = std::fs::read_dir(dir.path().join("journal"))
        .unwrap()
        .map(|item| item.unwrap().metadata().unwrap().len())
        .collect();
    assert!((SMALL.segments_min..=SMALL.segments_max).contains(&sizes.len()), "{sizes:?}");
    assert!(sizes.iter().all(|bytes| *bytes == SMALL.segment_bytes as u64), "{sizes:?}");
    assert_eq!(read(&mut open(dir.path()), 0..1_000).await, entries);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_journal_waits_for_sled_instead_of_losing_what_sled_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let (live, killed) = (dir.path().join("live"), dir.path().join("killed"));
    let entries: Vec<_> = (0..60).map(|index| batch(1, index, &vec![index.to_le_bytes()[0]; 60_000])).collect();
    let mut lagging = Lagging::open(&live);
    let mut writer = lagging.store.clone();
    let mut appending = Box::pin(writer.blocking_append(entries.clone()));
    assert!(tokio::time::timeout(Duration::from_millis(500), &mut appending).await.is_err(), "3.6 MB went into 2 MiB");
    copy(&live, &killed);
    for _ in 0..1_000 {
        lagging.sled.send(()).unwrap();
    }
    appending.await.unwrap();
    assert_eq!(read(&mut lagging.store, 0..99).await, entries);
    let found = read(&mut open(&killed), 0..99).await;
    assert!(!found.is_empty() && found == entries[..found.len()], "{} entries", found.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_append_may_be_longer_than_the_whole_journal() {
    let dir = tempfile::tempdir().unwrap();
    let entries: Vec<_> = (0..60).map(|index| batch(1, index, &vec![index.to_le_bytes()[0]; 60_000])).collect();
    let mut store = open(dir.path());
    append(&mut store, entries.clone()).await;
    drop(store);
    assert_eq!(read(&mut open(dir.path()), 0..100).await, entries);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_too_large_for_the_journal_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let wrap = |disk, segments| (Box::new(disk) as Box<dyn Disk>, Box::new(segments) as Box<dyn Medium>);
    let mut store = LogStore::open_on(dir.path(), SMALL, StoreMetrics::new(), Box::new(|_| {}), wrap).unwrap();
    let error = store.blocking_append([batch(1, 0, &vec![0; 300_000])]).await.unwrap_err();
    assert!(error.to_string().contains("has 300"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_standard_journal_is_made_and_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    for index in 0..2 {
        let mut store = open_with(dir.path(), Layout::STANDARD).unwrap();
        append(&mut store, vec![blank(1, index)]).await;
    }
    let mut store = open_with(dir.path(), Layout::STANDARD).unwrap();
    assert_eq!(read(&mut store, 0..9).await, blanks(1, 0..2));
    assert_eq!(std::fs::metadata(dir.path().join("journal/1.seg")).unwrap().len(), 8 << 20);
}

/// Segments that lose power in the middle of the last write: what of it was on disk stays.
pub(super) struct TornSegments {
    pub(super) inner: Segments,
    pub(super) writes_left: usize,
    pub(super) bytes_kept: usize,
}

impl Medium for TornSegments {
    fn add(&mut self, segment: File) {
        self.inner.add(segment);
    }

    fn write(&mut self, slot: usize, at: usize, bytes: &[u8]) -> io::Result<()> {
        if (at, bytes.len()) == (0, PAGE) {
            return self.inner.write(slot, at, bytes);
        }
        let Some(left) = self.writes_left.checked_sub(1) else {
            self.inner.write(slot, at, &bytes[..self.bytes_kept.min(bytes.len())])?;
            return Err(io::Error::other("power cut"));
        };
        self.writes_left = left;
        self.inner.write(slot, at, bytes)
    }

    fn sync(&mut self, slot: usize) -> io::Result<()> {
        self.inner.sync(slot)
    }
}

/// Appends three entries; the third is torn after `bytes_kept` of its write, and was never acknowledged.
async fn check_torn(bytes_kept: usize, third: Entry) {
    let dir = tempfile::tempdir().unwrap();
    let wrap = |disk, inner| {
        let torn = TornSegments { inner, writes_left: 2, bytes_kept };
        (Box::new(disk) as Box<dyn Disk>, Box::new(torn) as Box<dyn Medium>)
    };
    let fault = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&fault);
    let on_fault = Box::new(move |why| *keep.lock().unwrap() = Some(why));
    let mut store = LogStore::open_on(dir.path(), SMALL, StoreMetrics::new(), on_fault, wrap).unwrap();
    append(&mut store, vec![blank(1, 0)]).await;
    append(&mut store, vec![batch(1, 1, &[1; 500])]).await;
    store.blocking_append([third.clone()]).await.unwrap_err();
    drop(store);
    assert!(fault.lock().unwrap().is_some());

    let mut store = open(dir.path());
    let found = read(&mut store, 0..9).await;
    assert_eq!(found[..2], [blank(1, 0), batch(1, 1, &[1; 500])], "{bytes_kept} bytes kept");
    let third_survived = found.len() == 3;
    assert!(!third_survived || found[2] == third, "{bytes_kept} bytes kept");
    store.truncate_after(Some(log_id(1, 1))).await.unwrap();
    append(&mut store, blanks(2, 2..5)).await;
    drop(store);
    let expected = [&found[..2], &blanks(2, 2..5)].concat();
    assert_eq!(read(&mut open(dir.path()), 0..9).await, expected, "{bytes_kept} bytes kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_end_that_was_not_acknowledged_is_dropped_and_what_is_written_after_it_survives() {
    for bytes_kept in [0, 1, 512, 700, 4_096, 5_000, 8_192, 12_287, usize::MAX] {
        check_torn(bytes_kept, batch(1, 2, &[2; 10_000])).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_torn_between_two_segments_is_dropped_and_what_is_written_after_it_survives() {
    let dir = tempfile::tempdir().unwrap();
    let (live, killed) = (dir.path().join("live"), dir.path().join("killed"));
    let wrap = |disk, inner| {
        let torn = TornSegments { inner, writes_left: 3, bytes_kept: 9_000 };
        (Box::new(disk) as Box<dyn Disk>, Box::new(torn) as Box<dyn Medium>)
    };
    let mut store = LogStore::open_on(&live, SMALL, StoreMetrics::new(), Box::new(|_| {}), wrap).unwrap();
    let whole = vec![batch(1, 0, &vec![1; 200_000]), batch(1, 1, &vec![2; 200_000])];
    for entry in &whole {
        append(&mut store, vec![entry.clone()]).await;
    }
    // Its first part still fits in the first segment, which holds 512 KiB.
    store.blocking_append([batch(1, 2, &vec![3; 200_000])]).await.unwrap_err();
    drop(store);

    let next = batch(2, 2, &vec![4; 200_000]);
    {
        let mut lagging = Lagging::open(&live);
        assert_eq!(read(&mut lagging.store, 0..9).await, whole);
        lagging.append(vec![next.clone()]).await;
        copy(&live, &killed);
    }
    assert_eq!(read(&mut open(&killed), 0..9).await, [whole, vec![next]].concat());
}

#[tokio::test]
async fn a_log_from_before_the_journal_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    append(&mut store, blanks(1, 0..5)).await;
    store.save_vote(&Vote::new(1, 1)).await.unwrap();
    drop(store);
    std::fs::remove_dir_all(dir.path().join("journal")).unwrap();
    {
        let db = open_sled(dir.path()).unwrap();
        db.open_tree("facts").unwrap().remove("checkpoint").unwrap().unwrap();
        db.flush().unwrap();
    }
    let mut store = open(dir.path());
    append(&mut store, vec![blank(1, 5)]).await;
    drop(store);
    let mut store = open(dir.path());
    assert_eq!(read(&mut store, 0..9).await, blanks(1, 0..6));
    assert_eq!(store.read_vote().await.unwrap(), Some(Vote::new(1, 1)));
}

#[tokio::test]
async fn a_crash_while_the_first_segments_are_made_leaves_a_new_log() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    std::fs::create_dir_all(&journal).unwrap();
    std::fs::write(journal.join("1.seg"), vec![0; SMALL.segment_bytes]).unwrap();
    std::fs::write(journal.join("2.new"), vec![0; 5_000]).unwrap();
    let mut store = open(dir.path());
    append(&mut store, blanks(1, 0..2)).await;
    drop(store);
    assert!(!journal.join("2.new").exists());
    assert_eq!(read(&mut open(dir.path()), 0..9).await, blanks(1, 0..2));
}
