//! A lock between the processes of one machine: a kernel `flock` on a file, with a hint who holds it and a fence.
//!
//! The kernel owns the lock. A process that ends, however it ends, has released it: there is no recovery, no timeout
//! and no stale lock file.
//!
//! ```
//! use std::time::Duration;
//! use lockstead_flock::{AcquireError, AcquireOptions, Owner, acquire, read_metadata};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("deploy.lock");
//! let owner = Owner { id: "deploy-7".into(), kind: "cli".into(), ..Owner::default() };
//! let lock = acquire(&path, AcquireOptions { wait_timeout: Duration::from_secs(5), owner })?;
//! assert_eq!(read_metadata(&path).owner_id, "deploy-7");
//!
//! // A second try is refused, also in the same process, and says who holds the lock.
//! match acquire(&path, AcquireOptions::default()) {
//!     Err(AcquireError::LockHeld { holder, .. }) => assert_eq!(holder.owner_pid, std::process::id()),
//!     other => panic!("{other:?}"),
//! }
//!
//! let fence = lock.fence();
//! lock.release()?;
//! assert!(acquire(&path, AcquireOptions::default())?.fence() > fence);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Files
//! For a lock file `x`, all in its directory:
//!
//! | file | what for |
//! |---|---|
//! | `x` | locked; holds the last fence; stays on disk |
//! | `.x.guard` | locked too; holds the last fence; stays on disk |
//! | `x.meta.json` | who holds the lock, for people; gone after a release, left behind by a crash |
//!
//! # Invariants
//! 1. A holder has an exclusive `flock` on `x` and on `.x.guard`, and after it had both, both names led to the files
//!    that it locked. So one of the two can be deleted or replaced at any time, a hold included, and nobody else gets
//!    in.
//! 2. Each try opens files of its own, so a thread excludes the other threads of its process like any other process.
//! 3. Only the process that acquired unlocks. A forked child that drops its copy of a lock changes nothing.
//! 4. A release unlocks, it does not only close: a forked child that still has the file open keeps nothing.
//! 5. Metadata decides nothing. It is written after the locks are held and read only to be shown.
//! 6. The fence of a path is raised under both locks, to max(stored + 1, wall clock in µs).
//!
//! # Limits
//! - It is advisory: who does not ask is not kept out. Who asks with `flock(1)` on `x` is.
//! - Somebody who deletes *both* `x` and `.x.guard` while the lock is held opens it for another process. The holder can
//!   see that by [`FileLock::is_intact`].
//! - A process that forks, runs no other program in the child and is then killed (so that nothing unlocks) leaves the
//!   lock to that child: the kernel frees it when the last copy of the descriptor is closed.
//! - On a network file system `flock` may reach only this machine, or work differently. [`FileLock::warning`] says so.
//! - Waiting is a poll each [`POLL_INTERVAL`], not a queue: who waits longest is not served first.

mod acquire;
mod attempt;
mod dir;
mod error;
mod fence;
mod file_system;
mod flocked;
mod home;
mod lock;
mod metadata;
mod names;
mod spot;

pub use acquire::{AcquireOptions, POLL_INTERVAL, acquire};
pub use dir::{LockDir, NAME_BYTES_MAX};
pub use error::{AcquireError, LockDirError, ReleaseError};
pub use fence::FENCE_MAX;
pub use file_system::Warning;
pub use lock::FileLock;
pub use metadata::{Metadata, Owner, metadata_path, read_metadata};
