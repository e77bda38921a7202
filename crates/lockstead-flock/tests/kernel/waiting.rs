//! How long a wait takes. The lower bounds are exact; above, a noisy machine is allowed for, and what was seen is
//! printed.

use std::sync::mpsc;
use std::time::Duration;

use lockstead_flock::{AcquireError, AcquireOptions, acquire};

use crate::parts::go_on;
use crate::support::{Other, now};

/// A noisy machine may take so much longer than what is expected of an idle one.
const NOISE: Duration = Duration::from_millis(500);

fn waiting(wait_timeout: Duration) -> AcquireOptions {
    AcquireOptions { wait_timeout, ..AcquireOptions::default() }
}

#[test]
fn a_wait_for_a_held_lock_ends_when_its_time_is_over_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let mut holder = Other::start("hold", &path);
    holder.says();
    for (timeout_ms, rounds) in [(0, 50), (50, 20), (1_000, 3)] {
        let timeout = Duration::from_millis(timeout_ms);
        let mut seen = Vec::new();
        for _ in 0..rounds {
            let started = now();
            let Err(AcquireError::LockHeld { waited, .. }) = acquire(&path, waiting(timeout)) else {
                panic!("it is held");
            };
            let took = started.elapsed();
            assert!(waited >= timeout && took >= waited, "{timeout:?}: {waited:?} of {took:?}");
            assert!(took < timeout + NOISE, "{timeout:?}: {took:?}");
            seen.push(took);
        }
        println!("wait_timeout {timeout:?}: {:?} to {:?}", seen.iter().min().unwrap(), seen.iter().max().unwrap());
    }
}

#[test]
fn a_waiter_is_granted_soon_after_the_release() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let mut delays = Vec::new();
    for round in 0..40 {
        let lock = acquire(&path, AcquireOptions::default()).unwrap();
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let lock = acquire(&path, waiting(Duration::from_secs(30))).unwrap();
                tell.send(now()).unwrap();
                drop(lock);
            });
            // Anywhere within a poll.
            std::thread::sleep(Duration::from_micros(15_000 + round * 270));
            let released = now();
            lock.release().unwrap();
            delays.push(told.recv().unwrap().saturating_duration_since(released));
        });
    }
    delays.sort();
    println!("granted after the release: median {:?}, 95 % {:?}, last {:?}", delays[20], delays[38], delays[39]);
    assert!(delays[20] < Duration::from_millis(20) + NOISE, "{delays:?}");
}

#[test]
fn the_longest_timeout_is_one_that_can_be_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let mut holder = Other::start("hold", &path);
    holder.says();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| acquire(&path, waiting(Duration::MAX)).map(drop));
        go_on(&mut holder);
        assert!(waiter.join().unwrap().is_ok());
    });
}
