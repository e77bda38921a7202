//! Reading a journal back, and telling a torn end from damage.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::super::change::{Change, Checkpoint};
use super::super::seal::Why;
use super::format::{self, Header, Mark, PAGE};
use super::records::Reader;
use super::{End, ScanError, SegmentFiles};

/// What a journal holds.
pub(in crate::store) struct Found {
    /// Its segments, by number. Those with groups that sled may lack are synced.
    pub(in crate::store) segments: Vec<File>,
    pub(in crate::store) end: Option<End>,
    /// The last group.
    pub(in crate::store) last: u64,
    /// What sled may lack, in order.
    pub(in crate::store) changes: Vec<Change>,
}

/// A segment that was used.
struct Used {
    slot: usize,
    header: Header,
    mark: Option<Mark>,
}

/// Reads what sled may lack, as its checkpoint says; without one, the journal must be new. Changes no byte, but writes
/// what it read once more.
///
/// # Errors
/// [`ScanError`].
pub(in crate::store) fn scan(files: &SegmentFiles, checkpoint: Option<&Checkpoint>) -> Result<Found, ScanError> {
    let segments = open_all(files, checkpoint.map_or(0, |checkpoint| checkpoint.segments))?;
    let used = used(files, &segments)?;
    let mut found = Found { segments, end: None, last: 0, changes: Vec::new() };
    match checkpoint {
        None if used.is_empty() => Ok(found),
        None => Err(ScanError::SledBehind("it is empty, or older than the journal beside it".to_owned())),
        Some(checkpoint) => {
            if let Some(other) = used.iter().find(|segment| segment.header.id != checkpoint.journal) {
                return Err(damaged(files, other.slot, "it belongs to another journal"));
            }
            let is_used: Vec<bool> =
                (0..found.segments.len()).map(|slot| used.iter().any(|segment| segment.slot == slot)).collect();
            let live = live(files, &used, checkpoint)?;
            let durable = used.iter().filter_map(|segment| segment.mark).map(|mark| mark.durable).max();
            Scanner::new(files, checkpoint, durable.unwrap_or(0), &mut found).run(live, &is_used)?;
            if let Some(end) = &mut found.end {
                end.before = before(&used, end);
            }
            Ok(found)
        }
    }
}

/// Every segment, whole.
fn open_all(files: &SegmentFiles, expected: usize) -> Result<Vec<File>, ScanError> {
    let count = files.count().map_err(|error| ScanError::Io(files.dir.clone(), error))?;
    (0..count.max(expected)).map(|slot| open_whole(files, slot)).collect()
}

fn open_whole(files: &SegmentFiles, slot: usize) -> Result<File, ScanError> {
    let path = files.path(slot);
    let file = match files.open(slot) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(damaged(files, slot, "it is missing")),
        Err(error) => return Err(ScanError::Io(path, error)),
    };
    let bytes = file.metadata().map_err(|error| ScanError::Io(path, error))?.len();
    let expected = files.layout.segment_bytes as u64;
    if bytes != expected {
        return Err(damaged(files, slot, &format!("it has {bytes} bytes instead of {expected}")));
    }
    Ok(file)
}

/// The segments that were used, in order of their use.
fn used(files: &SegmentFiles, segments: &[File]) -> Result<Vec<Used>, ScanError> {
    let mut used = Vec::new();
    for (slot, file) in segments.iter().enumerate() {
        let page = read(files, slot, file, PAGE)?;
        if let Some((header, mark)) = format::parse_first_page(&page).map_err(|why| unreadable(files, slot, why))? {
            used.push(Used { slot, header, mark });
        }
    }
    used.sort_by_key(|segment| segment.header.generation);
    Ok(used)
}

/// The segments that hold what sled may lack: from the one with the first such group, or the last one.
fn live<'a>(files: &SegmentFiles, used: &'a [Used], checkpoint: &Checkpoint) -> Result<&'a [Used], ScanError> {
    if used.is_empty() {
        if checkpoint.filled > 0 {
            return Err(damaged(files, 0, "it is empty, but was used"));
        }
        return Ok(used);
    }
    let Some(start) = used.iter().rposition(|segment| segment.header.first <= checkpoint.filled + 1) else {
        return Err(ScanError::SledBehind("it lacks what the journal no longer has".to_owned()));
    };
    let live = &used[start..];
    for pair in live.windows(2) {
        if pair[1].header.generation != pair[0].header.generation + 1 {
            let why = format!("the segment before generation {} is missing", pair[1].header.generation);
            return Err(ScanError::Unreadable { file: files.dir.clone(), why: why.into() });
        }
    }
    Ok(live)
}

/// The segment before the last one if that has no group yet; of the groups that were read, sled's checkpoint tells.
fn before(used: &[Used], end: &End) -> Option<(usize, Header)> {
    let is_empty = end.base == PAGE && end.pending.is_empty();
    let before = used.iter().find(|segment| segment.header.generation + 1 == end.header.generation);
    before.filter(|_| is_empty).map(|before| (before.slot, before.header))
}

/// Walks through the groups of the live segments.
struct Scanner<'a> {
    files: &'a SegmentFiles,
    checkpoint: &'a Checkpoint,
    found: &'a mut Found,
    reader: Reader,
    /// The next group, if there is one.
    next: u64,
    /// What the journal says that sled had synced.
    filled: u64,
    /// What the marks say that was synced.
    durable: u64,
}

