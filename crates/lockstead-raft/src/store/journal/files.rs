//! The files of a journal.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::disk::sync_dir;
use super::Layout;
use crate::plant::{Plant, planted};

static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Writes to segments, which are numbered from 0. An error is final.
pub(in crate::store) trait Medium: Send {
    /// Takes the next segment.
    fn add(&mut self, segment: File);

    /// Writes to a segment, within its size.
    fn write(&mut self, slot: usize, at: usize, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was written to a segment durable.
    fn sync(&mut self, slot: usize) -> io::Result<()>;
}

/// Segments as files.
pub(in crate::store) struct Segments(Vec<File>);

impl Segments {
    pub(in crate::store) fn new(segments: Vec<File>) -> Self {
        Self(segments)
    }
}

impl Medium for Segments {
    fn add(&mut self, segment: File) {
        self.0.push(segment);
    }

    fn write(&mut self, slot: usize, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.0[slot].write_all_at(bytes, at as u64)
    }

    fn sync(&mut self, slot: usize) -> io::Result<()> {
        if planted(Plant::NoSync) {
            return Ok(());
        }
        self.0[slot].sync_data()
    }
}

/// Where the segments of a journal lie.
#[derive(Clone, Debug)]
pub(in crate::store) struct SegmentFiles {
    pub(super) dir: PathBuf,
    pub(super) layout: Layout,
}

impl SegmentFiles {
    /// Makes the directory if it is missing, and removes what a crash left of a segment in the making.
    pub(in crate::store) fn prepare(dir: &Path, layout: Layout) -> io::Result<Self> {
        if !dir.is_dir() {
            std::fs::create_dir(dir)?;
            if let Some(parent) = dir.parent() {
                sync_dir(parent)?;
            }
        }
        for item in std::fs::read_dir(dir)? {
            let path = item?.path();
            if path.extension().is_some_and(|extension| extension == "new") {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(Self { dir: dir.to_owned(), layout })
    }

    pub(in crate::store) fn layout(&self) -> Layout {
        self.layout
    }

    pub(super) fn path(&self, slot: usize) -> PathBuf {
        self.dir.join(format!("{}.seg", slot + 1))
    }

    /// How many segments there are, judged by the highest number.
    pub(super) fn count(&self) -> io::Result<usize> {
        let mut count = 0;
        for item in std::fs::read_dir(&self.dir)? {
            let name = item?.file_name();
            let number =
                name.to_str().and_then(|name| name.strip_suffix(".seg")).and_then(|number| number.parse().ok());
            count = count.max(number.unwrap_or(0));
        }
        Ok(count)
    }

    /// A segment that is there.
    pub(super) fn open(&self, slot: usize) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.path(slot))
    }

    /// Makes a segment full of zeros, durably; a crash leaves all of it or nothing under its name.
    pub(in crate::store) fn create(&self, slot: usize) -> io::Result<File> {
        let temporary = self.path(slot).with_extension("new");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&temporary)?;
        let mut left = self.layout.segment_bytes;
        while left > 0 {
            let now = left.min(ZEROS.len());
            file.write_all(&ZEROS[..now])?;
            left -= now;
        }
        file.sync_all()?;
        std::fs::rename(&temporary, self.path(slot))?;
        sync_dir(&self.dir)?;
        Ok(file)
    }
}
