//! What was acknowledged and is damaged or missing is never passed over in silence.

use std::path::Path;

use openraft::storage::RaftLogStorage;

use super::{append, batch, blank, blanks, ends, log_id, open, try_open};
use crate::OpenError;
use crate::store::recovery::open_sled;
use crate::types::Vote;

async fn filled(dir: &Path) {
    let mut store = open(dir);
    append(&mut store, blanks(1, 0..3)).await;
    append(&mut store, vec![batch(1, 3, &[9; 100_000]), blank(2, 4)]).await;
    store.save_vote(&Vote::new(2, 1)).await.unwrap();
    store.purge(log_id(1, 1)).await.unwrap();
}

/// Fills a log, changes it below the store's feet, and says why it cannot be opened then.
async fn check(change: impl FnOnce(&sled::Tree, &sled::Tree)) -> String {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    {
        let db = open_sled(dir.path()).unwrap();
        change(&db.open_tree("log-0000000000000000").unwrap(), &db.open_tree("facts").unwrap());
        db.flush().unwrap();
    }
    match try_open(dir.path()) {
        Err(OpenError::Damaged { file, why }) => {
            assert_eq!(file, dir.path().join("db"));
            why
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opened"),
    }
}

fn flip(tree: &sled::Tree, key: &[u8], byte: usize) {
    let mut value = tree.get(key).unwrap().unwrap().to_vec();
    value[byte] ^= 0x10;
    tree.insert(key, value).unwrap();
}

#[tokio::test]
async fn an_undamaged_log_opens() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    assert_eq!(ends(&mut open(dir.path())).await, (Some(log_id(1, 1)), Some(log_id(2, 4))));
}

#[tokio::test]
async fn a_flipped_bit_in_any_byte_of_an_entry_is_damage() {
    // The version's too: the checksum tells it from that of a newer one.
    for byte in 0..26 {
        check(|log, _| flip(log, &4_u64.to_be_bytes(), byte)).await;
    }
    let why = check(|log, _| flip(log, &3_u64.to_be_bytes(), 5_000)).await;
    assert!(why.contains("checksum"), "{why}");
}

#[tokio::test]
async fn a_missing_entry_is_damage() {
    let why = check(|log, _| drop(log.remove(2_u64.to_be_bytes()).unwrap())).await;
    assert!(why.contains("entry 2 is missing"), "{why}");
}

#[tokio::test]
async fn a_missing_part_of_an_entry_is_damage() {
    let second = [&3_u64.to_be_bytes()[..], &[0, 1]].concat();
    let why = check(|log, _| drop(log.remove(&second).unwrap())).await;
    assert!(why.contains("entry 3 lacks a part"), "{why}");
    let why = check(|log, _| drop(log.remove(3_u64.to_be_bytes()).unwrap())).await;
    assert!(why.contains("entry 3 lacks a part"), "{why}");
}

#[tokio::test]
async fn an_entry_under_the_key_of_another_is_damage() {
    let why = check(|log, _| {
        let value = log.get(4_u64.to_be_bytes()).unwrap().unwrap();
        log.insert(5_u64.to_be_bytes(), value).unwrap();
    })
    .await;
    assert!(why.contains("under the key of another"), "{why}");
}

#[tokio::test]
async fn a_damaged_vote_is_damage() {
    let why = check(|_, facts| flip(facts, b"vote", 6)).await;
    assert!(why.starts_with("vote:"), "{why}");
}

#[tokio::test]
async fn a_missing_vote_is_damage() {
    let why = check(|_, facts| drop(facts.remove("vote").unwrap().unwrap())).await;
    assert_eq!(why, "the vote is not the one that was saved");
}

#[tokio::test]
async fn missing_entries_at_the_end_are_damage() {
    let why = check(|log, _| drop(log.remove(4_u64.to_be_bytes()).unwrap().unwrap())).await;
    assert!(why.contains("and not from"), "{why}");
}

#[tokio::test]
async fn a_log_that_does_not_begin_where_it_should_is_damage() {
    let why = check(|log, facts| {
        facts.remove("purged").unwrap().unwrap();
        log.remove(0_u64.to_be_bytes()).unwrap();
    })
    .await;
    assert!(why.contains("entry 0 is missing"), "{why}");
}

/// Fills a log, puts `bytes` into one of its trees, and says why it cannot be opened then.
async fn check_newer(tree: &str, key: &[u8], bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    {
        let db = open_sled(dir.path()).unwrap();
        db.open_tree(tree).unwrap().insert(key, bytes).unwrap();
        db.flush().unwrap();
    }
    let refused = try_open(dir.path()).err().unwrap();
    assert!(matches!(&refused, OpenError::Newer { file, .. } if *file == dir.path().join("db")), "{refused}");
    let said = refused.to_string();
    assert!(said.contains("of version 3, and this build knows version 1"), "{said}");
}

#[tokio::test]
async fn values_of_a_newer_version_are_named_so_whatever_their_layout() {
    for bytes in [&[3][..], &[3, 9, 9], &[3; 60]] {
        check_newer("log-0000000000000000", &4_u64.to_be_bytes(), bytes).await;
        check_newer("facts", b"vote", bytes).await;
        check_newer("facts", b"checkpoint", bytes).await;
    }
}

#[tokio::test]
async fn what_was_purged_is_not_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    {
        let db = open_sled(dir.path()).unwrap();
        flip(&db.open_tree("log-0000000000000000").unwrap(), &1_u64.to_be_bytes(), 3);
        db.flush().unwrap();
    }
    assert_eq!(ends(&mut open(dir.path())).await, (Some(log_id(1, 1)), Some(log_id(2, 4))));
}

#[tokio::test]
async fn a_half_made_snapshot_of_sled_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    let leftover = dir.path().join("snap.0000000000001234.generating");
    std::fs::write(&leftover, "half").unwrap();
    assert_eq!(ends(&mut open(dir.path())).await, (Some(log_id(1, 1)), Some(log_id(2, 4))));
    assert!(!leftover.exists());
}
