//! The arbiter: decides what lies before it, one drain at a time, and says what the log shall carry.
//!
//! One arbiter serves one office (a term of leadership). `decide` reads the applied table and gives a [`Drain`]: at
//! most one batch, and the answers that follow once it is applied. One batch is in flight at a time: `decide` is not
//! called again before the last drain's batch was applied (the drain is then dropped) or surely refused (then
//! [`Arbiter::take_back`]). Requests may be submitted and cancelled meanwhile.
//!
//! Invariants:
//! 1. A request lies in exactly one place: among the pending, in one waiter, or in a drain.
//! 2. Waiters of a lock are served in the order of (since, number), and nobody passes them.
//! 3. A drain that was taken back leaves no trace: deciding again gives what deciding once gives. Requests cancelled
//!    meanwhile stay cancelled.
//! 4. A fence is claimed if an answer other than its first grant carried it; a claimed fence is never given back.
//! 5. A batch passes `batch_bytes_max` only if one request alone does, or with one record restated before it; a request
//!    is never split, and always finds room beside what is restated.
//! 6. Lease time at a decision is not below the table's.
//! 7. Absent here: clocks, randomness, I/O. The same state and input give the same drain.

mod acquire;
mod decide;
mod queue;
mod restate;
mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::name::LockKey;
use crate::record::BatchEncoder;
use crate::request::{Answer, Request, RequestNumber};
use crate::table::Table;
use crate::units::{Fence, LeaseTime, LocalTime, Token, WallTime};

use decide::Deciding;
use queue::{Place, Queues, Waiter};

/// The bounds of one office's decisions.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most live holds in the namespace `default`, and in any other that has no limit of its own.
    pub locks_max: u64,
    /// The most that a batch encodes to, in bytes.
    pub batch_bytes_max: usize,
    /// The most expired holds dropped by one batch beyond those that its requests touch.
    pub sweep_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { locks_max: 1_000_000, batch_bytes_max: crate::record::BATCH_BYTES_MAX, sweep_max: 128 }
    }
}

/// The clocks at a decision.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Lease time.
    pub lease: LeaseTime,
    /// The node's own clock.
    pub local: LocalTime,
    /// The wall clock, for people.
    pub wall: WallTime,
}

/// What a batch shall say once more, so that the log can be purged further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restating {
    /// Live records whose newest statement is at or before this log index, the oldest first.
    pub upto: u64,
    /// About the most bytes of one batch that go to it; one record goes in always. Never more than leaves room for any
    /// request beside it.
    pub bytes_max: usize,
}

/// What one drain decided.
#[derive(Debug)]
pub struct Drain {
    /// The batch to propose; `None` if nothing is to be logged.
    pub batch: Option<BatchEncoder>,
    /// The answers, to be given once the batch is applied, or after a quorum round if there is none.
    pub answers: Vec<Answer>,
    /// One for each answer, in the same order.
    pub decided: Vec<Decided>,
    /// Requests that ended undecided: their callers were told so by then, and no answer is expected.
    pub overdue: Vec<RequestNumber>,
    /// How many holds the batch drops past their deadline.
    pub expired: u64,
    /// How many live records the batch restates.
    pub restated: u64,
    /// What to undo, oldest first, if the batch is surely refused.
    undo: Vec<Undo>,
}

/// A request that a drain decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The request.
    pub number: RequestNumber,
    /// Its own effect (a grant, a renewal, a release, a give-back) is in the batch.
    pub logged: bool,
}

/// How to undo one change to the arbiter's memory.
#[derive(Debug)]
enum Undo {
    /// A request was taken from the pending.
    Pending(Request),
    /// A waiter was added, changed, moved or removed.
    Waiter { lock: LockKey, now_at: Option<Place>, before: Option<Waiter> },
    /// A fence was claimed.
    Claimed(Fence),
    /// A claim ended with its hold.
    Unclaimed(Fence),
    /// A free lock's waiters were put off.
    PutOff(LockKey),
    /// A free lock's waiters that had been put off were served.
    Served(LockKey),
}

/// The arbiter of one office.
#[derive(Debug)]
pub struct Arbiter {
    term: u64,
    limits: Limits,
    pending: BTreeMap<Place, Request>,
    pending_places: HashMap<RequestNumber, Place>,
    queues: Queues,
    claims: HashSet<Fence>,
    /// Locks with waiters that are free but could not be granted yet.
    put_off: BTreeSet<LockKey>,
    /// The last drain left work that needs no new request.
    cut: bool,
    /// Requests cancelled since the last drain: they stay cancelled if it is taken back.
    cancelled: Vec<RequestNumber>,
}

