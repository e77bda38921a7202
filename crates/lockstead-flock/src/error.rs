//! Why something could not be done.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use crate::Metadata;

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// Somebody else holds it, another thread of this process included. Try again later.
    #[error("{path} is locked by {holder}")]
    LockHeld {
        /// The lock file.
        path: PathBuf,
        /// What the holder says of itself: a hint, empty if it can't be read, out of date for a moment after a change.
        holder: Box<Metadata>,
        /// How long this call has tried.
        waited: Duration,
    },
    /// This process may not use the file or its directory. It says nothing about whether the lock is held.
    #[error("{path} may not be used by this process: {source}")]
    PermissionDenied {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file system has no working `flock`. Use another directory.
    #[error("{path} is on a file system without a working flock: {source}")]
    Unsupported {
        /// The lock file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What is there is no lock file, and was left as it is: a symlink, a directory, a file with other contents, …
    #[error("{path} is no lock file: {why}")]
    NotALockFile {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        why: &'static str,
    },
    /// Somebody keeps deleting or replacing the lock file, so that no try came to a decision.
    #[error("{path} was deleted or replaced again and again while it was being locked")]
    Unsettled {
        /// The lock file.
        path: PathBuf,
    },
    /// The stored fence is [`FENCE_MAX`](crate::FENCE_MAX). Only a wall clock that was far in the future gets it there.
    #[error("{path} has no higher fence left")]
    FenceExhausted {
        /// The lock file.
        path: PathBuf,
    },
    /// The [`LockDir`](crate::LockDir) or the name in it is refused.
    #[error(transparent)]
    Directory(#[from] LockDirError),
    /// The system refuses otherwise; a missing directory is one of these.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Why a directory of locks, or a name in it, is refused.
#[derive(Debug, thiserror::Error)]
pub enum LockDirError {
    /// The name of a lock has 1 to [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX) bytes.
    #[error("the name of a lock has 1 to 1024 bytes, not {bytes}")]
    InvalidName {
        /// The length of the refused one.
        bytes: usize,
    },
    /// It is a symlink or no directory.
    #[error("{path} is a symlink or no directory")]
    NotADirectory {
        /// The directory.
        path: PathBuf,
    },
    /// It belongs to another user, who could replace the locks in it.
    #[error("{path} belongs to another user (uid {uid})")]
    OtherUser {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Every user may write to it, and so replace the locks in it.
    #[error("{path} may be written by every user")]
    OpenToAll {
        /// The directory.
        path: PathBuf,
    },
    /// This process may not use it.
    #[error("{path} may not be used by this process: {source}")]
    PermissionDenied {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refuses otherwise.
    #[error("{path}: {source}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Why a lock was not released by this call.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// Another process acquired it, of which this one is a forked child. It goes on holding it.
    #[error("the lock belongs to process {pid}")]
    NotTheAcquirer {
        /// The process that acquired it.
        pid: u32,
    },
    /// The system refuses to unlock. The lock ends with the process at the latest.
    #[error("{path}: {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl AcquireError {
    /// The system's answer to opening, reading or writing a file.
    pub(crate) fn from_file(path: &Path, errno: Errno) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::PermissionDenied { path, source: errno.into() },
            Errno::LOOP | Errno::MLINK => Self::NotALockFile { path, why: "it is a symlink" },
            Errno::ISDIR => Self::NotALockFile { path, why: "it is a directory" },
            Errno::NXIO | Errno::NODEV => Self::NotALockFile { path, why: "it is no regular file" },
            _ => Self::Io { path, source: errno.into() },
        }
    }

    /// The system's answer to `flock`, but for "held".
    pub(crate) fn from_flock(path: &Path, errno: Errno) -> Self {
        let (path, source) = (path.to_owned(), errno.into());
        let is_unknown_here = matches!(errno, Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL);
        // The same number as OPNOTSUPP on Linux, another one elsewhere.
        if is_unknown_here || errno == Errno::NOTSUP {
            Self::Unsupported { path, source }
        } else {
            Self::Io { path, source }
        }
    }
}

impl LockDirError {
    pub(crate) fn from_dir(path: &Path, errno: Errno) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::PermissionDenied { path, source: errno.into() },
            Errno::LOOP | Errno::MLINK | Errno::NOTDIR => Self::NotADirectory { path },
            _ => Self::Io { path, source: errno.into() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_flock_is_told_apart_from_a_fault_of_the_disk() {
        for errno in [Errno::NOLCK, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL] {
            let error = AcquireError::from_flock(Path::new("x"), errno);
            assert!(matches!(error, AcquireError::Unsupported { .. }), "{errno}: {error}");
        }
        assert!(matches!(AcquireError::from_flock(Path::new("x"), Errno::IO), AcquireError::Io { .. }));
    }

    #[test]
    fn a_refusal_by_permission_is_never_called_held() {
        for errno in [Errno::ACCESS, Errno::PERM, Errno::ROFS] {
            let error = AcquireError::from_file(Path::new("x"), errno);
            assert!(matches!(error, AcquireError::PermissionDenied { .. }), "{errno}: {error}");
            let error = LockDirError::from_dir(Path::new("x"), errno);
            assert!(matches!(error, LockDirError::PermissionDenied { .. }), "{errno}: {error}");
        }
    }
}
