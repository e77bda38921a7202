//! The directory of a lock, opened: all steps of one try happen in the same directory.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::fence::FILE_BYTES_MAX;
use crate::flocked::Flocked;
use crate::spot::{Spot, Trust};
use crate::{AcquireError, LockDirError};

/// An open directory.
#[derive(Debug)]
pub(crate) struct Home {
    fd: OwnedFd,
    path: PathBuf,
    trust: Trust,
}

/// A descriptor that only leads to the directory needs no permission to list it.
#[cfg(target_os = "linux")]
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const LOCK_FILE: OFlags = OFlags::RDWR.union(OFlags::CREATE).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const NEW_FILE: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);

impl Home {
    /// The directory of `spot`.
    pub(crate) fn open(spot: &Spot) -> Result<Self, AcquireError> {
        match spot.trust {
            Trust::Caller => Self::of_caller(&spot.dir).map_err(|errno| AcquireError::from_file(&spot.dir, errno)),
            Trust::ThisUser => Ok(Self::of_this_user(&spot.dir)?),
        }
    }

    fn of_caller(path: &Path) -> Result<Self, Errno> {
        let fd = openat(CWD, path, DIRECTORY, Mode::empty())?;
        Ok(Self { fd, path: path.to_owned(), trust: Trust::Caller })
    }

    /// A directory that nobody else may write to; no symlink.
    pub(crate) fn of_this_user(path: &Path) -> Result<Self, LockDirError> {
        let refused = |errno| LockDirError::from_dir(path, errno);
        let fd = openat(CWD, path, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).map_err(refused)?;
        let stat = fstat(&fd).map_err(refused)?;
        let path = path.to_owned();
        if stat.st_uid != geteuid().as_raw() {
            Err(LockDirError::OtherUser { path, uid: stat.st_uid })
        } else if Mode::from_raw_mode(stat.st_mode).contains(Mode::WOTH) {
            Err(LockDirError::OpenToAll { path })
        } else {
            Ok(Self { fd, path, trust: Trust::ThisUser })
        }
    }

    /// Opens the file, makes it if missing, and tries to lock it; `None` if somebody else has it.
    pub(crate) fn try_lock(&self, name: &OsStr) -> Result<Option<Flocked>, AcquireError> {
        let refused = |errno| AcquireError::from_file(&self.path.join(name), errno);
        let fd = openat(&self.fd, name, LOCK_FILE, Mode::from_raw_mode(0o666)).map_err(refused)?;
        let stat = fstat(&fd).map_err(refused)?;
        match self.why_no_lock_file(&stat) {
            Some(why) => Err(AcquireError::NotALockFile { path: self.path.join(name), why }),
            None => Flocked::try_new(fd).map_err(|errno| AcquireError::from_flock(&self.path.join(name), errno)),
        }
    }

    fn why_no_lock_file(&self, stat: &Stat) -> Option<&'static str> {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Some("it is no regular file");
        }
        if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
            return Some("it has other contents");
        }
        match self.trust {
            Trust::ThisUser if stat.st_uid != geteuid().as_raw() => Some("it belongs to another user"),
            Trust::ThisUser if stat.st_nlink > 1 => Some("it has another name elsewhere"),
            Trust::ThisUser | Trust::Caller => None,
        }
    }

    /// Whether `name` in this directory still is the file that was locked.
    pub(crate) fn leads_to(&self, name: &OsStr, locked: &Flocked) -> Result<bool, Errno> {
        is_same(statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW), &fstat(locked.file())?)
    }

    /// Whether the directory's path still leads to this directory.
    pub(crate) fn is_in_place(&self) -> Result<bool, Errno> {
        let flags = match self.trust {
            Trust::Caller => AtFlags::empty(),
            Trust::ThisUser => AtFlags::SYMLINK_NOFOLLOW,
        };
        is_same(statat(CWD, &self.path, flags), &fstat(&self.fd)?)
    }

    /// A new file of that name, whatever was there before.
    pub(crate) fn create_anew(&self, name: &OsStr) -> Result<OwnedFd, Errno> {
        self.remove(name)?;
        openat(self.fd.as_fd(), name, NEW_FILE, Mode::from_raw_mode(0o644))
    }

    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        renameat(&self.fd, from, &self.fd, to)
    }

    pub(crate) fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        match unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

fn is_same(found: Result<Stat, Errno>, expected: &Stat) -> Result<bool, Errno> {
    match found {
        Ok(found) => Ok((found.st_dev, found.st_ino) == (expected.st_dev, expected.st_ino)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(errno),
    }
}
