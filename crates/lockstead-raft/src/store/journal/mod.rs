//! The write-ahead journal in front of sled: what makes entries, truncations, purges and votes durable, with one write
//! and one sync for all that is queued.
//!
//! `journal/<n>.seg` are segments of one size, filled with zeros when made and used again and again: a write into
//! blocks that were written before changes no metadata, so its sync is one write to the device. sled is filled behind
//! the journal; a segment is used again once sled holds all of it, durably.
//!
//! Invariants:
//! 1. A group is written only after the one before it was synced. So whatever stands behind a group proves that it was
//!    durable, and only the last group of a journal may be torn.
//! 2. A segment is used again only when sled has synced every group in it. Its generation tells its groups from the
//!    older bytes behind them.
//! 3. The journal is ahead of sled, always: sled gets only what was synced here.
//! 4. A mark, written after a group's sync and apart from it, says how far the journal is durable. What is missing
//!    below it was acknowledged and is damage; what is torn above it was not. For the first group of a segment the
//!    segment before it gets a mark too: a first page that is lost takes header and mark with it.
//!
//! What a reader can tell: every damage to a group that another follows, that a mark or sled's checkpoint covers, or
//! that lies in an earlier segment. A last group that the mark does not cover yet looks the same whether it was torn
//! before its sync or damaged after it. The mark follows each group at once, and is synced with the next group or after
//! [`super::writer::QUIET`]; a killed process loses none, a power cut only that of the last group.

mod append;
mod files;
mod format;
mod records;
mod scan;
#[cfg(test)]
mod tests;

pub(super) use append::Journal;
pub(super) use files::{Medium, SegmentFiles, Segments};
#[cfg(test)]
pub(super) use format::PAGE;
pub(super) use records::Records;
pub(super) use scan::{Found, scan};

use super::seal::Why;

/// How large a journal is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of a segment, a multiple of [`format::PAGE`].
    pub(super) segment_bytes: usize,
    /// Segments made at the start.
    pub(super) segments_min: usize,
    /// Segments made when sled lags. With all of them in use, the writer waits for sled.
    pub(super) segments_max: usize,
}

impl Layout {
    /// 16 MiB, 32 MiB when sled lags: no more than that is ever ahead of sled, on disk or in memory.
    pub(super) const STANDARD: Self = Self { segment_bytes: 8 << 20, segments_min: 2, segments_max: 4 };

    /// The most bytes that one entry may take.
    pub(super) fn entry_bytes_max(self) -> usize {
        self.segment_bytes / 2
    }
}

/// The end of a journal, where the next group goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The segment.
    slot: usize,
    header: format::Header,
    /// Where the bytes of `pending` lie in the segment; a multiple of [`format::PAGE`].
    base: usize,
    /// What the page that the next group begins in holds already.
    pending: Vec<u8>,
    /// The segment before, until its mark says that this one has a group.
    before: Option<(usize, format::Header)>,
}

/// Why a journal cannot be read.
#[derive(Debug)]
pub(super) enum ScanError {
    /// A segment, or something else in the journal's directory, cannot be read.
    Unreadable { file: std::path::PathBuf, why: Why },
    /// The journal is whole, but sled is behind what it had synced.
    SledBehind(String),
    /// The system refuses.
    Io(std::path::PathBuf, std::io::Error),
}
