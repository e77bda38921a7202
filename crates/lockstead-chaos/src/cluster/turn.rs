//! When a cluster may run: what tests of real processes agree on, so that they do not falsify each other's figures.

use std::fs::File;
use std::io;
use std::path::Path;

/// Leave to run a cluster, as long as this lives.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

impl Turn {
    /// Waits until nobody runs a cluster alone. All who agree name the same directory.
    ///
    /// # Errors
    /// When there can be no lock file in the directory.
    pub fn beside_others(dir: &Path) -> io::Result<Self> {
        Self::take(dir, File::lock_shared)
    }

    /// Waits until nobody else runs a cluster: for what is weighed or timed, and for what takes the whole machine.
    ///
    /// # Errors
    /// As for [`Turn::beside_others`].
    pub fn alone(dir: &Path) -> io::Result<Self> {
        Self::take(dir, File::lock)
    }

    fn take(dir: &Path, lock: impl Fn(&File) -> io::Result<()>) -> io::Result<Self> {
        let file = File::options().create(true).truncate(false).write(true).open(dir.join("clusters"))?;
        lock(&file)?;
        Ok(Self { _lock: file })
    }
}
