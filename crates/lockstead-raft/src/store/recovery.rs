//! Opening what a node keeps of its log: sled, the journal in front of it, and each as the witness of the other.
//!
//! What the journal has and sled lacks is put into sled; then the log is read and checked whole, and its ends and the
//! vote have to be what the two say. Sled behind what the journal saw synced, or a journal that lacks what sled has, is
//! damage.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use std::{fs::TryLockError, io};

use super::change::{Change, Checkpoint, Witness};
use super::disk::{Disk, SledDisk, sync_dir};
use super::journal::{self, Found, Layout, SegmentFiles};
use super::tail::Tail;
use super::trees::{ScanError, Trees};
use crate::OpenError;
use crate::types::LogId;

const JOURNAL_DIR: &str = "journal";
/// How often, and how long after the last time, it is tried whether an earlier sled of this process is gone.
const FREE_TRIES: u32 = 1_000;
const FREE_PAUSE: Duration = Duration::from_millis(5);

/// A log read and checked, ready to be written.
pub(super) struct Recovered {
    pub(super) trees: Trees,
    pub(super) disk: SledDisk,
    pub(super) tail: Tail,
    pub(super) segments: SegmentFiles,
    pub(super) journal: Found,
    /// What sled says, durably.
    pub(super) checkpoint: Checkpoint,
}

/// Opens or creates the log in `dir`. Blocks.
pub(super) fn recover(dir: &Path, layout: Layout) -> Result<Recovered, OpenError> {
    let db = open_sled(dir)?;
    let mut disk = durable_from_start(dir, &db).map_err(|source| io_refuses(dir, source))?;
    let trees = Trees::open(db).map_err(|error| sled_refuses(dir, error))?;
    let said = trees.facts().map_err(|error| trees_refuse(dir, error))?.checkpoint;
    let (segments, mut journal) = open_journal(dir, layout, said.as_ref())?;
    let changes = std::mem::take(&mut journal.changes);
    let expected = said.map(|said| witness_after(said.witness, &changes));
    if !changes.is_empty() {
        trees.apply(changes).map_err(|error| sled_refuses(dir, error))?;
        make_durable(&mut disk).map_err(|source| io_refuses(&dir.join("db"), source))?;
    }
    let tail = load(&trees).map_err(|error| trees_refuse(dir, error))?;
    let witness = tail.witness();
    if let Some(expected) = expected {
        compare(dir, &expected, &witness)?;
    }
    make_segments(&segments, &mut journal).map_err(|source| io_refuses(&dir.join(JOURNAL_DIR), source))?;
    let id = said.map_or_else(random, |said| Ok(said.journal)).map_err(|source| io_refuses(dir, source))?;
    let checkpoint = Checkpoint { journal: id, segments: journal.segments.len(), filled: journal.last, witness };
    if said != Some(checkpoint) {
        trees.put_checkpoint(&checkpoint).map_err(|error| sled_refuses(dir, error))?;
        make_durable(&mut disk).map_err(|source| io_refuses(&dir.join("db"), source))?;
    }
    Ok(Recovered { trees, disk, tail, segments, journal, checkpoint })
}

fn open_journal(dir: &Path, layout: Layout, said: Option<&Checkpoint>) -> Result<(SegmentFiles, Found), OpenError> {
    let dir_of_journal = dir.join(JOURNAL_DIR);
    let segments =
        SegmentFiles::prepare(&dir_of_journal, layout).map_err(|source| io_refuses(&dir_of_journal, source))?;
    let journal = journal::scan(&segments, said).map_err(|error| journal_refuses(dir, error))?;
    Ok((segments, journal))
}

fn make_durable(disk: &mut SledDisk) -> io::Result<()> {
    disk.flush()?;
    disk.sync()
}

/// The witness after these changes, if it was this before them.
fn witness_after(mut witness: Witness, changes: &[Change]) -> Witness {
    for change in changes {
        witness.note(change);
    }
    witness
}

/// The log must be what the journal, and sled's own checkpoint below it, say.
fn compare(dir: &Path, expected: &Witness, found: &Witness) -> Result<(), OpenError> {
    if found == expected {
        return Ok(());
    }
    if found.last > expected.last {
        let why = format!("it ends at log id {}, and sled has {}", shown(expected.last), shown(found.last));
        return Err(OpenError::Damaged { file: dir.join(JOURNAL_DIR), why });
    }
    let why = if found.vote == expected.vote {
        let ids = [found.purged, found.last, expected.purged, expected.last].map(shown);
        format!("it holds log ids from {} to {}, and not from {} to {}", ids[0], ids[1], ids[2], ids[3])
    } else {
        "the vote is not the one that was saved".to_owned()
    };
    Err(OpenError::Damaged { file: dir.join("db"), why })
}

