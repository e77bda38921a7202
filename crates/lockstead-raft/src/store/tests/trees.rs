//! Trees roll by entries and by bytes, however often the journal is put into them.

use std::path::Path;

use super::{batch, blank, blanks, log_id};
use crate::store::change::Change;
use crate::store::codec::encode_entry;
use crate::store::recovery::open_sled;
use crate::store::tail::Tail;
use crate::store::trees::Trees;
use crate::types::{Entry, LogId};

/// So large that 280 entries fill a tree.
const LARGE: usize = 14_990;

fn large(indexes: std::ops::Range<u64>) -> Vec<Entry> {
    let bytes = vec![5; LARGE];
    indexes.map(|index| batch(1, index, &bytes)).collect()
}

fn changes(entries: &[Entry]) -> Vec<Change> {
    entries.iter().map(|entry| Change::Entry(encode_entry(entry))).collect()
}

/// Puts these into the database, one group after the other, as a process of its own.
fn apply(dir: &Path, groups: Vec<Vec<Change>>) {
    let trees = Trees::open(open_sled(dir).unwrap()).unwrap();
    for group in groups {
        trees.apply(group).unwrap();
    }
}

/// The first indexes of all trees.
fn firsts(dir: &Path) -> Vec<u64> {
    let names = open_sled(dir).unwrap().tree_names();
    let first = |name: &sled::IVec| {
        let digits = std::str::from_utf8(name).unwrap().strip_prefix("log-")?.to_owned();
        Some(u64::from_str_radix(&digits, 16).unwrap())
    };
    let mut firsts: Vec<u64> = names.iter().filter_map(first).collect();
    firsts.sort_unstable();
    firsts
}

/// First and last log id behind `purged`; each entry lies there once, and in order.
fn ends(dir: &Path, purged: Option<LogId>) -> (u64, Option<LogId>) {
    let trees = Trees::open(open_sled(dir).unwrap()).unwrap();
    let (mut tail, mut entries) = (Tail::new(purged, None, None), 0);
    let load = |entry: Entry| {
        entries += 1;
        tail.load(entry)
    };
    trees.scan(purged.map_or(0, |purged| purged.index() + 1), load).unwrap();
    (entries, tail.last())
}

#[test]
fn a_tree_is_full_with_ten_thousand_entries_or_4_mib() {
    let dir = tempfile::tempdir().unwrap();
    apply(dir.path(), vec![changes(&large(0..300)), changes(&blanks(1, 300..10_285))]);
    assert_eq!(firsts(dir.path()), [0, 280, 10_280]);
    assert_eq!(ends(dir.path(), None), (10_285, Some(log_id(1, 10_284))));
}

#[test]
fn a_tree_is_known_to_be_nearly_full_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    apply(dir.path(), vec![changes(&large(0..279))]);
    apply(dir.path(), vec![changes(&large(279..281))]);
    apply(dir.path(), vec![changes(&large(281..282))]);
    assert_eq!(firsts(dir.path()), [0, 280]);
    assert_eq!(ends(dir.path(), None), (282, Some(log_id(1, 281))));
}

#[test]
fn an_entry_that_is_written_again_stays_in_its_tree() {
    // What a crash leaves, what the journal brings back then, and where it lies in the end.
    for (left, again, expected) in [
        (0..200, 100..400, vec![0, 200]),
        (0..280, 100..300, vec![0, 280]),
        (0..300, 100..310, vec![0, 280]),
        (0..10, 0..300, vec![0, 270]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        apply(dir.path(), vec![changes(&large(left.clone()))]);
        apply(dir.path(), vec![changes(&large(again.clone()))]);
        assert_eq!(firsts(dir.path()), expected, "{left:?} {again:?}");
        assert_eq!(ends(dir.path(), None), (again.end, Some(log_id(1, again.end - 1))), "{left:?} {again:?}");
    }
}

#[test]
fn a_tree_that_was_cut_has_room_again_up_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let cut = Change::Truncate { from: 100, last: Some(log_id(1, 99)) };
    apply(dir.path(), vec![changes(&large(0..300)), vec![cut], changes(&large(100..250))]);
    apply(dir.path(), vec![changes(&large(250..570))]);
    assert_eq!(firsts(dir.path()), [0, 280, 560]);
    assert_eq!(ends(dir.path(), None), (570, Some(log_id(1, 569))));
    let cut = Change::Truncate { from: 10, last: Some(log_id(1, 9)) };
    apply(dir.path(), vec![vec![cut], changes(&blanks(1, 10..50)), changes(&large(50..350))]);
    assert_eq!(firsts(dir.path()), [0, 280, 560]);
    assert_eq!(ends(dir.path(), None), (350, Some(log_id(1, 349))));
}

#[test]
fn whole_trees_below_the_purged_index_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    apply(dir.path(), vec![changes(&large(0..600))]);
    for (purged, expected) in [(278, vec![0, 280, 560]), (279, vec![280, 560]), (599, vec![560]), (10_559, vec![])] {
        Trees::open(open_sled(dir.path()).unwrap()).unwrap().drop_purged(purged).unwrap();
        assert_eq!(firsts(dir.path()), expected, "purged to {purged}");
    }
}

#[test]
fn trees_that_only_entries_rolled_are_read_and_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = open_sled(dir.path()).unwrap();
        for (name, index) in [("log-0000000000000000", 9), ("log-0000000000004e20", 25_001)] {
            for (key, value) in encode_entry(&blank(1, index)).parts {
                db.open_tree(name).unwrap().insert(key, value).unwrap();
            }
        }
    }
    let purged = Some(log_id(1, 25_000));
    apply(dir.path(), vec![changes(&blanks(1, 25_002..30_002))]);
    assert_eq!(firsts(dir.path()), [0, 20_000, 30_000]);
    assert_eq!(ends(dir.path(), purged), (5_001, Some(log_id(1, 30_001))));
    Trees::open(open_sled(dir.path()).unwrap()).unwrap().drop_purged(25_000).unwrap();
    assert_eq!(firsts(dir.path()), [20_000, 30_000]);
}
