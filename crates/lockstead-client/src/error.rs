//! Why something could not be found out, and what to do next.

use lockstead_api::{ErrorBody, ErrorCode};

/// A call that brought neither what was asked nor a refusal that is an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No node was reached. Nothing was changed: check the endpoints, call again.
    #[error("no node could be reached; the last try: {last}")]
    Unreachable {
        /// What the last try met.
        last: String,
    },
    /// Nodes were reached, but no leader with a quorum. Nothing was changed: call again when the cluster has its
    /// quorum.
    #[error("no leader with a quorum answered in time, and nothing was changed; the last try: {last}")]
    NoQuorum {
        /// What the last try met.
        last: String,
    },
    /// It may or may not have taken effect. An acquire: call again with the same request id, which brings the grant if
    /// there is one; else the TTL ends it. A release or renewal: call again.
    #[error("it may or may not have taken effect; the last try: {last}")]
    OutcomeUnknown {
        /// The request id of an acquire.
        request_id: Option<String>,
        /// What the last try met.
        last: String,
    },
    /// The request itself is wrong. Nothing was changed; calling again without a correction is useless.
    #[error("{}", .0.message())]
    BadRequest(Refusal),
    /// A node of another cluster than the ones before has answered, and has not acted: check the endpoints. A try
    /// before may have taken effect in the cluster expected. After a restore or recovery the cluster is another one,
    /// and what was held before is over.
    #[error("{endpoint} belongs to cluster {found}, not to {expected} like the nodes before")]
    OtherCluster {
        /// Who answered.
        endpoint: String,
        /// The cluster that this client talks to.
        expected: String,
        /// The cluster that the node belongs to.
        found: String,
    },
    /// What answers there does not speak this interface: check the endpoints.
    #[error("{endpoint} does not answer like a lockstead node: {why}")]
    NotUnderstood {
        /// Who answered.
        endpoint: String,
        /// What is odd.
        why: String,
    },
    /// The operating system gives no random bits for a request id. Nothing was sent.
    #[error("no random bits for a request id: {0}")]
    NoRandomness(String),
}

/// A refusal of the request itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// What the node said.
    pub body: ErrorBody,
    /// The same, as it came.
    pub raw: bytes::Bytes,
}

impl Refusal {
    /// The code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.body.error.code
    }

    /// The message for people, with its code.
    #[must_use]
    pub fn message(&self) -> String {
        format!("{} ({})", self.body.error.message, self.code())
    }
}
