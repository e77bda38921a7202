//! How a segment's bytes lie. Numbers are little-endian; every CRC-32 begins with the journal's id, which nobody
//! outside knows, so that no payload can look like a group.
//!
//! Page 0 holds the header (magic 8, version 1, zeros 3, CRC 4, id 8, generation 8, first sequence 8, filled 8) and, in
//! a sector of its own, the mark (magic 4, CRC 4, generation 8, durable 8, filled 8); the rest of it is zero. Groups
//! follow, each beginning at a multiple of 8: magic 4, CRC 4, length of the body 4, version 1, zeros 3, generation 8,
//! sequence 8, filled 8, body, zeros up to a multiple of 8. `filled` is the last sequence that sled had synced by then.

use super::super::seal::{Seal, Why, newer};

/// Writes begin and end at multiples of this, so that none has to read a page first.
pub(in crate::store) const PAGE: usize = 4_096;
/// Bytes of a group before its body.
pub(super) const GROUP_HEAD_BYTES: usize = 40;

const VERSION: u8 = 1;
const HEADER_MAGIC: [u8; 8] = *b"LOCKJRNL";
const HEADER_BYTES: usize = 48;
const HEADER_SEAL: Seal = Seal { version: VERSION, version_at: 8, crc_at: 12 };
const MARK_MAGIC: [u8; 4] = *b"MARK";
const MARK_AT: usize = 512;
const MARK_BYTES: usize = 32;
const GROUP_MAGIC: [u8; 4] = *b"GRUP";
const ALIGNMENT: usize = 8;

/// Whose a segment is, and which of its uses this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The journal's.
    pub(super) id: u64,
    /// Rises by one with each use of any segment.
    pub(super) generation: u64,
    /// The sequence of its first group.
    pub(super) first: u64,
    pub(super) filled: u64,
}

/// How far the journal is known to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Of the segment that it stands in.
    pub(super) generation: u64,
    /// The last sequence that was synced.
    pub(super) durable: u64,
    pub(super) filled: u64,
}

/// What one write made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group<'a> {
    pub(super) generation: u64,
    /// Rises by one with each group.
    pub(super) sequence: u64,
    pub(super) filled: u64,
    pub(super) body: &'a [u8],
}

/// The first page of a segment.
pub(super) fn first_page(header: Header, mark: Option<Mark>) -> Vec<u8> {
    let mut page = Vec::with_capacity(PAGE);
    page.extend(HEADER_MAGIC);
    page.extend([0; 8]);
    for number in [header.id, header.generation, header.first, header.filled] {
        page.extend(number.to_le_bytes());
    }
    HEADER_SEAL.put(&mut page);
    page.resize(MARK_AT, 0);
    if let Some(mark) = mark {
        page.extend(MARK_MAGIC);
        page.extend([0; 4]);
        for number in [mark.generation, mark.durable, mark.filled] {
            page.extend(number.to_le_bytes());
        }
        let crc = crc(header.id, &page[MARK_AT + 8..]);
        page[MARK_AT + 4..MARK_AT + 8].copy_from_slice(&crc);
    }
    page.resize(PAGE, 0);
    page
}

/// The header and the mark of a segment; none if it was never used.
pub(super) fn parse_first_page(page: &[u8]) -> Result<Option<(Header, Option<Mark>)>, Why> {
    let header = &page[..HEADER_BYTES];
    if header.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    if header[..8] != HEADER_MAGIC {
        return Err("its header is damaged".into());
    }
    HEADER_SEAL.check(header).map_err(|why| why.map(|why| format!("its header: {why}")))?;
    let header =
        Header { id: long(page, 16), generation: long(page, 24), first: long(page, 32), filled: long(page, 40) };
    Ok(Some((header, parse_mark(header, &page[MARK_AT..MARK_AT + MARK_BYTES])?)))
}

/// A mark of an earlier use of the segment is none.
fn parse_mark(header: Header, bytes: &[u8]) -> Result<Option<Mark>, Why> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    if bytes[..4] != MARK_MAGIC || bytes[4..8] != crc(header.id, &bytes[8..]) {
        return Err("its mark is damaged".into());
    }
    let mark = Mark { generation: long(bytes, 8), durable: long(bytes, 16), filled: long(bytes, 24) };
    Ok((mark.generation == header.generation).then_some(mark))
}

/// Adds a group to bytes that end where it may begin.
pub(super) fn push_group(bytes: &mut Vec<u8>, id: u64, group: Group<'_>) {
    let start = bytes.len();
    bytes.extend(GROUP_MAGIC);
    bytes.extend([0; 4]);
    bytes.extend(u32::try_from(group.body.len()).expect("a body fits in a segment").to_le_bytes());
    bytes.extend([VERSION, 0, 0, 0]);
    for number in [group.generation, group.sequence, group.filled] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend_from_slice(group.body);
    bytes.resize(start + group_bytes(group.body.len()), 0);
    let crc = crc(id, &bytes[start + 8..]);
    bytes[start + 4..start + 8].copy_from_slice(&crc);
}

/// Bytes of a group whose body has this length.
pub(super) fn group_bytes(body: usize) -> usize {
    (GROUP_HEAD_BYTES + body).next_multiple_of(ALIGNMENT)
}

/// The longest body of a group in so many bytes.
pub(super) fn body_max(room: usize) -> usize {
    (room - room % ALIGNMENT).saturating_sub(GROUP_HEAD_BYTES)
}

/// The group at the beginning of these bytes, if a whole one of this generation is there. What is not whole may be
/// torn, whatever its version says: a version with another layout tells by the segment's header.
pub(super) fn group_at(bytes: &[u8], header: Header) -> Option<Result<Group<'_>, Why>> {
    if bytes.len() < GROUP_HEAD_BYTES || bytes[..4] != GROUP_MAGIC || long(bytes, 16) != header.generation {
        return None;
    }
    let length = usize::try_from(short(bytes, 8)).ok()?;
    let whole = bytes.get(..group_bytes(length))?;
    if whole[4..8] != crc(header.id, &whole[8..]) {
        return None;
    }
    if whole[12] != VERSION {
        return Some(Err(Why::Newer(newer(whole[12].into(), VERSION.into()))));
    }
    let body = &whole[GROUP_HEAD_BYTES..GROUP_HEAD_BYTES + length];
    Some(Ok(Group { generation: long(bytes, 16), sequence: long(bytes, 24), filled: long(bytes, 32), body }))
}

/// The sequences of the whole groups of this generation anywhere in these bytes.
pub(super) fn groups_within(bytes: &[u8], header: Header) -> impl Iterator<Item = u64> {
    let starts = (0..bytes.len()).step_by(ALIGNMENT);
    starts.filter_map(move |start| group_at(&bytes[start..], header)?.ok()).map(|group| group.sequence)
}

fn crc(id: u64, bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize().to_le_bytes()
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn short(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}
