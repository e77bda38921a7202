//! What a client sends.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// A text that must not reach a log: a token or a request id. Its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The body of `POST /v1/locks/acquire`. What is `None` is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AcquireBody {
    /// The lock: 1 to 1,024 bytes.
    pub name: String,
    /// How long the hold lasts without a renewal, in milliseconds: 100 to the server's maximum (a day by default);
    /// missing, 0 and less mean 30 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<i64>,
    /// How long to wait, in milliseconds: 0 (a try, the default) to 300,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// "Renew if mine, take if free, refuse otherwise": 1 to 256 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The id under which a retry gets the same grant: 16 to 128 bytes, secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Secret>,
    /// How long this request has already waited, in milliseconds; keeps its place after a reconnect. Honoured with a
    /// `request_id` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_ms: Option<u64>,
    /// Labels for the hold: keys and values at most 4 KiB together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// The body of `POST /v1/locks/release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReleaseBody {
    /// The lock.
    pub name: String,
    /// The token of the hold. A text that is no token is answered `not_holder`.
    pub token: Secret,
}

/// The body of `POST /v1/locks/renew`: exactly one of `token` and `owner`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RenewBody {
    /// The lock.
    pub name: String,
    /// The token of the hold. A text that is no token is answered `not_holder`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// The owner of the hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How long the hold lasts from now on, in milliseconds; as in [`AcquireBody::ttl_ms`], so missing means 30 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<i64>,
}
