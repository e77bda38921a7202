//! A backup: what a cluster can be founded anew from.
//!
//! The file: magic (8), version (1), CRC-32 of all other bytes (4), cluster id (16), wall clock in milliseconds (8),
//! index and term of the log entry that the label names (8 each), `built_at` (8), then in bincode the residue and the
//! members. Numbers are little-endian.
//!
//! Invariant: what it holds of the table is a residue; no hold, token, owner or name of a lock has a place in it.

use lockstead_core::{ClusterId, NodeId, Residue, WallTime};
use serde::{Deserialize, Serialize};

const MAGIC: [u8; 8] = *b"LOCKSTED";
const VERSION: u8 = 1;
const CRC_AT: usize = 9;
const HEAD_BYTES: usize = 61;

/// What a node had to give when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The lineage it was taken from.
    pub cluster_id: ClusterId,
    /// When, on the wall clock of the node asked.
    pub taken_at: WallTime,
    /// Log index up to which nothing but the residue was in force.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
    /// The last log index that the residue knows of.
    pub built_at: u64,
    /// What outlives every hold.
    pub residue: Residue,
    /// Who was a member, for people to read.
    pub members: Vec<BackupMember>,
}

/// A member as a backup shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupMember {
    /// Its id.
    pub id: NodeId,
    /// Where clients reached it.
    pub api: String,
    /// Where peers reached it.
    pub peer: String,
    /// Whether it voted.
    pub is_voter: bool,
}

/// Bytes that are no backup for this build.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// They begin with something else.
    #[error("it is no backup of lockstead")]
    NoBackup,
    /// A newer version wrote it: use that.
    #[error("it is of version {0}, and this build knows version {VERSION} only: a newer version of Lockstead wrote it")]
    Version(u8),
    /// It was cut off or altered: take another one.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

impl Backup {
    /// The bytes of the file.
    ///
    /// # Panics
    /// Never: a backup holds only types that bincode encodes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &[VERSION], &[0; 4], &self.cluster_id.0.to_le_bytes()].concat();
        for number in [self.taken_at.0, self.index, self.term, self.built_at] {
            bytes.extend(number.to_le_bytes());
        }
        bincode::serde::encode_into_std_write((&self.residue, &self.members), &mut bytes, bincode::config::standard())
            .expect("a backup holds only types that bincode encodes, and a Vec takes all bytes");
        let crc = crc(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads what [`Backup::encode`] wrote.
    ///
    /// # Errors
    /// [`BackupError`] unless the bytes are a whole backup of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, BackupError> {
        let damaged = |why: &dyn std::fmt::Display| BackupError::Damaged(why.to_string());
        let beginning = &bytes[..bytes.len().min(MAGIC.len())];
        if beginning.is_empty() || !MAGIC.starts_with(beginning) {
            return Err(BackupError::NoBackup);
        }
        // Before all that another version may write otherwise.
        if let Some(version) = bytes.get(MAGIC.len()).filter(|version| **version > VERSION) {
            return Err(BackupError::Version(*version));
        }
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Err(damaged(&format_args!("it has only {} bytes", bytes.len())));
        };
        if head[MAGIC.len()] != VERSION || head[CRC_AT..CRC_AT + 4] != crc(bytes).to_le_bytes() {
            return Err(damaged(&"its checksum is wrong"));
        }
        let ((residue, members), used) =
            bincode::serde::decode_from_slice(rest, bincode::config::standard()).map_err(|why| damaged(&why))?;
        if used != rest.len() {
            return Err(damaged(&"something follows it"));
        }
        Ok(Self {
            cluster_id: ClusterId(number(&head[13..29])),
            taken_at: WallTime(short_number(&head[29..37])),
            index: short_number(&head[37..45]),
            term: short_number(&head[45..53]),
            built_at: short_number(&head[53..]),
            residue,
            members,
        })
    }

    /// Tells this backup from others: the checksum of its bytes.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        crc(&self.encode())
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn short_number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn crc(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..CRC_AT]);
    hasher.update(&bytes[CRC_AT + 4..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use lockstead_core::{Fence, LeaseTime};

    use super::*;

    fn backup() -> Backup {
        let residue = Residue {
            time: LeaseTime(1_000),
            last_fence: Fence(300),
            ttl_max_ms: 30_000,
            delay_max_ms: 7,
            no_grant_before: LeaseTime(5),
            retired: [4].into(),
        };
        let member = BackupMember { id: 1, api: "a:1".to_owned(), peer: "p:2".to_owned(), is_voter: true };
        Backup {
            cluster_id: ClusterId(0x0102),
            taken_at: WallTime(0x0304),
            index: 5,
            term: 6,
            built_at: 7,
            residue,
            members: vec![member],
        }
    }

    #[test]
    fn a_backup_lies_in_these_bytes() {
        let number = |low: &[u8]| [low, &vec![0; 8 - low.len()]].concat();
        let golden = [
            b"LOCKSTED".to_vec(),
            vec![1],
            backup().checksum().to_le_bytes().to_vec(),
            number(&[2, 1]),
            number(&[]),
            number(&[4, 3]),
            number(&[5]),
            number(&[6]),
            number(&[7]),
            vec![251, 232, 3, 251, 44, 1, 251, 48, 117, 7, 5, 1, 4],
            vec![1, 1, 3, b'a', b':', b'1', 3, b'p', b':', b'2', 1],
        ]
        .concat();
        assert_eq!(backup().checksum(), 277_566_461);
        assert_eq!(backup().encode(), golden);
        assert_eq!(Backup::decode(&golden), Ok(backup()));
    }

    #[test]
    fn a_backup_cut_off_anywhere_is_refused() {
        let bytes = backup().encode();
        for length in 1..bytes.len() {
            assert!(matches!(Backup::decode(&bytes[..length]), Err(BackupError::Damaged(_))), "{length} bytes");
        }
        assert_eq!(Backup::decode(&[]), Err(BackupError::NoBackup));
        assert!(matches!(Backup::decode(&[&bytes[..], &[0]].concat()), Err(BackupError::Damaged(_))));
    }

    #[test]
    fn a_backup_altered_in_any_bit_is_refused() {
        let bytes = backup().encode();
        for at in 0..bytes.len() * 8 {
            let mut altered = bytes.clone();
            altered[at / 8] ^= 1 << (at % 8);
            assert!(Backup::decode(&altered).is_err(), "bit {at}");
        }
    }

    #[test]
    fn a_backup_of_a_newer_version_says_so_whatever_else_it_holds() {
        let mut bytes = backup().encode();
        bytes[8] = 2;
        for length in [9, 20, bytes.len()] {
            assert_eq!(Backup::decode(&bytes[..length]), Err(BackupError::Version(2)), "{length} bytes");
        }
        let said = BackupError::Version(2).to_string();
        assert!(said.contains("version 2") && said.contains("knows version 1 only: a newer version"), "{said}");
    }

    #[test]
    fn version_0_was_never_written() {
        let mut bytes = backup().encode();
        bytes[8] = 0;
        let sum = crc(&bytes).to_le_bytes();
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&sum);
        assert!(matches!(Backup::decode(&bytes), Err(BackupError::Damaged(_))));
    }
}
