//! Errors: `{"error": {"code", "message", …}}`.

use std::fmt;

use lockstead_core::HeldBy;
use serde::{Deserialize, Serialize};

use crate::answer::HolderBody;
use crate::members::ToGoBody;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $code:ident = $text:literal, $status:literal;)*) => {
        /// What went wrong, for programs; each code has one HTTP status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode {
            $($(#[$doc])* #[serde(rename = $text)] $code,)*
            /// A code that this version does not know; read from a newer server, never written.
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl ErrorCode {
            /// The code as it stands in the answer.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $text,)*
                    Self::Unknown => "unknown",
                }
            }

            /// The HTTP status that it comes with.
            #[must_use]
            pub fn http_status(self) -> u16 {
                match self {
                    $(Self::$code => $status,)*
                    Self::Unknown => 500,
                }
            }
        }
    };
}

error_codes! {
    /// The body is not a JSON object in UTF-8, or names a field twice.
    InvalidJson = "invalid_json", 400;
    /// The body or query has a field that this version does not know.
    InvalidField = "invalid_field", 400;
    /// `name` is missing, not a text, empty or too long.
    InvalidName = "invalid_name", 400;
    /// `ttl_ms` is not an integer or out of range.
    InvalidTtl = "invalid_ttl", 400;
    /// `wait_ms` is not an integer or out of range.
    InvalidWait = "invalid_wait", 400;
    /// `token` is missing, not a text, or stands beside `owner`.
    InvalidToken = "invalid_token", 400;
    /// `owner` is not a text, empty or too long.
    InvalidOwner = "invalid_owner", 400;
    /// `request_id` is not a text, too short or too long.
    InvalidRequestId = "invalid_request_id", 400;
    /// `queued_ms` is not an integer or out of range.
    InvalidQueued = "invalid_queued", 400;
    /// `metadata` is not an object of texts, or too large.
    InvalidMetadata = "invalid_metadata", 400;
    /// `consistency` is neither `linearizable` nor `stale`.
    InvalidConsistency = "invalid_consistency", 400;
    /// The request id was used before with another owner, mode, permits or session.
    RequestIdReused = "request_id_reused", 400;
    /// Nobody holds the lock.
    NotHeld = "not_held", 404;
    /// No member has, or had, this id.
    UnknownNode = "unknown_node", 404;
    /// There is no such path.
    NotFound = "not_found", 404;
    /// The path knows other methods (header `allow`).
    MethodNotAllowed = "method_not_allowed", 405;
    /// The body did not arrive in time.
    RequestTimeout = "request_timeout", 408;
    /// Somebody else holds the lock, or waits before the caller.
    Held = "held", 409;
    /// The token or owner matches no live hold of the lock.
    NotHolder = "not_holder", 409;
    /// Of the voters that would be left, too few answer now; nothing was changed.
    WouldLoseQuorum = "would_lose_quorum", 409;
    /// The node lacks entries of the log, or does not answer; nothing was changed.
    NotCaughtUp = "not_caught_up", 409;
    /// Another change of the membership is in progress; nothing was changed.
    ChangeInProgress = "change_in_progress", 409;
    /// The node id belongs, or belonged, to another node: it is never used again.
    NodeIdReused = "node_id_reused", 409;
    /// Another member is reached at one of these addresses.
    AddressInUse = "address_in_use", 409;
    /// Nobody answers at the address as the node that is to be added.
    NodeUnreachable = "node_unreachable", 409;
    /// The request is meant for another cluster.
    WrongCluster = "wrong_cluster", 409;
    /// The membership is not the one of `if-match` any more; nothing was changed.
    MembershipChanged = "membership_changed", 412;
    /// The body, or what would be logged for it, is too large.
    TooLarge = "too_large", 413;
    /// The body is not declared as JSON.
    UnsupportedMediaType = "unsupported_media_type", 415;
    /// The namespace holds as many locks as it may.
    LimitExceeded = "limit_exceeded", 429;
    /// No leader with a quorum answered in time; nothing was changed.
    NoLeader = "no_leader", 503;
    /// The request may or may not have taken effect: repeat it with the same request id, or read.
    OutcomeUnknown = "outcome_unknown", 503;
    /// The node has not replayed enough of the log.
    CatchingUp = "catching_up", 503;
    /// As many requests wait at this node as it has room for; nothing was changed.
    Overloaded = "overloaded", 503;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The body of every error answer. One pointer wide, so that a `Result` of it stays small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: Box<ErrorDetail>,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// For programs.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
    /// The field of the body or query that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What the field may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// When to try again, in milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// `held`: who holds the lock; empty if only waiters are in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holders: Option<Vec<HolderBody>>,
    /// `held`: how many requests wait for the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_len: Option<u64>,
    /// `held`: for how long nothing at all is granted after a restore or recovery, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_off_ms: Option<u64>,
    /// `limit_exceeded`: the most live holds of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// `limit_exceeded`: how many it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
    /// `not_caught_up`: what the node still lacks of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_go: Option<ToGoBody>,
    /// `membership_changed`: the log id of the membership now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub membership: Option<String>,
}

