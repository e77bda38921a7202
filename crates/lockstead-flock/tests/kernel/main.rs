//! What the kernel's lock does between threads, processes, forks and users.

#![expect(clippy::unwrap_used, reason = "what tests share may fail like a test")]

#[path = "../support/mod.rs"]
mod support;

mod directory;
mod files;
mod forks;
mod holders;
mod parts;
mod permissions;
mod waiting;

/// Not a test of its own: the processes that the others start.
#[test]
fn this_is_another_process_if_started_as_one() {
    if let Some((part, path)) = support::part() {
        parts::play(&part, &path);
    }
}
