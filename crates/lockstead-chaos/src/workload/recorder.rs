//! Where clients note what they saw.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::history::{Record, Writer};
use crate::observer::Unreachable;

/// All that the clients of a run noted.
#[derive(Debug, Default)]
pub struct Recorder {
    next_id: AtomicU64,
    noted: Mutex<Noted>,
    file: Mutex<Option<Writer>>,
}

/// What was noted.
#[derive(Debug, Default)]
pub struct Noted {
    /// Calls and writes.
    pub records: Vec<Record>,
    /// When a client found a node that it could not connect to, so that nothing of its request went out.
    pub unreachable: Vec<Unreachable>,
}

impl Recorder {
    /// One that also writes down what it is told as the run goes on.
    pub fn writing(file: Writer) -> Self {
        Self { file: Mutex::new(Some(file)), ..Self::default() }
    }

    /// A number for a call that no other call of the run has.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes a call or a write.
    pub fn note(&self, record: impl Into<Record>) {
        let record = record.into();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.as_mut().is_some_and(|file| file.append(&record).is_err()) {
            // The whole is written at the end of the run, which tells if it cannot be.
            *file = None;
        }
        drop(file);
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).records.push(record);
    }

    /// Notes that a node could not be reached.
    pub fn note_unreachable(&self, node: u64, at_us: u64) {
        let unreachable = Unreachable { node, at_us };
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).unreachable.push(unreachable);
    }

    /// How many calls were begun so far.
    pub fn calls(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Everything noted so far.
    pub fn take(&self) -> Noted {
        std::mem::take(&mut *self.noted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
