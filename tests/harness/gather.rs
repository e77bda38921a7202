//! Crowds of clients.

use std::thread::{self, JoinHandle};

/// A thread with a small stack, so that thousands of clients fit.
pub(crate) fn client<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().stack_size(256 * 1_024).spawn(work).expect("a thread for a client")
}

/// What each client brought back.
///
/// # Panics
/// When one of them did.
pub(crate) fn all<T>(clients: Vec<JoinHandle<T>>) -> Vec<T> {
    clients.into_iter().map(done).collect()
}

/// What a client brought back.
///
/// # Panics
/// When it did.
pub(crate) fn done<T>(client: JoinHandle<T>) -> T {
    client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
