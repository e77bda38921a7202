//! What a server answers.

use std::collections::BTreeMap;

use lockstead_core::{Fence, Grant, HolderView, LockView, Mode, Renewal, Token, WaiterView, WallTime};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// 200 of acquire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquireAnswer {
    /// The lock, byte for byte as asked.
    pub name: String,
    /// The secret that proves the hold: 32 lower-case hex digits.
    #[serde(with = "token_hex")]
    pub token: Token,
    /// The fence of the hold.
    pub fence: Fence,
    /// The TTL granted, in milliseconds.
    pub ttl_ms: u64,
    /// What is left of it as the answer is written, in milliseconds.
    pub expires_in_ms: u64,
    /// How long this very request lay with the nodes that carried it, in milliseconds.
    pub waited_ms: u64,
    /// The caller (by `owner`) held it already: same token and fence, the TTL counts from now.
    pub renewed: bool,
}

impl AcquireAnswer {
    /// The answer to the acquire of `name` that got `grant`.
    #[must_use]
    pub fn new(name: &str, grant: &Grant, waited_ms: u64) -> Self {
        Self {
            name: name.to_owned(),
            token: grant.token,
            fence: grant.fence,
            ttl_ms: grant.ttl.as_ms(),
            expires_in_ms: grant.left_ms,
            waited_ms,
            renewed: grant.renewed,
        }
    }
}

/// 200 of release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseAnswer {
    /// The lock, byte for byte as asked.
    pub name: String,
}

/// 200 of renew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewAnswer {
    /// The lock, byte for byte as asked.
    pub name: String,
    /// The fence of the hold, unchanged.
    pub fence: Fence,
    /// The TTL granted, in milliseconds.
    pub ttl_ms: u64,
    /// What is left of it as the answer is written, in milliseconds.
    pub expires_in_ms: u64,
}

impl RenewAnswer {
    /// The answer to the renewal of `name`.
    #[must_use]
    pub fn new(name: &str, renewal: &Renewal) -> Self {
        Self {
            name: name.to_owned(),
            fence: renewal.fence,
            ttl_ms: renewal.ttl.as_ms(),
            expires_in_ms: renewal.left_ms,
        }
    }
}

/// 200 of get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetAnswer {
    /// The lock, byte for byte as asked.
    pub name: String,
    /// Who holds it.
    pub holders: Vec<HolderBody>,
    /// Who waits, in the order in which they will be served, at most the first 100. Empty in a stale answer.
    pub waiters: Vec<WaiterBody>,
    /// The answer comes from the answering node's own table and may be old.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

impl GetAnswer {
    /// The answer to a linearizable read.
    #[must_use]
    pub fn linearizable(name: &str, view: &LockView) -> Self {
        Self { stale: false, ..Self::stale(name, view) }
    }

    /// The answer to a read of the answering node's own table.
    #[must_use]
    pub fn stale(name: &str, view: &LockView) -> Self {
        Self {
            name: name.to_owned(),
            holders: view.holders.iter().map(HolderBody::from).collect(),
            waiters: view.waiters.iter().map(WaiterBody::from).collect(),
            stale: true,
        }
    }
}

/// How a hold shares its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockMode {
    /// Alone.
    Exclusive,
    /// With other shared holds.
    Shared,
}

impl From<Mode> for LockMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Exclusive,
            Mode::Shared => Self::Shared,
        }
    }
}

/// What anybody may see of a hold: never its token or request id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderBody {
    /// The fence of the hold.
    pub fence: Fence,
    /// The owner, if the caller named one.
    pub owner: Option<String>,
    /// How the hold shares its lock.
    pub mode: LockMode,
    /// When it was granted: RFC 3339, UTC, milliseconds, the leader's wall clock. For people only.
    pub acquired_at: String,
    /// What is left as the answer is written, in milliseconds; 0 from the deadline until the hold is dropped.
    pub expires_in_ms: u64,
    /// Labels of the caller.
    pub metadata: BTreeMap<String, String>,
}

impl From<&HolderView> for HolderBody {
    fn from(holder: &HolderView) -> Self {
        Self {
            fence: holder.fence,
            owner: holder.owner.as_ref().map(|owner| owner.as_str().to_owned()),
            mode: holder.mode.into(),
            acquired_at: rfc3339_utc_ms(holder.acquired_at),
            expires_in_ms: holder.left_ms,
            metadata: holder.metadata.labels().iter().cloned().collect(),
        }
    }
}

/// What anybody may see of a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaiterBody {
    /// The owner, if the caller named one.
    pub owner: Option<String>,
    /// How long it has waited, in milliseconds, earlier tries included.
    pub waiting_ms: u64,
}

impl From<&WaiterView> for WaiterBody {
    fn from(waiter: &WaiterView) -> Self {
        Self { owner: waiter.owner.as_ref().map(|owner| owner.as_str().to_owned()), waiting_ms: waiter.waiting_ms }
    }
}