/// As many segments as a journal has at least.
fn make_segments(files: &SegmentFiles, journal: &mut Found) -> io::Result<()> {
    while journal.segments.len() < files.layout().segments_min {
        journal.segments.push(files.create(journal.segments.len())?);
    }
    Ok(())
}

fn load(trees: &Trees) -> Result<Tail, ScanError> {
    let facts = trees.facts()?;
    if let Some(purged) = facts.purged {
        trees.drop_purged(purged.index()).map_err(ScanError::Sled)?;
    }
    let mut tail = Tail::new(facts.purged, facts.vote, facts.committed);
    trees.scan(facts.purged.map_or(0, |purged| purged.index() + 1), |entry| tail.load(entry))?;
    Ok(tail)
}

pub(super) fn open_sled(dir: &Path) -> Result<sled::Db, OpenError> {
    prepare(dir)
        .and_then(|()| wait_until_free(&dir.join("db")))
        .map_err(|source| OpenError::Io { path: dir.to_owned(), source })?;
    sled::Config::new()
        .path(dir)
        // A leaf with values above a quarter of this would go to a blob file, which is never synced.
        .segment_size(8 << 20)
        .cache_capacity(8 << 20)
        // The thread behind it collects garbage too.
        .flush_every_ms(Some(500))
        .open()
        .map_err(|error| sled_refuses(dir, error))
}

/// Waits for the threads of a sled that this process closed a moment ago: they let go of its file only when their last
/// task is done. The lock of the data directory keeps other processes away.
fn wait_until_free(file: &Path) -> io::Result<()> {
    for _ in 0..FREE_TRIES {
        let tried = match File::open(file) {
            Ok(file) => file.try_lock(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        match tried {
            Err(TryLockError::WouldBlock) => thread::sleep(FREE_PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "its database is locked"))
}

/// Makes the directory, and removes what a crash within sled's own snapshot leaves.
fn prepare(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for item in std::fs::read_dir(dir)? {
        let path = item?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Syncs the files that opening made, and the names of them.
fn durable_from_start(dir: &Path, db: &sled::Db) -> io::Result<SledDisk> {
    let mut disk = SledDisk::open(db.clone(), &dir.join("db"))?;
    disk.flush()?;
    disk.sync()?;
    File::open(dir.join("conf"))?.sync_all()?;
    let blobs = dir.join("blobs");
    if std::fs::read_dir(&blobs)?.next().is_some() {
        tracing::error!(dir = %blobs.display(), "sled wrote blob files, which it never syncs: they may be lost");
    }
    for path in [blobs.as_path(), dir].into_iter().chain(dir.parent().filter(|parent| parent.is_dir())) {
        sync_dir(path)?;
    }
    Ok(disk)
}

fn random() -> io::Result<u64> {
    getrandom::u64().map_err(|error| io::Error::other(error.to_string()))
}

fn io_refuses(path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { path: path.to_owned(), source }
}

fn sled_refuses(dir: &Path, error: sled::Error) -> OpenError {
    let file: PathBuf = dir.join("db");
    let why = match error {
        // Sled's own findings have no number of the system's.
        sled::Error::Io(source) => match (source.raw_os_error(), source.kind()) {
            (None, io::ErrorKind::UnexpectedEof) => "it was cut off",
            (None, io::ErrorKind::InvalidData) => "some of it makes no sense",
            _ => return OpenError::Io { path: file, source },
        },
        sled::Error::Corruption { .. } => "its checksums are wrong",
        sled::Error::CollectionNotFound(_) => "a tree is missing",
        sled::Error::Unsupported(_) | sled::Error::ReportableBug(_) => "it contradicts itself",
    };
    OpenError::Damaged { file, why: format!("sled cannot read it ({why})") }
}

fn trees_refuse(dir: &Path, error: ScanError) -> OpenError {
    match error {
        ScanError::Unreadable(why) => why.refuse(dir.join("db")),
        ScanError::Sled(error) => sled_refuses(dir, error),
    }
}

fn journal_refuses(dir: &Path, error: journal::ScanError) -> OpenError {
    match error {
        journal::ScanError::Unreadable { file, why } => why.refuse(file),
        journal::ScanError::SledBehind(why) => OpenError::Damaged { file: dir.join("db"), why },
        journal::ScanError::Io(path, source) => OpenError::Io { path, source },
    }
}

fn shown(log_id: Option<LogId>) -> String {
    log_id.map_or_else(|| "none".to_owned(), |log_id| log_id.to_string())
}
