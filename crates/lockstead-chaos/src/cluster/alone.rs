//! One cluster at a time: what tests of real processes agree on, so that they do not slow each other down.

use std::fs::File;
use std::io;
use std::path::Path;

/// The machine's only cluster, among those that ask, as long as this lives.
#[derive(Debug)]
pub struct Alone {
    _lock: File,
}

impl Alone {
    /// Waits until nobody else has it. All who agree name the same directory.
    ///
    /// # Errors
    /// When there can be no lock file in the directory.
    pub fn wait_for(dir: &Path) -> io::Result<Self> {
        let path = dir.join("one-cluster-at-a-time");
        let lock = File::options().create(true).truncate(false).write(true).open(path)?;
        lock.lock()?;
        Ok(Self { _lock: lock })
    }
}
