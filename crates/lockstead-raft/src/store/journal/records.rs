//! What a group holds: records, one after the other. A record is its kind (1), the length of its payload (4) and the
//! payload, which carries a version and a checksum of its own: a part of an entry or a fact, as they lie in sled.

use serde::{Deserialize, Serialize};

use super::super::change::Change;
use super::super::codec::{self, Assembler, EncodedEntry};
use super::super::seal::Why;
use crate::types::{LogId, Vote};

const HEAD_BYTES: usize = 5;
const PART: u8 = 1;
const VOTE: u8 = 2;
const TRUNCATION: u8 = 3;
const PURGE: u8 = 4;

/// The most bytes of one record.
pub(super) const RECORD_BYTES_MAX: usize = codec::PART_BYTES_MAX + 64;

#[derive(Serialize, Deserialize)]
struct Truncation {
    from: u64,
    last: Option<LogId>,
}

#[derive(Serialize, Deserialize)]
struct Purge {
    upto: LogId,
    last: Option<LogId>,
}

/// Records to be written together.
#[derive(Default)]
pub(in crate::store) struct Records {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Records {
    /// Adds what a change says.
    pub(in crate::store) fn push(&mut self, change: &Change) {
        match change {
            Change::Entry(entry) => self.push_entry(entry),
            Change::Vote(vote) => self.push_record(VOTE, &codec::encode_fact(vote)),
            Change::Truncate { from, last } => {
                self.push_record(TRUNCATION, &codec::encode_fact(&Truncation { from: *from, last: *last }));
            }
            Change::Purge { upto, last } => {
                self.push_record(PURGE, &codec::encode_fact(&Purge { upto: *upto, last: *last }));
            }
        }
    }

    pub(in crate::store) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(in crate::store) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push_entry(&mut self, entry: &EncodedEntry) {
        for (_, value) in &entry.parts {
            self.push_record(PART, value);
        }
    }

    fn push_record(&mut self, kind: u8, payload: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend(u32::try_from(payload.len()).expect("a record is small").to_le_bytes());
        self.bytes.extend_from_slice(payload);
        self.ends.push(self.bytes.len());
    }

    /// From the record at `from` on, as many as fit in `bytes_max`: their bytes, and the next record.
    pub(super) fn slice(&self, from: usize, bytes_max: usize) -> (&[u8], usize) {
        let start = if from == 0 { 0 } else { self.ends[from - 1] };
        let next = from + self.ends[from..].partition_point(|end| end - start <= bytes_max);
        let end = if next == 0 { 0 } else { self.ends[next - 1] };
        (&self.bytes[start..end], next)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}

/// Turns the groups of a journal, in order, into the changes that they hold.
#[derive(Default)]
pub(super) struct Reader {
    assembler: Assembler,
}

impl Reader {
    /// Adds the changes of the next group.
    pub(super) fn read(&mut self, mut body: &[u8], changes: &mut Vec<Change>) -> Result<(), Why> {
        while let Some((head, rest)) = body.split_first_chunk::<HEAD_BYTES>() {
            let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let Some((payload, rest)) = rest.split_at_checked(length) else {
                return Err("a record is longer than its group".into());
            };
            changes.extend(self.change(head[0], payload)?);
            body = rest;
        }
        if body.is_empty() { Ok(()) } else { Err("a group ends within a record".into()) }
    }

    /// An entry whose last parts are missing stands at the end, and was never acknowledged. Nobody reads past it: once
    /// the log is open, sled's checkpoint covers what is left of it.
    fn change(&mut self, kind: u8, payload: &[u8]) -> Result<Option<Change>, Why> {
        Ok(match kind {
            PART => self.assembler.push_part(payload)?.map(|entry| Change::Entry(codec::encode_entry(&entry))),
            VOTE => Some(Change::Vote(codec::decode_fact::<Vote>(payload)?)),
            TRUNCATION => {
                let Truncation { from, last } = codec::decode_fact(payload)?;
                Some(Change::Truncate { from, last })
            }
            PURGE => {
                let Purge { upto, last } = codec::decode_fact(payload)?;
                Some(Change::Purge { upto, last })
            }
            kind => return Err(format!("a record is of the unknown kind {kind}").into()),
        })
    }
}
