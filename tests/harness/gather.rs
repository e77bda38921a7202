//! Crowds of clients.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Among how many clients work is divided.
const CLIENTS: usize = 8;

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

/// Divides work among clients and gathers what they bring back, client after client.
pub(crate) fn divided<T: Send + 'static>(count: usize, work: impl Fn(usize) -> T + Send + Sync + 'static) -> Vec<T> {
    let work = Arc::new(work);
    let clients = (0..CLIENTS).map(|first| {
        let work = Arc::clone(&work);
        client(move || (first..count).step_by(CLIENTS).map(|number| work(number)).collect::<Vec<T>>())
    });
    all(clients.collect()).into_iter().flatten().collect()
}