impl Arbiter {
    /// Opens the office of `term`.
    #[must_use]
    pub fn new(term: u64, limits: Limits) -> Self {
        Self {
            term,
            limits,
            pending: BTreeMap::new(),
            pending_places: HashMap::new(),
            queues: Queues::default(),
            claims: HashSet::new(),
            put_off: BTreeSet::new(),
            cut: false,
            cancelled: Vec::new(),
        }
    }

    /// The term of this office.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Puts a request before the arbiter.
    ///
    /// # Panics
    /// If a request of its number lies undecided already.
    pub fn submit(&mut self, request: Request) {
        let place = Place::of(&request);
        let before = self.pending_places.insert(request.number, place);
        assert!(before.is_none(), "invariant 1 of the arbiter: a request number was used twice");
        self.pending.insert(place, request);
    }

    /// Withdraws a request, waiting or not yet decided. Unknown numbers are ignored. A request that another took over
    /// only loses its own answer.
    pub fn cancel(&mut self, number: RequestNumber) {
        self.withdraw(number);
        self.cancelled.push(number);
    }

    /// Decides what lies before it, as far as one batch goes. `now.lease` is not below the table's time.
    ///
    /// `token` makes a fresh secret at each call. With `tick_due` the batch may be one without records, and so may the
    /// first after a hold-off, due or not. With `restating` old records are restated at its head, and a batch may hold
    /// nothing else.
    ///
    /// # Panics
    /// If lease time fell behind the table.
    pub fn decide(
        &mut self,
        table: &Table,
        now: Now,
        tick_due: bool,
        restating: Option<Restating>,
        token: &mut dyn FnMut() -> Token,
    ) -> Drain {
        assert!(now.lease >= table.time(), "invariant 6 of the arbiter: lease time fell behind the table");
        self.cancelled.clear();
        self.cut = false;
        let mut deciding = Deciding::new(self, table, now, token);
        if let Some(restating) = restating {
            deciding.restate(restating);
        }
        deciding.end_waits();
        deciding.decide_pending();
        deciding.serve_put_off();
        deciding.sweep();
        deciding.finish(tick_due)
    }

    /// Puts the requests of a drain whose batch was surely refused back in their places.
    pub fn take_back(&mut self, drain: Drain) {
        for undo in drain.undo.into_iter().rev() {
            self.undo(undo);
        }
        for number in std::mem::take(&mut self.cancelled) {
            self.withdraw(number);
        }
        self.cut = true;
    }

    /// Whether another `decide` is due at once: requests lie undecided, or the last batch had no room for what expired.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.cut || !self.pending.is_empty()
    }

    /// How many requests wait for a lock. A request and the retry that took it over count as two while both are alive.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queues.requests()
    }

    /// When the earliest waiter's wait or request ends, on the node's own clock.
    #[must_use]
    pub fn next_wait_end(&self) -> Option<LocalTime> {
        self.queues.next_due()
    }

    /// Every request not yet answered; the office is over.
    #[must_use]
    pub fn close(self) -> Vec<RequestNumber> {
        let mut numbers: Vec<_> = self.pending_places.keys().copied().chain(self.queues.numbers()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Whether an answer other than the first grant carried this fence, so that it is not given back.
    #[must_use]
    pub fn is_claimed(&self, fence: Fence) -> bool {
        self.claims.contains(&fence)
    }

    fn withdraw(&mut self, number: RequestNumber) {
        if let Some(place) = self.pending_places.remove(&number) {
            self.pending.remove(&place);
        }
        self.queues.withdraw(number);
    }

    fn pop_pending(&mut self) -> Option<Request> {
        let (_, request) = self.pending.pop_first()?;
        self.pending_places.remove(&request.number);
        Some(request)
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Pending(request) => self.submit(request),
            Undo::Waiter { lock, now_at, before } => {
                // A cancel since then may have removed it.
                now_at.and_then(|place| self.queues.remove(&lock, place));
                if let Some(waiter) = before {
                    self.queues.insert(waiter);
                }
            }
            Undo::Claimed(fence) => {
                self.claims.remove(&fence);
            }
            Undo::Unclaimed(fence) => {
                self.claims.insert(fence);
            }
            Undo::PutOff(lock) => {
                self.put_off.remove(&lock);
            }
            Undo::Served(lock) => {
                self.put_off.insert(lock);
            }
        }
    }
}

#[cfg(test)]
mod tests;
