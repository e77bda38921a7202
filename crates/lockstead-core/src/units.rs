//! Numbers that must not be mixed up: moments, lengths, fences, tokens.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A moment on the cluster's clock: milliseconds of lease time since the lineage began, issued by the leader only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseTime(pub u64);

/// A moment on one node's own clock: milliseconds since that node started. Never compared across nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalTime(pub u64);

/// A wall-clock moment: milliseconds since the Unix epoch. For people to read; decides nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WallTime(pub u64);

/// A number that rises with every grant of a lineage; one counter for the whole cluster, at most 2^53 − 1.
///
/// A resource that remembers the highest fence it has seen can refuse a writer that was overtaken (Kleppmann, "How to
/// do distributed locking", 2016).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fence(pub u64);

/// The largest fence: the largest integer that every JSON reader keeps exact (RFC 8259, section 6).
pub const FENCE_MAX: Fence = Fence((1 << 53) - 1);

impl LeaseTime {
    /// This moment plus a length in milliseconds.
    #[must_use]
    pub fn plus_ms(self, length_ms: u64) -> Self {
        Self(self.0.saturating_add(length_ms))
    }

    /// Milliseconds from `earlier` to this moment, 0 if it is not earlier.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl LocalTime {
    /// This moment plus a length in milliseconds.
    #[must_use]
    pub fn plus_ms(self, length_ms: u64) -> Self {
        Self(self.0.saturating_add(length_ms))
    }

    /// Milliseconds from `earlier` to this moment, 0 if it is not earlier.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The secret that proves a hold: 128 random bits, fresh at every grant, made by the leader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Token(pub [u8; 16]);

impl Token {
    /// Reads 32 lower-case hex digits; anything else is no token of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A secret is not for logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// How long a hold lasts without a renewal: a length in milliseconds within the allowed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ttl(u64);

/// A TTL outside the allowed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a TTL above 0 must be {min_ms} to {max_ms} ms")]
pub struct TtlError {
    /// The shortest TTL, in milliseconds.
    pub min_ms: u64,
    /// The longest TTL, in milliseconds.
    pub max_ms: u64,
}

impl Ttl {
    /// The TTL of a request that names none, zero or a negative one.
    pub const DEFAULT: Self = Self(30_000);
    /// The shortest TTL that can be asked for, in milliseconds.
    pub const MIN_MS: u64 = 100;
    /// The longest TTL unless configured otherwise, in milliseconds.
    pub const MAX_MS_DEFAULT: u64 = 86_400_000;

    /// Takes what a request asked for: nothing, zero and negative mean [`Ttl::DEFAULT`].
    ///
    /// # Errors
    /// [`TtlError`] below [`Ttl::MIN_MS`] or above `max_ms`.
    pub fn from_request(ttl_ms: Option<i64>, max_ms: u64) -> Result<Self, TtlError> {
        let Some(asked_ms) = ttl_ms.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0) else {
            return Ok(Self::DEFAULT);
        };
        if (Self::MIN_MS..=max_ms).contains(&asked_ms) {
            Ok(Self(asked_ms))
        } else {
            Err(TtlError { min_ms: Self::MIN_MS, max_ms })
        }
    }

    /// The length in milliseconds.
    #[must_use]
    pub fn as_ms(self) -> u64 {
        self.0
    }
}
