//! The parts that other processes play.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fork::{Fork, waitpid};
use lockstead_flock::{AcquireError, AcquireOptions, FileLock, LockDir, Owner, ReleaseError, acquire};

use crate::support::{MARK, Other, now};

pub(crate) fn play(part: &str, path: &Path) {
    match part {
        "hold" => hold(path),
        "try" => tell(&tried(acquire(path, AcquireOptions::default()))),
        "try in directory" => tell(&tried_in_directory(path)),
        "hold with a program" => hold_with_a_program(path),
        "child drops" => child_ends_copy(path, drop),
        "child releases" => child_ends_copy(path, |copy| {
            let refused = copy.release();
            assert!(matches!(refused, Err(ReleaseError::NotTheAcquirer { .. })), "{refused:?}");
        }),
        "fork in a loop" => fork_in_a_loop(path),
        unknown => panic!("no part {unknown:?}"),
    }
}

/// Tells the starter something.
fn tell(message: &str) {
    eprintln!("{MARK}{message}");
}

/// Waits until the starter closes this process's input.
fn await_go_on() {
    let _either_way = std::io::stdin().read_line(&mut String::new());
}

/// Lets a process go on from where it awaits that.
pub(crate) fn go_on(other: &mut Other) {
    drop(other.child.stdin.take());
}

/// In one word, and the fence or the reason.
pub(crate) fn tried(tried: Result<FileLock, AcquireError>) -> String {
    match tried {
        Ok(lock) => format!("locked {}", lock.fence()),
        Err(AcquireError::LockHeld { holder, .. }) => format!("held {}", holder.owner_pid),
        Err(AcquireError::PermissionDenied { source, .. }) => format!("denied {source}"),
        Err(other) => format!("refused {other}"),
    }
}

fn tried_in_directory(path: &Path) -> String {
    match LockDir::open(path) {
        Ok(locks) => tried(locks.acquire("x", AcquireOptions::default())),
        Err(refused) => format!("refused {refused}"),
    }
}

fn held(path: &Path) -> FileLock {
    let owner = Owner { id: "holder".into(), kind: "test".into(), op_id: "op-1".into(), ..Owner::default() };
    acquire(path, AcquireOptions { owner, ..AcquireOptions::default() }).unwrap()
}

fn hold(path: &Path) {
    let lock = held(path);
    tell(&format!("locked {}", lock.fence()));
    await_go_on();
    lock.release().unwrap();
    tell("released");
    await_go_on();
}

/// Runs another program meanwhile.
#[expect(clippy::zombie_processes, reason = "it is meant to outlive this process")]
fn hold_with_a_program(path: &Path) {
    let _lock = held(path);
    let sleep = Command::new("sleep").arg("600").spawn().unwrap();
    tell(&sleep.id().to_string());
    await_go_on();
}

/// A forked child runs no other program and ends its copy of the lock.
fn child_ends_copy(path: &Path, end: impl Fn(FileLock)) {
    let lock = held(path);
    match fork::fork().unwrap() {
        Fork::Child => {
            end(lock);
            std::process::exit(0);
        }
        Fork::Parent(child) => {
            assert_eq!(waitpid(child).unwrap(), 0, "the child did what it should");
            tell("child ended");
            await_go_on();
            lock.release().unwrap();
            tell("released");
            await_go_on();
        }
    }
}

/// One thread forks all the time, children that keep all open files for a while; the other acquires and releases. Were
/// a lock only closed, the next try would meet the children's copies.
fn fork_in_a_loop(path: &Path) {
    let (is_done, forks) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| fork_until(&is_done, &forks));
        let (started, mut cycles, mut refused) = (now(), 0_u64, None);
        while refused.is_none() && started.elapsed() < Duration::from_secs(2) {
            // A panic here would leave the other thread forking.
            refused = acquire(path, AcquireOptions::default()).map(drop).err();
            cycles += 1;
        }
        is_done.store(true, Ordering::SeqCst);
        match refused {
            None => tell(&format!("{cycles} {}", forks.load(Ordering::SeqCst))),
            Some(refused) => tell(&format!("cycle {cycles}: {refused}")),
        }
    });
}

fn fork_until(is_done: &AtomicBool, forks: &AtomicU64) {
    let mut children = Vec::new();
    while !is_done.load(Ordering::SeqCst) {
        match fork::fork().unwrap() {
            Fork::Child => {
                std::thread::sleep(Duration::from_millis(100));
                std::process::exit(0);
            }
            Fork::Parent(child) => children.push(child),
        }
        forks.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2));
    }
    for child in children {
        assert_eq!(waitpid(child).unwrap(), 0);
    }
}
