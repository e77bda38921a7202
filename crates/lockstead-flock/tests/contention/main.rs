//! Fifty processes on one path, a thousand cycles each, while holders are killed or lock files deleted.

#![expect(clippy::unwrap_used, reason = "what tests share may fail like a test")]

#[path = "../support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockstead_flock::{AcquireOptions, acquire};
use support::{Other, now};

const PROCESSES: usize = 50;
const CYCLES: u64 = 1_000;
/// Some cycles take so long that others come while the lock is held.
const HOLD: Duration = Duration::from_micros(50);
const HOLD_EACH: u64 = 5;
/// A record of the shared file: fence, pid and cycle of the last holder, in fixed width.
const RECORD_BYTES: usize = 20 + 1 + 10 + 1 + 10 + 1;
/// One fifty would disturb each other's measure: one test after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Not a test of its own: the processes that the others start.
#[test]
fn this_is_another_process_if_started_as_one() {
    if let Some((part, dir)) = support::part() {
        assert_eq!(part, "cycle");
        cycle(&dir);
        std::process::exit(0);
    }
}

/// Each cycle writes into a file that all share, and reads it back.
fn cycle(dir: &Path) {
    let path = dir.join("x");
    let shared = File::options().read(true).write(true).open(dir.join("shared")).unwrap();
    for cycle in 0..CYCLES {
        let wait_timeout = Duration::from_mins(2);
        let lock = acquire(&path, AcquireOptions { wait_timeout, ..AcquireOptions::default() }).unwrap();
        let (last_fence, _) = read(&shared);
        assert!(lock.fence() > last_fence, "fence {} after {last_fence}", lock.fence());
        let mine = format!("{:020} {:010} {cycle:010}\n", lock.fence(), std::process::id());
        shared.write_all_at(mine.as_bytes(), 0).unwrap();
        if cycle.is_multiple_of(HOLD_EACH) {
            std::thread::sleep(HOLD);
        }
        for _ in 0..3 {
            std::thread::yield_now();
            let mut back = [0; RECORD_BYTES];
            shared.read_exact_at(&mut back, 0).unwrap();
            assert_eq!(std::str::from_utf8(&back), Ok(mine.as_str()), "somebody else was inside");
        }
    }
}

/// Fence and pid of the last holder.
fn read(shared: &File) -> (u64, u32) {
    let mut record = [0; RECORD_BYTES];
    match shared.read_exact_at(&mut record, 0) {
        Ok(()) => {
            let text = std::str::from_utf8(&record).unwrap();
            (text[..20].parse().unwrap(), text[21..31].parse().unwrap())
        }
        Err(_) => (0, 0),
    }
}

/// Runs all processes to their end, with `meanwhile` called again and again.
fn run(dir: &Path, processes: usize, mut meanwhile: impl FnMut(&mut Vec<Other>)) {
    let mut running: Vec<_> = (0..processes).map(|_| Other::start("cycle", dir)).collect();
    let mut done = 0;
    while !running.is_empty() {
        running.retain_mut(|process| match process.child.try_wait().unwrap() {
            Some(status) if status.success() => {
                done += 1;
                false
            }
            Some(status) => panic!("a process ended with {status}: {}", process.says()),
            None => true,
        });
        meanwhile(&mut running);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(done, processes, "each did its cycles");
}

#[test]
fn holders_killed_each_second_leave_no_overlap_and_no_stuck_lock() {
    let _alone = ONE_AT_A_TIME.lock();
    let dir = tempfile::tempdir().unwrap();
    File::create_new(dir.path().join("shared")).unwrap();
    let shared = File::open(dir.path().join("shared")).unwrap();
    let (started, mut next_kill, mut kills) = (now(), Duration::from_millis(500), 0);
    run(dir.path(), PROCESSES, |running| {
        if started.elapsed() < next_kill {
            return;
        }
        // Whoever wrote last most likely holds the lock right now.
        let (_, holder) = read(&shared);
        let victim = running.iter_mut().find(|process| process.pid() == holder);
        if let Some(victim) = victim
            && victim.kill()
        {
            *victim = Other::start("cycle", dir.path());
            kills += 1;
            next_kill += Duration::from_secs(1);
        }
    });
    let (last_fence, _) = read(&shared);
    println!("{PROCESSES} × {CYCLES} cycles with {kills} kills in {:?}, last fence {last_fence}", started.elapsed());
    assert!(kills > 0, "somebody was killed");
    let free = acquire(dir.path().join("x"), AcquireOptions::default()).unwrap();
    assert!(free.fence() > last_fence);
}

/// Takes away files of the lock again and again, while others contend; how often.
fn contend_while(dir: &Path, processes: usize, delete: impl Fn() -> bool + Sync) -> u64 {
    File::create_new(dir.join("shared")).unwrap();
    let (is_done, deletions) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::SeqCst) {
                deletions.fetch_add(u64::from(delete()), Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        run(dir, processes, |_| {});
        is_done.store(true, Ordering::SeqCst);
    });
    deletions.into_inner()
}

#[test]
fn a_lock_file_deleted_all_the_time_leaves_no_overlap() {
    let _alone = ONE_AT_A_TIME.lock();
    let dir = tempfile::tempdir().unwrap();
    let started = now();
    let deletions = contend_while(dir.path(), PROCESSES, || fs::remove_file(dir.path().join("x")).is_ok());
    println!("{PROCESSES} × {CYCLES} cycles with {deletions} deletions in {:?}", started.elapsed());
    assert!(deletions > 1_000, "it was deleted all the time: {deletions}");
}

#[test]
fn both_files_deleted_by_who_holds_the_lock_leave_no_overlap() {
    let _alone = ONE_AT_A_TIME.lock();
    let dir = tempfile::tempdir().unwrap();
    let started = now();
    let deletions = contend_while(dir.path(), PROCESSES / 5, || {
        let Ok(held) = acquire(dir.path().join("x"), AcquireOptions::default()) else { return false };
        let is_deleted = ["x", ".x.guard"].map(|name| fs::remove_file(dir.path().join(name)).is_ok());
        drop(held);
        is_deleted == [true, true]
    });
    println!("{} × {CYCLES} cycles with {deletions} cleanings in {:?}", PROCESSES / 5, started.elapsed());
    assert!(deletions > 10, "it was cleaned up now and then: {deletions}");
}
