//! One try of one client, and what it was told.

use serde::{Deserialize, Serialize};

/// One try: one request on one connection to one node. A retry is a call of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Unique in the history.
    pub id: u64,
    /// Who asked.
    pub client: u32,
    /// Which node was asked.
    pub node: u64,
    /// For which lock.
    pub lock: String,
    /// What was asked.
    pub op: Op,
    /// Read before the try was sent.
    pub sent_us: u64,
    /// Read after the whole answer had come; none if no answer ever came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_us: Option<u64>,
    /// What came of it.
    pub answer: Answer,
    /// What the run itself did to this call, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excuse: Option<Excuse>,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// To be granted the lock.
    Acquire {
        /// The TTL that the grant is to have, as the server reads it (a missing one is 30,000).
        ttl_ms: u64,
        /// How long to wait for it; 0 is a try.
        #[serde(default)]
        wait_ms: u64,
        /// Under which owner, so that it renews what is already held.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
        /// What makes a retry find its grant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
        /// How long the request has waited in earlier tries.
        #[serde(default)]
        queued_ms: u64,
    },
    /// To end the hold that the token proves.
    Release {
        /// The proof.
        token: String,
    },
    /// To let the hold's TTL begin anew.
    Renew {
        /// The proof.
        by: Proof,
        /// The new TTL, as the server reads it (a missing one is 30,000).
        ttl_ms: u64,
    },
    /// To be told who holds the lock.
    Get,
}

/// What a renewal names its hold by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The token of the grant.
    Token(String),
    /// The owner that acquired it.
    Owner(String),
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// An acquire holds the lock.
    Granted {
        /// The secret of the hold.
        token: String,
        /// Its fence.
        fence: u64,
        /// Its TTL.
        ttl_ms: u64,
        /// What was left of it when the answer was written.
        expires_in_ms: u64,
        /// How long this very try lay with the nodes before the decision.
        waited_ms: u64,
        /// Whether it was already held by the same owner.
        renewed: bool,
    },
    /// An acquire was refused: another holds the lock, or waits for it.
    Held {
        /// The fences of the holders.
        holders: Vec<u64>,
        /// How many wait.
        queue_len: u64,
    },
    /// A release ended the hold.
    Released,
    /// A release or a renewal found no such hold.
    NotHolder,
    /// A renewal took.
    Renewed {
        /// The fence of the hold.
        fence: u64,
        /// Its TTL from now on.
        ttl_ms: u64,
        /// What was left of it when the answer was written.
        expires_in_ms: u64,
        /// How long this very try lay with the nodes before the decision.
        waited_ms: u64,
    },
    /// A get found the lock held or waited for.
    Got {
        /// The fences of the holders.
        holders: Vec<u64>,
        /// How many wait.
        waiters: u64,
    },
    /// A get found the lock free.
    NotHeld,
    /// Refused, and surely without effect: 400, 413, 429, and 503 with `no_leader`, `catching_up` or `overloaded`.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The error code in the body.
        code: String,
    },
    /// Nobody knows: it may have taken effect, may still, or never will.
    Unknown {
        /// Why nobody knows.
        why: Lost,
    },
}

impl Answer {
    /// Whether a call of this kind may be answered so.
    pub(super) fn fits(&self, op: &Op) -> bool {
        match self {
            Self::Granted { .. } | Self::Held { .. } => matches!(op, Op::Acquire { .. }),
            Self::Released => matches!(op, Op::Release { .. }),
            Self::Renewed { .. } => matches!(op, Op::Renew { .. }),
            Self::NotHolder => matches!(op, Op::Release { .. } | Op::Renew { .. }),
            Self::Got { .. } | Self::NotHeld => matches!(op, Op::Get),
            Self::Refused { .. } | Self::Unknown { .. } => true,
        }
    }

    /// What a refusal means: only a 503 that says `outcome_unknown`, and any other 5xx, leave the outcome open.
    ///
    /// Not for 409 and 404, which are answers about the lock.
    pub fn refused(status: u16, code: &str) -> Self {
        match (status, code) {
            (503, "no_leader" | "catching_up" | "overloaded") | (400..=499, _) => {
                Self::Refused { status, code: code.to_owned() }
            }
            (503, _) => Self::Unknown { why: Lost::OutcomeUnknown },
            _ => Self::Unknown { why: Lost::ServerError { status } },
        }
    }
}

/// Why the outcome of a call is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// The service said so: 503 `outcome_unknown`.
    OutcomeUnknown,
    /// The connection broke after the request was sent.
    ConnectionLost {
        /// When the client saw it.
        at_us: u64,
    },
    /// The client closed or reset its connection on purpose.
    Abandoned {
        /// When it did.
        at_us: u64,
    },
    /// The client waited past the request's own deadline, and then left.
    GaveUp {
        /// When it did.
        at_us: u64,
    },
    /// An answer that says nothing about the lock, such as 500.
    ServerError {
        /// The HTTP status.
        status: u16,
    },
    /// The run ended before an answer came.
    RunEnded,
}

/// What the run did to a call, so that neither a late answer nor a broken connection is held against the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Excuse {
    /// The asked node was killed, or down.
    NodeKilled,
    /// The asked node was stopped for a while.
    NodePaused,
    /// The client's link to the node was cut, slowed or made to lose data.
    LinkFault,
}
