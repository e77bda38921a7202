//! What the log carries: batches of self-contained, idempotent records.
//!
//! The leader decides, the log carries facts: a record says what is now true, whole, and its application depends on
//! nothing but the record itself.
//!
//! Layout of an encoded batch: one version byte, the term and the lease time as 8 little-endian bytes each, then the
//! records one after another in bincode's standard configuration, up to the end.

use serde::{Deserialize, Serialize};

use crate::name::{LockKey, Metadata, OwnerName, RequestId};
use crate::units::{Fence, LeaseTime, Token, Ttl, WallTime};

/// The version byte of an encoded batch that this build writes.
pub const BATCH_VERSION: u8 = 1;
/// Where a drain is cut: no batch encodes to more than this, in bytes.
pub const BATCH_BYTES_MAX: usize = 64 * 1_024;
/// The most that the records of one request may encode to, in bytes.
pub const REQUEST_BYTES_MAX: usize = 32 * 1_024;
/// Bytes of an encoded batch before its first record.
pub const BATCH_HEADER_BYTES: usize = 17;

/// The id of a session: one keep-alive for many holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId(pub u64);

/// How a hold shares its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Alone.
    #[default]
    Exclusive,
    /// With other shared holds.
    Shared,
}

/// One holder's possession of a lock, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The lock that is held.
    pub lock: LockKey,
    /// Rises with every grant; with `lock` it names the hold.
    pub fence: Fence,
    /// The secret that proves the hold.
    pub token: Token,
    /// The name that the caller chose for itself.
    pub owner: Option<OwnerName>,
    /// The id under which a retry finds this hold again.
    pub request_id: Option<RequestId>,
    /// How the hold shares its lock.
    pub mode: Mode,
    /// Size of the semaphore that the lock is; 1 for a plain lock.
    pub permits: u32,
    /// The session that keeps the hold alive, if not the hold itself.
    pub session: Option<SessionId>,
    /// The TTL last granted.
    pub ttl: Ttl,
    /// When the hold may be dropped, in lease time.
    pub deadline: LeaseTime,
    /// How long the lock stays free after an involuntary end of this hold, in milliseconds.
    pub delay_ms: u64,
    /// When the hold was granted, on the leader's wall clock, for people.
    pub acquired_at: WallTime,
    /// Labels of the caller.
    pub metadata: Metadata,
}

/// Why a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DropReason {
    /// Its holder released it.
    Released,
    /// Its deadline passed.
    Expired,
    /// Its grant reached nobody.
    GivenBack,
}

/// A record in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Live {
    /// A hold.
    Hold(Hold),
}

/// One fact. New kinds are added at the end: the position is part of the log's format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// This hold is in force: a grant or a renewal.
    Hold(Hold),
    /// The hold (lock, fence) is over.
    Drop {
        /// The lock that was held.
        lock: LockKey,
        /// The fence of the hold.
        fence: Fence,
        /// Why it ended.
        reason: DropReason,
    },
    /// A live record said once more, so that older log entries can go.
    Restate(Live),
}

impl Record {
    /// Bytes that a hold takes in a batch when it is restated.
    pub(crate) fn restated_bytes(hold: &Hold) -> u64 {
        let mut size = bincode::enc::write::SizeWriter::default();
        bincode::serde::encode_into_writer(hold, &mut size, bincode::config::standard())
            .expect("holds have only types that bincode encodes");
        // One byte says that it is a restatement, one of what.
        2 + size.bytes_written as u64
    }
}

/// One log entry of ours: the records decided together. Without records it is a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The term in which it was decided; in an entry of another term it is void.
    pub term: u64,
    /// The lease time of the decision.
    pub time: LeaseTime,
    /// The facts, in order.
    pub records: Vec<Record>,
}

/// Bytes that are no batch of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The header is cut off.
    #[error("a batch of {0} bytes is too short")]
    Short(usize),
    /// Another version wrote it.
    #[error("batch version {0} is unknown: a newer version of Lockstead wrote it")]
    Version(u8),
    /// A record does not decode.
    #[error("record {position} of a batch does not decode: {why}")]
    Record {
        /// Its place in the batch, from 0.
        position: usize,
        /// What the decoder says.
        why: String,
    },
}

impl Batch {
    /// The bytes that go into the log.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = BatchEncoder::new(self.term, self.time);
        for record in &self.records {
            encoder.push(record);
        }
        encoder.into_bytes()
    }

    /// Reads what [`Batch::encode`] or a [`BatchEncoder`] wrote.
    ///
    /// # Errors
    /// [`BatchError`] if the bytes are not a whole batch of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, BatchError> {
        let Some((header, mut rest)) = bytes.split_at_checked(BATCH_HEADER_BYTES) else {
            return Err(BatchError::Short(bytes.len()));
        };
        if header[0] != BATCH_VERSION {
            return Err(BatchError::Version(header[0]));
        }
        let mut records = Vec::new();
        while !rest.is_empty() {
            let (record, used) = bincode::serde::decode_from_slice(rest, bincode::config::standard())
                .map_err(|why| BatchError::Record { position: records.len(), why: why.to_string() })?;
            records.push(record);
            rest = &rest[used..];
        }
        Ok(Self { term: read_u64(&header[1..9]), time: LeaseTime(read_u64(&header[9..17])), records })
    }
}

fn read_u64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Builds an encoded batch record by record, so that its size is known at each step and nothing is encoded twice.
#[derive(Clone, Debug)]
pub struct BatchEncoder {
    bytes: Vec<u8>,
    records: usize,
}

impl BatchEncoder {
    /// A batch without records.
    #[must_use]
    pub fn new(term: u64, time: LeaseTime) -> Self {
        let mut bytes = Vec::with_capacity(1_024);
        bytes.push(BATCH_VERSION);
        bytes.extend(term.to_le_bytes());
        bytes.extend(time.0.to_le_bytes());
        Self { bytes, records: 0 }
    }

    /// Adds one record.
    ///
    /// # Panics
    /// Never: records hold only types that bincode encodes.
    pub fn push(&mut self, record: &Record) {
        bincode::serde::encode_into_std_write(record, &mut self.bytes, bincode::config::standard())
            .expect("records hold only types that bincode encodes, and a Vec takes all bytes");
        self.records += 1;
    }

    /// Takes back the newest records: the batch is again as it was at `len_bytes` with `records`.
    pub(crate) fn truncate(&mut self, len_bytes: usize, records: usize) {
        self.bytes.truncate(len_bytes);
        self.records = records;
    }

    /// How many records it has.
    #[must_use]
    pub fn records(&self) -> usize {
        self.records
    }

    /// How many bytes it has, header included.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that go into the log.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
