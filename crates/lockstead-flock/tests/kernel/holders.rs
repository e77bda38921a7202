//! Who holds a lock: the kernel decides, the metadata tells.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockstead_flock::{AcquireError, AcquireOptions, FENCE_MAX, Metadata, acquire, metadata_path, read_metadata};

use crate::parts::{go_on, tried};
use crate::support::Other;

fn try_once(path: &Path) -> String {
    tried(acquire(path, AcquireOptions::default()))
}

#[test]
fn a_holder_in_another_process_is_told_with_its_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let mut holder = Other::start("hold", &path);
    assert!(holder.says().starts_with("locked "));
    let Err(AcquireError::LockHeld { holder: told, .. }) = acquire(&path, AcquireOptions::default()) else {
        panic!("it is held");
    };
    assert_eq!((told.owner_pid, told.owner_id.as_str(), told.owner_kind.as_str()), (holder.pid(), "holder", "test"));
    assert_eq!(told.op_id, "op-1");
    assert!(told.acquired_at.ends_with('Z') && told.acquired_at.len() == 24, "{}", told.acquired_at);
    go_on(&mut holder);
    assert_eq!(holder.says(), "released");
    assert!(read_metadata(&path).is_empty(), "nobody holds it");
    assert!(try_once(&path).starts_with("locked "));
}

#[test]
fn a_lock_is_free_at_once_after_kill_9_whatever_its_stale_metadata_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let mut holder = Other::start("hold", &path);
    let fence: u64 = holder.says()["locked ".len()..].parse().unwrap();
    assert!(holder.kill());
    assert_eq!(read_metadata(&path).owner_pid, holder.pid(), "stale");
    // The pid of the dead holder now belongs to a process that lives: this one.
    let stale = fs::read_to_string(metadata_path(&path)).unwrap();
    let reused = stale.replace(&holder.pid().to_string(), &std::process::id().to_string());
    fs::write(metadata_path(&path), reused).unwrap();
    let lock = acquire(&path, AcquireOptions::default()).unwrap();
    assert!(lock.fence() > fence);
}

#[test]
fn a_lock_is_held_whatever_happens_to_its_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let mut holder = Other::start("hold", &path);
    holder.says();
    let whole = fs::read(metadata_path(&path)).unwrap();
    for damaged in [&b""[..], b"garbage", &whole[..whole.len() / 2], b"\0\0\0\0"] {
        fs::write(metadata_path(&path), damaged).unwrap();
        assert_eq!(read_metadata(&path), Metadata::default());
        assert_eq!(try_once(&path), "held 0", "{damaged:?}");
    }
    fs::write(metadata_path(&path), r#"{"owner_pid":999999999}"#).unwrap();
    assert_eq!(try_once(&path), "held 999999999", "no such process, and still held");
    fs::remove_file(metadata_path(&path)).unwrap();
    assert_eq!(try_once(&path), "held 0");
    assert!(holder.kill());
    assert!(try_once(&path).starts_with("locked "));
}

#[test]
fn metadata_that_cannot_be_written_does_not_cost_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    fs::create_dir_all(metadata_path(&path).join("in the way")).unwrap();
    let lock = acquire(&path, AcquireOptions::default()).unwrap();
    assert!(read_metadata(&path).is_empty());
    assert_eq!(try_once(&path), "held 0");
    drop(lock);
}

#[test]
fn threads_of_one_process_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let lock = acquire(&path, AcquireOptions::default()).unwrap();
    let held_here = format!("held {}", std::process::id());
    assert_eq!(try_once(&path), held_here, "in the same thread");
    std::thread::scope(|scope| assert_eq!(scope.spawn(|| try_once(&path)).join().unwrap(), held_here));
    drop(lock);

    let (is_inside, fences) = (AtomicBool::new(false), std::sync::Mutex::new(HashSet::new()));
    let (last, overtaken) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let wait_timeout = Duration::from_mins(1);
                    let lock = acquire(&path, AcquireOptions { wait_timeout, ..AcquireOptions::default() }).unwrap();
                    assert!(!is_inside.swap(true, Ordering::SeqCst), "two inside");
                    if last.swap(lock.fence(), Ordering::SeqCst) >= lock.fence() {
                        overtaken.fetch_add(1, Ordering::SeqCst);
                    }
                    fences.lock().unwrap().insert(lock.fence());
                    is_inside.store(false, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!((fences.lock().unwrap().len(), overtaken.into_inner()), (400, 0));
}

#[test]
fn a_fence_rises_over_processes_and_a_lost_lock_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let mut last = 0;
    for round in 0..4 {
        let fence: u64 = Other::start("try", &path).says()["locked ".len()..].parse().unwrap();
        assert!(fence > last && fence <= FENCE_MAX, "round {round}: {fence} after {last}");
        last = fence;
        if round == 1 {
            // As if the wall clock had been ahead, and then the lock file was lost.
            last = fence + 1_000_000_000;
            for file in [path.clone(), dir.path().join(".x.guard")] {
                fs::write(file, format!("fence={last:020}\n")).unwrap();
            }
        } else if round == 2 {
            fs::remove_file(&path).unwrap();
        }
    }
}
