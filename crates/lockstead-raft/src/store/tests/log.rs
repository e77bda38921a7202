//! The log survives a restart as it was, whatever was done to it before.

use openraft::storage::{RaftLogReader, RaftLogStorage};

use super::{append, batch, blank, blanks, ends, log_id, open, open_with, read};
use crate::store::change::{Checkpoint, Witness};
use crate::store::codec::{encode_entry, encode_fact};
use crate::store::disk_bytes;
use crate::store::journal::Layout;
use crate::store::recovery::open_sled;
use crate::store::tail::Tail;
use crate::types::Vote;

#[tokio::test]
async fn appended_entries_and_the_vote_are_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let entries = vec![blank(0, 0), batch(1, 1, b"facts"), batch(2, 2, b""), blank(2, 3)];
    append(&mut store, entries.clone()).await;
    store.save_vote(&Vote::new(3, 7)).await.unwrap();
    let stats = store.tail_stats();
    drop(store);

    let mut store = open(dir.path());
    assert_eq!(read(&mut store, 0..10).await, entries);
    assert_eq!(store.read_vote().await.unwrap(), Some(Vote::new(3, 7)));
    assert_eq!(ends(&mut store).await, (None, Some(log_id(2, 3))));
    assert_eq!(store.tail_stats(), stats);
}

#[test]
fn an_entry_lies_in_these_bytes() {
    let parts = encode_entry(&batch(3, 258, b"facts")).parts;
    let key = vec![0, 0, 0, 0, 0, 0, 1, 2];
    let mut value = vec![1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let crc = crc32fast::hash(&[&value[..], b"facts"].concat());
    value.extend(crc.to_le_bytes());
    value.extend(b"facts");
    assert_eq!(parts, [(key, value)]);
}

#[test]
fn facts_lie_in_these_bytes() {
    let check = |encoded: Vec<u8>, body: &[u8]| {
        let sum = crc32fast::hash(&[&[1], body].concat()).to_le_bytes();
        assert_eq!(encoded, [&[1][..], &sum, body].concat());
    };
    let vote = Vote::new_committed(4, 2);
    check(encode_fact(&log_id(3, 258)), &[3, 251, 2, 1]);
    check(encode_fact(&vote), &[4, 1, 2, 1]);
    let witness = Witness { vote: Some(vote), purged: None, last: Some(log_id(3, 258)) };
    let checkpoint = Checkpoint { journal: 1 << 40, segments: 2, filled: 300, witness };
    let journal = [253, 0, 0, 0, 0, 0, 1, 0, 0];
    check(encode_fact(&checkpoint), &[&journal[..], &[2, 251, 44, 1, 1, 4, 1, 2, 1, 0, 1, 3, 251, 2, 1]].concat());
}

#[test]
fn entries_stay_in_memory_until_sled_has_them() {
    let mut tail = Tail::new(None, None, None);
    let first = tail.append(&blanks(1, 0..30_000)).unwrap();
    let second = tail.append(&blanks(1, 30_000..60_000)).unwrap();
    let cold = |tail: &Tail| tail.plan(0, u64::MAX, u64::MAX).cold;
    assert_eq!(cold(&tail), 0..0);
    tail.written(first);
    assert_eq!(cold(&tail), 0..30_000);
    tail.written(second);
    assert_eq!(cold(&tail), 0..40_000);
}

#[tokio::test]
async fn an_entry_is_readable_when_append_returns() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    for index in 0..200 {
        store.append([blank(1, index)], openraft::storage::IOFlushed::noop()).await.unwrap();
        assert_eq!(read(&mut store, index..index + 1).await, [blank(1, index)]);
    }
}

#[tokio::test]
async fn a_truncated_end_is_gone_after_a_restart_and_another_may_follow() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    append(&mut store, blanks(1, 0..10)).await;
    store.truncate_after(Some(log_id(1, 4))).await.unwrap();
    assert_eq!(ends(&mut store).await, (None, Some(log_id(1, 4))));
    append(&mut store, blanks(2, 5..7)).await;
    drop(store);

    let mut store = open(dir.path());
    let expected = [blanks(1, 0..5), blanks(2, 5..7)].concat();
    assert_eq!(read(&mut store, 0..100).await, expected);
    assert_eq!(store.tail_stats().0, 7);
}

#[tokio::test]
async fn what_was_purged_stays_purged_even_beyond_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    append(&mut store, blanks(1, 0..10)).await;
    store.purge(log_id(1, 3)).await.unwrap();
    drop(store);

    let mut store = open(dir.path());
    assert_eq!(read(&mut store, 0..100).await, blanks(1, 4..10));
    store.purge(log_id(2, 20)).await.unwrap();
    append(&mut store, vec![blank(2, 21)]).await;
    drop(store);

    let mut store = open(dir.path());
    assert_eq!(ends(&mut store).await, (Some(log_id(2, 20)), Some(log_id(2, 21))));
    assert_eq!(read(&mut store, 0..100).await, [blank(2, 21)]);
    assert_eq!(store.log_id_at(20).unwrap(), Some(log_id(2, 20)));
    assert_eq!(store.log_id_at(19).unwrap(), None);
}

