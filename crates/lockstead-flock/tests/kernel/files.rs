//! Lock files that are deleted, replaced, or no lock files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use lockstead_flock::{AcquireError, AcquireOptions, acquire};

use crate::parts::tried;

fn try_once(path: &Path) -> String {
    tried(acquire(path, AcquireOptions::default()))
}

fn check_refused(path: &Path, expected: &str) {
    match acquire(path, AcquireOptions::default()) {
        Err(AcquireError::NotALockFile { why, .. }) => assert_eq!(why, expected, "{}", path.display()),
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[test]
fn either_file_deleted_or_replaced_under_a_holder_lets_nobody_in() {
    for name in ["x", ".x.guard"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let lock = acquire(&path, AcquireOptions::default()).unwrap();
        assert!(lock.is_intact());
        fs::remove_file(dir.path().join(name)).unwrap();
        assert!(!lock.is_intact(), "{name}: the holder can tell");
        assert!(try_once(&path).starts_with("held"), "{name} deleted");
        fs::write(dir.path().join("new"), "").unwrap();
        fs::rename(dir.path().join("new"), dir.path().join(name)).unwrap();
        assert!(try_once(&path).starts_with("held"), "{name} replaced");
        lock.release().unwrap();
        assert!(try_once(&path).starts_with("locked"), "{name}: free at once");
    }
}

#[test]
fn flock_1_and_this_crate_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let flock = |path: &Path| Command::new("flock").arg("-n").arg(path).arg("true").status().unwrap();
    let lock = acquire(&path, AcquireOptions::default()).unwrap();
    assert_eq!(flock(&path).code(), Some(1), "refused while it is held here");
    drop(lock);
    assert_eq!(flock(&path).code(), Some(0));
    let other = fs::File::open(&path).unwrap();
    other.lock().unwrap();
    assert_eq!(try_once(&path), "held 0", "somebody who writes no metadata");
}

#[test]
fn what_is_no_lock_file_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("letter"), "Dear Sir or Madam,\n".repeat(10)).unwrap();
    check_refused(&path("letter"), "it has other contents");
    assert_eq!(fs::read_to_string(path("letter")).unwrap().lines().count(), 10);
    symlink(path("letter"), path("link")).unwrap();
    check_refused(&path("link"), "it is a symlink");
    symlink(path("nowhere"), path("dangling")).unwrap();
    check_refused(&path("dangling"), "it is a symlink");
    assert!(!path("nowhere").exists());
    check_refused(dir.path(), "it is a directory");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    check_refused(&path("pipe"), "it is no regular file");
    check_refused(Path::new("/"), "it names no file");
    check_refused(&path(".."), "it names no file");
    check_refused(&path("a\0b"), "its name contains a NUL");
}

#[test]
fn a_missing_directory_is_an_error_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let tried = acquire(dir.path().join("missing/x"), AcquireOptions::default());
    assert!(matches!(&tried, Err(AcquireError::Io { path, .. }) if path.ends_with("missing")), "{tried:?}");
}

#[test]
fn a_lock_file_with_the_longest_name_works() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("n".repeat(255));
    let lock = acquire(&path, AcquireOptions::default()).unwrap();
    assert_eq!(try_once(&path), format!("held {}", std::process::id()), "with metadata");
    drop(lock);
}
