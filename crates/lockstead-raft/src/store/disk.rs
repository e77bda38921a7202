//! The durable edge of sled: what makes inserted values survive a power cut.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::plant::{Plant, planted};

/// Makes everything inserted so far durable: [`Disk::flush`], then [`Disk::sync`]. An error of either is final.
pub(super) trait Disk: Send {
    /// Hands everything inserted so far to the system.
    fn flush(&mut self) -> io::Result<()>;

    /// Has the system write it to the device. sled's own flush ends in `sync_file_range`, which is no sync.
    fn sync(&mut self) -> io::Result<()>;
}

/// sled's database and a descriptor of our own on its file.
pub(super) struct SledDisk {
    db: sled::Db,
    file: File,
}

impl SledDisk {
    pub(super) fn open(db: sled::Db, file: &Path) -> io::Result<Self> {
        Ok(Self { db, file: File::open(file)? })
    }
}

impl Disk for SledDisk {
    fn flush(&mut self) -> io::Result<()> {
        self.db.flush().map(|_| ()).map_err(io_error)
    }

    fn sync(&mut self) -> io::Result<()> {
        if planted(Plant::NoSync) {
            return Ok(());
        }
        self.file.sync_data()
    }
}

/// sled's error as the system's where it is one.
pub(super) fn io_error(error: sled::Error) -> io::Error {
    match error {
        sled::Error::Io(error) => error,
        other => io::Error::other(other),
    }
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
