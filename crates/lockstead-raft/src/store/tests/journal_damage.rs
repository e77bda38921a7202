//! Damage to what the journal acknowledged is told from a torn end, by name; and sled and the journal watch each other.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use openraft::storage::RaftLogStorageExt;

use super::journal::{Lagging, TornSegments, copy};
use super::{SMALL, append, batch, blanks, open, read, try_open};
use crate::OpenError;
use crate::store::disk::Disk;
use crate::store::journal::{Medium, PAGE};
use crate::store::{LogStore, StoreMetrics};

/// What the first segment holds after [`lagging`] or [`closed`], up to here.
const GROUPS: usize = 20;

fn entry_of(index: u64) -> crate::types::Entry {
    batch(1, index, &[index.to_le_bytes()[0] + 1; 900])
}

/// The directory of a killed node whose sled had nothing of all that was acknowledged.
async fn killed(dir: &Path) -> PathBuf {
    let (live, killed) = (dir.join("live"), dir.join("killed"));
    let mut lagging = Lagging::open(&live);
    for index in 0..GROUPS as u64 {
        lagging.append(vec![entry_of(index)]).await;
    }
    copy(&live, &killed);
    killed
}

/// The directory of a node that was stopped: sled has everything.
async fn stopped(dir: &Path) -> PathBuf {
    let mut store = open(dir);
    for index in 0..GROUPS as u64 {
        append(&mut store, vec![entry_of(index)]).await;
    }
    dir.to_owned()
}

fn segment(dir: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(dir.join("journal/1.seg")).unwrap()
}

/// Where the groups end: behind the last byte that is not zero.
fn end_of_groups(dir: &Path) -> usize {
    let bytes = std::fs::read(dir.join("journal/1.seg")).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

fn flip(dir: &Path, at: usize) {
    let (file, mut byte) = (segment(dir), [0]);
    file.read_exact_at(&mut byte, at as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at as u64).unwrap();
}

/// Damages the directory of a killed node and that of a stopped one; neither must open.
async fn check(name: &str, damage: impl Fn(&Path)) {
    for is_killed in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let of = if is_killed { killed(dir.path()).await } else { stopped(dir.path()).await };
        damage(&of);
        assert_refused(&of, name);
    }
}