#[tokio::test]
async fn a_log_longer_than_memory_keeps_is_read_from_disk_and_purged_by_whole_trees() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    append(&mut store, blanks(1, 0..35_000)).await;
    append(&mut store, vec![blank(2, 35_000)]).await;
    assert_eq!(read(&mut store, 9_998..10_002).await, blanks(1, 9_998..10_002));
    assert_eq!(read(&mut store, 0..35_000).await.len(), 35_000);
    assert_eq!(store.log_id_at(5).unwrap(), Some(log_id(1, 5)));
    store.purge(log_id(1, 20_500)).await.unwrap();
    drop(store);

    assert_eq!(tree_names(dir.path()), ["log-0000000000004e20", "log-0000000000007530"]);
    let mut store = open(dir.path());
    assert_eq!(store.tail_stats().0, 14_500);
    assert_eq!(read(&mut store, 0..20_503).await, blanks(1, 20_501..20_503));
    store.truncate_after(Some(log_id(1, 20_501))).await.unwrap();
    drop(store);
    assert_eq!(ends(&mut open(dir.path())).await, (Some(log_id(1, 20_500)), Some(log_id(1, 20_501))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_large_entries_takes_no_more_disk_however_many_were_purged() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open_with(dir.path(), Layout::STANDARD).unwrap();
    for round in 1..=30 {
        let indexes = (round - 1) * 200..round * 200;
        append(&mut store, indexes.map(|index| batch(1, index, &vec![index.to_le_bytes()[0]; 60_000])).collect()).await;
        store.purge(log_id(1, round * 200 - 2)).await.unwrap();
        if round % 10 == 0 {
            drop(store);
            store = open_with(dir.path(), Layout::STANDARD).unwrap();
        }
    }
    let disk_mib = disk_bytes(dir.path()).unwrap() >> 20;
    assert!(disk_mib < 220, "{disk_mib} MiB for two entries, after 343 MiB of them");
    drop(store);
    assert!(tree_names(dir.path()).len() <= 2, "{:?}", tree_names(dir.path()));
}

#[tokio::test]
async fn large_entries_are_kept_in_parts_and_never_in_blob_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let exact = vec![7; crate::store::codec::PART_BYTES_MAX];
    let mut entries = vec![blank(1, 0), batch(1, 1, &bytes), batch(1, 2, &exact), blank(1, 3)];
    entries.extend((4..104).map(|index| batch(1, index, &bytes[..65_000])));
    append(&mut store, entries.clone()).await;
    store.truncate_after(Some(log_id(1, 102))).await.unwrap();
    entries.pop();
    drop(store);

    assert_eq!(read(&mut open(dir.path()), 0..200).await, entries);
    assert_eq!(std::fs::read_dir(dir.path().join("blobs")).unwrap().count(), 0);
}

#[tokio::test]
async fn replication_reads_about_a_mebibyte_at_a_time_and_never_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    append(&mut store, (0..40).map(|index| batch(1, index, &vec![0; 60_000])).collect()).await;
    assert_eq!(store.limited_get_log_entries(0, 40).await.unwrap().len(), 18);
    assert_eq!(store.limited_get_log_entries(39, 40).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_committed_log_id_is_given_back_only_if_the_log_holds_exactly_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    append(&mut store, blanks(2, 0..5)).await;
    for (saved, expected) in [
        (Some(log_id(2, 3)), Some(log_id(2, 3))),
        (Some(log_id(1, 3)), None),
        (Some(log_id(3, 3)), None),
        (Some(log_id(2, 5)), None),
        (Some(log_id(2, 4)), Some(log_id(2, 4))),
    ] {
        store.save_committed(saved).await.unwrap();
        assert_eq!(store.read_committed().await.unwrap(), expected, "{saved:?}");
        drop(store);
        store = open(dir.path());
        assert_eq!(store.read_committed().await.unwrap(), expected, "{saved:?} after a restart");
    }
    store.purge(log_id(2, 4)).await.unwrap();
    assert_eq!(store.read_committed().await.unwrap(), Some(log_id(2, 4)));
    store.purge(log_id(2, 6)).await.unwrap();
    assert_eq!(store.read_committed().await.unwrap(), None);
}

#[tokio::test]
async fn an_append_with_a_hole_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    append(&mut store, blanks(1, 0..3)).await;
    for entries in [vec![blank(1, 4)], vec![blank(1, 2)], vec![blank(1, 3), blank(1, 5)]] {
        assert!(store.append(entries, openraft::storage::IOFlushed::noop()).await.is_err());
    }
    drop(store);
    assert_eq!(read(&mut open(dir.path()), 0..9).await, blanks(1, 0..3));
}

fn tree_names(dir: &std::path::Path) -> Vec<String> {
    let db = open_sled(dir).unwrap();
    let mut names: Vec<_> = db.tree_names().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.retain(|name| name.starts_with("log-"));
    names.sort();
    names
}
