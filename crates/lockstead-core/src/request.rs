//! What the arbiter is asked, and what it answers.

use serde::{Deserialize, Serialize};

use crate::name::{LockKey, Metadata, OwnerName, RequestId};
use crate::record::{Hold, Mode};
use crate::units::{Fence, LeaseTime, LocalTime, Token, Ttl, WallTime};

/// Names a request within one node's arbiter; rises with every arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestNumber(pub u64);

/// A request as it lies before the arbiter.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its number on this node.
    pub number: RequestNumber,
    /// When it arrived here.
    pub arrived: LocalTime,
    /// When it ends unanswered: its caller has been told so by then.
    pub ends: LocalTime,
    /// What is asked.
    pub op: Op,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Take a lock, now or by waiting.
    Acquire(Acquire),
    /// End a hold.
    Release(Release),
    /// Prolong a hold.
    Renew(Renew),
    /// Say who holds a lock and who waits.
    Get(Get),
    /// End a hold whose grant reached nobody. No answer is expected.
    GiveBack(GiveBack),
}

impl Op {
    /// The lock that it is about.
    #[must_use]
    pub fn lock(&self) -> &LockKey {
        match self {
            Self::Acquire(acquire) => &acquire.lock,
            Self::Release(release) => &release.lock,
            Self::Renew(renew) => &renew.lock,
            Self::Get(get) => &get.lock,
            Self::GiveBack(give_back) => &give_back.lock,
        }
    }
}

/// Take a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// The lock.
    pub lock: LockKey,
    /// How long the hold lasts without a renewal, counted from the grant.
    pub ttl: Ttl,
    /// How long to wait for it, in milliseconds from the arrival at this node; 0 is a try.
    pub wait_ms: u64,
    /// How long this request has already waited elsewhere, in milliseconds. Honoured with a `request_id` only.
    pub queued_ms: u64,
    /// With an owner: renew if mine, take if free, refuse otherwise.
    pub owner: Option<OwnerName>,
    /// The id under which a retry gets the same grant.
    pub request_id: Option<RequestId>,
    /// Labels for the hold.
    pub metadata: Metadata,
}

/// End a hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The lock.
    pub lock: LockKey,
    /// The token given; `None` if the text given cannot be a token, so that it matches nothing.
    pub token: Option<Token>,
}

/// By what a renewal claims its hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// The token given; `None` if the text given cannot be a token.
    Token(Option<Token>),
    /// The owner of the hold, from outside.
    Owner(OwnerName),
}

/// Prolong a hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renew {
    /// The lock.
    pub lock: LockKey,
    /// The claim.
    pub proof: Proof,
    /// How long the hold lasts from now on without another renewal.
    pub ttl: Ttl,
}

/// Say who holds a lock and who waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Get {
    /// The lock.
    pub lock: LockKey,
}

/// End a hold whose grant reached nobody: done only in the term of the grant, and only if no other answer carried its
/// fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GiveBack {
    /// The lock.
    pub lock: LockKey,
    /// The fence of the grant.
    pub fence: Fence,
    /// The term in which it was granted.
    pub term: u64,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request.
    pub number: RequestNumber,
    /// What became of it.
    pub outcome: Outcome,
    /// How long it lay with this node before the decision, in milliseconds; 0 if it arrived after the decision
    /// reported.
    pub waited_ms: u64,
}

/// What became of a request: a refusal is an answer, not an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The lock is the caller's.
    Granted(Grant),
    /// Somebody else holds it, or waits before the caller.
    Held(HeldBy),
    /// The namespace holds as many locks as it may.
    LimitExceeded {
        /// The most live holds of the namespace.
        limit: u64,
        /// How many it has.
        current: u64,
    },
    /// The same request id came with another owner, mode, permits or session.
    RequestIdReused,
    /// The records of the request would pass [`crate::record::REQUEST_BYTES_MAX`].
    TooLarge,
    /// The hold is over.
    Released,
    /// The hold goes on.
    Renewed(Renewal),
    /// The claim matches no live hold of the lock.
    NotHolder,
    /// Who holds the lock and who waits.
    Got(LockView),
    /// Nobody holds the lock and nobody waits.
    NotHeld,
    /// A give-back was decided; nobody reads this.
    GaveBack,
}

impl Outcome {
    /// What gives this outcome of a request for `lock` back if it reaches nobody: only a grant that nobody else was
    /// told of can be given back.
    #[must_use]
    pub fn give_back(&self, lock: &LockKey) -> Option<GiveBack> {
        match self {
            Self::Granted(grant) if grant.fresh => {
                Some(GiveBack { lock: lock.clone(), fence: grant.fence, term: grant.term })
            }
            _ => None,
        }
    }
}

/// A grant, fresh, repeated or renewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The fence of the hold.
    pub fence: Fence,
    /// The secret of the hold.
    pub token: Token,
    /// The TTL granted.
    pub ttl: Ttl,
    /// Deadline minus lease time at the decision reported, in milliseconds.
    pub left_ms: u64,
    /// An acquire-as that prolonged its own hold.
    pub renewed: bool,
    /// The term of this decision.
    pub term: u64,
    /// The hold was made by this very request, and nobody else was told of it: if this answer reaches nobody, it may be
    /// given back.
    pub fresh: bool,
}

/// A renewal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The fence of the hold, unchanged.
    pub fence: Fence,
    /// The TTL granted.
    pub ttl: Ttl,
    /// Deadline minus lease time at the decision, in milliseconds.
    pub left_ms: u64,
}

/// Why a lock could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBy {
    /// Its holders.
    pub holders: Vec<HolderView>,
    /// How many requests wait for it.
    pub queue_len: u64,
    /// For how long nothing at all is granted yet, in milliseconds: holders of an earlier lineage may still count on
    /// their holds. 0 without such a hold-off.
    pub hold_off_ms: u64,
}

/// What anybody may see of a hold: never its token or request id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderView {
    /// The fence.
    pub fence: Fence,
    /// The owner.
    pub owner: Option<OwnerName>,
    /// How it shares the lock.
    pub mode: Mode,
    /// When it was granted, for people.
    pub acquired_at: WallTime,
    /// Deadline minus lease time at the reading, in milliseconds; 0 from the deadline until the hold is dropped.
    pub left_ms: u64,
    /// Labels of the caller.
    pub metadata: Metadata,
}

impl HolderView {
    /// What anybody may see of `hold` at `now`.
    #[must_use]
    pub fn of(hold: &Hold, now: LeaseTime) -> Self {
        Self {
            fence: hold.fence,
            owner: hold.owner.clone(),
            mode: hold.mode,
            acquired_at: hold.acquired_at,
            left_ms: hold.deadline.ms_since(now),
            metadata: hold.metadata.clone(),
        }
    }
}

/// What anybody may see of a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaiterView {
    /// The owner.
    pub owner: Option<OwnerName>,
    /// How long it has waited, in milliseconds, earlier tries included.
    pub waiting_ms: u64,
}

/// A lock as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockView {
    /// Its holders.
    pub holders: Vec<HolderView>,
    /// Its waiters in the order in which they will be served, the first 100 of them.
    pub waiters: Vec<WaiterView>,
}
