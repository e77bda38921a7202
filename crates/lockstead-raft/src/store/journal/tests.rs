//! The bytes of a segment, which must stay readable: a change of them is a new version.

use std::sync::Arc;

use openraft::EntryPayload;

use super::format::{self, Group, Header, Mark};
use super::records::Reader;
use super::{PAGE, Records};
use crate::store::change::Change;
use crate::store::codec::encode_entry;
use crate::store::seal::Why;
use crate::types::{BatchBytes, Entry, LogId, Vote};

const ID: u64 = 0x0102_0304_0506_0708;
const HEADER: Header = Header { id: ID, generation: 2, first: 9, filled: 8 };

fn crc(bytes: &[u8]) -> [u8; 4] {
    crc32fast::hash(&[&ID.to_le_bytes()[..], bytes].concat()).to_le_bytes()
}

fn longs(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn header_and_mark_lie_in_these_bytes() {
    let mark = Mark { generation: 2, durable: 11, filled: 10 };
    let page = format::first_page(HEADER, Some(mark));
    let numbers = longs(&[ID, 2, 9, 8]);
    let header_crc = crc32fast::hash(&[&b"LOCKJRNL\x01\0\0\0"[..], &numbers].concat()).to_le_bytes();
    assert_eq!(page[..48], [&b"LOCKJRNL\x01\0\0\0"[..], &header_crc, &numbers].concat());
    let numbers = longs(&[2, 11, 10]);
    assert_eq!(page[512..544], [&b"MARK"[..], &crc(&numbers), &numbers].concat());
    assert!(page.len() == PAGE && page[48..512].iter().chain(&page[544..]).all(|byte| *byte == 0));
    assert_eq!(format::parse_first_page(&page), Ok(Some((HEADER, Some(mark)))));
}

#[test]
fn a_group_lies_in_these_bytes() {
    let group = Group { generation: 2, sequence: 9, filled: 8, body: b"records" };
    let mut bytes = Vec::new();
    format::push_group(&mut bytes, ID, group);
    let rest = [&7_u32.to_le_bytes()[..], b"\x01\0\0\0", &longs(&[2, 9, 8]), b"records\0"].concat();
    assert_eq!(bytes, [&b"GRUP"[..], &crc(&rest), &rest].concat());
    assert_eq!(format::group_at(&bytes, HEADER), Some(Ok(group)));
}

#[test]
fn a_group_of_another_generation_or_journal_is_none() {
    let mut bytes = Vec::new();
    format::push_group(&mut bytes, ID, Group { generation: 2, sequence: 9, filled: 8, body: b"records" });
    assert_eq!(format::group_at(&bytes, Header { generation: 3, ..HEADER }), None);
    assert_eq!(format::group_at(&bytes, Header { id: ID + 1, ..HEADER }), None);
    assert_eq!(format::groups_within(&[&[0; 16][..], &bytes].concat(), HEADER).collect::<Vec<_>>(), [9]);
}

#[test]
fn a_group_of_a_newer_version_is_refused_by_its_number() {
    let mut bytes = Vec::new();
    format::push_group(&mut bytes, ID, Group { generation: 2, sequence: 9, filled: 8, body: b"records" });
    bytes[12] = 2;
    let sum = crc(&bytes[8..]);
    bytes[4..8].copy_from_slice(&sum);
    let why = "it is of version 2, and this build knows version 1 only: a newer version of Lockstead wrote it";
    assert_eq!(format::group_at(&bytes, HEADER), Some(Err(Why::Newer(why.to_owned()))));
}

#[test]
fn an_entry_is_one_record_per_part() {
    let payload = EntryPayload::Normal(BatchBytes(Arc::from(&b"facts"[..])));
    let entry = encode_entry(&Entry { log_id: LogId::new_term_index(3, 258), payload });
    let mut records = Records::default();
    let value = entry.parts[0].1.clone();
    records.push(&Change::Entry(entry));
    let (body, next) = records.slice(0, usize::MAX);
    assert_eq!((next, body), (1, &[&[1, 31, 0, 0, 0][..], &value].concat()[..]));
}

#[test]
fn records_are_read_back_in_order_and_lie_in_these_bytes() {
    let log_id = LogId::new_term_index(3, 258);
    let mut records = Records::default();
    records.push(&Change::Vote(Vote::new(4, 2)));
    records.push(&Change::Truncate { from: 259, last: Some(log_id) });
    records.push(&Change::Purge { upto: log_id, last: Some(log_id) });
    let (body, next) = records.slice(0, usize::MAX);
    assert_eq!(next, 3);
    // Kind, length; then version 1, a checksum, and what bincode makes of the rest.
    let record = |kind: u8, length: u8, fact: &[u8]| {
        let sum = crc32fast::hash(&[&[1], fact].concat()).to_le_bytes();
        [&[kind, length, 0, 0, 0, 1][..], &sum, fact].concat()
    };
    let vote = record(2, 9, &[4, 1, 2, 0]);
    let truncation = record(3, 13, &[251, 3, 1, 1, 3, 251, 2, 1]);
    let purge = record(4, 14, &[3, 251, 2, 1, 1, 3, 251, 2, 1]);
    assert_eq!(body, [vote, truncation, purge].concat());
    let mut changes = Vec::new();
    Reader::default().read(body, &mut changes).unwrap();
    assert!(matches!(changes[0], Change::Vote(vote) if vote == Vote::new(4, 2)));
    assert!(matches!(changes[1], Change::Truncate { from: 259, last } if last == Some(log_id)));
    assert!(matches!(changes[2], Change::Purge { upto, last } if upto == log_id && last == Some(log_id)));
    assert!(Reader::default().read(&body[..body.len() - 1], &mut changes).is_err());
}
