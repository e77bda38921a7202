//! A lock that is held.

use std::io::Write;
use std::path::Path;

use crate::attempt::{Taken, is_intact};
use crate::file_system::{self, Warning};
use crate::metadata::{self, Metadata};
use crate::spot::Spot;
use crate::{Owner, ReleaseError};

/// A lock held by this process until it is released, dropped, or the process ends.
///
/// A forked child has a copy of it that can do nothing: dropped or released there, the parent goes on holding the lock.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub struct FileLock {
    spot: Spot,
    taken: Taken,
    metadata: Metadata,
    warning: Option<Warning>,
    is_released: bool,
}

impl FileLock {
    pub(crate) fn new(spot: Spot, taken: Taken, owner: Owner) -> Self {
        let warning = file_system::warning(taken.file.file());
        let lock = Self { spot, taken, metadata: owner.into_metadata(), warning, is_released: false };
        // A hint for people. The lock is held, with or without it.
        let _best_effort = lock.write_metadata();
        lock
    }

    /// The lock file, absolute.
    pub fn path(&self) -> &Path {
        &self.spot.path
    }

    /// Higher than the fence of every earlier hold of this path, at most [`FENCE_MAX`](crate::FENCE_MAX). A resource
    /// that remembers the highest fence it has seen can refuse a holder that was overtaken.
    ///
    /// It is kept in both locked files. If both are lost, it rises as long as the wall clock does not go back.
    pub fn fence(&self) -> u64 {
        self.taken.fence
    }

    /// What others are shown of this hold.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// What should be known about the file system.
    pub fn warning(&self) -> Option<Warning> {
        self.warning
    }

    /// Whether the locked files are still in place. One of them deleted is no harm yet; if both are, others may get in.
    /// `false` also if it can't be found out.
    pub fn is_intact(&self) -> bool {
        is_intact(&self.spot, &self.taken.home, &self.taken.guard, &self.taken.file).unwrap_or(false)
    }

    /// Releases the lock. Dropping does the same, without an answer.
    ///
    /// # Errors
    /// [`ReleaseError`]: this is a forked child's copy, or the system refuses.
    pub fn release(mut self) -> Result<(), ReleaseError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ReleaseError> {
        if !self.taken.file.is_of_this_process() {
            return Err(ReleaseError::NotTheAcquirer { pid: self.taken.file.pid() });
        }
        // Only once: after the unlocking the metadata may be the next holder's.
        if std::mem::replace(&mut self.is_released, true) {
            return Ok(());
        }
        let _best_effort = self.taken.home.remove(&metadata::sidecar_name(&self.spot));
        let unlocked = self.taken.file.unlock().and(self.taken.guard.unlock());
        unlocked.map_err(|errno| ReleaseError::Io { path: self.spot.path.clone(), source: errno.into() })
    }

    /// Only a holder writes, so one temporary name is enough and nothing piles up after crashes.
    fn write_metadata(&self) -> std::io::Result<()> {
        let temporary = metadata::temporary_name(&self.spot);
        let mut file = std::fs::File::from(self.taken.home.create_anew(&temporary)?);
        file.write_all(&self.metadata.to_json()?)?;
        Ok(self.taken.home.rename(&temporary, &metadata::sidecar_name(&self.spot))?)
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A forked child has nothing to release, and what the kernel refuses ends with the process.
        let _unheard = self.end();
    }
}