fn assert_refused(dir: &Path, name: &str) {
    match try_open(dir) {
        Err(OpenError::Damaged { file, why }) => {
            assert!(file.ends_with(name), "{} is blamed, not {name}: {why}", file.display());
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opened"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_damage_both_directories_open() {
    for is_killed in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let of = if is_killed { killed(dir.path()).await } else { stopped(dir.path()).await };
        let expected: Vec<_> = (0..GROUPS as u64).map(entry_of).collect();
        assert_eq!(read(&mut open(&of), 0..99).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_4_kib_zeroed_after_acknowledgement_are_damage() {
    check("1.seg", |dir| {
        let end = end_of_groups(dir);
        segment(dir).write_all_at(&[0; 4_096], (end - 4_096) as u64).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zeroed_end_of_any_length_is_damage() {
    for bytes in [1, 64, 900, 10_000] {
        check("1.seg", |dir| {
            let end = end_of_groups(dir);
            segment(dir).write_all_at(&vec![0; bytes], (end - bytes) as u64).unwrap();
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_any_group_is_damage() {
    for part in 0..5 {
        check("1.seg", |dir| {
            let end = end_of_groups(dir);
            flip(dir, PAGE + (end - 1 - PAGE) * part / 4);
        })
        .await;
    }
}

fn remove_mark(dir: &Path) {
    segment(dir).write_all_at(&[0; 32], 512).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_group_with_another_behind_it_is_damage_without_a_mark_too() {
    check("1.seg", |dir| {
        remove_mark(dir);
        flip(dir, end_of_groups(dir) - 1_000);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_group_alone_without_its_mark_passes_for_torn_unless_sled_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let of = killed(dir.path()).await;
    remove_mark(&of);
    flip(&of, end_of_groups(&of) - 1);
    let expected: Vec<_> = (0..GROUPS as u64 - 1).map(entry_of).collect();
    assert_eq!(read(&mut open(&of), 0..99).await, expected);

    let dir = tempfile::tempdir().unwrap();
    let of = stopped(dir.path()).await;
    remove_mark(&of);
    flip(&of, end_of_groups(&of) - 1);
    assert_refused(&of, "1.seg");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_header_or_mark_is_damage() {
    for at in [0, 8, 13, 20, 28, 47, 512, 517, 530, 543] {
        check("1.seg", |dir| flip(dir, at)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_of_a_newer_version_is_named_so_whatever_its_layout() {
    let dir = tempfile::tempdir().unwrap();
    let of = stopped(dir.path()).await;
    segment(&of).write_all_at(&[2, 9, 9, 9, 9, 9, 9, 9], 8).unwrap();
    let refused = try_open(&of).err().unwrap();
    assert!(matches!(&refused, OpenError::Newer { file, .. } if file.ends_with("1.seg")), "{refused}");
    assert!(refused.to_string().contains("of version 2, and this build knows version 1"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zeroed_header_is_damage() {
    check("1.seg", |dir| segment(dir).write_all_at(&[0; PAGE], 0).unwrap()).await;
}

/// Ten of them fill a segment.
fn tenth_of_a_segment(index: u64) -> crate::types::Entry {
    batch(1, index, &vec![index.to_le_bytes()[0] + 1; 50_000])
}

/// The directory of a killed node whose second segment holds one group, which sled does not have.
async fn begun(dir: &Path) -> PathBuf {
    let (live, killed) = (dir.join("live"), dir.join("killed"));
    let mut lagging = Lagging::open(&live);
    for index in 0..11 {
        lagging.append(vec![tenth_of_a_segment(index)]).await;
    }
    copy(&live, &killed);
    killed
}

/// As of `begun`, after a power cut tore the first try of that group.
async fn begun_again(dir: &Path) -> PathBuf {
    let (live, killed) = (dir.join("live"), dir.join("killed"));
    let wrap = |disk, inner| {
        let torn = TornSegments { inner, writes_left: 10, bytes_kept: PAGE };
        (Box::new(disk) as Box<dyn Disk>, Box::new(torn) as Box<dyn Medium>)
    };
    let mut store = LogStore::open_on(&live, SMALL, StoreMetrics::new(), Box::new(|_| {}), wrap).unwrap();
    for index in 0..10 {
        append(&mut store, vec![tenth_of_a_segment(index)]).await;
    }
    store.blocking_append([tenth_of_a_segment(10)]).await.unwrap_err();
    drop(store);
    let mut lagging = Lagging::open(&live);
    lagging.append(vec![tenth_of_a_segment(10)]).await;
    copy(&live, &killed);
    killed
}

fn second_segment(dir: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(dir.join("journal/2.seg")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_with_one_group_opens_and_without_its_first_page_or_that_group_it_is_damage() {
    for is_second_try in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let of = if is_second_try { begun_again(dir.path()).await } else { begun(dir.path()).await };
        let trial = |name: &str, damage: &dyn Fn(&File)| {
            let trial = dir.path().join(name);
            copy(&of, &trial);
            damage(&second_segment(&trial));
            trial
        };
        let mut whole = open(&trial("whole", &|_| {}));
        assert_eq!(read(&mut whole, 0..99).await, (0..11).map(tenth_of_a_segment).collect::<Vec<_>>());
        let first_page = trial("first-page", &|file| file.write_all_at(&[0; PAGE], 0).unwrap());
        assert_refused(&first_page, "1.seg");
        let all = trial("all", &|file| file.write_all_at(&vec![0; SMALL.segment_bytes], 0).unwrap());
        assert_refused(&all, "1.seg");
        let mark_and_group = trial("mark-and-group", &|file| {
            file.write_all_at(&[0; 32], 512).unwrap();
            file.write_all_at(&[0; 100], 40_000).unwrap();
        });
        assert_refused(&mark_and_group, "2.seg");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_cut_short_is_damage() {
    for bytes in [1, 64, SMALL.segment_bytes] {
        check("1.seg", |dir| segment(dir).set_len((SMALL.segment_bytes - bytes) as u64).unwrap()).await;
    }
    check("2.seg", |dir| {
        let file = OpenOptions::new().write(true).open(dir.join("journal/2.seg")).unwrap();
        file.set_len(SMALL.segment_bytes as u64 - 64).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_segment_is_damage_used_or_not() {
    for name in ["1.seg", "2.seg"] {
        check(name, |dir| std::fs::remove_file(dir.join("journal").join(name)).unwrap()).await;
    }
    check("1.seg", |dir| std::fs::remove_dir_all(dir.join("journal")).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_database_beside_a_used_journal_is_damage() {
    check("db", |dir| {
        for item in std::fs::read_dir(dir).unwrap() {
            let path = item.unwrap().path();
            if path.is_file() {
                std::fs::remove_file(path).unwrap();
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_segment_of_another_journal_is_damage() {
    let other = tempfile::tempdir().unwrap();
    stopped(other.path()).await;
    check("1.seg", |dir| {
        std::fs::copy(other.path().join("journal/1.seg"), dir.join("journal/1.seg")).unwrap();
    })
    .await;
}

/// Replaces sled's files by those of an earlier stop, after `entries` more.
async fn check_older_sled(bytes: usize, entries: u64) {
    let dir = tempfile::tempdir().unwrap();
    let (of, older) = (dir.path().join("log"), dir.path().join("older"));
    let mut store = open(&of);
    append(&mut store, blanks(1, 0..5)).await;
    drop(store);
    copy(&of, &older);
    let mut store = open(&of);
    for index in 5..5 + entries {
        append(&mut store, vec![batch(1, index, &vec![1; bytes])]).await;
    }
    drop(store);
    std::fs::remove_dir_all(older.join("journal")).unwrap();
    for item in std::fs::read_dir(&of).unwrap() {
        let path = item.unwrap().path();
        if path.is_file() {
            std::fs::remove_file(path).unwrap();
        }
    }
    copy(&older, &of);
    assert_refused(&of, "db");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sled_that_lost_what_it_had_synced_is_damage() {
    check_older_sled(100, 3).await;
    // The journal has gone round meanwhile.
    check_older_sled(50_000, 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_journal_beside_a_newer_sled_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (of, older) = (dir.path().join("log"), dir.path().join("older"));
    let mut store = open(&of);
    append(&mut store, blanks(1, 0..5)).await;
    drop(store);
    copy(&of.join("journal"), &older);
    let mut store = open(&of);
    append(&mut store, blanks(1, 5..9)).await;
    drop(store);
    copy(&older, &of.join("journal"));
    assert_refused(&of, "1.seg");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_the_database_is_refused_or_harmless_and_never_loses_an_entry() {
    let dir = tempfile::tempdir().unwrap();
    let of = stopped(dir.path()).await;
    let expected: Vec<_> = (0..GROUPS as u64).map(entry_of).collect();
    let bytes = std::fs::metadata(of.join("db")).unwrap().len();
    let mut refused = 0;
    for part in 0..40 {
        let trial = dir.path().join(format!("trial-{part}"));
        copy(&of.join("journal"), &trial.join("journal"));
        for item in std::fs::read_dir(&of).unwrap() {
            let path = item.unwrap().path();
            if path.is_file() {
                std::fs::copy(&path, trial.join(path.file_name().unwrap())).unwrap();
            }
        }
        std::fs::create_dir_all(trial.join("blobs")).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(trial.join("db")).unwrap();
        let (at, mut byte) = (bytes.min(60_000) * part / 40, [0]);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        // sled panics over some damage; the process counts that as damage too.
        match std::panic::catch_unwind(|| try_open(&trial)) {
            Ok(Ok(mut store)) => assert_eq!(read(&mut store, 0..99).await, expected, "bit flipped at {at}"),
            Ok(Err(OpenError::Damaged { .. })) | Err(_) => refused += 1,
            Ok(Err(other)) => panic!("{other}"),
        }
    }
    assert!(refused > 0, "none of the flipped bits mattered");
}