/// 200 of `GET /v1/admin/cluster`: the answering node's view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterAnswer {
    /// The lineage, 32 hex digits; null before the node has joined one.
    pub cluster_id: Option<String>,
    /// The answering node.
    pub node_id: u64,
    /// The answering node's peer address, `host:port`.
    pub peer: String,
    /// The answering node is empty and about to found a cluster.
    pub bootstrapping: bool,
    /// Who leads, as this node knows.
    pub leader: Option<u64>,
    /// Its term.
    pub term: u64,
    /// Its last log index.
    pub last_log: u64,
    /// The last committed index that it knows.
    pub committed: u64,
    /// The last index it applied.
    pub applied: u64,
    /// The highest lease time it applied, in milliseconds.
    pub lease_ms: u64,
    /// How many more voters may fail without loss of the quorum. The leader counts those that are not reachable as
    /// failed; any other node, which knows of none, counts none.
    pub failures_tolerated: u64,
    /// Its newest snapshot.
    pub snapshot: Option<SnapshotBody>,
    /// The log that is kept.
    pub tail: TailBody,
    /// Records in force.
    pub live_records: u64,
    /// For how long nothing is granted after a restore or recovery, in milliseconds in which there is a leader; 0
    /// otherwise.
    #[serde(default)]
    pub hold_off_ms: u64,
    /// Bytes on disk, as of some seconds ago.
    pub disk_bytes: u64,
    /// The log id of the membership, as in the header `etag`; null before the node knows one.
    #[serde(default)]
    pub membership: Option<String>,
    /// The members.
    pub members: Vec<MemberBody>,
}

/// A snapshot on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotBody {
    /// Log index of its label.
    pub index: u64,
    /// The index below which a table built from it is the state of no moment.
    pub built_at: u64,
    /// Its size.
    pub bytes: u64,
}

/// 200 of `POST /v1/admin/snapshot`, of the node asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotAnswer {
    /// Log index of its label: no live record was stated last at or before it when the snapshot was asked for.
    pub index: u64,
    /// The index below which a table built from it is the state of no moment.
    pub built_at: u64,
    /// Last log index purged; behind `index` while a follower within reach still needs what lies between.
    pub purged_to: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The log that is kept: what was not purged behind the newest snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailBody {
    /// How many entries.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A member's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberRole {
    /// It leads.
    Leader,
    /// It votes.
    Follower,
    /// It does not vote.
    Learner,
}

/// What the answering node knows of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberBody {
    /// Its id.
    pub id: u64,
    /// Its part.
    pub role: MemberRole,
    /// Where clients reach it, `host:port`.
    pub api: String,
    /// Where peers reach it, `host:port`.
    pub peer: String,
    /// The data directory it joined with, 16 hex digits.
    pub incarnation: String,
    /// The version that it runs.
    pub version: String,
    /// How often it was started, as far as the membership knows.
    #[serde(default)]
    pub starts: u64,
    /// It answered within the maximum election timeout; null where the answering node can't know.
    pub reachable: Option<bool>,
    /// Milliseconds since it last answered; null where the answering node can't know.
    pub last_contact_ms: Option<u64>,
    /// The last log index known to be on it; null where the answering node can't know.
    pub matched: Option<u64>,
    /// Entries that it lacks; null where the answering node can't know.
    pub lag: Option<u64>,
}

/// The last millisecond of the year 9999, the last that RFC 3339 can write.
const RFC3339_MS_MAX: u64 = 253_402_300_799_999;

fn rfc3339_utc_ms(wall: WallTime) -> String {
    let unix_ms = wall.0.min(RFC3339_MS_MAX);
    let moment = OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (hour, minute, second, ms) = moment.time().as_hms_milli();
    let (year, month, day) = moment.to_calendar_date();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z", u8::from(month))
}

mod token_hex {
    use std::borrow::Cow;

    use lockstead_core::Token;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(token: &Token, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(token)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Token::parse(&text).ok_or_else(|| D::Error::custom("a token of 32 lower-case hex digits is needed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquired_at_is_rfc3339_in_utc_with_milliseconds() {
        assert_eq!(rfc3339_utc_ms(WallTime(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339_utc_ms(WallTime(1_709_210_096_007)), "2024-02-29T12:34:56.007Z");
        assert_eq!(rfc3339_utc_ms(WallTime(u64::MAX)), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn a_token_reads_back_as_written_and_nothing_else_is_one() {
        let written = r#"{"name":"a","token":"000102030405060708090a0b0c0d0e0f","fence":7,"ttl_ms":30000,"expires_in_ms":29998,"waited_ms":2,"renewed":false}"#;
        let answer: AcquireAnswer = serde_json::from_str(written).unwrap();
        assert_eq!(answer.token, Token([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]));
        assert_eq!(serde_json::to_string(&answer).unwrap(), written);
        assert!(serde_json::from_str::<AcquireAnswer>(&written.replace("0a0b", "0A0B")).is_err());
    }
}
