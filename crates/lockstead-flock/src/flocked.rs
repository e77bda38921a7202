//! A file with a lock of this process on it.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};

/// An open file with the kernel's exclusive lock on it.
///
/// Dropped by the process that made it, it unlocks; dropped by a forked child, it only closes the child's descriptor.
#[derive(Debug)]
pub(crate) struct Flocked {
    file: File,
    pid: u32,
}

impl Flocked {
    /// `None` if another open file has the lock. Never blocks.
    pub(crate) fn try_new(fd: OwnedFd) -> Result<Option<Self>, Errno> {
        match retry_on_intr(|| flock(fd.as_fd(), FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Some(Self { file: File::from(fd), pid: std::process::id() })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The process that locked it.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// A forked child shares the kernel's lock with its parent, so unlocking there would unlock the parent's.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Closing is not enough: a forked child may have the same open file still.
    pub(crate) fn unlock(&self) -> Result<(), Errno> {
        if self.is_of_this_process() {
            retry_on_intr(|| flock(self.file.as_fd(), FlockOperation::Unlock))
        } else {
            Ok(())
        }
    }
}

impl Drop for Flocked {
    fn drop(&mut self) {
        // If the kernel refuses, closing unlocks, or the end of the process.
        let _closed_next = self.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &std::path::Path) -> OwnedFd {
        File::options().create(true).truncate(false).write(true).open(path).unwrap().into()
    }

    #[test]
    fn what_another_process_locked_is_only_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mine = Flocked::try_new(open(&path)).unwrap().unwrap();
        // A child's copy: the same open file, under another pid.
        let copy = Flocked { file: mine.file.try_clone().unwrap(), pid: mine.pid + 1 };
        drop(copy);
        assert!(Flocked::try_new(open(&path)).unwrap().is_none(), "the lock is kept");
        let copy = mine.file.try_clone().unwrap();
        drop(mine);
        assert!(Flocked::try_new(open(&path)).unwrap().is_some(), "unlocked although a copy is open");
        drop(copy);
    }
}