impl<'a> Scanner<'a> {
    fn new(files: &'a SegmentFiles, checkpoint: &'a Checkpoint, durable: u64, found: &'a mut Found) -> Self {
        Self { files, checkpoint, found, reader: Reader::default(), next: 1, filled: 0, durable }
    }

    fn run(mut self, live: &[Used], is_used: &[bool]) -> Result<(), ScanError> {
        self.next = live.first().map_or(1, |segment| segment.header.first);
        for (position, segment) in live.iter().enumerate() {
            self.segment(segment, live.get(position + 1))?;
        }
        self.judge_unused(live, is_used)?;
        self.found.last = self.next - 1;
        if let (Some(newest), true) = (live.last(), self.found.last < self.checkpoint.filled) {
            let why = format!("group {} is missing at its end, though sled has it", self.next);
            return Err(damaged(self.files, newest.slot, &why));
        }
        if self.filled > self.checkpoint.filled {
            let why =
                format!("it had group {} of the journal, and has only group {}", self.filled, self.checkpoint.filled);
            return Err(ScanError::SledBehind(why));
        }
        Ok(())
    }

    fn segment(&mut self, segment: &Used, after: Option<&Used>) -> Result<(), ScanError> {
        let (slot, header) = (segment.slot, segment.header);
        if header.first != self.next {
            // The segment before ends too early: this one was begun only after all of that was synced.
            let why = format!("group {} is missing before segment {}", self.next, slot + 1);
            return Err(ScanError::Unreadable { file: self.files.dir.clone(), why: why.into() });
        }
        self.filled = self.filled.max(header.filled);
        let file = &self.found.segments[slot];
        let bytes = read(self.files, slot, file, self.files.layout.segment_bytes)?;
        let at = self.groups(slot, header, &bytes)?;
        self.judge_end(segment, after, &bytes[at..])?;
        // What was read may be in memory only: a killed process leaves there what it did not sync, and a failed sync
        // what it could not write, which no later sync would try again. The next process must not build on either.
        let file = &self.found.segments[slot];
        let again = file.write_all_at(&bytes[..at], 0).and_then(|()| file.sync_data());
        again.map_err(|error| ScanError::Io(self.files.path(slot), error))?;
        let base = at - at % PAGE;
        self.found.end = Some(End { slot, header, base, pending: bytes[base..at].to_vec(), before: None });
        Ok(())
    }

    /// Reads the groups of a segment; gives where they end.
    fn groups(&mut self, slot: usize, header: Header, bytes: &[u8]) -> Result<usize, ScanError> {
        let mut at = PAGE;
        while let Some(group) = format::group_at(&bytes[at..], header) {
            let group = group.map_err(|why| unreadable(self.files, slot, why))?;
            if group.sequence != self.next {
                break;
            }
            if group.sequence > self.checkpoint.filled {
                let read = self.reader.read(group.body, &mut self.found.changes);
                let more = |why| format!("group {}: {why}", group.sequence);
                read.map_err(|why| unreadable(self.files, slot, why.map(more)))?;
            }
            self.filled = self.filled.max(group.filled);
            self.next += 1;
            at += format::group_bytes(group.body.len());
        }
        Ok(at)
    }

    /// What stands behind the last whole group is torn, and was not acknowledged, unless something proves that it was.
    fn judge_end(&mut self, segment: &Used, after: Option<&Used>, rest: &[u8]) -> Result<(), ScanError> {
        if let Some(mark) = segment.mark {
            self.filled = self.filled.max(mark.filled);
        }
        // A mark may speak of the first group of the next segment too.
        let is_due_here = after.is_none_or(|after| self.next < after.header.first);
        let proof = if is_due_here && self.durable >= self.next {
            Some("a mark says that it was durable".to_owned())
        } else {
            let mut later = format::groups_within(rest, segment.header);
            later.next().map(|later| format!("group {later} stands behind it"))
        };
        match proof {
            Some(proof) => {
                Err(damaged(self.files, segment.slot, &format!("group {} is damaged or missing: {proof}", self.next)))
            }
            None => Ok(()),
        }
    }

    /// A segment without a header was never used, or is the torn beginning of the newest: of one group, then.
    fn judge_unused(&self, live: &[Used], is_used: &[bool]) -> Result<(), ScanError> {
        let generation = live.last().map_or(1, |newest| newest.header.generation + 1);
        let header = Header { id: self.checkpoint.journal, generation, first: self.next, filled: self.filled };
        for (slot, file) in self.found.segments.iter().enumerate().filter(|(slot, _)| !is_used[*slot]) {
            let bytes = read(self.files, slot, file, self.files.layout.segment_bytes)?;
            if format::groups_within(&bytes, header).any(|sequence| sequence > self.next) {
                return Err(damaged(self.files, slot, "its header is missing"));
            }
        }
        Ok(())
    }
}

fn read(files: &SegmentFiles, slot: usize, file: &File, length: usize) -> Result<Vec<u8>, ScanError> {
    let mut bytes = vec![0; length];
    let path: PathBuf = files.path(slot);
    file.read_exact_at(&mut bytes, 0).map_err(|error| ScanError::Io(path, error))?;
    Ok(bytes)
}

fn unreadable(files: &SegmentFiles, slot: usize, why: Why) -> ScanError {
    ScanError::Unreadable { file: files.path(slot), why }
}

fn damaged(files: &SegmentFiles, slot: usize, why: &str) -> ScanError {
    unreadable(files, slot, why.into())
}
