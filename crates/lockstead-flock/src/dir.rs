//! A directory of locks, each known by a name.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::acquire::acquire_at;
use crate::home::Home;
use crate::spot::Spot;
use crate::{AcquireError, AcquireOptions, FileLock, LockDirError, Metadata, read_metadata};

/// The longest name of a lock.
pub const NAME_BYTES_MAX: usize = 1024;

/// A directory of locks of this user.
///
/// Names are compared byte by byte; any text of 1 to [`NAME_BYTES_MAX`] bytes is one. Each name is mapped to a file of
/// its own inside the directory: bytes other than `a-z 0-9 - _` and an inner `.` are written as `%xx`, and a long name
/// ends in its SHA-256. So `../x`, `a/b`, and `A` beside `a` are plain names, also on file systems that ignore case.
///
/// The directory must belong to this user and must not be writable by every user; symlinks are refused, for the
/// directory and for each file. This is checked at each try.
///
/// ```
/// use lockstead_flock::{AcquireOptions, LockDir};
///
/// # let temporary = tempfile::tempdir()?;
/// let locks = LockDir::open(temporary.path().join("locks"))?;
/// let lock = locks.acquire("team/build #7", AcquireOptions::default())?;
/// assert_eq!(lock.path().parent(), Some(locks.path()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LockDir {
    path: PathBuf,
}

impl LockDir {
    /// The directory at `path`, made if missing, for this user only (0700).
    ///
    /// # Errors
    /// [`LockDirError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, LockDirError> {
        let path = path.as_ref();
        let refused = |source| LockDirError::Io { path: path.to_owned(), source };
        let absolute = std::path::absolute(path).map_err(refused)?;
        // What is in the way is judged below.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&absolute);
        match (Home::of_this_user(&absolute), made) {
            (Ok(_), _) => Ok(Self { path: absolute }),
            (Err(LockDirError::Io { .. }), Err(source)) => Err(creation_refused(path, source)),
            (Err(error), _) => Err(error),
        }
    }

    /// Where it is, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of the lock `name`.
    ///
    /// # Errors
    /// [`LockDirError::InvalidName`].
    pub fn lock_path(&self, name: &str) -> Result<PathBuf, LockDirError> {
        Ok(Spot::of_name(&self.path, name)?.path)
    }

    /// Acquires the lock `name`, as [`acquire`](crate::acquire) does a path.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn acquire(&self, name: &str, options: AcquireOptions) -> Result<FileLock, AcquireError> {
        acquire_at(Spot::of_name(&self.path, name)?, options)
    }

    /// What is known of the holder of the lock `name`, as [`read_metadata`] does of a path. Empty for an invalid name.
    pub fn read_metadata(&self, name: &str) -> Metadata {
        self.lock_path(name).map(read_metadata).unwrap_or_default()
    }
}

fn creation_refused(path: &Path, source: std::io::Error) -> LockDirError {
    match rustix::io::Errno::from_io_error(&source) {
        Some(errno) => LockDirError::from_dir(path, errno),
        None => LockDirError::Io { path: path.to_owned(), source },
    }
}
