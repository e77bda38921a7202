//! Acquiring: one try, or tries until one succeeds or the time is over.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::attempt::{Try, attempt};
use crate::spot::Spot;
use crate::{AcquireError, FileLock, Owner, read_metadata};

/// How long a waiter sleeps between two tries.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How to acquire. The default is one try by this process, without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcquireOptions {
    /// Zero: one try. Above: tries each [`POLL_INTERVAL`] for so long, with a last try at the end.
    pub wait_timeout: Duration,
    /// What others are shown while the lock is held.
    pub owner: Owner,
}

/// Acquires the lock on the file `path`, which is made if missing (its directory is not). Blocks the thread for up to
/// `wait_timeout`, measured on the monotonic clock.
///
/// The lock is exclusive between processes and between threads alike: a second call for the same path waits or is
/// refused, also in the thread that holds it. Symlinks on the way to the file are followed, the file itself may be
/// none.
///
/// ```
/// # use lockstead_flock::{AcquireOptions, acquire};
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("x.lock");
/// drop(acquire(&path, AcquireOptions::default())?);
/// assert!(path.exists(), "the file stays");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`AcquireError`]; nothing is locked then. All but [`LockHeld`](AcquireError::LockHeld) come at once.
pub fn acquire(path: impl AsRef<Path>, options: AcquireOptions) -> Result<FileLock, AcquireError> {
    acquire_at(Spot::of_path(path.as_ref())?, options)
}

pub(crate) fn acquire_at(spot: Spot, options: AcquireOptions) -> Result<FileLock, AcquireError> {
    let started = now();
    loop {
        let refusal = match attempt(&spot)? {
            Try::Locked(taken) => return Ok(FileLock::new(spot, taken, options.owner)),
            refusal => refusal,
        };
        let waited = started.elapsed();
        let left = options.wait_timeout.saturating_sub(waited);
        if left.is_zero() {
            return Err(refused(&spot, &refusal, waited));
        }
        std::thread::sleep(left.min(POLL_INTERVAL));
    }
}

fn refused(spot: &Spot, refusal: &Try, waited: Duration) -> AcquireError {
    let path = spot.path.clone();
    match refusal {
        Try::Replaced => AcquireError::Unsettled { path },
        Try::Held | Try::Locked(_) => {
            let holder = Box::new(read_metadata(&path));
            AcquireError::LockHeld { path, holder, waited }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "blocking code of its own, which no paused clock of a test could wake")]
fn now() -> Instant {
    Instant::now()
}
