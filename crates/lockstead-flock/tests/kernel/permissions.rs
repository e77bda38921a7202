//! Other users. As root, the tests start processes of another user; otherwise they take what belongs to root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockstead_flock::{AcquireError, AcquireOptions, LockDir, LockDirError, acquire};
use rustix::process::geteuid;

use crate::support::Other;

/// Anybody but root; `nobody` on most systems.
const ANOTHER_USER: u32 = 65534;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// What a try says, made by a user whom file modes apply to.
fn said_by_a_plain_user(dir: &Path, part: &str, path: &Path) -> String {
    if !geteuid().is_root() {
        return Other::start(part, path).says();
    }
    set_mode(dir, 0o755);
    let program: PathBuf = dir.join("program");
    if !program.exists() {
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        set_mode(&program, 0o755);
    }
    let mut command = Command::new(program);
    Other::spawn(command.uid(ANOTHER_USER).gid(ANOTHER_USER).current_dir("/"), part, path).says()
}

#[test]
fn a_file_that_may_not_be_opened_is_denied_and_not_called_held() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let lock = acquire(&path, AcquireOptions::default()).unwrap();
    for name in ["x", ".x.guard"] {
        set_mode(&dir.path().join(name), 0o000);
    }
    let said = said_by_a_plain_user(dir.path(), "try", &path);
    assert!(said.starts_with("denied"), "while it is held: {said}");
    drop(lock);
    let said = said_by_a_plain_user(dir.path(), "try", &path);
    assert!(said.starts_with("denied"), "while it is free: {said}");
}

#[test]
fn a_directory_that_may_not_be_written_is_denied() {
    let dir = tempfile::tempdir().unwrap();
    let locked = dir.path().join("closed");
    fs::create_dir(&locked).unwrap();
    set_mode(&locked, 0o555);
    let said = said_by_a_plain_user(dir.path(), "try", &locked.join("x"));
    assert!(said.starts_with("denied"), "{said}");
}

#[test]
fn the_directory_of_another_user_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let of_another = if geteuid().is_root() {
        let path = dir.path().join("locks");
        fs::create_dir(&path).unwrap();
        chown(&path, Some(ANOTHER_USER), None).unwrap();
        path
    } else {
        PathBuf::from("/usr")
    };
    assert!(matches!(LockDir::open(&of_another), Err(LockDirError::OtherUser { .. })));
    let open_to_all = dir.path().join("open");
    fs::create_dir(&open_to_all).unwrap();
    set_mode(&open_to_all, 0o777);
    let said = said_by_a_plain_user(dir.path(), "try in directory", &open_to_all);
    assert!(said.starts_with("refused"), "{said}");
}

#[test]
fn a_lock_file_that_another_user_planted_is_refused() {
    if !geteuid().is_root() {
        // Only root can plant one here; that the owner is compared at all is seen above.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let locks = LockDir::open(dir.path().join("locks")).unwrap();
    let planted = locks.lock_path("x").unwrap();
    fs::write(&planted, "").unwrap();
    chown(&planted, Some(ANOTHER_USER), None).unwrap();
    match locks.acquire("x", AcquireOptions::default()) {
        Err(AcquireError::NotALockFile { why, .. }) => assert_eq!(why, "it belongs to another user"),
        other => panic!("{other:?}"),
    }
}
