//! Where a lock is: the names of its files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::names;
use crate::{AcquireError, LockDirError};

/// Who is trusted with the directory of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Whoever the caller lets write there.
    Caller,
    /// This user only: the directory and what is in it belong to them.
    ThisUser,
}

/// The places of one lock; absolute, so that a change of the current directory changes nothing.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub(crate) trust: Trust,
    pub(crate) dir: PathBuf,
    pub(crate) path: PathBuf,
    pub(crate) file_name: OsString,
    pub(crate) guard_name: OsString,
}

impl Spot {
    /// The lock whose file the caller names.
    pub(crate) fn of_path(path: &Path) -> Result<Self, AcquireError> {
        let refused = |why| AcquireError::NotALockFile { path: path.to_owned(), why };
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(refused("its name contains a NUL"));
        }
        let file_name = path.file_name().ok_or_else(|| refused("it names no file"))?;
        let absolute =
            std::path::absolute(path).map_err(|source| AcquireError::Io { path: path.to_owned(), source })?;
        let dir = absolute.parent().ok_or_else(|| refused("it names no file"))?;
        Ok(Self::new(Trust::Caller, dir, file_name))
    }

    /// The lock of a name in a directory of locks, which is absolute.
    pub(crate) fn of_name(dir: &Path, name: &str) -> Result<Self, LockDirError> {
        match name.len() {
            1..=crate::NAME_BYTES_MAX => Ok(Self::new(Trust::ThisUser, dir, &names::lock_file(name))),
            bytes => Err(LockDirError::InvalidName { bytes }),
        }
    }

    fn new(trust: Trust, dir: &Path, file_name: &OsStr) -> Self {
        Self {
            trust,
            dir: dir.to_owned(),
            path: dir.join(file_name),
            file_name: file_name.to_owned(),
            guard_name: names::guard(file_name),
        }
    }
}