impl ErrorBody {
    /// An error without particulars.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let error = ErrorDetail {
            code,
            message: message.into(),
            field: None,
            allowed: None,
            retry_after_ms: None,
            holders: None,
            queue_len: None,
            hold_off_ms: None,
            limit: None,
            current: None,
            to_go: None,
            membership: None,
        };
        Self { error: Box::new(error) }
    }

    /// A field of the body or query is not what it may be.
    #[must_use]
    pub fn field(code: ErrorCode, field: &str, allowed: impl Into<String>) -> Self {
        let allowed = allowed.into();
        let mut body = Self::new(code, format!("{field} must be {allowed}"));
        body.error.field = Some(field.to_owned());
        body.error.allowed = Some(allowed);
        body
    }

    /// The lock cannot be had now.
    #[must_use]
    pub fn held(held: &HeldBy) -> Self {
        let mut body = match held.hold_off_ms {
            0 => Self::new(ErrorCode::Held, "the lock is held, or others wait for it"),
            hold_off_ms => Self::held_off(hold_off_ms),
        };
        body.error.holders = Some(held.holders.iter().map(HolderBody::from).collect());
        body.error.queue_len = Some(held.queue_len);
        body
    }

    fn held_off(hold_off_ms: u64) -> Self {
        let message = "nothing is granted yet: holders from before the restore may still count on their locks";
        let mut body = Self::new(ErrorCode::Held, message).retry_after_ms(hold_off_ms);
        body.error.hold_off_ms = Some(hold_off_ms);
        body
    }

    /// The namespace is full.
    #[must_use]
    pub fn limit_exceeded(limit: u64, current: u64) -> Self {
        let mut body = Self::new(ErrorCode::LimitExceeded, format!("{current} locks are held, {limit} may be"));
        body.error.limit = Some(limit);
        body.error.current = Some(current);
        body
    }

    /// The same error, worth another try after a while.
    #[must_use]
    pub fn retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.error.retry_after_ms = Some(retry_after_ms);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_only_the_particulars_it_has() {
        let body = ErrorBody::field(ErrorCode::InvalidWait, "wait_ms", "an integer from 0 to 300000");
        assert_eq!(
            serde_json::to_string(&body).unwrap(),
            r#"{"error":{"code":"invalid_wait","message":"wait_ms must be an integer from 0 to 300000","field":"wait_ms","allowed":"an integer from 0 to 300000"}}"#
        );
    }

    #[test]
    fn a_lock_that_cannot_be_had_after_a_restore_says_for_how_long() {
        let held = |hold_off_ms| ErrorBody::held(&HeldBy { holders: Vec::new(), queue_len: 0, hold_off_ms }).error;
        let held_off = held(700);
        assert_eq!(
            (held_off.code, held_off.hold_off_ms, held_off.retry_after_ms),
            (ErrorCode::Held, Some(700), Some(700))
        );
        assert_eq!((held(0).hold_off_ms, held(0).retry_after_ms), (None, None));
    }

    #[test]
    fn a_code_of_a_newer_server_is_read_as_unknown() {
        let body: ErrorBody =
            serde_json::from_str(r#"{"error":{"code":"brand_new","message":"m","extra":1}}"#).unwrap();
        assert_eq!(body, ErrorBody::new(ErrorCode::Unknown, "m"));
    }
}
