//! Children: programs that were started while a lock was held, and forks that share its open files.

use std::fs;
use std::process::Command;

use lockstead_flock::{AcquireOptions, acquire};
use rustix::process::{Pid, Signal, kill_process};

use crate::parts::{go_on, tried};
use crate::support::Other;

#[test]
fn a_program_started_under_a_lock_keeps_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let lock = acquire(&path, AcquireOptions::default()).unwrap();
    let mut sleep = Command::new("sleep").arg("600").spawn().unwrap();
    // Spawn returns once the program runs, so what it has inherited is what it keeps.
    let open = fs::read_dir(format!("/proc/{}/fd", sleep.id())).unwrap();
    let open = open.filter_map(|item| fs::read_link(item.unwrap().path()).ok());
    let kept: Vec<_> = open.filter(|file| file.starts_with(dir.path())).collect();
    lock.release().unwrap();
    let tried_at_once = tried(acquire(&path, AcquireOptions::default()));
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    assert!(kept.is_empty(), "{kept:?}");
    assert!(tried_at_once.starts_with("locked"), "{tried_at_once}");
}

#[test]
fn a_killed_holder_frees_its_lock_although_its_program_lives_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let mut holder = Other::start("hold with a program", &path);
    let sleep = Pid::from_raw(holder.says().parse().unwrap()).unwrap();
    assert!(holder.kill());
    let tried_at_once = tried(acquire(&path, AcquireOptions::default()));
    kill_process(sleep, Signal::KILL).expect("it lived on");
    assert!(tried_at_once.starts_with("locked"), "{tried_at_once}");
}

#[test]
fn a_forked_child_that_drops_or_releases_its_copy_changes_nothing() {
    for part in ["child drops", "child releases"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut parent = Other::start(part, &path);
        assert_eq!(parent.says(), "child ended", "{part}");
        let tried_meanwhile = tried(acquire(&path, AcquireOptions::default()));
        assert_eq!(tried_meanwhile, format!("held {}", parent.pid()), "{part}: the metadata is the parent's still");
        go_on(&mut parent);
        assert_eq!(parent.says(), "released");
        assert!(acquire(&path, AcquireOptions::default()).is_ok(), "{part}: free at once");
    }
}

#[test]
fn a_lock_is_free_at_once_after_a_release_while_another_thread_forks_in_a_loop() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = Other::start("fork in a loop", &dir.path().join("x"));
    let said = other.says();
    let numbers: Option<Vec<u64>> = said.split(' ').map(|number| number.parse().ok()).collect();
    let Some([cycles, forks]) = numbers.as_deref() else { panic!("{said}") };
    println!("{cycles} cycles beside {forks} forks");
    assert!(*cycles > 100 && *forks > 20, "{said}");
}
