//! Between the thread that writes the journal and the one that fills sled: what is in the journal and not yet in sled.
//!
//! Its length is bounded by the journal, which is not used again before sled has it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::change::Change;
use super::tail::AppendNumber;

/// What the journal holds up to a group, and sled has to get.
pub(super) struct Fill {
    /// The group.
    pub(super) sequence: u64,
    pub(super) changes: Vec<Change>,
    /// About how many bytes that is.
    pub(super) bytes: usize,
    /// With it, everything up to this append is in sled.
    pub(super) append: Option<AppendNumber>,
}

/// What the filler does next.
pub(super) enum Next {
    Fill(Fill),
    /// The journal waits for room.
    Hurry,
    /// Nothing came for so long.
    Quiet,
    /// Nothing will come any more.
    Ended,
}

#[derive(Default)]
pub(super) struct Backlog {
    state: Mutex<State>,
    for_filler: Condvar,
    for_writer: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Fill>,
    filled: u64,
    /// Segments made since the writer last looked.
    spares: Vec<File>,
    is_room_wanted: bool,
    has_ended: bool,
    has_failed: bool,
}

impl Backlog {
    /// Sled has everything up to the group `filled`.
    pub(super) fn new(filled: u64) -> Self {
        Self { state: Mutex::new(State { filled, ..State::default() }), ..Self::default() }
    }

    pub(super) fn push(&self, fill: Fill) {
        self.lock().queue.push_back(fill);
        self.for_filler.notify_one();
    }

    /// The last group that sled has synced.
    pub(super) fn filled(&self) -> u64 {
        self.lock().filled
    }

    /// Segments made since the last call.
    pub(super) fn take_spares(&self) -> Vec<File> {
        std::mem::take(&mut self.lock().spares)
    }

    /// Waits until sled has more than up to the group `filled`, or there is another segment. Fails if sled never will.
    pub(super) fn wait_for_room(&self, filled: u64) -> io::Result<()> {
        let mut state = self.lock();
        while state.filled == filled && state.spares.is_empty() {
            if state.has_failed {
                return Err(io::Error::other("sled could not be filled"));
            }
            state.is_room_wanted = true;
            self.for_filler.notify_one();
            state = self.for_writer.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_room_wanted = false;
        Ok(())
    }

    /// Nothing will be pushed any more.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
        self.for_filler.notify_one();
    }

    /// Nothing will be filled any more.
    pub(super) fn fail(&self) {
        self.lock().has_failed = true;
        self.for_writer.notify_one();
    }

    pub(super) fn next(&self, patience: Duration) -> Next {
        let idle = |state: &mut State| state.queue.is_empty() && !state.is_room_wanted && !state.has_ended;
        let (mut state, _) =
            self.for_filler.wait_timeout_while(self.lock(), patience, idle).unwrap_or_else(PoisonError::into_inner);
        match state.queue.pop_front() {
            Some(fill) => Next::Fill(fill),
            None if state.has_ended => Next::Ended,
            None if state.is_room_wanted => Next::Hurry,
            None => Next::Quiet,
        }
    }

    /// Sled has synced everything up to this group.
    pub(super) fn set_filled(&self, filled: u64) {
        self.lock().filled = filled;
        self.for_writer.notify_one();
    }

    pub(super) fn add_spare(&self, segment: File) {
        self.lock().spares.push(segment);
        self.for_writer.notify_one();
    }

    pub(super) fn is_room_wanted(&self) -> bool {
        self.lock().is_room_wanted
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
