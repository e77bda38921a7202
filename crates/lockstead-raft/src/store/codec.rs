//! How log entries, and the facts beside them, lie in sled and in the journal.
//!
//! An entry is one value, or several parts if it is large: a leaf with large values would go to a blob file, which sled
//! never syncs. Part 0 has the index as its key (8 bytes, big-endian), part n the index followed by n (2 bytes,
//! big-endian), so that keys sort as the log does.
//!
//! A part: version (1), kind (1), index (8), term (8), part (2), parts (2), CRC-32 of all other bytes (4), body;
//! numbers are little-endian. A fact: version (1), CRC-32 of all other bytes (4), bincode.

use std::borrow::Cow;
use std::sync::Arc;

use openraft::EntryPayload;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::seal::{Seal, Why};
use crate::types::{BatchBytes, Entry, LogId};

pub(super) const HEAD_BYTES: usize = 26;
const SEAL: Seal = Seal { version: 1, version_at: 0, crc_at: 22 };
const FACT_HEAD_BYTES: usize = 5;
const FACT_SEAL: Seal = Seal { version: 1, version_at: 0, crc_at: 1 };
/// The largest body of one part, in bytes.
pub(super) const PART_BYTES_MAX: usize = 60 * 1_024;

const KIND_BLANK: u8 = 0;
const KIND_BATCH: u8 = 1;
const KIND_MEMBERSHIP: u8 = 2;

/// An entry as it lies in journal and sled. Encoded once for both.
#[derive(Debug)]
pub(super) struct EncodedEntry {
    pub(super) log_id: LogId,
    /// Its parts, in order, as key and value.
    pub(super) parts: Vec<(Vec<u8>, Vec<u8>)>,
}

impl EncodedEntry {
    /// Bytes of all values.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|(_, value)| value.len()).sum()
    }
}

/// An entry as it lies in journal and sled.
pub(super) fn encode_entry(entry: &Entry) -> EncodedEntry {
    let (kind, body) = body(entry);
    let parts = body.len().div_ceil(PART_BYTES_MAX).max(1);
    let parts = u16::try_from(parts).expect("an entry is far below 3 GiB");
    let term = entry.log_id.committed_leader_id().term;
    let parts = (0..parts).map(|part| {
        let head = Head { kind, index: entry.log_id.index(), term, part, parts };
        let start = usize::from(part) * PART_BYTES_MAX;
        let end = body.len().min(start + PART_BYTES_MAX);
        (key(head.index, part), head.frame(&body[start..end]))
    });
    EncodedEntry { log_id: entry.log_id, parts: parts.collect() }
}

/// About how many bytes an entry takes in the log.
pub(super) fn entry_bytes(entry: &Entry) -> u32 {
    let body = match &entry.payload {
        EntryPayload::Normal(batch) => batch.0.len(),
        EntryPayload::Blank | EntryPayload::Membership(_) => body(entry).1.len(),
    };
    u32::try_from(body + HEAD_BYTES).unwrap_or(u32::MAX)
}

/// The key of an entry's first part.
pub(super) fn first_key(index: u64) -> [u8; 8] {
    index.to_be_bytes()
}

/// The index in a key.
pub(super) fn index_of(key: &[u8]) -> Result<u64, Why> {
    match key.split_first_chunk() {
        Some((index, rest)) if matches!(rest.len(), 0 | 2) => Ok(u64::from_be_bytes(*index)),
        _ => Err(format!("a key of {} bytes", key.len()).into()),
    }
}

pub(super) fn encode_fact<T: Serialize>(fact: &T) -> Vec<u8> {
    let mut bytes = vec![0; FACT_HEAD_BYTES];
    bincode::serde::encode_into_std_write(fact, &mut bytes, bincode::config::standard())
        .expect("facts hold only types that bincode encodes, and a Vec takes all bytes");
    FACT_SEAL.put(&mut bytes);
    bytes
}

pub(super) fn decode_fact<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Why> {
    FACT_SEAL.check(bytes)?;
    decode_all(&bytes[FACT_HEAD_BYTES..])
}

pub(super) fn decode_all<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Why> {
    match bincode::serde::decode_from_slice(bytes, bincode::config::standard()) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok((_, used)) => Err(format!("{} bytes too many", bytes.len() - used).into()),
        Err(error) => Err(error.to_string().into()),
    }
}

