//! Directories of locks: every name stays inside, and nobody else plants anything there.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use lockstead_flock::{AcquireError, AcquireOptions, LockDir, LockDirError};

fn acquire(locks: &LockDir, name: &str) -> Result<lockstead_flock::FileLock, AcquireError> {
    locks.acquire(name, AcquireOptions::default())
}

#[test]
fn every_name_is_a_lock_of_its_own_inside_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let locks = LockDir::open(dir.path().join("some/locks")).unwrap();
    let long = "x".repeat(300);
    let longer = "x".repeat(301);
    let longest = "é".repeat(512);
    let names = [
        "../../etc/x",
        "a/b",
        "/a",
        "a//b",
        ".",
        "..",
        "\0",
        "a\0",
        "A",
        "a",
        "%41",
        "%61",
        "%",
        "=",
        "a.lock",
        ".a.lock.guard",
        "a.lock.meta.json",
        "é",
        "e\u{301}",
        " ",
        "\n",
        "\u{202e}",
        "🔒",
        "list",
        &long,
        &longer,
        &longest,
    ];
    let held: Vec<_> =
        names.iter().map(|name| acquire(&locks, name).unwrap_or_else(|why| panic!("{name:?}: {why}"))).collect();
    let mut folded = HashSet::new();
    for (name, lock) in names.iter().zip(&held) {
        assert_eq!(lock.path().parent(), Some(locks.path()), "{name:?}");
        assert!(folded.insert(lock.path().to_str().unwrap().to_lowercase()), "{name:?} has a file of its own");
        assert!(matches!(acquire(&locks, name), Err(AcquireError::LockHeld { .. })), "{name:?} is held");
        assert_eq!(locks.read_metadata(name).owner_pid, std::process::id(), "{name:?}");
        assert!(lock.is_intact(), "{name:?}");
    }
    let outside: Vec<_> = fs::read_dir(dir.path().join("some")).unwrap().collect();
    assert_eq!(outside.len(), 1, "{outside:?}");
    assert_eq!(fs::read_dir(locks.path()).unwrap().count(), 3 * names.len(), "file, guard and metadata of each");
}

#[test]
fn a_name_that_is_empty_or_too_long_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let locks = LockDir::open(dir.path().join("locks")).unwrap();
    for (name, length) in [(String::new(), 0), ("x".repeat(1025), 1025)] {
        match acquire(&locks, &name) {
            Err(AcquireError::Directory(LockDirError::InvalidName { bytes })) => assert_eq!(bytes, length),
            other => panic!("{other:?}"),
        }
    }
    assert!(locks.read_metadata("").is_empty());
}

#[test]
fn a_symlink_or_a_second_name_planted_in_the_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let locks = LockDir::open(dir.path().join("locks")).unwrap();
    let target = dir.path().join("target");
    fs::write(&target, "precious").unwrap();
    symlink(&target, locks.lock_path("linked").unwrap()).unwrap();
    symlink(&target, locks.path().join(".guarded.lock.guard")).unwrap();
    symlink(dir.path().join("nowhere"), locks.lock_path("dangling").unwrap()).unwrap();
    fs::hard_link(&target, locks.lock_path("hard").unwrap()).unwrap();
    for (name, expected) in [
        ("linked", "it is a symlink"),
        ("guarded", "it is a symlink"),
        ("dangling", "it is a symlink"),
        ("hard", "it has another name elsewhere"),
    ] {
        match acquire(&locks, name) {
            Err(AcquireError::NotALockFile { why, .. }) => assert_eq!(why, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    // Metadata goes to a file of its own, not through the links.
    symlink(&target, locks.path().join(".meta.lock.meta.tmp")).unwrap();
    symlink(&target, locks.path().join("meta.lock.meta.json")).unwrap();
    let lock = acquire(&locks, "meta").unwrap();
    assert_eq!(locks.read_metadata("meta").owner_pid, std::process::id());
    drop(lock);
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    assert!(!dir.path().join("nowhere").exists());
}

#[test]
fn a_directory_that_is_a_symlink_or_a_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let real = LockDir::open(dir.path().join("real")).unwrap();
    symlink(real.path(), dir.path().join("link")).unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for name in ["link", "file"] {
        let refused = LockDir::open(dir.path().join(name));
        assert!(matches!(refused, Err(LockDirError::NotADirectory { .. })), "{name}: {refused:?}");
    }
}

#[test]
fn a_directory_that_became_a_symlink_or_open_to_all_is_refused_at_the_next_try() {
    let dir = tempfile::tempdir().unwrap();
    let locks = LockDir::open(dir.path().join("locks")).unwrap();
    fs::set_permissions(locks.path(), Permissions::from_mode(0o777)).unwrap();
    let refused = acquire(&locks, "x");
    assert!(matches!(&refused, Err(AcquireError::Directory(LockDirError::OpenToAll { .. }))), "{refused:?}");
    assert!(matches!(LockDir::open(locks.path()), Err(LockDirError::OpenToAll { .. })));
    fs::rename(locks.path(), dir.path().join("moved")).unwrap();
    symlink(dir.path().join("moved"), locks.path()).unwrap();
    let refused = acquire(&locks, "x");
    assert!(matches!(&refused, Err(AcquireError::Directory(LockDirError::NotADirectory { .. }))), "{refused:?}");
}
