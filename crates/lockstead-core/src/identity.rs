//! Who a node and a cluster are.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A node's number, chosen by its operator, from 1, never reused within a lineage.
pub type NodeId = u64;

/// The id of one lineage of a cluster: random, made at bootstrap (also at restore and recovery).
///
/// Shown and parsed as 32 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClusterId(pub u128);

/// The id of one data directory: random, made when the directory is first used.
///
/// Shown and parsed as 16 lower-case hex digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation(pub u64);

/// A text that is not the hex form of an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an id of {digits} hex digits is needed")]
pub struct IdError {
    /// How many digits the id has.
    pub digits: usize,
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

impl FromStr for ClusterId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_hex(text, 32).map(Self).ok_or(IdError { digits: 32 })
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incarnation({self})")
    }
}

impl FromStr for Incarnation {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_hex(text, 16).and_then(|value| u64::try_from(value).ok()).map(Self).ok_or(IdError { digits: 16 })
    }
}

fn parse_hex(text: &str, digits: usize) -> Option<u128> {
    let lower_hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    (text.len() == digits && lower_hex).then(|| u128::from_str_radix(text, 16).ok()).flatten()
}