/// Puts the parts of entries, given in the order of their keys, together again.
#[derive(Default)]
pub(super) struct Assembler {
    partial: Option<(Head, Vec<u8>)>,
}

impl Assembler {
    /// Takes the next part; gives the entry that it completes.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Entry>, Why> {
        let (head, body) = Head::parse(value)?;
        if key != self::key(head.index, head.part) {
            return Err(format!("entry {} lies under the key of another", head.index).into());
        }
        self.push_parsed(head, body)
    }

    /// Takes the next part, which has no key.
    pub(super) fn push_part(&mut self, value: &[u8]) -> Result<Option<Entry>, Why> {
        let (head, body) = Head::parse(value)?;
        self.push_parsed(head, body)
    }

    fn push_parsed(&mut self, head: Head, body: &[u8]) -> Result<Option<Entry>, Why> {
        match self.partial.take() {
            None if head.part == 0 && head.parts == 1 => decode_entry(head, body).map(Some),
            None if head.part == 0 => Ok(self.wait(head, body.to_vec())),
            Some((before, mut bytes)) if head.follows(before) => {
                bytes.extend_from_slice(body);
                if head.part + 1 == head.parts {
                    decode_entry(head, &bytes).map(Some)
                } else {
                    Ok(self.wait(head, bytes))
                }
            }
            other => {
                let index = other.map_or(head.index, |(before, _)| before.index);
                Err(format!("entry {index} lacks a part").into())
            }
        }
    }

    /// Says so if the last entry is not complete.
    pub(super) fn finish(&self) -> Result<(), Why> {
        match &self.partial {
            None => Ok(()),
            Some((head, _)) => Err(format!("entry {} lacks a part", head.index).into()),
        }
    }

    fn wait(&mut self, head: Head, bytes: Vec<u8>) -> Option<Entry> {
        self.partial = Some((head, bytes));
        None
    }
}

#[derive(Clone, Copy)]
struct Head {
    kind: u8,
    index: u64,
    term: u64,
    part: u16,
    parts: u16,
}

impl Head {
    fn frame(self, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
        bytes.extend([0, self.kind]);
        bytes.extend(self.index.to_le_bytes());
        bytes.extend(self.term.to_le_bytes());
        bytes.extend(self.part.to_le_bytes());
        bytes.extend(self.parts.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend_from_slice(body);
        SEAL.put(&mut bytes);
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Why> {
        SEAL.check(bytes).map_err(|why| why.map(|why| format!("a value: {why}")))?;
        let (head, body) = bytes.split_at(HEAD_BYTES);
        let number = |from: usize, to: usize| head[from..to].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let short = |from: usize| u16::from_le_bytes([head[from], head[from + 1]]);
        Ok((
            Self { kind: head[1], index: number(2, 10), term: number(10, 18), part: short(18), parts: short(20) },
            body,
        ))
    }

    fn follows(self, before: Self) -> bool {
        let same = |head: Self| (head.kind, head.index, head.term, head.parts);
        same(self) == same(before) && self.part == before.part + 1 && self.part < self.parts
    }
}

fn key(index: u64, part: u16) -> Vec<u8> {
    let mut key = index.to_be_bytes().to_vec();
    if part > 0 {
        key.extend(part.to_be_bytes());
    }
    key
}

fn body(entry: &Entry) -> (u8, Cow<'_, [u8]>) {
    match &entry.payload {
        EntryPayload::Blank => (KIND_BLANK, Cow::Borrowed(&[])),
        EntryPayload::Normal(batch) => (KIND_BATCH, Cow::Borrowed(&batch.0)),
        EntryPayload::Membership(membership) => {
            let bytes = bincode::serde::encode_to_vec(membership, bincode::config::standard())
                .expect("a membership holds only types that bincode encodes");
            (KIND_MEMBERSHIP, Cow::Owned(bytes))
        }
    }
}

fn decode_entry(head: Head, body: &[u8]) -> Result<Entry, Why> {
    let payload = match head.kind {
        KIND_BLANK => EntryPayload::Blank,
        KIND_BATCH => EntryPayload::Normal(BatchBytes(Arc::from(body))),
        KIND_MEMBERSHIP => EntryPayload::Membership(decode_all(body)?),
        kind => return Err(format!("entry {} is of the unknown kind {kind}", head.index).into()),
    };
    Ok(Entry { log_id: LogId::new_term_index(head.term, head.index), payload })
}
