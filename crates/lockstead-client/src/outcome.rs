//! What came out: a refusal is an answer, not an error.

use std::time::Duration;

use bytes::Bytes;
use lockstead_api::{AcquireAnswer, GetAnswer, HolderBody, RenewAnswer};

use crate::lease::Lease;

/// An outcome with the node's answer as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<T> {
    /// What came out.
    pub outcome: T,
    /// The JSON of the answer.
    pub body: Bytes,
}

/// What an acquire got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The lock is the caller's.
    Granted(Granted),
    /// Somebody else holds it, or waits before the caller, and the wait is over.
    Held(Held),
    /// The namespace holds as many locks as it may.
    LimitExceeded {
        /// The most live holds.
        limit: u64,
        /// How many there are.
        current: u64,
    },
}

/// A lock that is the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Token, fence, TTL.
    pub answer: AcquireAnswer,
    /// How long to count on it.
    pub lease: Lease,
    /// The id under which a repeated acquire gets the same grant. A secret.
    pub request_id: String,
}

/// A lock that could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its holders; empty if only waiters are in the way.
    pub holders: Vec<HolderBody>,
    /// How many requests wait for it.
    pub queue_len: u64,
    /// For how long nothing at all is granted after a restore or recovery, in milliseconds; 0 otherwise.
    pub hold_off_ms: u64,
}

/// What a release got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The hold is over, by this release.
    Released,
    /// The token matches no live hold: it was over before.
    NotHolder,
}

/// What a renewal got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewOutcome {
    /// The hold goes on.
    Renewed(Renewed),
    /// The claim matches no live hold: it is over.
    NotHolder,
}

/// A hold that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Fence and TTL.
    pub answer: RenewAnswer,
    /// How long to count on it.
    pub lease: Lease,
}

/// What a read got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GetOutcome {
    /// Who holds the lock and who waits.
    Held(GetAnswer),
    /// Nobody holds it and nobody waits.
    NotHeld,
}

impl Granted {
    /// How long the hold surely lasts from now on; zero once nobody should count on it.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.lease.valid_for()
    }
}

impl Renewed {
    /// How long the hold surely lasts from now on; zero once nobody should count on it.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.lease.valid_for()
    }
}
